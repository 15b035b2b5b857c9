//! Who is let in: keys, origins, names of the host.

mod support;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use serde_json::json;
use support::{Reply, chat_with, router_with, send};

fn request(method: Method, path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let body =
        if method == Method::POST { chat_with(&json!({})).to_string() } else { String::new() };
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.header("content-type", "application/json").body(Body::from(body)).expect("valid")
}

async fn get(router: &Router, path: &str, headers: &[(&str, &str)]) -> Reply {
    send(router, request(Method::GET, path, headers)).await
}

#[tokio::test]
async fn a_key_opens_every_path_and_its_absence_none() {
    let keys = ["first-key-1".to_owned(), "second-key-2".to_owned()];
    let router = router_with("Hello", |config| config.api_keys = keys.to_vec());
    for path in ["/v1/models", "/metrics", "/v1/models/demo", "/v1/lily/props", "/no/such/path"] {
        let reply = get(&router, path, &[]).await;
        assert_eq!(reply.status, StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        let error = &reply.json()["error"];
        assert_eq!(
            (&error["code"], &error["type"]),
            (&json!("invalid_api_key"), &json!("invalid_request_error"))
        );
        assert!(error["message"].as_str().expect("text").contains("Authorization: Bearer"));
    }
    for path in ["/", "/health"] {
        assert_eq!(get(&router, path, &[]).await.status, StatusCode::OK, "{path}");
    }
    for (headers, passes) in [
        (("authorization", "Bearer first-key-1"), true),
        (("authorization", "bearer second-key-2"), true),
        (("x-api-key", "second-key-2"), true),
        (("authorization", "Bearer first-key-"), false),
        (("authorization", "Bearer first-key-12"), false),
        (("authorization", "Bearer "), false),
        (("authorization", "first-key-1"), false),
        (("x-api-key", ""), false),
    ] {
        let reply = send(&router, request(Method::POST, "/v1/chat/completions", &[headers])).await;
        let expected = if passes { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
        assert_eq!(reply.status, expected, "{headers:?}");
        assert!(!reply.text.contains("first-key"), "{}", reply.text);
    }
}

#[tokio::test]
async fn refusals_come_in_the_words_of_the_dialect() {
    let router = router_with("Hello", |config| config.api_keys = vec!["a-long-key".to_owned()]);
    let reply = send(&router, request(Method::POST, "/v1/messages", &[])).await;
    assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
    assert_eq!(reply.json()["type"], "error");
    assert_eq!(reply.json()["error"]["type"], "authentication_error");
    let reply = get(&router, "/api/tags", &[]).await;
    assert!(reply.json()["error"].is_string(), "{}", reply.text);
}

#[tokio::test]
async fn pages_of_other_origins_read_nothing_unless_allowed() {
    let origin = ("origin", "https://app.example");
    let preflight = [origin, ("access-control-request-method", "POST")];
    let closed = router_with("Hello", |_| {});
    let reply = get(&closed, "/v1/models", &[origin]).await;
    assert_eq!(reply.header("access-control-allow-origin"), None);
    let reply = send(&closed, request(Method::OPTIONS, "/v1/chat/completions", &preflight)).await;
    assert_eq!(reply.status, StatusCode::METHOD_NOT_ALLOWED);

    let open = router_with("Hello", |config| {
        config.cors_origins = vec!["https://app.example".to_owned()];
        config.api_keys = vec!["a-long-key".to_owned()];
    });
    let asked =
        [origin, preflight[1], ("access-control-request-headers", "authorization,x-stainless-os")];
    let reply = send(&open, request(Method::OPTIONS, "/v1/chat/completions", &asked)).await;
    assert_eq!(reply.status, StatusCode::OK, "a preflight brings no key");
    assert_eq!(reply.header("access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(reply.header("access-control-allow-headers"), Some("authorization,x-stainless-os"));
    let key = ("authorization", "Bearer a-long-key");
    let reply = get(&open, "/v1/models", &[origin, key]).await;
    assert_eq!(reply.header("access-control-allow-origin"), Some("https://app.example"));
    let reply = get(&open, "/v1/models", &[origin]).await;
    assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
    assert_eq!(
        reply.header("access-control-allow-origin"),
        Some("https://app.example"),
        "readable"
    );
    let reply = get(&open, "/v1/models", &[("origin", "https://evil.example"), key]).await;
    assert_eq!(reply.header("access-control-allow-origin"), None);
}

#[tokio::test]
async fn names_of_other_hosts_are_refused() {
    let router = router_with("Hello", |config| config.hosts = vec!["localhost".to_owned()]);
    assert_eq!(get(&router, "/v1/models", &[("host", "localhost:8000")]).await.status, 200);
    let reply = get(&router, "/v1/models", &[("host", "evil.example:8000")]).await;
    assert_eq!(reply.status, StatusCode::FORBIDDEN);
    assert_eq!(reply.json()["error"]["code"], "unknown_host");
    assert!(reply.text.contains("--allow-host"), "{}", reply.text);
}
