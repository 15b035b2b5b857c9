//! Answers of a certain form on the wire: a model that says random things, held to random schemas.

#[path = "../../engine/tests/support/schemas.rs"]
mod schemas;
mod support;

use axum::Router;
use lily_engine::scripted::{ScriptedModel, config, engine};
use lily_server::ServerConfig;
use schemas::Schemas;
use serde_json::{Value, json};
use support::{answer_of, chat_with, events, post, send};

const N_SCHEMAS: u64 = 330;
const CLOSERS: [&str; 5] = ["\"", "}", "]", ",", "</think>\n\n"];

/// The answer to a request, complete and in pieces, which must be the same.
async fn content(router: &Router, body: &mut Value) -> Option<String> {
    let path = "/v1/chat/completions";
    let reply = send(router, post(path, body.to_string())).await;
    assert_eq!(reply.status, 200, "{body}: {}", reply.text);
    let complete = reply.json();
    body["stream"] = json!(true);
    let streamed = send(router, post(path, body.to_string())).await;
    let (choices, _) = answer_of(&events(&streamed.text));
    let message = &complete["choices"][0]["message"];
    for field in ["content", "reasoning_content"] {
        assert_eq!(choices[0]["message"][field], message[field], "{body}");
    }
    let reason = &complete["choices"][0]["finish_reason"];
    (reason == "stop").then(|| message["content"].as_str().expect("text").to_owned())
}

#[tokio::test]
async fn three_hundred_answers_are_valid_streamed_or_not_thought_about_or_not() {
    let model = ScriptedModel::babbling(1, &CLOSERS);
    let router = lily_server::router(engine(model, config(8, 8)), ServerConfig::new("demo"));
    let mut n_valid = 0;
    for seed in 0..N_SCHEMAS {
        let schema = Schemas::new(5_000 + seed).root();
        let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
        let mut body = chat_with(&json!({
            "response_format": format,
            "enable_thinking": seed % 2 == 0,
            "thinking_budget": 40,
            "temperature": if seed % 3 == 0 { 0.0 } else { 1.0 },
            "seed": seed,
            "max_tokens": 900,
        }));
        let Some(content) = content(&router, &mut body).await else { continue };
        let value: Value = serde_json::from_str(&content)
            .unwrap_or_else(|error| panic!("{seed}: {error} in {content:?} for {schema}"));
        let valid = jsonschema::validator_for(&schema).expect("the schema is one");
        let problem = valid.validate(&value).err();
        assert!(problem.is_none(), "{seed}: {problem:?} in {content} for {schema}");
        n_valid += 1;
    }
    assert!(n_valid >= 300, "only {n_valid} answers came to their end");
}
