//! Requests on the wire and what they come to mean.

use super::request::{Form, ask, in_our_words};
use super::wire::ResponsesRequest;
use crate::App;
use crate::body::parse;
use crate::error::ApiError;
use lily_engine::scripted::{self, Script, ScriptedModel};
use lily_engine::{ChatPrompt, Constraint, GenerateRequest, Prompt, SubmitError, ToolChoice};
use lily_text::{Content, Role};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

static APP: LazyLock<Arc<App>> = LazyLock::new(|| {
    let model = ScriptedModel::new(Script::text("x"));
    App::new(scripted::engine(model, scripted::config(1, 1)), crate::ServerConfig::new("demo"))
});

fn meaning(fields: &Value) -> Result<(GenerateRequest, Form), ApiError> {
    let mut body = json!({"input": "hi"});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let request: ResponsesRequest = parse(body.to_string().as_bytes())?;
    ask(&APP, request).map(|(ask, form)| (ask.requests().next().unwrap(), form))
}

fn generate(fields: &Value) -> GenerateRequest {
    meaning(fields).unwrap_or_else(|e| panic!("{}", e.message)).0
}

fn prompt(fields: &Value) -> ChatPrompt {
    match generate(fields).prompt {
        Prompt::Chat(prompt) => prompt,
        other => panic!("{other:?}"),
    }
}

/// The turns of a conversation, one a line: who, what was thought, said and called.
fn turns(fields: &Value) -> String {
    let line = |m: lily_text::Message| {
        let Content::Text(text) = m.content else { panic!("parts") };
        let thought = m.reasoning.map(|r| format!(" ({r})")).unwrap_or_default();
        let call =
            |c: &lily_text::ToolCall| format!(" {}{}", c.name, Value::Object(c.arguments.clone()));
        let calls: String = m.tool_calls.iter().map(call).collect();
        format!("{}:{thought} {text}{calls}", m.role.as_str())
    };
    prompt(fields).messages.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn values_arrive() {
    let request = generate(&json!({
        "temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125, "seed": 9,
        "presence_penalty": 1.5, "frequency_penalty": -0.5, "max_output_tokens": 20,
        "top_logprobs": 3, "parallel_tool_calls": false,
    }));
    let sampling = &request.sampling;
    assert_eq!((sampling.temperature, sampling.top_p), (Some(0.5), Some(0.25)));
    assert_eq!((sampling.top_k, sampling.min_p, sampling.seed), (Some(7), Some(0.125), Some(9)));
    assert_eq!(sampling.presence_penalty, Some(1.5));
    assert_eq!(sampling.frequency_penalty, Some(-0.5));
    assert_eq!((request.max_tokens, request.logprobs), (Some(20), Some(3)));
    let logprobs = |fields| generate(&fields).logprobs;
    assert_eq!(logprobs(json!({"include": ["message.output_text.logprobs"]})), Some(0));
    assert_eq!(logprobs(json!({"top_logprobs": 0})), None);
    let rule = prompt(&json!({"parallel_tool_calls": false})).tool_rule;
    assert!(rule.single_call && rule.choice == ToolChoice::Auto);
}

#[test]
fn what_is_not_said_stays_open() {
    let request = generate(&json!({}));
    assert_eq!(request.sampling, lily_engine::Sampling::default());
    assert_eq!((request.max_tokens, request.logprobs, request.thinking_budget), (None, None, None));
    assert_eq!(request.constraint, None);
    assert_eq!(prompt(&json!({})).options.enable_thinking, None);
}

#[test]
fn efforts_bound_the_thinking() {
    let effort = |effort: &str| {
        let fields = json!({"reasoning": {"effort": effort}});
        (prompt(&fields).options.enable_thinking, generate(&fields).thinking_budget)
    };
    assert_eq!(effort("none"), (Some(false), None));
    assert_eq!(effort("low"), (Some(true), Some(1_024)));
    assert_eq!(effort("high"), (Some(true), None));
}

#[test]
fn forms_are_constraints() {
    let form = |format: Value| generate(&json!({"text": {"format": format}})).constraint;
    assert_eq!(form(json!({"type": "text"})), None);
    assert_eq!(form(json!({"type": "json_object"})), Some(Constraint::JsonObject));
    let schema = json!({"type": "object"});
    let format = json!({"type": "json_schema", "name": "x", "schema": schema, "strict": true});
    assert_eq!(form(format), Some(Constraint::JsonSchema(schema)));
}

#[test]
fn items_of_an_answer_are_one_turn() {
    let input = json!([
        {"role": "developer", "content": "Rules."},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "One moment.", "annotations": []}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{\"x\":1}"},
        {"type": "custom_tool_call", "call_id": "2", "name": "p", "input": "patch"},
        {"type": "function_call", "call_id": "3", "name": "g", "namespace": "n", "arguments": ""},
        {"type": "custom_tool_call_output", "call_id": "2", "output": "second"},
        {"type": "function_call_output", "call_id": "3", "output": "third"},
        {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "fir"}, {"type": "input_text", "text": "st"}]},
        {"role": "assistant", "content": "Done."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "system", "content": "Late."},
    ]);
    assert_eq!(
        turns(&json!({"input": input, "instructions": "First."})),
        "system: First.\n\nRules.\n\
         user: ab\n\
         assistant: (hm) One moment. f{\"x\":1} p{\"input\":\"patch\"} n__g{}\n\
         tool: first\n\
         tool: second\n\
         tool: third\n\
         assistant: Done.\n\
         assistant: No.\n\
         user: Late."
    );
}

#[test]
fn reasoning_comes_back_in_its_most_complete_form() {
    let thought = |item: Value| {
        let mut item = item;
        item["type"] = json!("reasoning");
        turns(
            &json!({"input": [{"role": "user", "content": "hi"}, item, {"role": "assistant", "content": "yo"}]}),
        )
    };
    let content = json!([{"type": "reasoning_text", "text": "c"}]);
    let summary =
        json!([{"type": "summary_text", "text": "s"}, {"type": "summary_text", "text": "t"}]);
    let own = json!({"encrypted_content": "lily:e", "content": content, "summary": summary});
    assert_eq!(thought(own), "user: hi\nassistant: (e) yo");
    let foreign = json!({"encrypted_content": "gAAA", "content": content, "summary": summary});
    assert_eq!(thought(foreign), "user: hi\nassistant: (c) yo");
    let summed = json!({"encrypted_content": "gAAA", "content": null, "summary": summary});
    assert_eq!(thought(summed), "user: hi\nassistant: (s\n\nt) yo");
    let opaque = json!({"encrypted_content": "gAAA", "summary": []});
    assert_eq!(thought(opaque), "user: hi\nassistant: yo");
}

#[test]
fn calls_that_others_served_stay_as_text() {
    let input = json!([
        {"role": "user", "content": "hi"},
        {"type": "local_shell_call", "call_id": "1", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "1", "output": "a.txt"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"role": "assistant", "content": "Found."},
        {"type": "file_search_call", "queries": ["q"], "results": [{"text": "r"}]},
        {"type": "code_interpreter_call", "code": "1+1", "outputs": null},
        {"type": "mcp_call", "name": "m", "server_label": "x", "arguments": "{\"a\":1}", "output": "o"},
        {"type": "apply_patch_call", "call_id": "2", "operation": {"type": "delete_file", "path": "p"}},
        {"type": "apply_patch_call_output", "call_id": "2", "status": "completed"},
    ]);
    assert_eq!(
        turns(&json!({"input": input})),
        "user: hi\n\
         assistant:  local_shell{\"type\":\"exec\",\"command\":[\"ls\"]}\n\
         tool: a.txt\n\
         assistant:  web_search{\"type\":\"search\",\"query\":\"q\"}\n\
         assistant: Found. file_search{\"queries\":[\"q\"]}\n\
         tool: [{\"text\":\"r\"}]\n\
         assistant:  code_interpreter{\"code\":\"1+1\"} m{\"a\":1}\n\
         tool: o\n\
         assistant:  apply_patch{\"type\":\"delete_file\",\"path\":\"p\"}\n\
         tool: completed"
    );
}

fn some_tools() -> Value {
    json!([
        {"type": "function", "name": "f", "description": "F.", "parameters": {"z": 1, "a": 2}, "strict": true},
        {"type": "image_generation"},
        {"type": "namespace", "name": "mcp__git", "description": "About git.", "tools": [
            {"type": "function", "name": "log", "description": "Log.", "strict": false},
            {"type": "custom", "name": "apply"},
        ]},
        {"type": "namespace", "name": "agents__", "description": "", "tools": [
            {"type": "function", "name": "spawn", "parameters": null, "defer_loading": true},
        ]},
        {"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}},
    ])
}

#[test]
fn tools_take_the_form_of_the_template() {
    let tools = prompt(&json!({"tools": some_tools()})).tools;
    let texts: Vec<_> = tools.iter().map(|tool| tool["function"].to_string()).collect();
    let custom = |name: &str, about: &str| {
        format!(
            r#"{{"name":"{name}","parameters":{{"type":"object","properties":{{"input":{{"type":"string","description":"The text that the tool takes, as it is.{about}"}}}},"required":["input"]}}}}"#
        )
    };
    assert_eq!(
        texts,
        [
            r#"{"name":"f","description":"F.","parameters":{"z":1,"a":2},"strict":true}"#
                .to_owned(),
            r#"{"name":"mcp__git__log","description":"About git.\n\nLog."}"#.to_owned(),
            custom("mcp__git__apply", ""),
            r#"{"name":"agents__spawn"}"#.to_owned(),
            custom("p", r" It follows this lark grammar:\nstart: X"),
        ]
    );
    assert!(tools.iter().all(|tool| tool["type"] == "function"));
}

#[test]
fn choices_name_tools_as_the_client_does() {
    let choice = |choice: Value| {
        let prompt = prompt(&json!({"tools": some_tools(), "tool_choice": choice}));
        (prompt.tool_rule.choice, prompt.tools.len())
    };
    let named = |names: &[&str]| ToolChoice::Named(names.iter().map(|&n| n.to_owned()).collect());
    assert_eq!(choice(json!("auto")), (ToolChoice::Auto, 5));
    assert_eq!(choice(json!("none")), (ToolChoice::Auto, 0));
    assert_eq!(choice(json!("required")), (ToolChoice::Required, 5));
    assert_eq!(choice(json!({"type": "function", "name": "f"})).0, named(&["f"]));
    assert_eq!(choice(json!({"type": "custom", "name": "p"})).0, named(&["p"]));
    assert_eq!(choice(json!({"type": "function", "name": "log"})).0, named(&["mcp__git__log"]));
    let inside = json!({"type": "function", "namespace": "agents__", "name": "spawn"});
    assert_eq!(choice(inside).0, named(&["agents__spawn"]));
    let all = json!({"type": "namespace", "name": "mcp__git"});
    assert_eq!(choice(all.clone()).0, named(&["mcp__git__apply", "mcp__git__log"]));
    let some = json!({"type": "allowed_tools", "mode": "auto", "tools": [all, {"type": "custom", "name": "p"}]});
    assert_eq!(choice(some), (ToolChoice::Auto, 3));
    let one = json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]});
    assert_eq!(choice(one).0, named(&["f"]));
}

#[test]
fn failures_below_are_told_in_the_words_of_the_api() {
    let error = SubmitError::TooLong { prompt_tokens: 5, context_tokens: 4 };
    assert_eq!(in_our_words(error.into()).param.as_deref(), Some("input"));
    let problem = "no".to_owned();
    let error = SubmitError::Constraint { field: "json_schema", problem };
    let error = in_our_words(error.into());
    assert_eq!(error.param.as_deref(), Some("text.format.schema"));
    assert_eq!(error.message, "`text.format.schema` cannot be enforced: no");
}

const TEXTS: &[&str] =
    &["", "user", "message", "function", "namespace", "{}", "auto", "reasoning", "\u{1F33A}"];
const NAMES: &[&str] =
    &["role", "content", "type", "text", "name", "arguments", "id", "tools", "output", "summary"];
const FIELDS: &[&str] =
    &["input", "tools", "tool_choice", "text", "reasoning", "include", "metadata", "seed"];

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        proptest::sample::select(TEXTS).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((proptest::sample::select(NAMES), inner), 0..5)
                .prop_map(|fields| fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn no_value_of_a_field_panics(
        field in proptest::sample::select(FIELDS), value in json_value(), item in json_value()
    ) {
        let mut body = json!({"input": [{"role": "user", "content": "hi"}, item]});
        body[field] = value;
        let error = meaning(&body).err();
        prop_assert!(error.is_none_or(|e| e.status == 400 && e.message.len() < 1000));
    }
}

#[test]
fn roles_are_kept() {
    let roles: Vec<_> =
        prompt(&json!({"instructions": ""})).messages.iter().map(|m| m.role).collect();
    assert_eq!(roles, [Role::User], "no empty instructions");
}
