//! Connections that break, queues that are full, servers that stop.

mod support;

use axum::http::{Request, StatusCode};
use lily_engine::Engine;
use lily_server::{ServerConfig, ServerError};
use serde_json::json;
use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;
use support::{chat_with, endless_engine, post, send};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A server on loopback.
struct Server {
    address: SocketAddr,
    shutdown: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ServerError>>,
}

async fn start(engine: Engine) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback works");
    let address = listener.local_addr().expect("bound");
    let (shutdown, signal) = oneshot::channel();
    let signal = async {
        if signal.await.is_err() {
            pending::<()>().await;
        }
    };
    let task =
        tokio::spawn(lily_server::serve(listener, engine, ServerConfig::new("demo"), signal));
    Server { address, shutdown, task }
}

/// A connection on which a chat request was sent.
async fn ask(address: SocketAddr, fields: &serde_json::Value) -> TcpStream {
    let body = chat_with(fields).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.expect("loopback works");
    stream.write_all((head + &body).as_bytes()).await.expect("loopback works");
    stream
}

async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer).await.expect("loopback works");
        text.extend_from_slice(&buffer[..n]);
        let so_far = String::from_utf8_lossy(&text);
        if n == 0 || so_far.contains(end) {
            return so_far.into_owned();
        }
    }
}

/// Waits for a condition that another thread brings about.
async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

async fn check_cancelled(engine: &Engine, stream: TcpStream) {
    eventually("it runs", || engine.stats().n_generated_tokens > 0).await;
    drop(stream);
    eventually("it ends", || engine.stats().n_running == 0).await;
    let before = engine.stats().n_generated_tokens;
    assert_eq!(engine.stats().n_cancelled, 1);
    assert_eq!(engine.stats().n_generated_tokens, before);
}

#[tokio::test]
async fn a_client_that_leaves_a_stream_ends_its_request() {
    let engine = endless_engine(4, 4);
    let server = start(engine.clone()).await;
    let mut stream = ask(server.address, &json!({"stream": true})).await;
    read_until(&mut stream, "delta").await;
    check_cancelled(&engine, stream).await;
    assert!(!server.task.is_finished());
}

#[tokio::test]
async fn a_client_that_leaves_a_complete_request_ends_it() {
    let engine = endless_engine(4, 4);
    let server = start(engine.clone()).await;
    let stream = ask(server.address, &json!({})).await;
    check_cancelled(&engine, stream).await;
    assert!(!server.task.is_finished());
}

#[tokio::test]
async fn a_client_that_does_not_read_delays_nobody() {
    let engine = endless_engine(4, 4);
    let server = start(engine.clone()).await;
    let lazy = ask(server.address, &json!({"stream": true})).await;
    eventually("it runs", || engine.stats().n_generated_tokens > 0).await;
    let mut other = ask(server.address, &json!({"max_tokens": 50})).await;
    let answer = read_until(&mut other, "finish_reason").await;
    assert!(answer.contains(r#""finish_reason":"length""#), "{answer}");
    drop(lazy);
}

#[tokio::test]
async fn a_full_queue_answers_429() {
    let engine = endless_engine(1, 1);
    let router = lily_server::router(engine.clone(), ServerConfig::new("demo"));
    let server = start(engine.clone()).await;
    let running = ask(server.address, &json!({"stream": true})).await;
    eventually("one runs", || engine.stats().n_running == 1).await;
    let waiting = ask(server.address, &json!({"stream": true})).await;
    eventually("one waits", || engine.stats().n_queued == 1).await;
    for fields in [json!({}), json!({"stream": true}), json!({"n": 2})] {
        let body = chat_with(&fields).to_string();
        let reply = send(&router, post("/v1/chat/completions", body)).await;
        assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS, "{}", reply.text);
        assert_eq!(reply.json()["error"]["type"], "rate_limit_error");
        assert_eq!(reply.json()["error"]["code"], "rate_limit_exceeded");
        let seconds: u64 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!(seconds >= 1);
    }
    drop((running, waiting));
    eventually("both end", || engine.stats().n_running + engine.stats().n_queued == 0).await;
}

#[tokio::test]
async fn draining_finishes_running_answers_and_takes_no_more() {
    let engine = endless_engine(4, 4);
    let server = start(engine.clone()).await;
    let mut stream = ask(server.address, &json!({"stream": true, "max_tokens": 100})).await;
    read_until(&mut stream, "delta").await;
    server.shutdown.send(()).unwrap();
    let rest = read_until(&mut stream, "[DONE]").await;
    assert!(rest.contains("[DONE]"), "{rest}");
    server.task.await.unwrap().expect("serves without an error");
    assert!(TcpStream::connect(server.address).await.is_err());
    let router = lily_server::router(engine, ServerConfig::new("demo"));
    let reply =
        send(&router, post("/v1/chat/completions", chat_with(&json!({})).to_string())).await;
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(reply.json()["error"]["code"], "service_unavailable");
    let health = Request::get("/health").body(axum::body::Body::empty()).unwrap();
    let health = send(&router, health).await;
    assert_eq!(health.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(health.json()["status"], "stopped");
}

#[tokio::test]
async fn stopping_ends_running_answers_with_an_error() {
    let engine = endless_engine(4, 4);
    let server = start(engine.clone()).await;
    let mut streamed = ask(server.address, &json!({"stream": true})).await;
    let mut complete = ask(server.address, &json!({})).await;
    eventually("both run", || engine.stats().n_running == 2).await;
    read_until(&mut streamed, "delta").await;
    server.shutdown.send(()).unwrap();
    let stop = engine.clone();
    tokio::task::spawn_blocking(move || stop.stop()).await.expect("loopback works");
    let rest = read_until(&mut streamed, "\0").await;
    assert!(rest.contains(r#"data: {"error":{"#), "{rest}");
    assert!(!rest.contains("[DONE]"), "{rest}");
    let answer = read_until(&mut complete, "\0").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    server.task.await.unwrap().expect("serves without an error");
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let router = support::router("Hello");
    let get = |path: &str| Request::get(path).body(axum::body::Body::empty()).unwrap();
    let body = chat_with(&json!({"n": 2})).to_string();
    send(&router, post("/v1/chat/completions", body)).await;
    send(&router, post("/v1/chat/completions", "{}".to_owned())).await;
    let reply = send(&router, get("/metrics")).await;
    for line in [
        "lily_requests_queued 0",
        "lily_requests_running 0",
        r#"lily_http_responses_total{route="/v1/chat/completions",status="200"} 1"#,
        r#"lily_http_responses_total{route="/v1/chat/completions",status="400"} 1"#,
        r#"lily_answers_total{outcome="stop"} 2"#,
        "lily_time_to_first_token_seconds_count 1",
        "lily_request_duration_seconds_count 1",
        "# TYPE lily_inter_token_seconds histogram",
        "# TYPE lily_generated_tokens_total counter",
        "# TYPE lily_prompt_tokens_total counter",
    ] {
        assert!(reply.text.lines().any(|l| l == line), "no `{line}` in\n{}", reply.text);
    }
}

#[tokio::test]
async fn the_small_routes_answer() {
    let router = support::router("Hello");
    let get = |path: &str| Request::get(path).body(axum::body::Body::empty()).unwrap();
    let models = send(&router, get("/v1/models")).await.json();
    assert_eq!(models["object"], "list");
    assert_eq!(models["data"][0]["id"], "demo");
    assert_eq!(send(&router, get("/v1/models/demo")).await.json(), models["data"][0]);
    let health = send(&router, get("/health")).await;
    assert_eq!((health.status, &health.json()["status"]), (StatusCode::OK, &json!("ok")));
    let index = send(&router, get("/")).await;
    assert!(index.text.contains("POST /v1/chat/completions"));
    assert_eq!(index.header("access-control-allow-origin"), None);
    let head = Request::head("/").header("x-request-id", "mine").body(axum::body::Body::empty());
    let head = send(&router, head.unwrap()).await;
    assert_eq!((head.status, head.header("x-request-id")), (StatusCode::OK, Some("mine")));
}
