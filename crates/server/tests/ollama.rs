//! Ollama's API: refusals, and streams that say what the complete answers say.

mod support;

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};
use support::{Reply, post, send, without_ids};

const CALLS: &str = "I look it up.\n</think>\n\nOne moment.\n\n<tool_call>\n<function=weather>\n\
    <parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n\
    </tool_call>\n<tool_call>\n<function=weather>\n<parameter=city>\nBergen\n</parameter>\n\
    </function>\n</tool_call>";

/// Fields beside a valid message or prompt, and words of their refusal.
#[rustfmt::skip]
const SHARED: &[(&str, &str)] = &[
    (r#""model": 5"#, "`model` has a wrong type"),
    (r#""stream": "yes""#, "`stream` has a wrong type"),
    (r#""stream": 0"#, "`stream` has a wrong type"),
    (r#""format": "xml""#, "`format` is `xml`"),
    (r#""format": 5"#, "`format` has a wrong type"),
    (r#""format": ["json"]"#, "`format` has a wrong type"),
    (r#""format": true"#, "`format` has a wrong type"),
    (r#""think": "a lot""#, "`think` is `a lot`"),
    (r#""think": 3"#, "`think` has a wrong type"),
    (r#""think": {}"#, "`think` has a wrong type"),
    (r#""options": []"#, "`options` has a wrong type"),
    (r#""options": "x""#, "`options` has a wrong type"),
    (r#""options": {"num_predict": -3}"#, "`options.num_predict` is -3"),
    (r#""options": {"num_predict": "all"}"#, "`options.num_predict` has a wrong type"),
    (r#""options": {"num_predict": 1.5}"#, "`options.num_predict` has a wrong type"),
    (r#""options": {"temperature": -1}"#, "`options.temperature` is -1"),
    (r#""options": {"temperature": 101}"#, "`options.temperature` is 101"),
    (r#""options": {"temperature": "hot"}"#, "`options.temperature` has a wrong type"),
    (r#""options": {"top_k": -2}"#, "`options.top_k` is -2"),
    (r#""options": {"top_k": 1.5}"#, "`options.top_k` has a wrong type"),
    (r#""options": {"top_p": 1.1}"#, "`options.top_p` is 1.1"),
    (r#""options": {"top_p": 0}"#, "`top_p` is 0"),
    (r#""options": {"top_p": []}"#, "`options.top_p` has a wrong type"),
    (r#""options": {"min_p": 2}"#, "`options.min_p` is 2"),
    (r#""options": {"min_p": "x"}"#, "`options.min_p` has a wrong type"),
    (r#""options": {"seed": 1.5}"#, "`options.seed` is 1.5"),
    (r#""options": {"seed": "x"}"#, "`options.seed` has a wrong type"),
    (r#""options": {"stop": 3}"#, "`options.stop` has a wrong type"),
    (r#""options": {"stop": ""}"#, "`options.stop` is empty"),
    (r#""options": {"stop": ["a", ""]}"#, "`options.stop[1]` is empty"),
    (r#""options": {"stop": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]}"#, "16 are allowed"),
    (r#""options": {"repeat_penalty": 0}"#, "`options.repeat_penalty` must be more than 0"),
    (r#""options": {"repeat_penalty": 3}"#, "`options.repeat_penalty` is 3"),
    (r#""options": {"repeat_penalty": "x"}"#, "`options.repeat_penalty` has a wrong type"),
    (r#""options": {"presence_penalty": 3}"#, "`options.presence_penalty` is 3"),
    (r#""options": {"frequency_penalty": -3}"#, "`options.frequency_penalty` is -3"),
    (r#""options": {"top_k": 1, "top_k": 2}"#, "`options.top_k` is given twice"),
    (r#""logprobs": 3"#, "`logprobs` has a wrong type"),
    (r#""top_logprobs": 3"#, "`top_logprobs` needs `logprobs`"),
    (r#""logprobs": true, "top_logprobs": 21"#, "`top_logprobs` is 21"),
    (r#""logprobs": true, "top_logprobs": -1"#, "`top_logprobs` has a wrong type"),
];

/// The same of `/api/chat` alone.
#[rustfmt::skip]
const CHAT: &[(&str, &str)] = &[
    (r#""tools": {}"#, "`tools` has a wrong type"),
    (r#""tools": ["f"]"#, "`tools[0]` has a wrong type"),
    (r#""tools": [{}]"#, "`tools[0].type` is missing"),
    (r#""tools": [{"type": "web_search"}]"#, "`tools[0].type` is `web_search`"),
    (r#""tools": [{"type": "function"}]"#, "`tools[0].function` is missing"),
    (r#""tools": [{"type": "function", "function": {}}]"#, "`tools[0].function.name` is missing"),
    (r#""tools": [{"type": "function", "function": {"name": "a b"}}]"#, "`tools[0].function.name` is `a b`"),
    (r#""tools": [{"type": "function", "function": {"name": "f", "parameters": 1}}]"#, "`tools[0].function.parameters` has a wrong type"),
];

/// The same of `/api/generate` alone.
#[rustfmt::skip]
const GENERATE: &[(&str, &str)] = &[
    (r#""suffix": "x""#, "`suffix` is not served"),
    (r#""suffix": 5"#, "`suffix` has a wrong type"),
    (r#""template": "{{ .Prompt }}""#, "`template` is not served"),
    (r#""template": {}"#, "`template` has a wrong type"),
    (r#""images": ["aGk="]"#, "`images` holds an image"),
    (r#""images": "aGk=""#, "`images` has a wrong type"),
    (r#""context": [1, 2]"#, "`context` is the old form"),
    (r#""context": "x""#, "`context` has a wrong type"),
    (r#""raw": 1"#, "`raw` has a wrong type"),
    (r#""raw": true, "system": "S""#, "`system` cannot be combined with `raw`"),
    (r#""system": ["S"]"#, "`system` has a wrong type"),
];

/// Values of `messages`.
#[rustfmt::skip]
const MESSAGES: &[(&str, &str)] = &[
    ("{}", "`messages` has a wrong type"),
    (r#""hi""#, "`messages` has a wrong type"),
    (r#"["hi"]"#, "`messages[0]` has a wrong type"),
    (r#"[["user", "hi"]]"#, "`messages[0]` has a wrong type"),
    (r#"[{"content": "hi"}]"#, "`messages[0].role` is missing"),
    (r#"[{"role": 1}]"#, "`messages[0].role` has a wrong type"),
    (r#"[{"role": "robot", "content": "hi"}]"#, "`messages[0].role` is `robot`"),
    (r#"[{"role": "user", "content": 5}]"#, "`messages[0].content` has a wrong type"),
    (r#"[{"role": "user", "content": [{"type": "text", "text": "hi"}]}]"#, "`messages[0].content` has a wrong type"),
    (r#"[{"role": "user", "content": "a"}, {"role": "user", "content": "b", "images": ["aGk="]}]"#, "`messages[1].images` holds an image"),
    (r#"[{"role": "user", "images": 5}]"#, "`messages[0].images` has a wrong type"),
    (r#"[{"role": "assistant", "thinking": 5}]"#, "`messages[0].thinking` has a wrong type"),
    (r#"[{"role": "assistant", "tool_calls": {}}]"#, "`messages[0].tool_calls` has a wrong type"),
    (r#"[{"role": "assistant", "tool_calls": ["f"]}]"#, "`messages[0].tool_calls[0]` has a wrong type"),
    (r#"[{"role": "assistant", "tool_calls": [{}]}]"#, "`messages[0].tool_calls[0].function` is missing"),
    (r#"[{"role": "assistant", "tool_calls": [{"function": {}}]}]"#, "`messages[0].tool_calls[0].function.name` is missing"),
    (r#"[{"role": "assistant", "tool_calls": [{"function": {"name": ""}}]}]"#, "`messages[0].tool_calls[0].function.name` must have from 1"),
    (r#"[{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}]"#, "`messages[0].tool_calls[0].function.arguments` holds an array"),
    (r#"[{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]"#, "`messages[0].tool_calls[0].function.arguments` is not valid JSON"),
    (r#"[{"role": "assistant", "tool_calls": [{"id": 4, "function": {"name": "f"}}]}]"#, "`messages[0].tool_calls[0].id` has a wrong type"),
    (r#"[{"role": "tool", "content": "x", "tool_call_id": 4}]"#, "`messages[0].tool_call_id` has a wrong type"),
];

#[track_caller]
fn assert_error(reply: &Reply, status: u16, mentions: &str, shown: &str) {
    let shown = &shown[..shown.floor_char_boundary(300)];
    assert_eq!(reply.status.as_u16(), status, "{shown}: {}", reply.text);
    let json = reply.json();
    let keys: Vec<_> = json.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["error"], "{shown}");
    let message = json["error"].as_str().expect("a string");
    assert!(message.contains(mentions), "{shown}: `{mentions}` is not in: {message}");
    assert!(message.len() < 600, "{shown}: a message of {} bytes", message.len());
    assert_eq!(reply.header("content-type"), Some("application/json"), "{shown}");
}

#[tokio::test]
async fn wrong_requests_are_refused_with_the_path() {
    let router = support::router("never reached");
    let deep = format!(r#"{{"x": {}1{}}}"#, "[".repeat(70), "]".repeat(70));
    let many = [
        (format!(r#""format": {deep}"#), "`format` is nested deeper"),
        (format!(r#""options": {{"stop": "{}"}}"#, "x".repeat(2_000)), "1024 bytes"),
    ];
    let shared = SHARED.iter().map(|&(fields, m)| (fields.to_owned(), m)).chain(many);
    for (fields, mentions) in shared {
        for (path, start) in [
            ("/api/chat", r#""messages": [{"role": "user", "content": "hi"}]"#),
            ("/api/generate", r#""prompt": "hi""#),
        ] {
            let body = format!("{{{start}, {fields}}}");
            let reply = send(&router, post(path, body.clone())).await;
            assert_error(&reply, 400, mentions, &body);
        }
    }
    for (fields, mentions) in CHAT {
        let body = format!(r#"{{"messages": [{{"role": "user", "content": "hi"}}], {fields}}}"#);
        let reply = send(&router, post("/api/chat", body.clone())).await;
        assert_error(&reply, 400, mentions, &body);
    }
    for (fields, mentions) in GENERATE {
        let body = format!(r#"{{"prompt": "hi", {fields}}}"#);
        let reply = send(&router, post("/api/generate", body.clone())).await;
        assert_error(&reply, 400, mentions, &body);
    }
    for (messages, mentions) in MESSAGES {
        let body = format!(r#"{{"messages": {messages}}}"#);
        let reply = send(&router, post("/api/chat", body.clone())).await;
        assert_error(&reply, 400, mentions, &body);
    }
    for (path, body, mentions) in [
        ("/api/chat", "", "not valid JSON"),
        ("/api/chat", "[]", "an object"),
        ("/api/generate", r#"{"prompt": 5}"#, "`prompt` has a wrong type"),
        ("/api/show", r#"{"model": 5}"#, "`model` has a wrong type"),
        ("/api/show", "x", "not valid JSON"),
    ] {
        assert_error(&send(&router, post(path, body.to_owned())).await, 400, mentions, body);
    }
}

#[tokio::test]
async fn what_is_not_there_is_said_in_ollamas_shape() {
    let router = support::router("never reached");
    for (method, path, status, mentions) in [
        (Method::POST, "/api/pull", 404, "/api/pull"),
        (Method::POST, "/api/embed", 404, "/api/embed"),
        (Method::GET, "/api/chat", 405, "does not take GET"),
        (Method::POST, "/api/tags", 405, "does not take POST"),
        (Method::POST, "/api/chat", 415, "application/json"),
    ] {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        assert_error(&send(&router, request).await, status, mentions, path);
    }
    let body = json!({"prompt": "x".repeat(5_000), "stream": false}).to_string();
    let reply = send(&router, post("/api/generate", body)).await;
    assert_error(&reply, 400, "the context holds", "long");
}

fn weather() -> Value {
    json!([{"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    }}}])
}

fn chat(fields: &Value) -> Value {
    let mut body = json!({"model": "any:latest", "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

async fn complete(path: &str, answer: &str, mut body: Value) -> Value {
    body["stream"] = json!(false);
    let reply = send(&support::router(answer), post(path, body.to_string())).await;
    assert_eq!(reply.status.as_u16(), 200, "{}", reply.text);
    reply.json()
}

/// The lines of a stream, which is what comes if nothing is said.
async fn streamed(path: &str, answer: &str, body: &Value) -> Vec<Value> {
    let reply = send(&support::router(answer), post(path, body.to_string())).await;
    assert_eq!(reply.header("content-type"), Some("application/x-ndjson"), "{}", reply.text);
    assert!(reply.text.ends_with('\n'));
    reply.text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// What clients put together from lines.
fn joined(lines: &[Value]) -> Value {
    let mut whole = lines.last().expect("a last line").clone();
    let text = |path: &str| {
        let texts = lines.iter().filter_map(|line| line.pointer(path).and_then(Value::as_str));
        texts.collect::<String>()
    };
    let list = |path: &str| {
        let lists = lines.iter().filter_map(|line| line.pointer(path).and_then(Value::as_array));
        lists.flatten().cloned().collect::<Vec<_>>()
    };
    if whole.get("message").is_some() {
        let message = &mut whole["message"];
        message["content"] = json!(text("/message/content"));
        if !text("/message/thinking").is_empty() {
            message["thinking"] = json!(text("/message/thinking"));
        }
        if !list("/message/tool_calls").is_empty() {
            message["tool_calls"] = json!(list("/message/tool_calls"));
        }
    } else {
        whole["response"] = json!(text("/response"));
        if !text("/thinking").is_empty() {
            whole["thinking"] = json!(text("/thinking"));
        }
    }
    if !list("/logprobs").is_empty() {
        whole["logprobs"] = json!(list("/logprobs"));
    }
    whole
}

/// Without what differs from run to run.
fn settled(mut answer: Value) -> Value {
    without_ids(&mut answer);
    let fields = answer.as_object_mut().expect("an object");
    fields.retain(|name, _| name != "created_at" && !name.ends_with("_duration"));
    answer
}

#[tokio::test]
async fn complete_and_streamed_answers_agree() {
    for answer in ["Hello.", "Hm.\n</think>\n\nYes: ž 漢字 👩‍👩‍👧", CALLS, "</think>\n\n", ""]
    {
        for fields in [
            json!({"tools": weather()}),
            json!({"tools": weather(), "think": false}),
            json!({"tools": weather(), "options": {"num_predict": 90}}),
            json!({"think": "low", "options": {"stop": ["e", "字"]}}),
            json!({"options": {"num_predict": 3}, "logprobs": true, "top_logprobs": 2}),
            json!({"logprobs": true}),
        ] {
            let body = chat(&fields);
            let complete = complete("/api/chat", answer, body.clone()).await;
            let streamed = joined(&streamed("/api/chat", answer, &body).await);
            assert_eq!(settled(complete), settled(streamed), "{answer:?} {fields}");
        }
        for fields in [
            json!({"prompt": "hi"}),
            json!({"prompt": "hi", "system": "S", "think": true}),
            json!({"prompt": "hi", "raw": true, "options": {"num_predict": -1}}),
            json!({"prompt": "hi", "options": {"num_predict": 4}, "logprobs": true}),
        ] {
            let complete = complete("/api/generate", answer, fields.clone()).await;
            let streamed = joined(&streamed("/api/generate", answer, &fields).await);
            assert_eq!(settled(complete), settled(streamed), "{answer:?} {fields}");
        }
    }
}

#[tokio::test]
async fn a_chat_answer_has_thinking_words_and_calls() {
    let answer = complete("/api/chat", CALLS, chat(&json!({"tools": weather()}))).await;
    for field in ["total_duration", "load_duration", "prompt_eval_duration", "eval_duration"] {
        assert!(answer[field].is_u64(), "{field}");
    }
    let created = answer["created_at"].as_str().unwrap();
    assert!(created.starts_with("20") && created.ends_with('Z'), "{created}");
    let mut answer = settled(answer);
    assert!(answer["prompt_eval_count"].take().as_u64().unwrap() > 10);
    assert!(answer["eval_count"].take().as_u64().unwrap() > 10);
    let call = |index: usize, arguments: Value| json!({"id": "call…", "function": {"index": index, "name": "weather", "arguments": arguments}});
    let expected = json!({
        "model": "demo",
        "message": {
            "role": "assistant", "content": "One moment.", "thinking": "I look it up.",
            "tool_calls": [
                call(0, json!({"city": "Oslo", "days": 2})), call(1, json!({"city": "Bergen"})),
            ],
        },
        "done": true, "done_reason": "stop", "prompt_eval_count": null, "eval_count": null,
    });
    assert_eq!(answer, expected);
}

/// One line a line, with neighbours of a kind joined.
fn outline(lines: &[Value]) -> String {
    let mut outline: Vec<String> = Vec::new();
    for line in lines {
        let mut kinds = Vec::new();
        for path in ["/message/thinking", "/message/content", "/thinking", "/response"] {
            if line.pointer(path).and_then(Value::as_str).is_some_and(|text| !text.is_empty()) {
                kinds.push(path.to_owned());
            }
        }
        for call in
            line.pointer("/message/tool_calls").and_then(Value::as_array).into_iter().flatten()
        {
            kinds.push(call["function"].to_string());
        }
        let keys: Vec<_> = line.as_object().unwrap().keys().map(String::as_str).collect();
        let kinds = kinds.join(" + ");
        let shown = format!("{kinds} done={} of {}", line["done"], keys.join(" "));
        if outline.last() != Some(&shown) {
            outline.push(shown);
        }
    }
    outline.join("\n")
}

#[tokio::test]
async fn order_of_thinking_words_and_calls() {
    let body = chat(&json!({"tools": weather()}));
    insta::assert_snapshot!(outline(&streamed("/api/chat", CALLS, &body).await));
}

#[tokio::test]
async fn order_of_a_generated_text() {
    let body = json!({"prompt": "hi", "logprobs": true});
    let answer = "Hm.\n</think>\n\nGrüße!";
    insta::assert_snapshot!(outline(&streamed("/api/generate", answer, &body).await));
}

#[tokio::test]
async fn the_end_is_named() {
    let reason = async |answer: &str, options: Value| {
        let body = chat(&json!({"think": false, "options": options}));
        let answer = complete("/api/chat", answer, body).await;
        (answer["done_reason"].clone(), answer["message"]["content"].clone())
    };
    assert_eq!(reason("Hello", json!({})).await, (json!("stop"), json!("Hello")));
    assert_eq!(reason("Hello", json!({"num_predict": 2})).await, (json!("length"), json!("He")));
    assert_eq!(reason("Hello", json!({"num_predict": -2})).await, (json!("stop"), json!("Hello")));
    assert_eq!(reason("Hello", json!({"stop": "lo"})).await, (json!("stop"), json!("Hel")));
}

#[tokio::test]
async fn nothing_asked_loads_the_model() {
    let router = support::router("never reached");
    for (path, body, reason) in [
        ("/api/chat", json!({"model": "m"}), "load"),
        ("/api/chat", json!({"model": "m", "messages": []}), "load"),
        ("/api/chat", json!({"model": "m", "messages": [], "keep_alive": 0}), "unload"),
        ("/api/generate", json!({"model": "m"}), "load"),
        ("/api/generate", json!({"model": "m", "prompt": "", "keep_alive": "10m"}), "load"),
        ("/api/generate", json!({"model": "m", "prompt": "", "keep_alive": "0"}), "unload"),
    ] {
        let reply = send(&router, post(path, body.to_string())).await;
        let json = reply.json();
        assert_eq!((&json["done"], &json["done_reason"]), (&json!(true), &json!(reason)), "{body}");
        if path == "/api/chat" {
            assert_eq!(json["message"], json!({"role": "assistant", "content": ""}));
        } else {
            assert_eq!(json["response"], "");
        }
    }
}

#[tokio::test]
async fn the_served_model_is_shown() {
    let router = support::router("never reached");
    let get = |path: &str| Request::get(path).body(Body::empty()).unwrap();
    let tags = send(&router, get("/api/tags")).await.json();
    assert_eq!(tags["models"][0]["name"], "demo:latest");
    assert_eq!(tags["models"][0]["digest"].as_str().unwrap().len(), 64);
    let ps = send(&router, get("/api/ps")).await.json();
    assert_eq!(ps["models"][0]["context_length"], 4096);
    assert_eq!(ps["models"][0]["digest"], tags["models"][0]["digest"]);
    assert!(send(&router, get("/api/version")).await.json()["version"].is_string());
    for body in [json!({"model": "demo"}), json!({"name": "any:7b", "verbose": true})] {
        let shown = send(&router, post("/api/show", body.to_string())).await.json();
        let architecture = shown["model_info"]["general.architecture"].as_str().unwrap();
        assert_eq!(shown["model_info"][format!("{architecture}.context_length")], 4096);
        assert_eq!(shown["capabilities"], json!(["completion", "tools", "thinking"]));
    }
    for path in ["/", "/api/tags", "/api/version"] {
        let head = Request::head(path).body(Body::empty()).unwrap();
        let reply = send(&router, head).await;
        assert_eq!((reply.status.as_u16(), reply.text.as_str()), (200, ""), "{path}");
    }
}

#[tokio::test]
async fn a_failure_ends_a_stream_with_an_error() {
    use lily_engine::scripted::{self, Script, ScriptedModel};
    let model = ScriptedModel::new(Script::text("Hi").then_fail());
    let engine = scripted::engine(model, scripted::config(1, 1));
    let router = lily_server::router(engine, lily_server::ServerConfig::new("demo"));
    let body = chat(&json!({"think": false}));
    let reply = send(&router, post("/api/chat", body.to_string())).await;
    let last: Value = serde_json::from_str(reply.text.lines().last().unwrap()).unwrap();
    assert!(last["error"].as_str().unwrap().contains("forward pass"));
}

#[tokio::test]
async fn silence_is_filled_with_empty_pieces() {
    use lily_engine::scripted::{self, Script, ScriptedModel};
    use std::time::Duration;
    let script = Script::text("Hi").paced(Duration::from_millis(60));
    let engine = scripted::engine(ScriptedModel::new(script), scripted::config(1, 1));
    let mut config = lily_server::ServerConfig::new("demo");
    config.keep_alive = Duration::from_millis(10);
    let router = lily_server::router(engine, config);
    let body = chat(&json!({"think": false}));
    let reply = send(&router, post("/api/chat", body.to_string())).await;
    let lines: Vec<Value> =
        reply.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let empty = json!({"role": "assistant", "content": ""});
    assert!(lines.iter().any(|line| line["message"] == empty && line["done"] == false));
    assert_eq!(joined(&lines)["message"]["content"], "Hi");
}

#[tokio::test]
async fn null_equals_absent_and_unknown_fields_pass() {
    let body = chat(&json!({
        "tools": null, "format": null, "options": null, "think": null, "keep_alive": "5m",
        "logprobs": null, "top_logprobs": null, "truncate": true, "made_up": [1],
    }));
    assert_eq!(complete("/api/chat", "fine", body).await["done_reason"], "stop");
    let options = json!({
        "num_ctx": 8192, "num_gpu": 1, "mirostat": 0, "num_keep": 5, "typical_p": 0.5, "seed": -1,
        "repeat_last_n": 64, "penalize_newline": true, "num_predict": null, "stop": null,
    });
    let body = json!({
        "prompt": "hi", "suffix": null, "template": "", "system": "", "images": [], "context": [],
        "raw": null, "format": "", "options": options, "width": 1,
    });
    assert_eq!(complete("/api/generate", "fine", body).await["done_reason"], "stop");
}
