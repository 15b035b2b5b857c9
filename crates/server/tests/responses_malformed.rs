//! Requests for responses that must be refused: with the right status, naming the field, saying
//! what is wrong.

mod support;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use support::{Reply, post, send};

/// Fields beside a valid input, the `param` of their refusal, and a word of it.
#[rustfmt::skip]
const FIELDS: &[(&str, &str, &str)] = &[
    (r#""model": 5"#, "model", "a string"),
    (r#""instructions": ["x"]"#, "instructions", "a string"),
    (r#""stream": "yes""#, "stream", "a boolean"),
    (r#""stream_options": {}"#, "stream_options", "needs `stream`"),
    (r#""stream": true, "stream_options": []"#, "stream_options", "an object"),
    (r#""store": "no""#, "store", "a boolean"),
    (r#""background": true"#, "background", "while the client waits"),
    (r#""background": 1"#, "background", "a boolean"),
    (r#""conversation": "conv_1""#, "conversation", "previous_response_id"),
    (r#""prompt": {"id": "pmpt_1"}"#, "prompt", "no templates"),
    (r#""context_management": [{"type": "compaction"}]"#, "context_management", "never shortens"),
    (r#""context_management": {}"#, "context_management", "an array"),
    (r#""truncation": "left""#, "truncation", "auto or disabled"),
    (r#""truncation": 1"#, "truncation", "a string"),
    (r#""max_output_tokens": 0"#, "max_output_tokens", "at least 1"),
    (r#""max_output_tokens": -1"#, "max_output_tokens", "from 0"),
    (r#""max_output_tokens": "1""#, "max_output_tokens", "integer"),
    (r#""max_tool_calls": -1"#, "max_tool_calls", "from 0"),
    (r#""temperature": 2.5"#, "temperature", "from 0 to 2"),
    (r#""temperature": "hot""#, "temperature", "a number"),
    (r#""top_p": -0.5"#, "top_p", "from 0 to 1"),
    (r#""top_k": -2"#, "top_k", "-1"),
    (r#""min_p": 2"#, "min_p", "from 0 to 1"),
    (r#""presence_penalty": 3"#, "presence_penalty", "from -2 to 2"),
    (r#""frequency_penalty": -3"#, "frequency_penalty", "from -2 to 2"),
    (r#""seed": 1.5"#, "seed", "an integer"),
    (r#""top_logprobs": 21"#, "top_logprobs", "from 0 to 20"),
    (r#""top_logprobs": true"#, "top_logprobs", "integer"),
    (r#""include": "all""#, "include", "an array"),
    (r#""include": ["everything"]"#, "include[0]", "`everything`"),
    (r#""include": ["reasoning.encrypted_content", 1]"#, "include[1]", "a string"),
    (r#""metadata": "x""#, "metadata", "an object"),
    (r#""metadata": {"a": 1}"#, "metadata.a", "a string"),
    (r#""user": 1"#, "user", "a string"),
    (r#""parallel_tool_calls": "no""#, "parallel_tool_calls", "a boolean"),
    (r#""previous_response_id": 1"#, "previous_response_id", "a string"),
    (r#""reasoning": "high""#, "reasoning", "an object"),
    (r#""reasoning": {"effort": "extreme"}"#, "reasoning.effort", "`extreme`"),
    (r#""reasoning": {"effort": 3}"#, "reasoning.effort", "a string"),
    (r#""reasoning": {"summary": "long"}"#, "reasoning.summary", "detailed"),
    (r#""reasoning": {"generate_summary": "long"}"#, "reasoning.summary", "detailed"),
    (r#""text": "json""#, "text", "an object"),
    (r#""text": {"verbosity": "loud"}"#, "text.verbosity", "low, medium or high"),
    (r#""text": {"format": "json"}"#, "text.format", "an object"),
    (r#""text": {"format": {}}"#, "text.format.type", "missing"),
    (r#""text": {"format": {"type": "xml"}}"#, "text.format.type", "`xml`"),
    (r#""text": {"format": {"type": "json_schema", "name": "x"}}"#, "text.format.schema", "missing"),
    (r#""text": {"format": {"type": "json_schema", "name": "x", "schema": 5}}"#, "text.format.schema", "an object"),
    (r#""text": {"format": {"type": "json_schema", "name": 1, "schema": {}}}"#, "text.format.name", "a string"),
    (r#""tools": {}"#, "tools", "an array"),
    (r#""tools": ["f"]"#, "tools[0]", "an object"),
    (r#""tools": [{}]"#, "tools[0].type", "missing"),
    (r#""tools": [{"type": 1}]"#, "tools[0].type", "a string"),
    (r#""tools": [{"type": "teleport"}]"#, "tools[0].type", "`teleport`"),
    (r#""tools": [{"type": "function"}]"#, "tools[0].name", "missing"),
    (r#""tools": [{"type": "function", "function": {"name": "f"}}]"#, "tools[0].name", "missing"),
    (r#""tools": [{"type": "function", "name": ""}]"#, "tools[0].name", "from 1 to 256"),
    (r#""tools": [{"type": "function", "name": "a b"}]"#, "tools[0].name", "whitespace"),
    (r#""tools": [{"type": "function", "name": "a>b"}]"#, "tools[0].name", "< and >"),
    (r#""tools": [{"type": "function", "name": "f", "description": 1}]"#, "tools[0].description", "a string"),
    (r#""tools": [{"type": "function", "name": "f", "parameters": "{}"}]"#, "tools[0].parameters", "an object"),
    (r#""tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "f"}]"#, "tools[1].name", "another tool"),
    (r#""tools": [{"type": "custom"}]"#, "tools[0].name", "missing"),
    (r#""tools": [{"type": "custom", "name": "p", "format": "text"}]"#, "tools[0].format", "an object"),
    (r#""tools": [{"type": "custom", "name": "p", "format": {"type": "xml"}}]"#, "tools[0].format.type", "`xml`"),
    (r#""tools": [{"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "lark"}}]"#, "tools[0].format.definition", "missing"),
    (r#""tools": [{"type": "custom", "name": "p", "format": {"type": "grammar", "definition": "x"}}]"#, "tools[0].format.syntax", "missing"),
    (r#""tools": [{"type": "namespace", "tools": []}]"#, "tools[0].name", "missing"),
    (r#""tools": [{"type": "namespace", "name": "n"}]"#, "tools[0].tools", "missing"),
    (r#""tools": [{"type": "namespace", "name": "n", "tools": {}}]"#, "tools[0].tools", "an array"),
    (r#""tools": [{"type": "namespace", "name": "n", "tools": [1]}]"#, "tools[0].tools[0]", "an object"),
    (r#""tools": [{"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}]"#, "tools[0].tools[0].type", "`mcp`"),
    (r#""tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]"#, "tools[0].tools[0].name", "missing"),
    (r#""tools": [{"type": "namespace", "name": "n n", "tools": [{"type": "function", "name": "f"}]}]"#, "tools[0].tools[0].name", "whitespace"),
    (r#""tools": [{"type": "function", "name": "n__f"}, {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}]"#, "tools[1].tools[0].name", "another tool"),
    (r#""tool_choice": "required""#, "tool_choice", "`tools` is empty"),
    (r#""tool_choice": "required", "tools": [{"type": "web_search"}]"#, "tool_choice", "`tools` is empty"),
    (r#""tool_choice": "sometimes""#, "tool_choice", "`sometimes`"),
    (r#""tool_choice": 1"#, "tool_choice", "a string or an object"),
    (r#""tool_choice": {}"#, "tool_choice.type", "missing"),
    (r#""tool_choice": {"type": "function"}"#, "tool_choice.name", "missing"),
    (r#""tool_choice": {"type": "function", "name": "f"}"#, "tool_choice", "names `f`"),
    (r#""tool_choice": {"type": "custom"}"#, "tool_choice.name", "missing"),
    (r#""tool_choice": {"type": "custom", "name": "p"}"#, "tool_choice", "names `p`"),
    (r#""tool_choice": {"type": "namespace", "name": "n"}"#, "tool_choice", "names `n`"),
    (r#""tool_choice": {"type": "web_search"}, "tools": [{"type": "web_search"}]"#, "tool_choice", "does not serve"),
    (r#""tool_choice": {"type": "mcp", "server_label": "x"}"#, "tool_choice", "does not serve"),
    (r#""tool_choice": {"type": "teleport"}"#, "tool_choice.type", "`teleport`"),
    (r#""tool_choice": {"type": "allowed_tools", "mode": "auto"}"#, "tool_choice.tools", "an array"),
    (r#""tool_choice": {"type": "allowed_tools", "tools": []}"#, "tool_choice.tools", "is empty"),
    (r#""tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}]}"#, "tool_choice", "names `f`"),
    (r#""tool_choice": {"type": "allowed_tools", "tools": [{"type": "image_generation"}]}"#, "tool_choice.tools[0]", "does not serve"),
    (r#""store": true, "store": true"#, "store", "twice"),
];

/// The same for `input`.
#[rustfmt::skip]
const INPUTS: &[(&str, &str, &str)] = &[
    ("null", "input", "missing"),
    ("5", "input", "a string or an array"),
    ("{}", "input", "a string or an array"),
    ("[]", "input", "is empty"),
    (r#"["hi"]"#, "input[0]", "an object"),
    ("[{}]", "input[0].type", "missing"),
    (r#"[{"type": 1}]"#, "input[0].type", "a string"),
    (r#"[{"type": "telegram"}]"#, "input[0].type", "`telegram`"),
    (r#"[{"type": "computer_call_output", "output": {}}]"#, "input[0].type", "`computer_call_output`"),
    (r#"[{"type": "image_generation_call", "result": "x"}]"#, "input[0].type", "`image_generation_call`"),
    (r#"[{"type": "compaction", "encrypted_content": "x"}]"#, "input[0].type", "`compaction`"),
    (r#"[{"role": "user"}]"#, "input[0].content", "missing"),
    (r#"[{"role": 1, "content": "hi"}]"#, "input[0].role", "a string"),
    (r#"[{"role": "tool", "content": "hi"}]"#, "input[0].role", "`tool`"),
    (r#"[{"type": "message", "content": "hi"}]"#, "input[0].role", "missing"),
    (r#"[{"role": "user", "content": 1}]"#, "input[0].content", "a string or an array"),
    (r#"[{"role": "user", "content": ["hi"]}]"#, "input[0].content[0]", "an object"),
    (r#"[{"role": "user", "content": [{"text": "hi"}]}]"#, "input[0].content[0].type", "missing"),
    (r#"[{"role": "user", "content": [{"type": "input_text"}]}]"#, "input[0].content[0].text", "missing"),
    (r#"[{"role": "user", "content": [{"type": "input_text", "text": 1}]}]"#, "input[0].content[0].text", "a string"),
    (r#"[{"role": "user", "content": [{"type": "song", "text": "la"}]}]"#, "input[0].content[0].type", "`song`"),
    (r#"[{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:,"}]}]"#, "input[0].content[1]", "text only"),
    (r#"[{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]"#, "input[0].content[0]", "text only"),
    (r#"[{"role": "user", "content": [{"type": "input_audio"}]}]"#, "input[0].content[0]", "`input_audio`"),
    (r#"[{"role": "user", "content": "a"}, {"type": "function_call", "arguments": "{}"}]"#, "input[1].name", "missing"),
    (r#"[{"type": "function_call", "name": "a b", "arguments": "{}"}]"#, "input[0].name", "whitespace"),
    (r#"[{"type": "function_call", "name": "f", "arguments": "{"}]"#, "input[0].arguments", "not valid JSON"),
    (r#"[{"type": "function_call", "name": "f", "arguments": "[1]"}]"#, "input[0].arguments", "must hold an object"),
    (r#"[{"type": "function_call", "name": "f", "call_id": 1}]"#, "input[0].call_id", "a string"),
    (r#"[{"type": "function_call", "name": "f", "namespace": 1}]"#, "input[0].namespace", "a string"),
    (r#"[{"type": "function_call_output", "call_id": "c"}]"#, "input[0].output", "missing"),
    (r#"[{"type": "function_call_output", "call_id": "c", "output": {}}]"#, "input[0].output", "a string or an array"),
    (r#"[{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image"}]}]"#, "input[0].output[0]", "text only"),
    (r#"[{"type": "custom_tool_call", "name": "p"}]"#, "input[0].input", "missing"),
    (r#"[{"type": "custom_tool_call", "input": "x"}]"#, "input[0].name", "missing"),
    (r#"[{"type": "reasoning", "summary": "x"}]"#, "input[0].summary", "an array"),
    (r#"[{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text"}]}]"#, "input[0].content[0].text", "missing"),
    (r#"[{"type": "reasoning", "encrypted_content": 5}]"#, "input[0].encrypted_content", "a string"),
    (r#"[{"type": "item_reference"}]"#, "input[0].id", "missing"),
    (r#"[{"type": "item_reference", "id": "msg_0"}]"#, "input[0].id", "not stored"),
    (r#"[{"id": "msg_0"}]"#, "input[0].id", "not stored"),
    (r#"[{"role": "user", "content": "a", "id": 5}]"#, "input[0].id", "a string"),
    (r#"[{"type": "web_search_call", "action": "x"}]"#, "input[0].action", "not valid JSON"),
];

#[tokio::test]
async fn malformed_bodies_are_refused_with_the_field_named() {
    let router = support::router("never reached");
    let deep = format!(r#"{{"x": {}1{}}}"#, "[".repeat(70), "]".repeat(70));
    let long_name = "n".repeat(300);
    let many = |n: usize| (0..n).map(|i| format!(r#""k{i}": "v""#)).collect::<Vec<_>>().join(",");
    let tools = (0..1100).map(|i| format!(r#"{{"type": "function", "name": "f{i}"}}"#));
    let tools = tools.collect::<Vec<_>>().join(",");
    let fields = FIELDS.iter().map(|&(fields, p, m)| (fields.to_owned(), p, m)).chain([
        (
            format!(r#""tools": [{{"type": "function", "name": "{long_name}"}}]"#),
            "tools[0].name",
            "256",
        ),
        (
            format!(r#""tools": [{{"type": "function", "name": "f", "parameters": {deep}}}]"#),
            "tools[0].parameters",
            "64 levels",
        ),
        (format!(r#""tools": [{tools}]"#), "tools", "1024"),
        (format!(r#""metadata": {{{}}}"#, many(17)), "metadata", "16 are allowed"),
        (format!(r#""metadata": {{"a": "{}"}}"#, "x".repeat(5_000)), "metadata.a", "2304 bytes"),
        (
            format!(
                r#""text": {{"format": {{"type": "json_schema", "name": "x", "schema": {deep}}}}}"#
            ),
            "text.format.schema",
            "64 levels",
        ),
    ]);
    for (fields, param, mentions) in fields {
        let body = format!(r#"{{"input": "hi", {fields}}}"#);
        refused(&router, &body, Some(param), mentions).await;
    }
    for (body, param, mentions) in [
        ("", None, "line 1 column 0"),
        ("[]", None, "an object"),
        ("{\"input\": \n [}", None, "line 2 column 3"),
        (r#"{"input": "hi"} trailing"#, None, "trailing"),
        ("{}", Some("input"), "missing"),
    ] {
        refused(&router, body, param, mentions).await;
    }
}

#[tokio::test]
async fn malformed_items_are_refused_with_their_path() {
    let router = support::router("never reached");
    let parts = vec![r#"{"type": "input_text", "text": ""}"#; 4_097].join(",");
    let many = vec![r#"{"role": "user", "content": ""}"#; 16_385].join(",");
    let inputs = INPUTS.iter().map(|&(input, p, m)| (input.to_owned(), p, m)).chain([
        (
            format!(r#"[{{"role": "user", "content": [{parts}]}}]"#),
            "input[0].content",
            "4096 are allowed",
        ),
        (format!("[{many}]"), "input", "16384 are allowed"),
        (format!(r#""{}""#, "x".repeat(5_000)), "input", "4096"),
    ]);
    for (input, param, mentions) in inputs {
        refused(&router, &format!(r#"{{"input": {input}}}"#), Some(param), mentions).await;
    }
}

async fn refused(router: &Router, body: &str, param: Option<&str>, mentions: &str) {
    let reply = send(router, post("/v1/responses", body.to_owned())).await;
    let shown = &body[..body.floor_char_boundary(300)];
    assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{shown}: {}", reply.text);
    assert_error(&reply, param, mentions, shown);
}

#[track_caller]
fn assert_error(reply: &Reply, param: Option<&str>, mentions: &str, shown: &str) {
    let json = reply.json();
    let keys: Vec<_> = json["error"].as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["message", "type", "param", "code"], "{shown}");
    assert_eq!(json["error"]["type"], "invalid_request_error", "{shown}");
    assert_eq!(json["error"]["param"], json!(param), "{shown}: {}", reply.text);
    let message = json["error"]["message"].as_str().expect("a string");
    assert!(message.contains(mentions), "{shown}: `{mentions}` is not in: {message}");
    assert!(message.len() < 600, "{shown}: a message of {} bytes", message.len());
}

#[tokio::test]
async fn what_is_not_stored_is_not_found() {
    let router = support::router("never reached");
    let body = json!({"input": "hi", "previous_response_id": "resp_0"}).to_string();
    let reply = send(&router, post("/v1/responses", body)).await;
    assert_eq!(reply.status, StatusCode::NOT_FOUND);
    let message = "Previous response with id 'resp_0' not found.";
    assert_error(&reply, Some("previous_response_id"), message, "a chain");
    assert_eq!(reply.json()["error"]["code"], "previous_response_not_found");
    for (method, path) in [
        (Method::GET, "/v1/responses/resp_0"),
        (Method::DELETE, "/v1/responses/resp_0"),
        (Method::GET, "/v1/responses/resp_0/input_items"),
    ] {
        let request = Request::builder().method(method).uri(path).body(Body::empty());
        let reply = send(&router, request.expect("valid")).await;
        assert_eq!(reply.status, StatusCode::NOT_FOUND, "{path}");
        assert_error(&reply, None, "Response with id 'resp_0' not found.", path);
    }
}

#[tokio::test]
async fn pages_of_items_are_checked() {
    let router = support::router("Hello");
    let body = json!({"input": "hi"}).to_string();
    let id = send(&router, post("/v1/responses", body)).await.json()["id"].clone();
    for (query, param) in [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=x", "limit"),
        ("order=up", "order"),
        ("after=msg_0", "after"),
    ] {
        let path = format!("/v1/responses/{}/input_items?{query}", id.as_str().expect("a string"));
        let reply = send(&router, Request::get(path).body(Body::empty()).expect("valid")).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{query}");
        assert_error(&reply, Some(param), "is `", query);
    }
    let path = format!("/v1/responses/{}?stream=true", id.as_str().expect("a string"));
    let reply = send(&router, Request::get(path).body(Body::empty()).expect("valid")).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert_error(&reply, Some("stream"), "not streamed again", "stream");
}

#[tokio::test]
async fn null_equals_absent_and_unknown_fields_pass() {
    let router = support::router("fine");
    let mut body = json!({"input": "hi", "client_metadata": {"x": 1}, "made_up": [1], "tools": [
        {"type": "function", "name": "f", "description": null, "parameters": null, "strict": null},
        {"type": "custom", "name": "p", "description": null, "format": null},
        {"type": "namespace", "name": "n", "description": null, "tools": []},
        {"type": "web_search", "external_web_access": false},
    ]});
    for field in [
        "model",
        "instructions",
        "previous_response_id",
        "tool_choice",
        "parallel_tool_calls",
        "max_tool_calls",
        "text",
        "reasoning",
        "include",
        "max_output_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "presence_penalty",
        "frequency_penalty",
        "seed",
        "top_logprobs",
        "store",
        "stream",
        "stream_options",
        "truncation",
        "background",
        "conversation",
        "prompt",
        "context_management",
        "metadata",
        "user",
        "safety_identifier",
        "prompt_cache_key",
        "service_tier",
        "moderation",
    ] {
        body[field] = Value::Null;
    }
    let reply = send(&router, post("/v1/responses", body.to_string())).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let inner = json!({"input": [{"role": "user", "content": null, "id": null, "status": null}],
        "text": {"format": null, "verbosity": null},
        "reasoning": {"effort": null, "summary": null, "generate_summary": null, "context": null}});
    let reply = send(&router, post("/v1/responses", inner.to_string())).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
}
