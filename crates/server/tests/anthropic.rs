//! Anthropic's messages: refusals, and streams that say what the complete answers say.

mod support;

use serde_json::{Map, Value, json};
use support::{Reply, post, send, without_ids};

const PATH: &str = "/v1/messages";

const CALLS: &str = "I look it up.\n</think>\n\nOne moment.\n\n<tool_call>\n<function=weather>\n\
    <parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n\
    </tool_call>\n<tool_call>\n<function=weather>\n<parameter=city>\nBergen\n</parameter>\n\
    </function>\n</tool_call>";

/// Fields beside a valid message, and words of their refusal.
#[rustfmt::skip]
const FIELDS: &[(&str, &str)] = &[
    (r#""max_tokens": null"#, "`max_tokens` is missing"),
    (r#""max_tokens": 0"#, "`max_tokens` is 0"),
    (r#""max_tokens": -1"#, "`max_tokens` has a wrong type"),
    (r#""max_tokens": 1.5"#, "`max_tokens` has a wrong type"),
    (r#""max_tokens": "10""#, "`max_tokens` has a wrong type"),
    (r#""model": 5"#, "`model` has a wrong type"),
    (r#""stream": "yes""#, "`stream` has a wrong type"),
    (r#""stream": 1"#, "`stream` has a wrong type"),
    (r#""temperature": 1.1"#, "`temperature` is 1.1, but must be from 0 to 1"),
    (r#""temperature": -0.1"#, "`temperature` is -0.1"),
    (r#""temperature": "hot""#, "`temperature` has a wrong type"),
    (r#""top_p": 1.5"#, "`top_p` is 1.5"),
    (r#""top_p": -1"#, "`top_p` is -1"),
    (r#""top_p": 0"#, "`top_p` is 0"),
    (r#""top_k": -2"#, "`top_k` is -2"),
    (r#""top_k": 2.5"#, "`top_k` has a wrong type"),
    (r#""top_k": 5000000000"#, "`top_k` is 5000000000"),
    (r#""stop_sequences": "END""#, "`stop_sequences` has a wrong type"),
    (r#""stop_sequences": [""]"#, "`stop_sequences[0]` is empty"),
    (r#""stop_sequences": [1]"#, "`stop_sequences[0]` has a wrong type"),
    (r#""stop_sequences": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]"#, "16 are allowed"),
    (r#""system": 5"#, "`system` has a wrong type"),
    (r#""system": {"type": "text", "text": "x"}"#, "`system` has a wrong type"),
    (r#""system": ["x"]"#, "`system[0]` has a wrong type"),
    (r#""system": [{"text": "x"}]"#, "`system[0].type` is missing"),
    (r#""system": [{"type": "text"}]"#, "`system[0].text` is missing"),
    (r#""system": [{"type": "image", "source": {}}]"#, "`system[0]` is an image"),
    (r#""system": [{"type": "thinking", "thinking": "x"}]"#, "`system[0].type` is `thinking`"),
    (r#""thinking": true"#, "`thinking` has a wrong type"),
    (r#""thinking": "enabled""#, "`thinking` has a wrong type"),
    (r#""thinking": {}"#, "`thinking.type` is missing"),
    (r#""thinking": {"type": "on"}"#, "`thinking.type` is `on`"),
    (r#""thinking": {"type": "between_tools"}"#, "`thinking.type` is `between_tools`"),
    (r#""thinking": {"type": "enabled"}"#, "`thinking.budget_tokens` is missing"),
    (r#""thinking": {"type": "enabled", "budget_tokens": 0}"#, "`thinking.budget_tokens` is 0"),
    (r#""thinking": {"type": "enabled", "budget_tokens": -5}"#, "`thinking.budget_tokens` has a wrong type"),
    (r#""thinking": {"type": "enabled", "budget_tokens": "1024"}"#, "`thinking.budget_tokens` has a wrong type"),
    (r#""thinking": {"type": "adaptive", "display": "loud"}"#, "`thinking.display` is `loud`"),
    (r#""output_config": "high""#, "`output_config` has a wrong type"),
    (r#""output_config": {"effort": "extreme"}"#, "`output_config.effort` is `extreme`"),
    (r#""output_config": {"effort": 3}"#, "`output_config.effort` has a wrong type"),
    (r#""output_config": {"format": "json"}"#, "`output_config.format` has a wrong type"),
    (r#""output_config": {"format": {}}"#, "`output_config.format.type` is missing"),
    (r#""output_config": {"format": {"type": "xml"}}"#, "`output_config.format.type` is `xml`"),
    (r#""output_config": {"format": {"type": "json_schema"}}"#, "`output_config.format.schema` is missing"),
    (r#""output_config": {"format": {"type": "json_schema", "schema": 5}}"#, "`output_config.format.schema` is a number"),
    (r#""output_format": {"type": "json_schema"}"#, "`output_format.schema` is missing"),
    (r#""output_format": {"type": "grammar"}"#, "`output_format.type` is `grammar`"),
    (r#""output_format": {"type": "json_schema", "schema": {}}, "output_config": {"format": {"type": "json_schema", "schema": {}}}"#, "one form"),
    (r#""mcp_servers": [{"type": "url"}]"#, "`mcp_servers` is not served"),
    (r#""mcp_servers": {}"#, "`mcp_servers` has a wrong type"),
    (r#""container": "c_1""#, "`container` is not served"),
    (r#""tools": {}"#, "`tools` has a wrong type"),
    (r#""tools": ["f"]"#, "`tools[0]` has a wrong type"),
    (r#""tools": [{}]"#, "`tools[0].name` is missing"),
    (r#""tools": [{"name": 7, "input_schema": {}}]"#, "`tools[0].name` has a wrong type"),
    (r#""tools": [{"name": "", "input_schema": {}}]"#, "`tools[0].name` must have from 1"),
    (r#""tools": [{"name": "a b", "input_schema": {}}]"#, "`tools[0].name` is `a b`; whitespace"),
    (r#""tools": [{"name": "f"}]"#, "`tools[0].input_schema` is missing"),
    (r#""tools": [{"name": "f", "input_schema": "{}"}]"#, "`tools[0].input_schema` has a wrong type"),
    (r#""tools": [{"name": "f", "description": 7, "input_schema": {}}]"#, "`tools[0].description` has a wrong type"),
    (r#""tools": [{"type": 3, "name": "f", "input_schema": {}}]"#, "`tools[0].type` has a wrong type"),
    (r#""tools": [{"type": "function", "function": {"name": "f"}}]"#, "`tools[0].type` is `function`"),
    (r#""tools": [{"type": "web_search_20250305", "name": "web_search"}]"#, "`web_search_20250305`, which this server does not have"),
    (r#""tools": [{"type": "code_execution_20250825", "name": "code_execution"}]"#, "`code_execution_20250825`"),
    (r#""tools": [{"type": "bash_20250124", "name": "bash"}]"#, "`bash_20250124`"),
    (r#""tools": [{"type": "text_editor_20250728", "name": "edit"}]"#, "`text_editor_20250728`"),
    (r#""tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]"#, "`mcp_toolset`"),
    (r#""tools": [{"name": "f", "input_schema": {}}, {"name": "f", "input_schema": {}}]"#, "`tools[1].name` is `f`, as that of another tool"),
    (r#""tool_choice": "auto""#, "`tool_choice` has a wrong type"),
    (r#""tool_choice": {}"#, "`tool_choice.type` is missing"),
    (r#""tool_choice": {"type": "required"}"#, "`tool_choice.type` is `required`"),
    (r#""tool_choice": {"type": "any"}"#, "`tools` is empty"),
    (r#""tool_choice": {"type": "tool"}"#, "`tool_choice.name` is missing"),
    (r#""tool_choice": {"type": "tool", "name": "g"}"#, "names `g`"),
    (r#""tool_choice": {"type": "tool", "name": 1}"#, "`tool_choice.name` has a wrong type"),
    (r#""tool_choice": {"type": "auto", "disable_parallel_tool_use": "no"}"#, "`tool_choice.disable_parallel_tool_use` has a wrong type"),
    (r#""stream": true, "stream": true"#, "`stream` is given twice"),
];

/// The same for `messages`.
#[rustfmt::skip]
const MESSAGES: &[(&str, &str)] = &[
    ("null", "`messages` has a wrong type"),
    ("{}", "`messages` has a wrong type"),
    ("[]", "`messages` is empty"),
    (r#"["hi"]"#, "`messages[0]` has a wrong type"),
    (r#"[["user", "hi"]]"#, "`messages[0]` has a wrong type"),
    (r#"[{"content": "hi"}]"#, "`messages[0].role` is missing"),
    (r#"[{"role": "user"}]"#, "`messages[0].content` is missing"),
    (r#"[{"role": 1, "content": "hi"}]"#, "`messages[0].role` has a wrong type"),
    (r#"[{"role": "tool", "content": "hi"}]"#, "`messages[0].role` is `tool`"),
    (r#"[{"role": "user", "content": null}]"#, "`messages[0].content` has a wrong type"),
    (r#"[{"role": "user", "content": 5}]"#, "`messages[0].content` has a wrong type"),
    (r#"[{"role": "user", "content": {"type": "text"}}]"#, "`messages[0].content` has a wrong type"),
    (r#"[{"role": "user", "content": ["hi"]}]"#, "`messages[0].content[0]` has a wrong type"),
    (r#"[{"role": "user", "content": [{"text": "hi"}]}]"#, "`messages[0].content[0].type` is missing"),
    (r#"[{"role": "user", "content": [{"type": "text"}]}]"#, "`messages[0].content[0].text` is missing"),
    (r#"[{"role": "user", "content": [{"type": "text", "text": 1}]}]"#, "`messages[0].content[0].text` has a wrong type"),
    (r#"[{"role": "user", "content": [{"type": "song"}]}]"#, "`messages[0].content[0].type` is `song`"),
    (r#"[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "source": {"type": "base64"}}]}]"#, "`messages[0].content[1]` is an image"),
    (r#"[{"role": "user", "content": [{"type": "document", "source": {}}]}]"#, "`messages[0].content[0]` is of type `document`"),
    (r#"[{"role": "user", "content": [{"type": "search_result", "content": []}]}]"#, "`messages[0].content[0]` is of type `search_result`"),
    (r#"[{"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]}]"#, "`messages[0].content[0]` is of type `container_upload`"),
    (r#"[{"role": "user", "content": [{"type": "thinking", "thinking": "x"}]}]"#, "only a turn of the assistant"),
    (r#"[{"role": "user", "content": [{"type": "redacted_thinking", "data": "x"}]}]"#, "only a turn of the assistant"),
    (r#"[{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}]"#, "only a turn of the assistant"),
    (r#"[{"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "a"}]}]"#, "only a turn of the user"),
    (r#"[{"role": "system", "content": [{"type": "tool_result", "tool_use_id": "a"}]}]"#, "only a turn of the user"),
    (r#"[{"role": "assistant", "content": [{"type": "thinking", "signature": "x"}]}]"#, "`messages[0].content[0].thinking` is missing"),
    (r#"[{"role": "assistant", "content": [{"type": "server_tool_use", "id": "a", "name": "web_search"}]}]"#, "`messages[0].content[0].type` is `server_tool_use`"),
    (r#"[{"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {}}]}]"#, "`messages[0].content[0].id` is missing"),
    (r#"[{"role": "assistant", "content": [{"type": "tool_use", "id": 4, "name": "f"}]}]"#, "`messages[0].content[0].id` has a wrong type"),
    (r#"[{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "input": {}}]}]"#, "`messages[0].content[0].name` is missing"),
    (r#"[{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f f", "input": {}}]}]"#, "`messages[0].content[0].name` is `f f`"),
    (r#"[{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": [1]}]}]"#, "`messages[0].content[0].input` holds an array"),
    (r#"[{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": "{"}]}]"#, "`messages[0].content[0].input` is not valid JSON"),
    (r#"[{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}]"#, "`messages` ends with calls"),
    (r#"[{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]"#, "`messages[0].content[0].tool_use_id` is missing"),
    (r#"[{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": 5}]}]"#, "`messages[0].content[0].content` has a wrong type"),
    (r#"[{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image", "source": {}}]}]}]"#, "`messages[0].content[0].content[0]` is an image"),
    (r#"[{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "tool_reference"}]}]}]"#, "`messages[0].content[0].content[0].type` is `tool_reference`"),
    (r#"[{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text"}]}]}]"#, "`messages[0].content[0].content[0].text` is missing"),
    (r#"[{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "is_error": "yes"}]}]"#, "`messages[0].content[0].is_error` has a wrong type"),
];

fn body_with(fields: &str) -> String {
    let max_tokens = if fields.contains("max_tokens\":") && fields.starts_with("\"max_tokens") {
        ""
    } else {
        r#""max_tokens": 50, "#
    };
    format!(r#"{{{max_tokens}"messages": [{{"role": "user", "content": "hi"}}], {fields}}}"#)
}

fn request(fields: &Value) -> Value {
    let mut body = json!({
        "model": "any", "max_tokens": 500, "messages": [{"role": "user", "content": "hi"}],
    });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

#[track_caller]
fn assert_error(reply: &Reply, status: u16, kind: &str, mentions: &str, shown: &str) {
    let shown = &shown[..shown.floor_char_boundary(300)];
    assert_eq!(reply.status.as_u16(), status, "{shown}: {}", reply.text);
    let json = reply.json();
    let keys: Vec<_> = json.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["type", "error"], "{shown}");
    assert_eq!(json["type"], "error", "{shown}");
    assert_eq!(json["error"]["type"], kind, "{shown}");
    let message = json["error"]["message"].as_str().expect("a string");
    assert!(message.contains(mentions), "{shown}: `{mentions}` is not in: {message}");
    assert!(message.len() < 600, "{shown}: a message of {} bytes", message.len());
    assert_eq!(reply.header("content-type"), Some("application/json"), "{shown}");
}

#[tokio::test]
async fn wrong_fields_are_refused_with_their_path() {
    let router = support::router("never reached");
    let deep = format!(r#"{{"x": {}1{}}}"#, "[".repeat(70), "]".repeat(70));
    let long_name = "n".repeat(300);
    let rows = FIELDS.iter().map(|&(fields, m)| (fields.to_owned(), m)).chain([
        (
            format!(r#""tools": [{{"name": "f", "input_schema": {deep}}}]"#),
            "`tools[0].input_schema` is nested deeper",
        ),
        (format!(r#""tools": [{{"name": "{long_name}", "input_schema": {{}}}}]"#), "256 bytes"),
        (format!(r#""stop_sequences": ["{}"]"#, "x".repeat(2000)), "1024 bytes"),
        (
            format!(r#""output_format": {{"type": "json_schema", "schema": {deep}}}"#),
            "`output_format.schema` is nested deeper",
        ),
        (format!(r#""tools": [{}]"#, vec!["{}"; 1_025].join(",")), "`tools` has 1025 entries"),
    ]);
    for (fields, mentions) in rows {
        let body = body_with(&fields);
        let reply = send(&router, post(PATH, body.clone())).await;
        assert_error(&reply, 400, "invalid_request_error", mentions, &body);
    }
}

#[tokio::test]
async fn wrong_messages_are_refused_with_their_path_also_when_counting() {
    let router = support::router("never reached");
    let deep = format!(r#"{{"x": {}1{}}}"#, "[".repeat(70), "]".repeat(70));
    let many_blocks = vec![r#"{"type": "text", "text": ""}"#; 4_097].join(",");
    let rows = MESSAGES.iter().map(|&(messages, m)| (messages.to_owned(), m)).chain([
        (
            format!(
                r#"[{{"role": "assistant", "content": [{{"type": "tool_use", "id": "a", "name": "f", "input": {deep}}}]}}]"#
            ),
            "`messages[0].content[0].input` is nested deeper",
        ),
        (
            format!(r#"[{{"role": "user", "content": [{many_blocks}]}}]"#),
            "`messages[0].content` has 4097 blocks",
        ),
    ]);
    for (messages, mentions) in rows {
        let body = format!(r#"{{"max_tokens": 50, "messages": {messages}}}"#);
        for path in ["/v1/messages?beta=true", "/v1/messages/count_tokens"] {
            let reply = send(&router, post(path, body.clone())).await;
            assert_error(&reply, 400, "invalid_request_error", mentions, &body);
        }
    }
}

#[tokio::test]
async fn whatever_is_wrong_is_said_in_anthropics_shape() {
    let router = support::router_with("never reached", |config| config.max_body_bytes = 1000);
    for (body, status, kind, mentions) in [
        ("", 400, "invalid_request_error", "not valid JSON"),
        ("[]", 400, "invalid_request_error", "an object"),
        ("{}", 400, "invalid_request_error", "`messages` is missing"),
        (&*format!("\"{}\"", "x".repeat(1000)), 413, "request_too_large", "1000 bytes"),
    ] {
        let reply = send(&router, post(PATH, body.to_owned())).await;
        assert_error(&reply, status, kind, mentions, body);
    }
    let get = axum::http::Request::get(PATH).body(axum::body::Body::empty()).unwrap();
    let reply = send(&router, get).await;
    assert_error(&reply, 405, "invalid_request_error", "does not take GET", "GET");
    let reply = send(&router, post("/v1/messages/batches", "{}".to_owned())).await;
    assert_error(&reply, 404, "not_found_error", "/v1/messages/batches", "batches");
    let plain = axum::http::Request::post(PATH).body(axum::body::Body::empty()).unwrap();
    let reply = send(&router, plain).await;
    assert_error(&reply, 415, "invalid_request_error", "application/json", "no media type");
    let long = request(&json!({"messages": [{"role": "user", "content": "x".repeat(5_000)}]}));
    let reply = send(&support::router("never reached"), post(PATH, long.to_string())).await;
    assert_error(&reply, 400, "invalid_request_error", "prompt is too long", "long");
}

#[tokio::test]
async fn a_full_queue_is_said_in_anthropics_shape() {
    let router =
        lily_server::router(support::endless_engine(1, 0), lily_server::ServerConfig::new("demo"));
    let body = request(&json!({"max_tokens": 100_000, "stream": true})).to_string();
    let first = tower::ServiceExt::oneshot(router.clone(), post(PATH, body.clone())).await;
    let first = first.expect("valid");
    assert_eq!(first.status().as_u16(), 200);
    let mut refused = send(&router, post(PATH, body.clone())).await;
    // Whether the first one has left the queue yet is a matter of scheduling.
    for _ in 0..100 {
        if refused.status.as_u16() == 429 {
            break;
        }
        refused = send(&router, post(PATH, body.clone())).await;
    }
    assert_error(&refused, 429, "rate_limit_error", "waiting", "busy");
    assert!(refused.header("retry-after").is_some());
}

fn weather() -> Value {
    json!([{"name": "weather", "description": "Tells the weather.", "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    }}])
}

/// Names and data of a stream's events.
fn events(stream: &str) -> Vec<(String, Value)> {
    let events = stream.split("\n\n").filter(|event| !event.is_empty());
    events
        .map(|event| {
            let mut name = None;
            let mut data = None;
            for line in event.lines() {
                match line.split_once(": ").expect("a field") {
                    ("event", text) => name = Some(text.to_owned()),
                    ("data", text) => data = Some(serde_json::from_str(text).expect("JSON")),
                    other => panic!("{other:?}"),
                }
            }
            let (name, data): (String, Value) = (name.expect("a name"), data.expect("data"));
            assert_eq!(data["type"], json!(name));
            (name, data)
        })
        .collect()
}

/// What the SDK of Anthropic puts together from a stream.
fn accumulated(events: &[(String, Value)]) -> Value {
    let mut message = Value::Null;
    let mut json_texts: Map<String, Value> = Map::new();
    for (name, data) in events {
        let index = data["index"].as_u64().map(|i| usize::try_from(i).unwrap());
        match name.as_str() {
            "message_start" => message = data["message"].clone(),
            "content_block_start" => {
                let content = message["content"].as_array_mut().unwrap();
                assert_eq!(Some(content.len()), index, "blocks count up");
                content.push(data["content_block"].clone());
            }
            "content_block_delta" => {
                let index = index.unwrap();
                let block = &mut message["content"][index];
                let delta = &data["delta"];
                let (field, piece) = match delta["type"].as_str().unwrap() {
                    "text_delta" => ("text", &delta["text"]),
                    "thinking_delta" => ("thinking", &delta["thinking"]),
                    "signature_delta" => ("signature", &delta["signature"]),
                    "input_json_delta" => {
                        let so_far = json_texts
                            .entry(index.to_string())
                            .or_insert(json!(""))
                            .as_str()
                            .unwrap()
                            .to_owned();
                        let text = so_far + delta["partial_json"].as_str().unwrap();
                        json_texts[&index.to_string()] = json!(text);
                        continue;
                    }
                    other => panic!("{other}"),
                };
                let text = block[field].as_str().unwrap().to_owned() + piece.as_str().unwrap();
                block[field] = json!(text);
            }
            "content_block_stop" => {
                let index = index.unwrap();
                if let Some(text) = json_texts.get(&index.to_string()) {
                    let input: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
                    message["content"][index]["input"] = input;
                }
            }
            "message_delta" => {
                for field in ["stop_reason", "stop_sequence"] {
                    message[field] = data["delta"][field].clone();
                }
                for (field, value) in data["usage"].as_object().unwrap() {
                    message["usage"][field] = value.clone();
                }
            }
            "message_stop" | "ping" => {}
            other => panic!("{other}"),
        }
    }
    message
}

async fn complete(answer: &str, fields: &Value) -> Value {
    let reply = send(&support::router(answer), post(PATH, request(fields).to_string())).await;
    assert_eq!(reply.status.as_u16(), 200, "{}", reply.text);
    reply.json()
}

async fn streamed(answer: &str, fields: &Value) -> Vec<(String, Value)> {
    let mut body = request(fields);
    body["stream"] = json!(true);
    let reply = send(&support::router(answer), post(PATH, body.to_string())).await;
    assert_eq!(reply.header("content-type"), Some("text/event-stream"), "{}", reply.text);
    events(&reply.text)
}

#[tokio::test]
async fn complete_and_streamed_answers_agree() {
    let thinks = json!({"type": "enabled", "budget_tokens": 1024});
    for answer in [
        "Hello.",
        "Hm.\n</think>\n\nYes: ž 漢字 👩‍👩‍👧",
        CALLS,
        "</think>\n\n",
        "",
        "a\n</think>\n\nA\n\n<tool_call>\n<function=weather>\n</function>\n</tool_call>\n\nB",
    ] {
        for fields in [
            json!({"tools": weather(), "thinking": thinks}),
            json!({"tools": weather(), "thinking": {"type": "adaptive", "display": "omitted"}}),
            json!({"tools": weather()}),
            json!({"tools": weather(), "thinking": thinks,
                "tool_choice": {"type": "auto", "disable_parallel_tool_use": true}}),
            json!({"tools": weather(), "tool_choice": {"type": "none"}}),
            json!({"max_tokens": 3}),
            json!({"max_tokens": 90, "tools": weather(), "thinking": thinks}),
            json!({"stop_sequences": ["e", "字"], "thinking": thinks}),
        ] {
            let mut complete = complete(answer, &fields).await;
            let mut streamed = accumulated(&streamed(answer, &fields).await);
            without_ids(&mut complete);
            without_ids(&mut streamed);
            assert_eq!(complete, streamed, "{answer:?} {fields}");
        }
    }
}

#[tokio::test]
async fn a_complete_answer_has_blocks_in_order() {
    let fields = json!({"tools": weather(), "thinking": {"type": "adaptive"}});
    let mut answer = complete(CALLS, &fields).await;
    let usage = answer["usage"].take();
    for (i, prefix) in [(2, "toolu_"), (3, "toolu_")] {
        assert!(answer["content"][i]["id"].as_str().unwrap().starts_with(prefix));
    }
    assert_ne!(answer["content"][2]["id"], answer["content"][3]["id"]);
    without_ids(&mut answer);
    let expected = json!({
        "id": "msg…", "type": "message", "role": "assistant", "model": "demo",
        "content": [
            {"type": "thinking", "thinking": "I look it up.", "signature": "unsigned"},
            {"type": "text", "text": "One moment."},
            {"type": "tool_use", "id": "toolu…", "name": "weather", "input": {"city": "Oslo", "days": 2}},
            {"type": "tool_use", "id": "toolu…", "name": "weather", "input": {"city": "Bergen"}},
        ],
        "stop_reason": "tool_use", "stop_sequence": null, "usage": null,
    });
    assert_eq!(answer, expected);
    assert_eq!(usage["cache_read_input_tokens"], 0);
    assert_eq!(usage["cache_creation_input_tokens"], 0);
    assert!(usage["input_tokens"].as_u64().unwrap() > 10);
    assert!(
        usage["output_tokens"].as_u64()
            > usage["output_tokens_details"]["thinking_tokens"].as_u64()
    );
}

#[tokio::test]
async fn the_end_is_named() {
    let end = async |answer: &str, fields: Value| {
        let answer = complete(answer, &fields).await;
        (answer["stop_reason"].clone(), answer["stop_sequence"].clone())
    };
    assert_eq!(end("Hello", json!({})).await, (json!("end_turn"), Value::Null));
    assert_eq!(end("Hello", json!({"max_tokens": 2})).await, (json!("max_tokens"), Value::Null));
    let stops = json!({"stop_sequences": ["zzz", "lo"]});
    assert_eq!(end("Hello", stops).await, (json!("stop_sequence"), json!("lo")));
    let tools = json!({"tools": weather(), "thinking": {"type": "adaptive"}});
    assert_eq!(end(CALLS, tools).await, (json!("tool_use"), Value::Null));
    let far = json!({"max_tokens": 9_000_000});
    assert_eq!(end("Hello", far).await, (json!("end_turn"), Value::Null), "clamped, not refused");
}

/// One event a line, with neighbours of a kind joined.
fn outline(events: &[(String, Value)]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for (name, data) in events {
        let mut data = data.clone();
        without_ids(&mut data);
        let line = match name.as_str() {
            "content_block_delta" => {
                format!("{} {name} {}", data["index"], data["delta"]["type"].as_str().unwrap())
            }
            "content_block_start" => format!("{} {name} {}", data["index"], data["content_block"]),
            "content_block_stop" => format!("{} {name}", data["index"]),
            "message_start" => {
                data["message"]["usage"] = Value::Null;
                format!("{name} {}", data["message"])
            }
            "message_delta" => format!("{name} {}", data["delta"]),
            _ => name.clone(),
        };
        if lines.last() != Some(&line) {
            lines.push(line);
        }
    }
    lines.join("\n")
}

#[tokio::test]
async fn event_order_of_thinking_text_and_calls() {
    let fields = json!({"tools": weather(), "thinking": {"type": "adaptive"}});
    insta::assert_snapshot!(outline(&streamed(CALLS, &fields).await));
}

#[tokio::test]
async fn event_order_of_plain_text() {
    insta::assert_snapshot!(outline(&streamed("Grüße!", &json!({})).await));
}

#[tokio::test]
async fn event_order_of_a_single_call_after_hidden_thinking() {
    let fields = json!({"tools": weather(), "thinking": {"type": "adaptive", "display": "omitted"},
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": true}});
    insta::assert_snapshot!(outline(&streamed(CALLS, &fields).await));
}

#[tokio::test]
async fn event_order_of_a_stop_sequence() {
    let fields = json!({"stop_sequences": [", w"]});
    insta::assert_snapshot!(outline(&streamed("Hello, world", &fields).await));
}

#[tokio::test]
async fn a_failure_ends_a_stream_with_an_error_event() {
    use lily_engine::scripted::{self, Script, ScriptedModel};
    let model = ScriptedModel::new(Script::text("Hi").then_fail());
    let engine = scripted::engine(model, scripted::config(1, 1));
    let router = lily_server::router(engine, lily_server::ServerConfig::new("demo"));
    let reply = send(&router, post(PATH, request(&json!({"stream": true})).to_string())).await;
    let events = events(&reply.text);
    let (name, data) = events.last().unwrap();
    assert_eq!(name, "error");
    assert_eq!(data["error"]["type"], "api_error");
    assert!(data["error"]["message"].as_str().unwrap().contains("forward pass"));
}

#[tokio::test]
async fn silence_is_filled_with_pings() {
    use lily_engine::scripted::{self, Script, ScriptedModel};
    use std::time::Duration;
    let script = Script::text("Hi").paced(Duration::from_millis(60));
    let engine = scripted::engine(ScriptedModel::new(script), scripted::config(1, 1));
    let mut config = lily_server::ServerConfig::new("demo");
    config.keep_alive = Duration::from_millis(10);
    let router = lily_server::router(engine, config);
    let reply = send(&router, post(PATH, request(&json!({"stream": true})).to_string())).await;
    let events = events(&reply.text);
    assert!(events.iter().any(|(name, data)| name == "ping" && *data == json!({"type": "ping"})));
    assert_eq!(accumulated(&events)["content"], json!([{"type": "text", "text": "Hi"}]));
}

#[tokio::test]
async fn tokens_are_counted_as_they_are_computed() {
    let router = support::router("Hi");
    for fields in [
        json!({}),
        json!({"system": "Be brief.", "thinking": {"type": "adaptive"}}),
        json!({"system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
        json!({"tools": weather()}),
        json!({"tools": weather(), "tool_choice": {"type": "none"}}),
    ] {
        let body = request(&fields);
        let answer = send(&router, post(PATH, body.to_string())).await.json();
        let mut counted = body.clone();
        counted.as_object_mut().unwrap().remove("max_tokens");
        let count = send(&router, post("/v1/messages/count_tokens", counted.to_string())).await;
        let expected = json!({"input_tokens": answer["usage"]["input_tokens"]});
        assert_eq!(count.json(), expected, "{fields}");
    }
}

/// A request of the kind that coding agents send.
#[tokio::test]
async fn a_request_with_everything_an_agent_sends_is_answered() {
    let schema = |i: usize| {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
            "additionalProperties": false, "required": ["path"],
            "properties": {
                "path": {"type": "string", "pattern": "^/", "description": "p".repeat(2_000)},
                "mode": {"anyOf": [{"const": "a"}, {"type": "null"}]},
                "map": {"type": "object", "propertyNames": {"type": "string", "format": "uri"}},
                "n": {"type": "integer", "exclusiveMinimum": i, "default": 5},
                "list": {"type": "array", "maxItems": 4, "items": {"enum": [1, "b", null]}},
            },
        })
    };
    let tools: Vec<_> = (0..24)
        .map(|i| {
            json!({"name": format!("Tool{i}"), "description": "d", "input_schema": schema(i),
                "cache_control": {"type": "ephemeral"}, "strict": false, "eager_input_streaming": true})
        })
        .chain([json!({"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"})])
        .collect();
    let cached = json!({"type": "ephemeral", "ttl": "1h"});
    let body = json!({
        "model": "any-name", "max_tokens": 32_000, "stream": false, "temperature": 1,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: v=1; h=abc;"},
            {"type": "text", "text": "You are an agent.", "cache_control": cached},
            {"type": "text", "text": "Rules.", "cache_control": cached},
        ],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "<system-reminder>x</system-reminder>"},
                {"type": "text", "text": "Do it.", "cache_control": cached},
            ]},
            {"role": "system", "content": "The date is today."},
        ],
        "tools": tools, "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "metadata": {"user_id": "u"}, "service_tier": "auto", "speed": "standard",
        "diagnostics": null, "cache_control": null, "mcp_servers": [], "container": null,
    });
    let config = lily_engine::EngineConfig {
        context_tokens: 100_000,
        ..lily_engine::scripted::config(1, 1)
    };
    let script = lily_engine::scripted::Script::text("Hm.\n</think>\n\nDone.");
    let model = lily_engine::scripted::ScriptedModel::new(script);
    let engine = lily_engine::scripted::engine(model, config);
    let router = lily_server::router(engine, lily_server::ServerConfig::new("demo"));
    let mut request = post("/v1/messages?beta=true", body.to_string());
    request.headers_mut().insert("anthropic-version", "2026-10-21".parse().unwrap());
    request.headers_mut().insert("anthropic-beta", "a-2025,b-2026".parse().unwrap());
    let reply = send(&router, request).await;
    assert_eq!(reply.status.as_u16(), 200, "{}", reply.text);
    assert_eq!(reply.json()["content"][1], json!({"type": "text", "text": "Done."}));
}

#[tokio::test]
async fn null_equals_absent_and_unknown_fields_pass() {
    let nulls = json!({
        "model": null, "system": null, "stream": null, "stop_sequences": null, "temperature": null,
        "top_p": null, "top_k": null, "tools": null, "tool_choice": null, "thinking": null,
        "output_config": null, "output_format": null, "mcp_servers": null, "container": null,
        "metadata": null, "made_up": {"x": [1]},
    });
    assert_eq!(complete("fine", &nulls).await["stop_reason"], "end_turn");
}

#[tokio::test]
async fn the_start_of_an_answer_is_taken() {
    let fields = json!({"messages": [
        {"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello, "},
    ]});
    let answer = complete("world", &fields).await;
    assert_eq!(answer["stop_reason"], "end_turn");
}
