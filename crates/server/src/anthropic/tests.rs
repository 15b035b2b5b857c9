//! Requests on the wire and what they come to mean.

use super::request::{Form, ask};
use super::wire::MessagesRequest;
use crate::ask::Ask;
use crate::body::parse;
use lily_engine::{ChatPrompt, Constraint, Prompt, ToolChoice};
use lily_text::{Content, Message, Role};
use serde_json::{Value, json};

fn accepted(fields: &Value) -> (Ask, Form) {
    let mut body = json!({"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let request = parse(body.to_string().as_bytes()).expect("parses");
    ask(request).unwrap_or_else(|e| panic!("{}", e.message))
}

fn prompt(fields: &Value) -> ChatPrompt {
    match accepted(fields).0.generate.prompt {
        Prompt::Chat(prompt) => prompt,
        other => panic!("{other:?}"),
    }
}

/// Role and text of each turn.
fn turns(fields: &Value) -> Vec<(Role, String)> {
    let text = |m: Message| match m.content {
        Content::Text(text) => (m.role, text),
        Content::Parts(parts) => panic!("{parts:?}"),
    };
    prompt(fields).messages.into_iter().map(text).collect()
}

#[track_caller]
fn check_turns(fields: &Value, expected: &[(Role, &str)]) {
    let expected: Vec<_> =
        expected.iter().map(|(role, text)| (*role, (*text).to_owned())).collect();
    assert_eq!(turns(fields), expected);
}

#[test]
fn values_arrive() {
    let (ask, form) = accepted(&json!({
        "max_tokens": 77, "temperature": 0.5, "top_p": 0.25, "top_k": 7, "stop_sequences": ["END"],
        "stream": true,
    }));
    let request = ask.generate;
    assert_eq!(request.max_tokens, Some(77));
    assert_eq!(request.stop, ["END"]);
    assert_eq!(request.sampling.temperature, Some(0.5));
    assert_eq!(request.sampling.top_p, Some(0.25));
    assert_eq!(request.sampling.top_k, Some(7));
    assert!(ask.stream && form.stream && form.shows_thinking && !ask.single_call);
}

#[test]
fn thinking_is_off_unless_asked_for() {
    let thinking = |fields: Value| {
        let ask = accepted(&fields).0;
        let Prompt::Chat(prompt) = ask.generate.prompt else { panic!("a chat") };
        (prompt.options.enable_thinking, ask.generate.thinking_budget)
    };
    assert_eq!(thinking(json!({})), (Some(false), None));
    assert_eq!(thinking(json!({"output_config": {"effort": "high"}})), (Some(false), None));
    assert_eq!(thinking(json!({"thinking": {"type": "disabled"}})), (Some(false), None));
    let enabled = json!({"type": "enabled", "budget_tokens": 2_000});
    assert_eq!(thinking(json!({"thinking": enabled})), (Some(true), Some(2_000)));
    let effort = |effort: &str| {
        thinking(json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}))
    };
    assert_eq!(effort("high"), (Some(true), None));
    assert_eq!(effort("low"), (Some(true), Some(1_024)));
    let both = json!({"thinking": enabled, "output_config": {"effort": "low"}});
    assert_eq!(thinking(both), (Some(true), Some(2_000)), "the budget is more particular");
}

#[test]
fn instructions_join_but_for_the_billing_line() {
    let system = json!([
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=1a2b3;"},
        {"type": "text", "text": "One.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Two: x-anthropic-billing-header"},
    ]);
    check_turns(
        &json!({"system": system}),
        &[(Role::System, "One.\n\nTwo: x-anthropic-billing-header"), (Role::User, "hi")],
    );
    check_turns(&json!({"system": "S"}), &[(Role::System, "S"), (Role::User, "hi")]);
    let only_billing = json!([{"type": "text", "text": "x-anthropic-billing-header: a"}]);
    check_turns(&json!({"system": only_billing}), &[(Role::User, "hi")]);
}

#[test]
fn late_instructions_stay_where_they_were_said() {
    let messages = json!([
        {"role": "system", "content": "First."},
        {"role": "user", "content": "a"},
        {"role": "system", "content": [{"type": "text", "text": "Late."}]},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]);
    check_turns(
        &json!({"system": "S", "messages": messages}),
        &[
            (Role::System, "S\n\nFirst."),
            (Role::User, "a"),
            (Role::User, "Late."),
            (Role::Assistant, "b"),
            (Role::User, "c"),
        ],
    );
}

#[test]
fn turns_of_one_speaker_join() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let messages = json!([
        {"role": "user", "content": [text("a"), text("b")]},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "t", "signature": "x"},
            {"type": "redacted_thinking", "data": "zzz"},
            text("e"),
        ]},
        {"role": "user", "content": ""},
    ]);
    let fields = json!({"messages": messages});
    check_turns(
        &fields,
        &[(Role::User, "a\n\nb\n\nc"), (Role::Assistant, "d\n\ne"), (Role::User, "")],
    );
    assert_eq!(prompt(&fields).messages[1].reasoning.as_deref(), Some("t"));
}

#[test]
fn results_come_before_words_in_the_order_of_their_calls() {
    let result = |id: &str, content: Value| json!({"type": "tool_result", "tool_use_id": id, "content": content});
    let call =
        |id: &str| json!({"type": "tool_use", "id": id, "name": "f", "input": {"y": 1, "x": [2]}});
    let messages = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "text", "text": "ok"}, call("a"), call("b"), call("c")]},
        {"role": "user", "content": [
            {"type": "text", "text": "and now?"},
            result("b", json!([{"type": "text", "text": "2"}, {"type": "text", "text": "b"}])),
            {"type": "tool_result", "tool_use_id": "c", "content": "no such file", "is_error": true},
        ]},
        {"role": "user", "content": [result("a", Value::Null)]},
    ]);
    let fields = json!({"messages": messages});
    check_turns(
        &fields,
        &[
            (Role::User, "go"),
            (Role::Assistant, "ok"),
            (Role::Tool, ""),
            (Role::Tool, "2b"),
            (Role::Tool, "Error: no such file"),
            (Role::User, "and now?"),
        ],
    );
    let calls = &prompt(&fields).messages[1].tool_calls;
    assert_eq!(calls.len(), 3);
    assert_eq!(Value::Object(calls[0].arguments.clone()).to_string(), r#"{"y":1,"x":[2]}"#);
    assert_eq!(calls[2].id.as_deref(), Some("c"));
}

#[test]
fn failures_are_marked_once() {
    let text = |text: &str| {
        let result =
            json!({"type": "tool_result", "tool_use_id": "a", "content": text, "is_error": true});
        turns(&json!({"messages": [{"role": "user", "content": [result]}]})).remove(0).1
    };
    assert_eq!(text("ERROR: x"), "ERROR: x");
    assert_eq!(text("errno 5"), "Error: errno 5");
    assert_eq!(text("échec"), "Error: échec");
    assert_eq!(text(""), "Error: ");
}

#[test]
fn words_of_the_assistant_at_the_end_are_continued() {
    let with_last = |content: Value| {
        json!({"messages": [
            {"role": "user", "content": "hi"}, {"role": "assistant", "content": content},
        ]})
    };
    assert!(!prompt(&json!({})).continue_final_message);
    let fields = with_last(json!("Hello"));
    assert!(prompt(&fields).continue_final_message);
    check_turns(&fields, &[(Role::User, "hi"), (Role::Assistant, "Hello")]);
    for empty in [json!(""), json!([]), json!([{"type": "thinking", "thinking": "hm"}])] {
        let fields = with_last(empty);
        assert!(!prompt(&fields).continue_final_message);
        check_turns(&fields, &[(Role::User, "hi")]);
    }
}

#[test]
fn tools_take_the_form_of_the_template() {
    let tools = json!([
        {"input_schema": {"z": 1, "a": 2}, "name": "f", "description": "d", "cache_control": {}},
        {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"},
        {"type": "custom", "name": "g", "input_schema": {}},
    ]);
    let prompt = prompt(&json!({"tools": tools}));
    let text: Vec<_> = prompt.tools.iter().map(Value::to_string).collect();
    assert_eq!(
        text,
        [
            r#"{"type":"function","function":{"name":"f","description":"d","parameters":{"z":1,"a":2}}}"#,
            r#"{"type":"function","function":{"name":"g","parameters":{}}}"#,
        ],
        "key order included"
    );
}

#[test]
fn choices_of_tools_arrive() {
    let tools = json!([{"name": "f", "input_schema": {}}, {"name": "g", "input_schema": {}}]);
    let choose = |choice: Value| prompt(&json!({"tools": tools, "tool_choice": choice}));
    assert_eq!(choose(Value::Null).tool_rule.choice, ToolChoice::Auto);
    assert_eq!(choose(json!({"type": "auto"})).tool_rule.choice, ToolChoice::Auto);
    assert_eq!(choose(json!({"type": "any"})).tool_rule.choice, ToolChoice::Required);
    let named = choose(json!({"type": "tool", "name": "g", "disable_parallel_tool_use": true}));
    assert_eq!(named.tool_rule.choice, ToolChoice::Named(vec!["g".to_owned()]));
    assert!(named.tool_rule.single_call);
    assert!(choose(json!({"type": "none"})).tools.is_empty());
}

#[test]
fn forms_arrive_from_both_places() {
    let format = json!({"type": "json_schema", "schema": {"type": "object"}});
    for fields in [json!({"output_format": format}), json!({"output_config": {"format": format}})] {
        let constraint = accepted(&fields).0.generate.constraint;
        assert_eq!(constraint, Some(Constraint::JsonSchema(json!({"type": "object"}))));
    }
}

mod never_panics {
    use super::*;
    use proptest::prelude::*;

    const TEXTS: &[&str] = &[
        "",
        "user",
        "assistant",
        "text",
        "tool_use",
        "tool_result",
        "thinking",
        "any",
        "\u{1F33A}",
    ];
    const NAMES: &[&str] = &[
        "role",
        "content",
        "type",
        "text",
        "name",
        "input",
        "id",
        "tool_use_id",
        "thinking",
        "input_schema",
    ];
    const FIELDS: &[&str] = &[
        "messages",
        "system",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "output_format",
        "stop_sequences",
        "max_tokens",
        "temperature",
        "top_k",
        "mcp_servers",
    ];

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            proptest::sample::select(TEXTS).prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec((proptest::sample::select(NAMES), inner), 0..5).prop_map(
                    |fields| fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
                ),
            ]
        })
    }

    proptest! {
        #[test]
        fn on_any_value_of_a_field(
            field in proptest::sample::select(FIELDS), value in json_value(), block in json_value()
        ) {
            let mut body = json!({"max_tokens": 5, "messages": [
                {"role": "user", "content": "hi"}, {"role": "assistant", "content": [block]},
            ]});
            body[field] = value;
            let text = body.to_string();
            let error = parse::<MessagesRequest>(text.as_bytes()).and_then(ask).err();
            prop_assert!(error.is_none_or(|e| e.status == 400 && e.message.len() < 1000));
        }
    }
}
