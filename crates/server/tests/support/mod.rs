//! A server whose model says what the test wants.
#![allow(dead_code, reason = "each test file uses a part")]

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use lily_engine::Engine;
use lily_engine::scripted::{self, Script, ScriptedModel};
use lily_server::ServerConfig;
use serde_json::{Value, json};
use std::time::Duration;
use tower::ServiceExt;

/// A response, read to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|v| v.to_str().expect("ASCII"))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }
}

pub(crate) fn router(answer: &str) -> Router {
    router_with(answer, |_| {})
}

pub(crate) fn router_with(answer: &str, change: impl FnOnce(&mut ServerConfig)) -> Router {
    let mut config = ServerConfig::new("demo");
    change(&mut config);
    lily_server::router(engine(answer), config)
}

/// An engine whose model writes this text, tags included. A chat starts in the reasoning unless
/// thinking is off.
pub(crate) fn engine(answer: &str) -> Engine {
    scripted::engine(ScriptedModel::new(Script::text(answer)), scripted::config(4, 8))
}

/// An engine whose answers end only at `max_tokens` and the end of the context.
pub(crate) fn endless_engine(max_running: usize, max_queued: usize) -> Engine {
    let script = Script::text("x").endless().paced(Duration::from_millis(1));
    scripted::engine(ScriptedModel::new(script), scripted::config(max_running, max_queued))
}

pub(crate) fn post(path: &str, body: String) -> Request<Body> {
    Request::post(path)
        .header("content-type", "application/json")
        .body(Body::from(body))
        .expect("valid")
}

/// A request with one user message and these fields.
pub(crate) fn chat_with(fields: &Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
    let object = body.as_object_mut().expect("valid");
    object.extend(fields.as_object().expect("valid").clone());
    body
}

pub(crate) async fn send(router: &Router, request: Request<Body>) -> Reply {
    let response = router.clone().oneshot(request).await.expect("valid");
    let (head, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.expect("valid");
    let text = String::from_utf8(bytes.to_vec()).expect("valid");
    Reply { status: head.status, headers: head.headers, text }
}

/// The events of a stream, `[DONE]` as a string.
pub(crate) fn events(stream: &str) -> Vec<Value> {
    let data = stream.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap_or_else(|_| json!(data))).collect()
}

/// A stream with what differs from run to run replaced, one event a line.
pub(crate) fn snapshot(stream: &str) -> String {
    let lines = events(stream).into_iter().map(|mut event| {
        without_ids(&mut event);
        if event.get("id").is_some() {
            event["created"] = json!(0);
        }
        if let Some(timings) = event.get_mut("timings").and_then(Value::as_object_mut) {
            for (key, value) in timings {
                if key != "predicted_n" {
                    *value = json!(0);
                }
            }
        }
        // The size of the prompt is a matter of the scripted template.
        if let Some(usage) = event.get_mut("usage").and_then(Value::as_object_mut) {
            let prompt_tokens = usage["prompt_tokens"].as_u64().expect("a count");
            let total = usage["total_tokens"].as_u64().expect("a count");
            usage["total_tokens"] = json!(total - prompt_tokens);
            usage["prompt_tokens"] = json!(0);
        }
        event.to_string()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Replaces ids, of which there are no two alike.
pub(crate) fn without_ids(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str() {
                    Some(id) if key == "id" => {
                        let prefix = id.split(['-', '_']).next().unwrap_or_default();
                        *value = json!(format!("{prefix}…"));
                    }
                    _ => without_ids(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_ids),
        _ => {}
    }
}

/// What a client puts together from a stream: `choices` and `usage` of the complete answer.
pub(crate) fn answer_of(events: &[Value]) -> (Value, Value) {
    assert_eq!(events.last(), Some(&json!("[DONE]")));
    let mut choices: Vec<Value> = Vec::new();
    let mut usage = Value::Null;
    for event in events {
        for piece in event["choices"].as_array().into_iter().flatten() {
            let i = usize::try_from(piece["index"].as_u64().expect("an index")).expect("small");
            while choices.len() <= i {
                let message = json!({"role": "assistant", "content": "", "refusal": null});
                let index = choices.len();
                choices.push(json!({"index": index, "message": message, "logprobs": null, "finish_reason": null}));
            }
            add(&mut choices[i], piece);
        }
        if event["usage"].is_object() {
            usage = event["usage"].clone();
        }
    }
    for choice in &mut choices {
        let message = &mut choice["message"];
        if message["content"] == "" && message.get("tool_calls").is_some() {
            message["content"] = Value::Null;
        }
    }
    let mut choices = json!(choices);
    without_ids(&mut choices);
    (choices, usage)
}

fn add(choice: &mut Value, piece: &Value) {
    let delta = &piece["delta"];
    for field in ["content", "reasoning_content"] {
        if let Some(text) = delta[field].as_str() {
            let so_far = choice["message"][field].as_str().unwrap_or_default().to_owned();
            choice["message"][field] = json!(so_far + text);
        }
    }
    for call in delta["tool_calls"].as_array().into_iter().flatten() {
        let message = choice["message"].as_object_mut().expect("an object");
        let calls = message.entry("tool_calls").or_insert(json!([]));
        let calls = calls.as_array_mut().expect("an array");
        let i = usize::try_from(call["index"].as_u64().expect("an index")).expect("small");
        if i == calls.len() {
            let mut call = call.clone();
            call.as_object_mut().expect("an object").remove("index");
            calls.push(call);
        } else {
            let text = calls[i]["function"]["arguments"].as_str().expect("a string").to_owned();
            let more = call["function"]["arguments"].as_str().expect("a string");
            calls[i]["function"]["arguments"] = json!(text + more);
        }
    }
    if let Some(more) = piece["logprobs"]["content"].as_array() {
        let mut content = choice["logprobs"]["content"].as_array().cloned().unwrap_or_default();
        content.extend(more.iter().cloned());
        choice["logprobs"] = json!({"content": content, "refusal": null});
    }
    if piece["finish_reason"].is_string() {
        choice["finish_reason"] = piece["finish_reason"].clone();
    }
}
