//! Requests on the wire and what they come to mean.

use super::request::{Asked, chat, generate};
use crate::ask::Ask;
use crate::body::parse;
use lily_engine::{ChatPrompt, Constraint, Prompt};
use lily_text::{Content, Message, Role};
use serde_json::{Value, json};

fn asked(asked: Result<Asked, crate::error::ApiError>) -> Ask {
    match asked.unwrap_or_else(|e| panic!("{}", e.message)) {
        Asked::Answer(ask) => *ask,
        Asked::Load { reason } => panic!("{reason}"),
    }
}

fn chat_ask(fields: &Value) -> Ask {
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    asked(chat(parse(body.to_string().as_bytes()).expect("parses")))
}

fn chat_prompt(ask: Ask) -> ChatPrompt {
    match ask.generate.prompt {
        Prompt::Chat(prompt) => prompt,
        other => panic!("{other:?}"),
    }
}

fn generate_ask(fields: &Value) -> Ask {
    asked(generate(parse(fields.to_string().as_bytes()).expect("parses")))
}

/// Role and text of each turn.
fn turns(messages: Vec<Message>) -> Vec<(Role, String)> {
    let text = |m: Message| match m.content {
        Content::Text(text) => (m.role, text),
        Content::Parts(parts) => panic!("{parts:?}"),
    };
    messages.into_iter().map(text).collect()
}

#[test]
fn options_arrive() {
    let ask = chat_ask(&json!({"options": {
        "num_predict": 5, "temperature": 2.5, "top_k": 7, "top_p": 0.25, "min_p": 0.125, "seed": 9,
        "stop": "END", "repeat_penalty": 1.25, "presence_penalty": 1.5, "frequency_penalty": -0.5,
    }}));
    let request = ask.generate;
    let sampling = &request.sampling;
    assert_eq!(request.max_tokens, Some(5));
    assert_eq!(request.stop, ["END"]);
    assert_eq!(sampling.temperature, Some(2.5));
    assert_eq!(sampling.top_k, Some(7));
    assert_eq!(sampling.top_p, Some(0.25));
    assert_eq!(sampling.min_p, Some(0.125));
    assert_eq!(sampling.seed, Some(9));
    assert_eq!(sampling.repetition_penalty, Some(1.25));
    assert_eq!(sampling.presence_penalty, Some(1.5));
    assert_eq!(sampling.frequency_penalty, Some(-0.5));
    assert!(ask.stream, "streams unless told not to");
    for n in [-2, -1, 0] {
        assert_eq!(chat_ask(&json!({"options": {"num_predict": n}})).generate.max_tokens, None);
    }
    assert_eq!(chat_ask(&json!({"options": {"seed": -1}})).generate.sampling.seed, None);
    assert!(!chat_ask(&json!({"stream": false})).stream);
}

#[test]
fn thinking_and_forms_arrive() {
    let thinking = |think: Value| {
        let ask = chat_ask(&json!({"think": think}));
        let budget = ask.generate.thinking_budget;
        (chat_prompt(ask).options.enable_thinking, budget)
    };
    assert_eq!(thinking(Value::Null), (None, None));
    assert_eq!(thinking(json!(true)), (Some(true), None));
    assert_eq!(thinking(json!(false)), (Some(false), None));
    assert_eq!(thinking(json!("low")), (Some(true), Some(1_024)));
    assert_eq!(thinking(json!("high")), (Some(true), None));
    let form = |format: Value| chat_ask(&json!({"format": format})).generate.constraint;
    assert_eq!(form(json!("")), None);
    assert_eq!(form(json!("json")), Some(Constraint::JsonObject));
    let schema = json!({"type": "object"});
    assert_eq!(form(schema.clone()), Some(Constraint::JsonSchema(schema)));
}

#[test]
fn prompts_become_conversations_unless_raw() {
    let prompt = chat_prompt(generate_ask(&json!({"prompt": "p", "system": "s"})));
    let expected = [(Role::System, "s".to_owned()), (Role::User, "p".to_owned())];
    assert_eq!(turns(prompt.messages), expected);
    let raw = generate_ask(&json!({"prompt": "p", "raw": true})).generate.prompt;
    assert!(matches!(raw, Prompt::Text(text) if text == "p"));
}

#[test]
fn the_history_arrives() {
    let call = json!({"function": {"name": "f", "arguments": {"y": 1, "x": [2]}}});
    let messages = json!([
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a", "images": []},
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [call]},
        {"role": "tool", "content": "2", "tool_name": "f"},
        {"role": "assistant", "content": "Well"},
    ]);
    let prompt = chat_prompt(chat_ask(&json!({"messages": messages})));
    assert!(prompt.continue_final_message);
    assert_eq!(prompt.messages[2].reasoning.as_deref(), Some("hm"));
    let arguments = Value::Object(prompt.messages[2].tool_calls[0].arguments.clone());
    assert_eq!(arguments.to_string(), r#"{"y":1,"x":[2]}"#);
    let roles: Vec<_> = prompt.messages.iter().map(|m| m.role).collect();
    assert_eq!(roles, [Role::System, Role::User, Role::Assistant, Role::Tool, Role::Assistant]);
    let called = json!({"messages": [{"role": "user"}, {"role": "assistant", "content": "x", "tool_calls": [call]}]});
    assert!(!chat_prompt(chat_ask(&called)).continue_final_message);
}
