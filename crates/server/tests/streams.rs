//! What a stream looks like on the wire, and that it says what the complete answer says.

mod support;

use serde_json::{Value, json};
use support::{answer_of, chat_with, events, post, send, snapshot};

const CALLS: &str = "I look it up.\n</think>\n\nOne moment.\n\n<tool_call>\n<function=weather>\n\
    <parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n\
    </tool_call>\n<tool_call>\n<function=weather>\n<parameter=city>\nBergen\n</parameter>\n\
    </function>\n</tool_call>";

fn weather() -> Value {
    json!([{"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    }}}])
}

/// The snapshot of a stream.
async fn stream(answer: &str, fields: &Value) -> String {
    let router = support::router(answer);
    let mut body = chat_with(fields);
    body["stream"] = json!(true);
    let reply = send(&router, post("/v1/chat/completions", body.to_string())).await;
    assert_eq!(reply.header("content-type"), Some("text/event-stream"), "{}", reply.text);
    assert_eq!(reply.header("cache-control"), Some("no-cache"));
    assert_eq!(reply.header("x-accel-buffering"), Some("no"));
    snapshot(&reply.text)
}

#[tokio::test]
async fn plain() {
    let fields = json!({"enable_thinking": false});
    insta::assert_snapshot!(stream("Hello, Grüße!", &fields).await);
}

#[tokio::test]
async fn reasoning_with_usage() {
    let fields = json!({"stream_options": {"include_usage": true}});
    insta::assert_snapshot!(stream("Let me see.\n</think>\n\n42", &fields).await);
}

#[tokio::test]
async fn tool_calls() {
    insta::assert_snapshot!(stream(CALLS, &json!({"tools": weather()})).await);
}

#[tokio::test]
async fn a_single_tool_call() {
    let fields = json!({"tools": weather(), "parallel_tool_calls": false});
    insta::assert_snapshot!(stream(CALLS, &fields).await);
}

#[tokio::test]
async fn logprobs() {
    let fields = json!({"enable_thinking": false, "logprobs": true, "top_logprobs": 2});
    insta::assert_snapshot!(stream("Hi é", &fields).await);
}

#[tokio::test]
async fn length() {
    let fields = json!({"enable_thinking": false, "max_tokens": 2});
    insta::assert_snapshot!(stream("one two three four five", &fields).await);
}

#[tokio::test]
async fn two_choices() {
    // The order of the choices among each other is a matter of scheduling.
    let fields =
        json!({"n": 2, "enable_thinking": false, "stream_options": {"include_usage": true}});
    let text = stream("Hi", &fields).await;
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_by_key(|line| {
        (!line.contains("\"index\":"), line.contains("[DONE]"), line.contains("\"index\":1"))
    });
    insta::assert_snapshot!(lines.join("\n"));
}

#[tokio::test]
async fn complete_answer() {
    let router = support::router(CALLS);
    let body = chat_with(&json!({"tools": weather(), "logprobs": false}));
    let reply = send(&router, post("/v1/chat/completions", body.to_string())).await;
    insta::assert_snapshot!(snapshot(&format!("data: {}", reply.text)));
}

#[tokio::test]
async fn complete_and_streamed_answers_agree() {
    for answer in ["Hello.", "Hm.\n</think>\n\nYes: ž 漢字 👩‍👩‍👧", CALLS, "</think>\n\n"]
    {
        for fields in [
            json!({"tools": weather()}),
            json!({"tools": weather(), "enable_thinking": false}),
            json!({"tools": weather(), "parallel_tool_calls": false, "n": 3}),
            json!({"max_tokens": 3, "logprobs": true, "top_logprobs": 1}),
            json!({"stop": ["e"], "logprobs": true}),
        ] {
            let router = support::router(answer);
            let mut body = chat_with(&fields);
            let complete = send(&router, post("/v1/chat/completions", body.to_string())).await;
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
            let streamed = send(&router, post("/v1/chat/completions", body.to_string())).await;
            let mut complete = complete.json();
            let (choices, usage) = answer_of(&events(&streamed.text));
            support::without_ids(&mut complete);
            assert_eq!(complete["choices"], choices, "{answer:?} {fields}");
            assert_eq!(complete["usage"], usage, "{answer:?} {fields}");
        }
    }
}
