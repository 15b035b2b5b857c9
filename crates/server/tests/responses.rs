//! What responses look like on the wire, and that streams say what complete answers say.

#![expect(
    clippy::case_sensitive_file_extension_comparisons,
    reason = "names of events, not of files"
)]

mod support;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use lily_engine::scripted::{self, Script, ScriptedModel};
use lily_server::ServerConfig;
use serde_json::{Value, json};
use std::time::Duration;
use support::{Reply, post, send};

const CALLS: &str = "I look it up.\n</think>\n\nOne moment.\n\n<tool_call>\n<function=weather>\n\
    <parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n\
    </tool_call>\n<tool_call>\n<function=maps__route>\n<parameter=to>\nBergen\n</parameter>\n\
    </function>\n</tool_call>";

const PATCH: &str = "</think>\n\n<tool_call>\n<function=apply_patch>\n<parameter=input>\n\
    *** Begin \"Patch\"\n\t+ž 漢字 👩‍👧\\n\n*** End\n</parameter>\n</function>\n</tool_call>";

fn tools() -> Value {
    let parameters = json!({"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}, "to": {"type": "string"},
    }});
    json!([
        {"type": "function", "name": "weather", "parameters": parameters, "strict": false},
        {"type": "web_search", "external_web_access": false},
        {"type": "namespace", "name": "maps", "description": "Where things are.", "tools": [
            {"type": "function", "name": "route", "description": "The way.", "parameters": parameters},
        ]},
        {"type": "custom", "name": "apply_patch", "description": "Edits files.",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"x\""}},
    ])
}

/// A request with these fields.
fn asking(fields: &Value) -> Value {
    let mut body = json!({"input": "hi"});
    let object = body.as_object_mut().expect("an object");
    object.extend(fields.as_object().expect("an object").clone());
    body
}

async fn create(router: &Router, body: &Value) -> Value {
    let reply = send(router, post("/v1/responses", body.to_string())).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    reply.json()
}

async fn call(router: &Router, method: Method, path: &str) -> Reply {
    let request = Request::builder().method(method).uri(path).body(Body::empty());
    send(router, request.expect("valid")).await
}

/// The events of a stream, whose names and numbers are checked.
async fn stream(router: &Router, fields: &Value) -> Vec<Value> {
    let mut body = asking(fields);
    body["stream"] = json!(true);
    let reply = send(router, post("/v1/responses", body.to_string())).await;
    assert_eq!(reply.header("content-type"), Some("text/event-stream"), "{}", reply.text);
    let mut events: Vec<Value> = Vec::new();
    for text in reply.text.split("\n\n").filter(|text| !text.is_empty()) {
        let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let event: Value = serde_json::from_str(line("data: ").expect("data")).expect("JSON");
        assert_eq!(Some(event["type"].as_str().expect("a type")), line("event: "));
        assert_eq!(event["sequence_number"], events.len());
        events.push(event);
    }
    events
}

/// Replaces what differs from run to run.
fn without_chance(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), value.as_str()) {
                    ("id" | "call_id" | "item_id", Some(id)) => {
                        *value = json!(format!("{}_", id.split('_').next().expect("a prefix")));
                    }
                    ("created_at" | "completed_at", _) if value.is_u64() => *value = json!(0),
                    _ => without_chance(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_chance),
        _ => {}
    }
}

/// What a client puts together from a stream: the last response, with its items as they came.
fn answer_of(events: &[Value]) -> Value {
    let mut items: Vec<Value> = Vec::new();
    let mut open: Option<String> = None;
    for event in events {
        let kind = event["type"].as_str().expect("a type");
        let text = |field: &str| event[field].as_str().expect("a text").to_owned();
        match kind {
            "response.output_item.added" => {
                assert_eq!(event["output_index"], items.len());
                assert_eq!(event["item"]["status"], "in_progress");
            }
            "response.output_item.done" => {
                assert_eq!(event["output_index"], items.len());
                items.push(event["item"].clone());
            }
            _ if kind.ends_with(".delta") => {
                assert_eq!(event["output_index"], items.len());
                open.get_or_insert_default().push_str(&text("delta"));
            }
            _ if kind.ends_with("_part.added") => open = Some(String::new()),
            "response.content_part.done" | "response.reasoning_summary_part.done" => {
                assert!(event["part"]["text"].is_string());
            }
            "response.function_call_arguments.done" => {
                assert_eq!(open.take().unwrap_or_default(), text("arguments"));
            }
            "response.custom_tool_call_input.done" => {
                assert_eq!(open.take().unwrap_or_default(), text("input"));
            }
            _ if kind.ends_with("_text.done") => {
                assert_eq!(open.take().expect("a part"), text("text"));
            }
            "response.created" | "response.in_progress" => {
                assert_eq!(event["response"]["output"], json!([]));
            }
            "response.completed" | "response.incomplete" => {}
            other => panic!("{other}"),
        }
    }
    let last = &events.last().expect("an event")["response"];
    assert_eq!(last["output"], json!(items), "the items are those of the response");
    assert_eq!(events[0]["response"]["id"], last["id"]);
    last.clone()
}

#[tokio::test]
async fn complete_and_streamed_answers_agree() {
    let unicode = "Hm.\n</think>\n\nYes: ž 漢字 👩‍👩‍👧";
    let no_input = "</think>\n\n<tool_call>\n<function=apply_patch>\n</function>\n</tool_call>";
    for answer in ["Hello.", unicode, CALLS, PATCH, no_input, "</think>\n\n"] {
        let router = support::router(answer);
        for fields in [
            json!({"tools": tools()}),
            json!({"tools": tools(), "reasoning": {"effort": "none"}}),
            json!({"tools": tools(), "parallel_tool_calls": false, "store": false}),
            json!({"tools": tools(), "reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]}),
            json!({"max_output_tokens": 3, "include": ["message.output_text.logprobs"]}),
            json!({"tools": tools(), "max_output_tokens": 60, "reasoning": {"effort": "low"}}),
            json!({"tools": tools(), "top_logprobs": 2, "metadata": {"a": "b"}, "user": "me"}),
        ] {
            let mut complete = create(&router, &asking(&fields)).await;
            let mut streamed = answer_of(&stream(&router, &fields).await);
            without_chance(&mut complete);
            without_chance(&mut streamed);
            // What the first request computed, the second may find.
            for usage in [&mut complete["usage"], &mut streamed["usage"]] {
                usage["input_tokens_details"]["cached_tokens"] = json!(0);
            }
            assert_eq!(complete, streamed, "{answer:?} {fields}");
        }
    }
}

/// Kinds of events in their order, deltas of a kind in a row as one, with what they are about.
fn shape(events: &[Value]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for event in events {
        let mut event = event.clone();
        without_chance(&mut event);
        let fields = event.as_object_mut().expect("an object");
        let kind = fields.shift_remove("type").expect("a type");
        let kind = kind.as_str().expect("a text").trim_start_matches("response.").to_owned();
        fields.shift_remove("sequence_number");
        if let Some(response) = fields.get("response") {
            fields["response"] = json!({"status": response["status"], "items": response["output"].as_array().map(Vec::len)});
        }
        let line = format!("{kind} {event}");
        let is_delta = kind.ends_with(".delta");
        if !(is_delta && lines.last().is_some_and(|last| last.starts_with(&kind))) {
            lines.push(line);
        }
    }
    lines.join("\n")
}

#[tokio::test]
async fn events_of_thinking_text_and_calls() {
    let events = stream(&support::router(CALLS), &json!({"tools": tools()})).await;
    insta::assert_snapshot!(shape(&events));
}

#[tokio::test]
async fn events_of_a_summary_and_a_custom_call() {
    let fields = json!({"tools": tools(), "reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]});
    let answer = format!("A patch.\n{PATCH}");
    insta::assert_snapshot!(shape(&stream(&support::router(&answer), &fields).await));
}

#[tokio::test]
async fn events_of_a_text_that_is_cut() {
    let fields = json!({"reasoning": {"effort": "none"}, "max_output_tokens": 3});
    insta::assert_snapshot!(shape(&stream(&support::router("Hello"), &fields).await));
}

#[tokio::test]
async fn a_complete_response() {
    let fields = json!({
        "tools": tools(), "instructions": "Be kind.", "temperature": 0.5, "metadata": {"a": "b"},
        "reasoning": {"effort": "high"}, "text": {"format": {"type": "text"}, "verbosity": "low"},
    });
    let mut response = create(&support::router(CALLS), &asking(&fields)).await;
    without_chance(&mut response);
    insta::assert_snapshot!(serde_json::to_string_pretty(&response).expect("JSON"));
}

#[tokio::test]
async fn the_text_of_a_custom_call_arrives_while_it_is_written() {
    let events = stream(&support::router(PATCH), &json!({"tools": tools()})).await;
    let deltas: Vec<_> = events
        .iter()
        .filter(|e| e["type"] == "response.custom_tool_call_input.delta")
        .map(|e| e["delta"].as_str().expect("a text"))
        .collect();
    assert!(deltas.len() > 10, "{deltas:?}");
    assert_eq!(deltas.concat(), "*** Begin \"Patch\"\n\t+ž 漢字 👩‍👧\\n\n*** End");
}

#[tokio::test]
async fn log_probabilities_are_those_of_the_text() {
    let router = support::router("Hm.\n</think>\n\nHé</tool");
    for fields in [
        json!({"include": ["message.output_text.logprobs"], "top_logprobs": 1}),
        json!({"top_logprobs": 1}),
    ] {
        let response = create(&router, &asking(&fields)).await;
        let part = &response["output"][1]["content"][0];
        let bytes: Vec<u8> = part["logprobs"]
            .as_array()
            .expect("a list")
            .iter()
            .flat_map(|token| token["bytes"].as_array().expect("a list"))
            .map(|byte| u8::try_from(byte.as_u64().expect("a byte")).expect("a byte"))
            .collect();
        assert_eq!(String::from_utf8(bytes).expect("UTF-8"), part["text"], "{part}");
        assert_eq!(part["logprobs"][0]["top_logprobs"].as_array().map(Vec::len), Some(1));
    }
    let response = create(&router, &asking(&json!({}))).await;
    assert_eq!(response["output"][1]["content"][0]["logprobs"], json!([]));
}

#[tokio::test]
async fn a_chain_of_responses_holds_the_whole_conversation() {
    let router = support::router("Hm.\n</think>\n\nFine.");
    let first = create(&router, &json!({"input": "one", "instructions": "Only now."})).await;
    let second =
        json!({"input": [{"role": "user", "content": "two"}], "previous_response_id": first["id"]});
    let second = create(&router, &second).await;
    assert_eq!(second["previous_response_id"], first["id"]);
    assert!(second["usage"]["input_tokens"].as_u64() > first["usage"]["input_tokens"].as_u64());
    let gone = call(&router, Method::DELETE, &path(&first, "")).await.json();
    assert_eq!(gone, json!({"id": first["id"], "object": "response", "deleted": true}));
    let third = json!({"input": "three", "previous_response_id": second["id"]});
    let third = create(&router, &third).await;
    let list = call(&router, Method::GET, &path(&third, "/input_items?order=asc")).await.json();
    let text = |item: &Value| match item["type"].as_str() {
        Some("message") => item["content"][0]["text"].as_str().expect("a text").to_owned(),
        other => other.expect("a type").to_owned(),
    };
    let texts: Vec<_> = list["data"].as_array().expect("a list").iter().map(text).collect();
    assert_eq!(texts, ["one", "reasoning", "Fine.", "two", "reasoning", "Fine.", "three"]);
    assert_eq!(list["first_id"], list["data"][0]["id"]);
    assert_eq!((&list["has_more"], &list["last_id"]), (&json!(false), &list["data"][6]["id"]));
    let newest = call(&router, Method::GET, &path(&third, "/input_items?limit=2")).await.json();
    assert_eq!(newest["data"][0], list["data"][6]);
    assert_eq!(newest["has_more"], true);
    let after = newest["last_id"].as_str().expect("an id");
    let next = path(&third, &format!("/input_items?limit=2&after={after}"));
    let next = call(&router, Method::GET, &next).await.json();
    assert_eq!(next["data"][0], list["data"][4]);
}

fn path(response: &Value, rest: &str) -> String {
    format!("/v1/responses/{}{rest}", response["id"].as_str().expect("an id"))
}

#[tokio::test]
async fn responses_are_kept_unless_told_not_to() {
    let router = support::router("Hm.\n</think>\n\nFine.");
    let kept = create(&router, &asking(&json!({}))).await;
    let again = call(&router, Method::GET, &path(&kept, "")).await;
    assert_eq!((again.status, again.json()), (StatusCode::OK, kept.clone()));
    let streamed = answer_of(&stream(&router, &json!({})).await);
    assert_eq!(call(&router, Method::GET, &path(&streamed, "")).await.json(), streamed);
    let not_kept = create(&router, &asking(&json!({"store": false}))).await;
    assert_eq!(not_kept["store"], false);
    assert_eq!(call(&router, Method::GET, &path(&not_kept, "")).await.status, 404);
    let references = json!({"input": [
        {"role": "user", "content": "hi"},
        {"type": "item_reference", "id": kept["output"][0]["id"]},
        {"id": kept["output"][1]["id"]},
        {"role": "user", "content": "go on"},
    ]});
    let going_on = create(&router, &references).await;
    let items = call(&router, Method::GET, &path(&going_on, "/input_items")).await.json();
    assert_eq!(items["data"][1], kept["output"][1]);
    assert_eq!(items["data"][2], kept["output"][0]);
}

#[tokio::test]
async fn input_tokens_are_those_that_an_answer_counts() {
    let router = support::router("Fine.");
    let body = json!({"input": "hello there", "instructions": "Be kind.", "tools": tools()});
    let count = send(&router, post("/v1/responses/input_tokens", body.to_string())).await.json();
    let response = create(&router, &body).await;
    let expected = &response["usage"]["input_tokens"];
    assert_eq!(count, json!({"object": "response.input_tokens", "input_tokens": expected}));
}

#[tokio::test]
async fn a_stream_that_breaks_off_says_so() {
    let script = Script::text("Hm.\n</think>\n\nSome").then_fail();
    let engine = scripted::engine(ScriptedModel::new(script), scripted::config(4, 8));
    let router = lily_server::router(engine, ServerConfig::new("demo"));
    let events = stream(&router, &json!({})).await;
    let last = events.last().expect("an event");
    assert_eq!(last["type"], "response.failed");
    assert_eq!(last["response"]["status"], "failed");
    assert_eq!(last["response"]["error"]["code"], "server_error");
    assert_eq!(last["response"]["output"][1]["status"], "incomplete");
    let reply = call(&router, Method::GET, &path(&last["response"], "")).await;
    assert_eq!(reply.status, StatusCode::NOT_FOUND, "what failed is not kept");
    let complete = send(&router, post("/v1/responses", asking(&json!({})).to_string())).await;
    assert!(complete.status.is_server_error(), "{}", complete.text);
}

#[tokio::test]
async fn silence_is_filled_with_data() {
    let script = Script::text("ab").paced(Duration::from_millis(300));
    let engine = scripted::engine(ScriptedModel::new(script), scripted::config(4, 8));
    let mut config = ServerConfig::new("demo");
    config.keep_alive = Duration::from_millis(40);
    let router = lily_server::router(engine, config);
    let events = stream(&router, &json!({})).await;
    let n = events.iter().filter(|e| e["type"] == "response.in_progress").count();
    assert!(n > 2, "{n} signs of life");
}

/// The shape of what Codex sends first, in our own words.
#[tokio::test]
async fn the_first_request_of_an_agent_is_answered() {
    let part = |text: &str| json!([{"type": "input_text", "text": text}]);
    let message = |role: &str, text: &str| json!({"type": "message", "id": format!("msg_{role}"), "role": role, "content": part(text)});
    let body = json!({
        "model": "demo", "instructions": "You write programs.", "stream": true, "store": false,
        "input": [
            message("developer", "What is allowed."), message("developer", "How to work."),
            message("user", "The folder."), message("user", "Say hello."),
        ],
        "tools": tools(), "tool_choice": "auto", "parallel_tool_calls": true,
        "reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "thread", "client_metadata": {"version": "1"},
    });
    let router = support::router("They want a greeting.\n</think>\n\nHello!");
    let response = answer_of(&stream(&router, &body).await);
    let [reasoning, message] = response["output"].as_array().expect("a list").as_slice() else {
        panic!("{response}")
    };
    assert_eq!(reasoning["summary"][0]["text"], "They want a greeting.");
    assert_eq!(reasoning["encrypted_content"], "lily:They want a greeting.");
    assert_eq!(message["content"][0]["text"], "Hello!");
    let kinds: Vec<_> =
        response["tools"].as_array().expect("a list").iter().map(|t| &t["type"]).collect();
    assert_eq!(kinds, ["function", "namespace", "custom"], "web search is left out");
}
