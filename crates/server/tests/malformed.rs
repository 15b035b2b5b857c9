//! Requests that must be refused: with the right status, naming the field, saying what is wrong.

mod support;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use support::{Reply, chat_with, send};

/// A request and what its refusal must say.
struct Case<'a> {
    body: &'a str,
    status: u16,
    param: Option<&'a str>,
    mentions: &'a str,
}

/// Fields beside a valid message, the `param` of their refusal, and a word of it.
#[rustfmt::skip]
const FIELDS: &[(&str, &str, &str)] = &[
    (r#""stream": "yes""#, "stream", "a boolean"),
    (r#""stream": 1"#, "stream", "a boolean"),
    (r#""stream_options": {"include_usage": true}"#, "stream_options", "needs `stream`"),
    (r#""stream": true, "stream_options": {"include_usage": 1}"#, "stream_options.include_usage", "a boolean"),
    (r#""stream": true, "stream_options": []"#, "stream_options", "an object"),
    (r#""model": 5"#, "model", "a string"),
    (r#""max_tokens": 0"#, "max_tokens", "at least 1"),
    (r#""max_tokens": -1"#, "max_tokens", "from 0"),
    (r#""max_tokens": 1.5"#, "max_tokens", "integer"),
    (r#""max_tokens": "10""#, "max_tokens", "integer"),
    (r#""max_completion_tokens": 0"#, "max_completion_tokens", "at least 1"),
    (r#""max_completion_tokens": [1]"#, "max_completion_tokens", "integer"),
    (r#""n": 0"#, "n", "from 1 to 8"),
    (r#""n": 9"#, "n", "from 1 to 8"),
    (r#""n": true"#, "n", "integer"),
    (r#""temperature": -0.1"#, "temperature", "from 0 to 2"),
    (r#""temperature": 2.1"#, "temperature", "is 2.1"),
    (r#""temperature": "hot""#, "temperature", "\"hot\""),
    (r#""top_p": 1.5"#, "top_p", "from 0 to 1"),
    (r#""top_p": -1"#, "top_p", "from 0 to 1"),
    (r#""top_k": -2"#, "top_k", "-1"),
    (r#""top_k": 2.5"#, "top_k", "integer"),
    (r#""top_k": 5000000000"#, "top_k", "5000000000"),
    (r#""min_p": 2"#, "min_p", "from 0 to 1"),
    (r#""presence_penalty": 3"#, "presence_penalty", "from -2 to 2"),
    (r#""frequency_penalty": -3"#, "frequency_penalty", "from -2 to 2"),
    (r#""repetition_penalty": 0"#, "repetition_penalty", "more than 0"),
    (r#""repetition_penalty": 9"#, "repetition_penalty", "to 2"),
    (r#""seed": 1.5"#, "seed", "an integer"),
    (r#""seed": "x""#, "seed", "number"),
    (r#""logit_bias": [1]"#, "logit_bias", "an object"),
    (r#""logit_bias": {"abc": 1}"#, "logit_bias.abc", "token id"),
    (r#""logit_bias": {"5": 101}"#, "logit_bias.5", "-100 to 100"),
    (r#""logit_bias": {"5": null}"#, "logit_bias.5", "a number"),
    (r#""logprobs": 3"#, "logprobs", "a boolean"),
    (r#""top_logprobs": 2"#, "top_logprobs", "needs `logprobs`"),
    (r#""logprobs": true, "top_logprobs": 21"#, "top_logprobs", "from 0 to 20"),
    (r#""stop": """#, "stop", "is empty"),
    (r#""stop": 3"#, "stop", "a string or an array"),
    (r#""stop": ["a", ""]"#, "stop[1]", "is empty"),
    (r#""stop": ["a", 1]"#, "stop[1]", "a string"),
    (r#""stop": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]"#, "stop", "16 are allowed"),
    (r#""tools": {}"#, "tools", "an array"),
    (r#""tools": ["f"]"#, "tools[0]", "an object"),
    (r#""tools": [{}]"#, "tools[0].type", "missing"),
    (r#""tools": [{"type": 1}]"#, "tools[0].type", "a string"),
    (r#""tools": [{"type": "web_search"}]"#, "tools[0].type", "`web_search`"),
    (r#""tools": [{"type": "function"}]"#, "tools[0].function", "missing"),
    (r#""tools": [{"type": "function", "function": "f"}]"#, "tools[0].function", "an object"),
    (r#""tools": [{"type": "function", "function": {}}]"#, "tools[0].function.name", "missing"),
    (r#""tools": [{"type": "function", "function": {"name": ""}}]"#, "tools[0].function.name", "from 1 to 256"),
    (r#""tools": [{"type": "function", "function": {"name": "a b"}}]"#, "tools[0].function.name", "whitespace"),
    (r#""tools": [{"type": "function", "function": {"name": "a>b"}}]"#, "tools[0].function.name", "< and >"),
    (r#""tools": [{"type": "function", "function": {"name": 7}}]"#, "tools[0].function.name", "a string"),
    (r#""tools": [{"type": "function", "function": {"name": "f", "description": 7}}]"#, "tools[0].function.description", "a string"),
    (r#""tools": [{"type": "function", "function": {"name": "f", "parameters": "{}"}}]"#, "tools[0].function.parameters", "an object"),
    (r#""tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "f"}}]"#, "tools[1].function.name", "another tool"),
    (r#""tool_choice": "required""#, "tool_choice", "`tools` is empty"),
    (r#""tool_choice": {"type": "function", "function": {"name": "f"}}"#, "tool_choice", "names `f`"),
    (r#""tool_choice": {"type": "function", "function": {}}"#, "tool_choice.function.name", "missing"),
    (r#""tool_choice": {"type": "function", "function": {"name": 1}}"#, "tool_choice.function.name", "a string"),
    (r#""tool_choice": {"type": "custom", "custom": {"name": "f"}}"#, "tool_choice.type", "`custom`"),
    (r#""tool_choice": {}"#, "tool_choice.type", "missing"),
    (r#""tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}"#, "tool_choice.allowed_tools.tools", "an array"),
    (r#""tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}"#, "tool_choice.allowed_tools.tools", "is empty"),
    (r#""tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "all", "tools": [{"name": "f"}]}}"#, "tool_choice.allowed_tools.mode", "`all`"),
    (r#""tool_choice": "any""#, "tool_choice", "`any`"),
    (r#""tool_choice": 3"#, "tool_choice", "a string or an object"),
    (r#""parallel_tool_calls": "no""#, "parallel_tool_calls", "a boolean"),
    (r#""response_format": {"type": "xml"}"#, "response_format.type", "`xml`"),
    (r#""response_format": {"type": "json_schema"}"#, "response_format.json_schema", "missing"),
    (r#""response_format": {"type": "json_schema", "json_schema": {}}"#, "response_format.json_schema.schema", "missing"),
    (r#""response_format": {"type": "json_schema", "json_schema": {"schema": 5}}"#, "response_format.json_schema.schema", "an object"),
    (r#""response_format": {"type": "grammar"}"#, "response_format.grammar", "missing"),
    (r#""response_format": {"type": "regex", "regex": ""}"#, "response_format.regex", "is empty"),
    (r#""grammar": """#, "grammar", "is empty"),
    (r#""grammar": 1"#, "grammar", "a string"),
    (r#""regex": "a", "grammar": "start: A""#, "regex", "one form"),
    (r#""regex": "a", "response_format": {"type": "json_object"}"#, "regex", "one form"),
    (r#""thinking_budget": -1"#, "thinking_budget", "from 0"),
    (r#""continue_final_message": "yes""#, "continue_final_message", "a boolean"),
    (r#""continue_final_message": true, "add_generation_prompt": true"#, "continue_final_message", "add_generation_prompt"),
    (r#""add_generation_prompt": false"#, "add_generation_prompt", "continue_final_message"),
    (r#""response_format": {}"#, "response_format.type", "missing"),
    (r#""response_format": "json""#, "response_format", "an object"),
    (r#""reasoning_effort": "extreme""#, "reasoning_effort", "`extreme`"),
    (r#""reasoning_effort": 3"#, "reasoning_effort", "a string"),
    (r#""enable_thinking": "false""#, "enable_thinking", "a boolean"),
    (r#""chat_template_kwargs": []"#, "chat_template_kwargs", "an object"),
    (r#""chat_template_kwargs": {"enable_thinking": "false"}"#, "chat_template_kwargs.enable_thinking", "true or false"),
    (r#""chat_template_kwargs": {"preserve_thinking": 1}"#, "chat_template_kwargs.preserve_thinking", "true or false"),
    (r#""chat_template_kwargs": {"messages": []}"#, "chat_template_kwargs.messages", "by the server"),
    (r#""modalities": ["text", "audio"]"#, "modalities[1]", "text only"),
    (r#""audio": {"voice": "x"}"#, "audio", "text only"),
    (r#""functions": []"#, "functions", "`tools`"),
    (r#""function_call": "auto""#, "function_call", "`tool_choice`"),
    (r#""web_search_options": {}"#, "web_search_options", "no network"),
    (r#""ignore_eos": 1"#, "ignore_eos", "a boolean"),
    (r#""n": 1, "n": 2"#, "n", "twice"),
];

/// The same for `messages`.
#[rustfmt::skip]
const MESSAGES: &[(&str, &str, &str)] = &[
    ("null", "messages", "an array"),
    ("{}", "messages", "an array"),
    ("[]", "messages", "is empty"),
    (r#"["hi"]"#, "messages[0]", "an object"),
    (r#"[["user", "hi"]]"#, "messages[0]", "an object"),
    (r#"[{"content": "hi"}]"#, "messages[0].role", "missing"),
    (r#"[{"role": 1, "content": "hi"}]"#, "messages[0].role", "a string"),
    (r#"[{"role": "robot", "content": "hi"}]"#, "messages[0].role", "`robot`"),
    (r#"[{"role": "user", "content": 5}]"#, "messages[0].content", "a string or an array"),
    (r#"[{"role": "user", "content": {"text": "hi"}}]"#, "messages[0].content", "a string or an array"),
    (r#"[{"role": "user", "content": ["hi"]}]"#, "messages[0].content[0]", "an object"),
    (r#"[{"role": "user", "content": [{"text": "hi"}]}]"#, "messages[0].content[0].type", "missing"),
    (r#"[{"role": "user", "content": [{"type": "text"}]}]"#, "messages[0].content[0].text", "missing"),
    (r#"[{"role": "user", "content": [{"type": "text", "text": 1}]}]"#, "messages[0].content[0].text", "a string"),
    (r#"[{"role": "user", "content": [{"type": "song", "text": "la"}]}]"#, "messages[0].content[0].type", "`song`"),
    (r#"[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:,"}}]}]"#, "messages[0].content[1]", "this server reads no images yet"),
    (r#"[{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]"#, "messages[0].content[0]", "text only"),
    (r#"[{"role": "user", "content": [{"type": "file", "file": {}}]}]"#, "messages[0].content[0]", "text only"),
    (r#"[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "audio": {"id": "x"}}]"#, "messages[1].audio", "text only"),
    (r#"[{"role": "user", "content": "a"}, {"role": "assistant", "function_call": {"name": "f"}}]"#, "messages[1].function_call", "`tool_calls`"),
    (r#"[{"role": "assistant", "content": "b", "reasoning_content": ["x"]}]"#, "messages[0].reasoning_content", "a string"),
    (r#"[{"role": "assistant", "tool_calls": {}}]"#, "messages[0].tool_calls", "an array"),
    (r#"[{"role": "assistant", "tool_calls": [{}]}]"#, "messages[0].tool_calls[0].function", "missing"),
    (r#"[{"role": "assistant", "tool_calls": [{"function": {}}]}]"#, "messages[0].tool_calls[0].function.name", "missing"),
    (r#"[{"role": "assistant", "tool_calls": [{"type": "custom", "function": {"name": "f"}}]}]"#, "messages[0].tool_calls[0].type", "`custom`"),
    (r#"[{"role": "assistant", "tool_calls": [{"function": {"name": "f f"}}]}]"#, "messages[0].tool_calls[0].function.name", "whitespace"),
    (r#"[{"role": "assistant", "tool_calls": [{"function": {"name": "f"}, "id": 5}]}]"#, "messages[0].tool_calls[0].id", "a string"),
];

#[tokio::test]
async fn malformed_bodies_are_refused_with_the_field_named() {
    let router = support::router("never reached");
    let long_name = "n".repeat(300);
    let deep = format!("{}1{}", "[".repeat(70), "]".repeat(70));
    let too_deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let long_stop = "x".repeat(2000);
    let many_biases: Vec<_> = (0..1100).map(|i| format!(r#""{i}":1"#)).collect();
    let many_kwargs: Vec<_> = (0..70).map(|i| format!(r#""k{i}":1"#)).collect();
    let fields = FIELDS.iter().map(|&(fields, p, m)| (fields.to_owned(), p, m)).chain([
        (format!(r#""stop": "{long_stop}""#), "stop", "1024 bytes"),
        (format!(r#""tools": [{{"type": "function", "function": {{"name": "{long_name}"}}}}]"#), "tools[0].function.name", "256"),
        (format!(r#""tools": [{{"type": "function", "function": {{"name": "f", "parameters": {{"x": {deep}}}}}}}]"#), "tools[0].function.parameters", "64 levels"),
        (format!(r#""chat_template_kwargs": {{"x": {deep}}}"#), "chat_template_kwargs.x", "64 levels"),
        (format!(r#""chat_template_kwargs": {{{}}}"#, many_kwargs.join(",")), "chat_template_kwargs", "64 entries"),
        (format!(r#""logit_bias": {{{}}}"#, many_biases.join(",")), "logit_bias", "1024 are allowed"),
    ]);
    for (fields, param, mentions) in fields {
        let body = format!(r#"{{"messages": [{{"role": "user", "content": "hi"}}], {fields}}}"#);
        check(&router, Case { body: &body, status: 400, param: Some(param), mentions }).await;
    }
    let deep_body = format!(r#"{{"messages": [], "tool_choice": {too_deep}}}"#);
    for (body, param, mentions) in [
        ("", None, "line 1 column 0"),
        ("hello", None, "not valid JSON"),
        ("[]", None, "an object"),
        ("\"messages\"", None, "an object"),
        ("{\"messages\":\n [}", None, "line 2 column 3"),
        ("{\"messages\": [\"\u{1}\"]}", None, "not valid JSON"),
        (r#"{"messages": [{"role": "user", "content": "hi"}]} trailing"#, None, "trailing"),
        (r#"{"messages": [], "temperature": 1e999}"#, None, "out of range"),
        (deep_body.as_str(), None, "recursion"),
        ("{}", Some("messages"), "missing"),
    ] {
        check(&router, Case { body, status: 400, param, mentions }).await;
    }
}

#[tokio::test]
async fn malformed_messages_are_refused_with_their_path() {
    let router = support::router("never reached");
    let bad_args = |arguments: &str| {
        format!(
            r#"[{{"role": "user", "content": "hi"}}, {{"role": "assistant", "tool_calls": [{{"id": "c", "type": "function", "function": {{"name": "f", "arguments": {arguments}}}}}]}}]"#
        )
    };
    let deep = format!(r#"{{"x": {}1{}}}"#, "[".repeat(70), "]".repeat(70));
    let rows = MESSAGES.iter().map(|&(messages, p, m)| (messages.to_owned(), p, m)).chain([
        (bad_args(r#""{""#), "messages[1].tool_calls[0].function.arguments", "not valid JSON"),
        (
            bad_args(r#""[1]""#),
            "messages[1].tool_calls[0].function.arguments",
            "must hold an object",
        ),
        (bad_args("3"), "messages[1].tool_calls[0].function.arguments", "must hold an object"),
        (bad_args(&deep), "messages[1].tool_calls[0].function.arguments", "64 levels"),
    ]);
    for (messages, param, mentions) in rows {
        let body = format!(r#"{{"messages": {messages}}}"#);
        check(&router, Case { body: &body, status: 400, param: Some(param), mentions }).await;
    }
}

async fn check(router: &axum::Router, case: Case<'_>) {
    let reply = send(router, support::post("/v1/chat/completions", case.body.to_owned())).await;
    let shown = &case.body[..case.body.floor_char_boundary(300)];
    assert_eq!(reply.status.as_u16(), case.status, "{shown}: {}", reply.text);
    assert_error(&reply, "invalid_request_error", case.param, case.mentions, shown);
}

#[track_caller]
fn assert_error(reply: &Reply, kind: &str, param: Option<&str>, mentions: &str, shown: &str) {
    let json: Value = serde_json::from_str(&reply.text).expect("errors are JSON");
    let keys: Vec<_> = json["error"].as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["message", "type", "param", "code"], "{shown}");
    assert_eq!(json["error"]["type"], kind, "{shown}");
    assert_eq!(json["error"]["param"], json!(param), "{shown}: {}", reply.text);
    let message = json["error"]["message"].as_str().expect("a string");
    assert!(message.contains(mentions), "{shown}: `{mentions}` is not in: {message}");
    assert!(message.len() < 600, "{shown}: a message of {} bytes", message.len());
    assert!(reply.header("x-request-id").is_some(), "{shown}");
}

#[tokio::test]
async fn wrong_routes_methods_and_media_are_refused() {
    let router = support::router("never reached");
    let request = |method: Method, path: &str, media: Option<&str>| {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(media) = media {
            request = request.header("content-type", media);
        }
        request.body(Body::from("{}")).unwrap()
    };
    for (request, status, mentions) in [
        (request(Method::GET, "/v1/nothing", None), 404, "GET /v1/nothing"),
        (request(Method::POST, "/", None), 405, "does not take POST"),
        (request(Method::GET, "/v1/chat/completions", None), 405, "does not take GET"),
        (request(Method::OPTIONS, "/v1/chat/completions", None), 405, "OPTIONS"),
        (request(Method::DELETE, "/v1/models/demo", None), 405, "DELETE"),
        (request(Method::GET, "/v1/models/other", None), 404, "`other`"),
        (request(Method::POST, "/v1/chat/completions", None), 415, "application/json"),
        (request(Method::POST, "/v1/chat/completions", Some("text/plain")), 415, "text/plain"),
    ] {
        let shown = format!("{} {}", request.method(), request.uri());
        let reply = send(&router, request).await;
        assert_eq!(reply.status.as_u16(), status, "{shown}: {}", reply.text);
        assert_error(&reply, "invalid_request_error", None, mentions, &shown);
        if status == 405 {
            assert!(reply.header("allow").is_some(), "{shown}");
        }
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_announced_or_not() {
    let router = support::router_with("never reached", |config| config.max_body_bytes = 1000);
    let body = chat_with(&json!({"user": "x".repeat(1000)})).to_string();
    let announced = send(&router, support::post("/v1/chat/completions", body.clone())).await;
    let pieces = body.into_bytes().into_iter().map(|b| Ok::<_, std::io::Error>(vec![b]));
    let stream = Body::from_stream(futures_util::stream::iter(pieces));
    let request = Request::post("/v1/chat/completions")
        .header("content-type", "application/json; charset=utf-8")
        .body(stream)
        .unwrap();
    let streamed = send(&router, request).await;
    for reply in [announced, streamed] {
        assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_error(&reply, "invalid_request_error", None, "1000 bytes", "large");
    }
}

#[tokio::test]
async fn null_equals_absent_and_unknown_fields_pass() {
    let router = support::router("fine");
    let nulls = json!({
        "model": null, "stream": null, "stream_options": null, "max_tokens": null,
        "max_completion_tokens": null, "n": null, "stop": null, "seed": null,
        "temperature": null, "top_p": null, "top_k": null, "min_p": null,
        "presence_penalty": null, "frequency_penalty": null, "repetition_penalty": null,
        "logit_bias": null, "logprobs": null, "top_logprobs": null, "tools": null,
        "tool_choice": null, "parallel_tool_calls": null, "response_format": null,
        "reasoning_effort": null, "enable_thinking": null, "thinking_budget": null, "grammar": null,
        "regex": null, "continue_final_message": null, "add_generation_prompt": null, "chat_template_kwargs": null,
        "ignore_eos": null, "modalities": null, "audio": null, "functions": null,
        "function_call": null, "web_search_options": null, "user": "me", "made_up": {"x": [1]},
    });
    let reply =
        send(&router, support::post("/v1/chat/completions", chat_with(&nulls).to_string())).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
}
