//! Requests on the wire and what they come to mean.

use super::request::ask;
use crate::ask::Ask;
use crate::body::parse;
use lily_engine::{GenerateRequest, Prompt};
use lily_text::{Content, Message, Role};
use serde_json::{Value, json};

fn accepted(fields: &Value) -> Ask {
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let request = parse(body.to_string().as_bytes()).expect("parses");
    ask(request).unwrap_or_else(|e| panic!("{}", e.message)).0
}

fn generate(fields: &Value) -> GenerateRequest {
    accepted(fields).requests().next().expect("one choice at least")
}

fn prompt(fields: &Value) -> lily_engine::ChatPrompt {
    match generate(fields).prompt {
        Prompt::Chat(prompt) => prompt,
        other => panic!("{other:?}"),
    }
}

/// Role and text of each turn.
fn turns(messages: &Value) -> Vec<(Role, String)> {
    let turns = prompt(&json!({"messages": messages})).messages;
    let text = |m: Message| match m.content {
        Content::Text(text) => (m.role, text),
        Content::Parts(parts) => panic!("{parts:?}"),
    };
    turns.into_iter().map(text).collect()
}

#[test]
fn sampling_values_arrive() {
    let request = generate(&json!({
        "temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125, "presence_penalty": 1.5,
        "frequency_penalty": -0.5, "repetition_penalty": 1.25, "seed": 9, "stop": "END",
        "logit_bias": {"5": -100, "7": 1.5}, "logprobs": true, "top_logprobs": 3,
        "max_tokens": 10, "max_completion_tokens": 20, "ignore_eos": true,
    }));
    let sampling = &request.sampling;
    assert_eq!(sampling.temperature, Some(0.5));
    assert_eq!(sampling.top_p, Some(0.25));
    assert_eq!(sampling.top_k, Some(7));
    assert_eq!(sampling.min_p, Some(0.125));
    assert_eq!(sampling.presence_penalty, Some(1.5));
    assert_eq!(sampling.frequency_penalty, Some(-0.5));
    assert_eq!(sampling.repetition_penalty, Some(1.25));
    assert_eq!(sampling.logit_bias, [(5, -100.0), (7, 1.5)]);
    assert_eq!(sampling.seed, Some(9));
    assert_eq!(request.stop, ["END"]);
    assert_eq!(request.logprobs, Some(3));
    assert_eq!(request.max_tokens, Some(20), "the newer name wins");
    assert!(request.ignore_eos);
}

#[test]
fn what_is_not_said_stays_open() {
    let request = generate(&json!({}));
    assert_eq!(request.sampling, lily_engine::Sampling::default());
    assert_eq!((request.max_tokens, request.logprobs), (None, None));
    assert!(request.stop.is_empty() && !request.ignore_eos);
    assert_eq!(generate(&json!({"top_k": -1})).sampling.top_k, Some(0));
    assert_eq!(generate(&json!({"logprobs": true})).logprobs, Some(0));
    assert_eq!(generate(&json!({"logprobs": false, "top_logprobs": 0})).logprobs, None);
    assert_eq!(generate(&json!({"seed": -1})).sampling.seed, Some(u64::MAX));
}

#[test]
fn seeds_count_up_with_the_choices() {
    let seeds = |fields| accepted(&fields).requests().map(|r| r.sampling.seed).collect::<Vec<_>>();
    assert_eq!(seeds(json!({"n": 3, "seed": 5})), [Some(5), Some(6), Some(7)]);
    assert_eq!(seeds(json!({"n": 2})), [None, None]);
}

#[test]
fn thinking_follows_the_most_particular_field() {
    let thinking = |fields| prompt(&fields).options.enable_thinking;
    let kwargs = json!({"enable_thinking": true});
    assert_eq!(thinking(json!({})), None);
    assert_eq!(thinking(json!({"reasoning_effort": "none"})), Some(false));
    assert_eq!(thinking(json!({"reasoning_effort": "low"})), Some(true));
    assert_eq!(
        thinking(json!({"enable_thinking": false, "reasoning_effort": "high"})),
        Some(false)
    );
    assert_eq!(
        thinking(json!({"chat_template_kwargs": kwargs, "enable_thinking": false})),
        Some(true)
    );
    let extra = json!({"preserve_thinking": true, "enable_thinking": null, "style": [1]});
    let options = prompt(&json!({"chat_template_kwargs": extra})).options;
    assert_eq!(options.enable_thinking, None);
    assert!(options.add_generation_prompt);
    assert_eq!(Value::Object(options.extra), json!({"preserve_thinking": true, "style": [1]}));
}

#[test]
fn tools_reach_the_template_as_sent_unless_none_may_be_called() {
    let tool =
        json!({"type": "function", "function": {"z": 1, "name": "f", "a": 2}, "strict": true});
    let fields = json!({"tools": [tool], "tool_choice": "auto"});
    assert_eq!(prompt(&fields).tools[0].to_string(), tool.to_string(), "key order included");
    assert!(prompt(&json!({"tools": [tool], "tool_choice": "none"})).tools.is_empty());
    assert!(prompt(&json!({"tools": [], "tool_choice": "none"})).tools.is_empty());
    assert!(accepted(&json!({"parallel_tool_calls": false})).single_call);
}

#[test]
fn instructions_join_and_parts_concatenate() {
    let messages = json!([
        {"role": "system", "content": "One."},
        {"role": "developer", "content": [{"type": "text", "text": "Two"}, {"type": "text", "text": "."}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": null, "refusal": "No."},
        {"role": "user", "content": ""},
    ]);
    let expected = [
        (Role::System, "One.\n\nTwo."),
        (Role::User, "ab"),
        (Role::Assistant, "No."),
        (Role::User, ""),
    ];
    assert_eq!(turns(&messages), expected.map(|(role, text)| (role, text.to_owned())));
}

#[test]
fn reasoning_and_calls_of_the_history_arrive() {
    let calls = json!([
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"y\": 1, \"x\": [2]}"}},
        {"id": "b", "function": {"name": "g", "arguments": ""}},
        {"function": {"name": "h", "arguments": {"k": null}}},
        {"function": {"name": "i"}},
    ]);
    let messages = json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "reasoning_content": "hm", "reasoning": "not this", "tool_calls": calls},
        {"role": "assistant", "content": "x", "reasoning": "ha"},
    ]);
    let turns = prompt(&json!({"messages": messages})).messages;
    assert_eq!(turns[1].reasoning.as_deref(), Some("hm"));
    assert_eq!(turns[2].reasoning.as_deref(), Some("ha"));
    let calls: Vec<_> = turns[1]
        .tool_calls
        .iter()
        .map(|c| (c.name.as_str(), Value::Object(c.arguments.clone()).to_string()))
        .collect();
    let text = |name, arguments: &str| (name, arguments.to_owned());
    assert_eq!(
        calls,
        [
            text("f", r#"{"y":1,"x":[2]}"#),
            text("g", "{}"),
            text("h", r#"{"k":null}"#),
            text("i", "{}")
        ]
    );
}

mod never_panics {
    use super::*;
    use crate::chat::wire::ChatCompletionRequest;
    use proptest::prelude::*;

    const TEXTS: &[&str] =
        &["", "user", "tool", "text", "function", "{}", "auto", "none", "7", "\u{1F33A}"];
    const NAMES: &[&str] =
        &["role", "content", "type", "text", "function", "name", "arguments", "id", "5"];

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

    const FIELDS: &[&str] = &[
        "messages",
        "stop",
        "tools",
        "tool_choice",
        "logit_bias",
        "seed",
        "n",
        "top_k",
        "max_tokens",
        "temperature",
        "chat_template_kwargs",
        "response_format",
        "stream_options",
        "top_logprobs",
    ];

    proptest! {
        #[test]
        fn on_any_value_of_a_field(
            field in proptest::sample::select(FIELDS), value in json_value(), turn in json_value()
        ) {
            let mut body = json!({"messages": [{"role": "user", "content": "hi"}, turn]});
            body[field] = value;
            let text = body.to_string();
            let error = parse::<ChatCompletionRequest>(text.as_bytes()).and_then(ask).err();
            prop_assert!(error.is_none_or(|e| e.status == 400 && e.message.len() < 1000));
        }

        #[test]
        fn on_any_bytes(start in 0usize..40, bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut body = br#"{"messages": [{"role": "user", "content": "hi"}], "n": 1}"#.to_vec();
            body.splice(start..start, bytes);
            let _ = parse::<ChatCompletionRequest>(&body).and_then(ask);
        }
    }
}

/// The order of results after calls `a`, `b` and `c`.
fn result_order(results: &[(&str, Value)]) -> String {
    let call = |id| json!({"id": id, "function": {"name": "f", "arguments": "{}"}});
    let mut messages = vec![
        json!({"role": "user", "content": "hi"}),
        json!({"role": "assistant", "tool_calls": [call("a"), call("b"), call("c")]}),
    ];
    let turn =
        |(text, id): &(&str, Value)| json!({"role": "tool", "content": text, "tool_call_id": id});
    messages.extend(results.iter().map(turn));
    messages.push(json!({"role": "user", "content": "go on"}));
    let turns = turns(&json!(messages));
    assert_eq!(turns.last().unwrap().1, "go on");
    turns.into_iter().filter(|t| t.0 == Role::Tool).map(|t| t.1).collect()
}

#[test]
fn results_follow_the_order_of_their_calls() {
    let id = |id: &str| json!(id);
    assert_eq!(result_order(&[("1", id("a")), ("2", id("b")), ("3", id("c"))]), "123");
    assert_eq!(result_order(&[("3", id("c")), ("1", id("a")), ("2", id("b"))]), "123");
    assert_eq!(result_order(&[("3", id("c")), ("1", id("a"))]), "13");
    assert_eq!(result_order(&[("3", id("c")), ("x", id("unknown"))]), "3x");
    assert_eq!(result_order(&[("3", id("c")), ("1", Value::Null)]), "31");
    assert_eq!(result_order(&[("3", id("c")), ("1", id("a")), ("y", id("a"))]), "31y");
}
