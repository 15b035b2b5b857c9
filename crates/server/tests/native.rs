//! Tokens and back, rendered prompts, and what the server says of itself.

mod support;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use support::{post, router, send};

async fn ask(path: &str, body: &Value) -> (StatusCode, Value) {
    let reply = send(&router("Hello"), post(path, body.to_string())).await;
    (reply.status, reply.json())
}

#[tokio::test]
async fn text_becomes_tokens_and_text_again() {
    for text in ["Grüße, 漢字", "a<think>b</think>", " \n\t "] {
        for field in ["content", "prompt"] {
            let (status, answer) =
                ask("/tokenize", &json!({field: text, "with_pieces": true})).await;
            assert_eq!(status, 200, "{answer}");
            let tokens = answer["tokens"].as_array().expect("a list");
            assert_eq!(answer["count"], tokens.len());
            assert_eq!(answer["max_model_len"], 4096);
            assert_eq!(answer["pieces"].as_array().expect("a list").len(), tokens.len());
            let (status, back) = ask("/detokenize", &json!({"tokens": tokens})).await;
            assert_eq!((status, &back["content"]), (StatusCode::OK, &json!(text)));
            assert_eq!(back["prompt"], back["content"]);
        }
    }
    let count = |answer: (StatusCode, Value)| answer.1["count"].as_u64().expect("a count");
    let as_tag = count(ask("/tokenize", &json!({"content": "<think>"})).await);
    let as_text =
        count(ask("/tokenize", &json!({"content": "<think>", "parse_special": false})).await);
    assert!(as_tag == 1 && as_text > 1, "{as_tag} {as_text}");
}

#[tokio::test]
async fn a_conversation_is_rendered_as_for_an_answer() {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let (status, rendered) = ask("/apply-template", &json!({"messages": messages})).await;
    assert_eq!(status, 200, "{rendered}");
    let prompt = rendered["prompt"].as_str().expect("text");
    assert!(prompt.contains("hi") && prompt.ends_with("<think>\n"), "{prompt}");
    let plain = json!({"messages": messages, "enable_thinking": false});
    let (_, rendered) = ask("/apply-template", &plain).await;
    assert_ne!(rendered["prompt"], prompt);
    let open = json!({"messages": messages, "add_generation_prompt": false});
    let (_, rendered) = ask("/apply-template", &open).await;
    assert!(prompt.starts_with(rendered["prompt"].as_str().expect("text")));
    let (_, tokens) = ask("/tokenize", &json!({"messages": messages})).await;
    assert!(tokens["count"].as_u64().expect("a count") > 2);
}

#[tokio::test]
async fn wrong_requests_are_refused_with_the_field_named() {
    for (path, body, param, mentions) in [
        ("/tokenize", json!({}), json!("content"), "missing"),
        ("/tokenize", json!({"content": 5}), json!("content"), "a string"),
        ("/tokenize", json!({"content": "a", "messages": []}), json!("messages"), "combined"),
        ("/tokenize", json!({"messages": []}), json!("messages"), "empty"),
        ("/detokenize", json!({}), json!("tokens"), "missing"),
        ("/detokenize", json!({"tokens": "a"}), json!("tokens"), "an array"),
        ("/detokenize", json!({"tokens": [1, -1]}), json!("tokens[1]"), "a token id"),
        ("/detokenize", json!({"tokens": [99_999_999]}), json!("tokens[0]"), "vocabulary"),
        ("/apply-template", json!({}), json!("messages"), "missing"),
        ("/apply-template", json!({"messages": [{"role": "x"}]}), json!("messages[0].role"), "`x`"),
        (
            "/apply-template",
            json!({"messages": [{"role": "user"}], "tools": [{}]}),
            json!("tools[0].type"),
            "missing",
        ),
    ] {
        let (status, answer) = ask(path, &body).await;
        assert_eq!(status, 400, "{path} {body}: {answer}");
        assert_eq!(answer["error"]["param"], param, "{path} {body}: {answer}");
        let message = answer["error"]["message"].as_str().expect("text");
        assert!(message.contains(mentions), "{path} {body}: {message}");
    }
}

#[tokio::test]
async fn the_server_says_what_it_serves_and_does() {
    let router = support::router("Hello");
    let get = |path: &str| Request::get(path).body(Body::empty()).expect("valid");
    let props = send(&router, get("/v1/lily/props")).await.json();
    assert_eq!(props["model"], "demo");
    assert_eq!(props["context_tokens"], 4096);
    assert!(props["sampling"]["thinking"].is_object());
    assert_eq!(props["limits"]["body_bytes"], 32 * 1024 * 1024);
    let slots = send(&router, get("/v1/lily/slots")).await.json();
    assert_eq!(slots, json!({"running": 0, "queued": 0, "requests": []}));

    let engine = support::endless_engine(1, 4);
    let router = lily_server::router(engine.clone(), lily_server::ServerConfig::new("demo"));
    let running = router.clone();
    let body = support::chat_with(&json!({"stream": true})).to_string();
    let mut request = post("/v1/chat/completions", body);
    request.headers_mut().insert("x-request-id", "mine".parse().expect("valid"));
    let task = tokio::spawn(async move { send(&running, request).await });
    let shown = async {
        loop {
            let slots = send(&router, get("/v1/lily/slots")).await.json();
            if slots["requests"][0]["generated_tokens"].as_u64() > Some(3) {
                return slots;
            }
            tokio::task::yield_now().await;
        }
    };
    let slots =
        tokio::time::timeout(std::time::Duration::from_secs(20), shown).await.expect("runs");
    assert_eq!(slots["requests"][0]["request"], "mine");
    assert_eq!(slots["requests"][0]["state"], "writing");
    assert_eq!(slots["running"], 1);
    task.abort();
    let gone = async {
        while send(&router, get("/v1/lily/slots")).await.json()["requests"] != json!([]) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), gone).await.expect("ends");
}
