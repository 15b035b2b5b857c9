//! Answers of a certain form: what a model that says random things is held to.

#[path = "support/schemas.rs"]
mod schemas_of_any_kind;
mod support;

use jsonschema::Validator;
use lily_engine::scripted::{Script, ScriptedModel, config, engine, text_model, tokenizer};
use lily_engine::{
    Constraint, Engine, FinishReason, GenerateRequest, Prompt, Sampling, SubmitError, ToolChoice,
    ToolRule,
};
use lily_text::Delta;
use schemas_of_any_kind::Schemas;
use serde_json::{Value, json};
use support::{Answer, answer, chat, sampled, text};

const N_SCHEMAS: u64 = 320;

/// What ends the parts of an answer.
const CLOSERS: [&str; 8] =
    ["\"", "}", "]", ",", "\n</parameter>\n", "</think>\n\n", "</function>", "\n</tool_call>"];

fn schemas(seed: u64) -> Schemas {
    Schemas::new(seed)
}

fn validator(schema: &Value) -> Validator {
    jsonschema::validator_for(schema).expect("the schema is one")
}

fn constrained(schema: &Value, thinking: bool, seed: u64) -> GenerateRequest {
    GenerateRequest {
        sampling: if seed.is_multiple_of(4) { Sampling::default() } else { sampled(seed) },
        constraint: Some(Constraint::JsonSchema(schema.clone())),
        max_tokens: Some(700),
        ..chat(thinking, &[])
    }
}

/// Runs eight requests at a time, which share passes and the engine thread.
fn run_all<T>(opens: bool, all: Vec<(T, GenerateRequest)>, mut check: impl FnMut(T, Answer)) {
    let model = ScriptedModel::babbling(1, &CLOSERS);
    let model = if opens { model.opening("Hm.\n\n<tool_call>\n<function=tool_") } else { model };
    let engine = engine(model, config(8, 8));
    let mut all = all.into_iter();
    loop {
        let batch: Vec<_> = all.by_ref().take(8).collect();
        if batch.is_empty() {
            return;
        }
        let running: Vec<_> = batch
            .into_iter()
            .map(|(of, request)| (of, engine.submit(request).expect("it compiles")))
            .collect();
        for (of, events) in running {
            check(of, Answer::read(events));
        }
    }
}

#[test]
fn finished_answers_are_valid_for_any_schema() {
    let (mut n_finished, mut n_cut) = (0, 0);
    let requests = (0..N_SCHEMAS)
        .map(|seed| {
            let schema = schemas(seed).root();
            let request = constrained(&schema, seed % 2 == 1, seed);
            ((seed, schema), request)
        })
        .collect();
    run_all(false, requests, |(seed, schema), answer| {
        if answer.summary().finish_reason == FinishReason::Length {
            assert_eq!(answer.summary().completion_tokens, 700, "{seed}: {schema} has no end");
            n_cut += 1;
            return;
        }
        n_finished += 1;
        let content = answer.content();
        let value: Value = serde_json::from_str(&content)
            .unwrap_or_else(|error| panic!("{seed}: {error} in {content:?} for {schema}"));
        let valid = validator(&schema);
        let problem = valid.validate(&value).err();
        assert!(problem.is_none(), "{seed}: {problem:?} in {content} for {schema}");
    });
    assert!(n_finished >= 250, "{n_finished} finished, {n_cut} were cut");
}

/// A tool whose parameters are of every kind.
fn random_tool(seed: u64, strict: bool) -> Value {
    let mut random = schemas(1_000 + seed);
    let mut parameters = random.object(2);
    let properties = parameters["properties"].as_object_mut().expect("an object");
    // What can be text is free text, so its length and pattern are not held to.
    let text = json!({"type": "string"});
    for value in properties.values_mut() {
        let shown = value.to_string();
        if shown.contains("pattern") || shown.contains("Length") || shown.contains("anyOf") {
            *value = text.clone();
        }
        if shown.contains("$ref") || shown.contains("new\\nline") || shown.contains("\"a\":[1]") {
            *value = json!({"type": "array", "items": {"$ref": "#/$defs/leaf"}, "maxItems": 2});
        }
    }
    if parameters["additionalProperties"].is_object() {
        parameters["additionalProperties"] = text;
    }
    parameters["$defs"] = json!({"leaf": {"type": "integer"}});
    json!({"type": "function", "function": {
        "name": format!("tool_{seed}"), "strict": strict, "parameters": parameters,
    }})
}

struct Call {
    name: String,
    arguments: Value,
}

fn calls(answer: &Answer) -> Vec<Call> {
    let mut calls: Vec<(String, String)> = Vec::new();
    for delta in &answer.deltas {
        match delta {
            Delta::ToolCallStart { name, .. } => calls.push((name.clone(), String::new())),
            Delta::ToolCallArguments { json, .. } => {
                calls.last_mut().expect("a call began").1.push_str(json);
            }
            _ => {}
        }
    }
    let parse = |(name, json): (String, String)| Call {
        name,
        arguments: serde_json::from_str(&json).expect("an object"),
    };
    calls.into_iter().map(parse).collect()
}

fn with_rule(request: GenerateRequest, rule: ToolRule) -> GenerateRequest {
    let Prompt::Chat(mut chat) = request.prompt else { panic!("a conversation") };
    chat.tool_rule = rule;
    GenerateRequest { prompt: Prompt::Chat(chat), ..request }
}

/// Checks the calls of all finished answers; returns how many answers finished, and their calls.
fn check_calls(
    choice: &dyn Fn(&[Value]) -> ToolChoice,
    strict: bool,
    single_call: bool,
) -> (usize, usize) {
    let (mut n_finished, mut n_calls) = (0, 0);
    let nobody = [json!({"function": {"name": ""}}), json!({"function": {"name": ""}})];
    let opens = choice(&nobody) == ToolChoice::Auto;
    let requests = (0..60u64)
        .map(|seed| {
            let tools: Vec<Value> = (0..2).map(|i| random_tool(2 * seed + i, strict)).collect();
            let rule = ToolRule { choice: choice(&tools), single_call };
            let request = GenerateRequest {
                sampling: sampled(seed),
                max_tokens: Some(900),
                thinking_budget: Some(5),
                ..chat(seed % 2 == 1, &tools)
            };
            ((tools, rule.clone()), with_rule(request, rule))
        })
        .collect();
    run_all(opens, requests, |(tools, rule), answer| {
        if answer.summary().finish_reason == FinishReason::Length {
            assert_eq!(answer.summary().completion_tokens, 900, "it has no end: {tools:?}");
            return;
        }
        n_finished += 1;
        let calls = calls(&answer);
        n_calls += calls.len();
        let ids = &answer.summary().token_ids;
        let said = tokenizer().decode(ids);
        if rule.choice != ToolChoice::Auto {
            assert!(!calls.is_empty() && answer.content().is_empty(), "{said}");
            assert_eq!(answer.summary().finish_reason, FinishReason::ToolCalls);
        }
        assert!(!single_call || calls.len() <= 1, "{said}");
        for Call { name, arguments } in calls {
            let tool = tools.iter().find(|tool| tool["function"]["name"] == name.as_str());
            let tool = &tool.unwrap_or_else(|| panic!("{name} in {said}"))["function"];
            if let ToolChoice::Named(names) = &rule.choice {
                assert!(names.contains(&name), "{said}");
            }
            let valid = validator(&tool["parameters"]);
            let problem = valid.validate(&arguments).err();
            assert!(problem.is_none(), "{problem:?}: {arguments} in {said} for {tool}");
        }
    });
    (n_finished, n_calls)
}

#[test]
fn required_calls_are_valid() {
    for (strict, single) in [(true, false), (false, false), (false, true)] {
        let (n_finished, _) = check_calls(&|_| ToolChoice::Required, strict, single);
        assert!(n_finished >= 30, "{n_finished} of 60 finished");
    }
}

#[test]
fn named_calls_are_valid() {
    let second = |tools: &[Value]| {
        ToolChoice::Named(vec![tools[1]["function"]["name"].as_str().expect("a name").to_owned()])
    };
    let (n_finished, _) = check_calls(&second, true, true);
    assert!(n_finished >= 30, "{n_finished} of 60 finished");
}

#[test]
fn calls_of_strict_tools_are_valid() {
    let (n_finished, n_calls) = check_calls(&|_| ToolChoice::Auto, true, false);
    assert!(n_finished >= 30 && n_calls >= 10, "{n_finished} of 60 finished with {n_calls} calls");
}

fn saying(says: &str) -> Engine {
    engine(ScriptedModel::new(Script::text(says)), config(4, 4))
}

fn object(request: GenerateRequest) -> GenerateRequest {
    let schema = json!({
        "type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"],
        "additionalProperties": false,
    });
    GenerateRequest { constraint: Some(Constraint::JsonSchema(schema)), ..request }
}

#[test]
fn what_the_model_says_stays_where_it_fits() {
    let says = "{\"a\": \"y\"}";
    assert_eq!(answer(&saying(says), object(text("q"))).content(), says);
    let thinking = answer(&saying(&format!("so so</think>\n\n{says}")), object(chat(true, &[])));
    assert_eq!((thinking.reasoning().as_str(), thinking.content().as_str()), ("so so", says));
}

#[test]
fn the_end_is_forced_when_nothing_else_is_left() {
    let answer = answer(&saying("{\"a\": \"y\"} and more, and more"), object(text("q")));
    assert_eq!(answer.content(), "{\"a\": \"y\"}");
    assert_eq!(answer.summary().finish_reason, FinishReason::Stop);
    let last = answer.summary().token_ids.last().expect("some");
    assert!(text_model().eos_token_ids.contains(last), "{last}");
}

#[test]
fn the_end_waits_until_the_form_is_complete() {
    let answer = answer(&saying(""), GenerateRequest { max_tokens: Some(40), ..object(text("q")) });
    assert!(["{\"a\":\"x\"}", "{\"a\": \"x\"}"].contains(&answer.content().as_str()), "{answer:?}");
    assert_eq!(answer.summary().finish_reason, FinishReason::Stop);
}

#[test]
fn thinking_that_ends_without_its_tag_still_leads_to_the_form() {
    for says in ["hmm", "hmm<tool_call>\n<function=f>"] {
        let request = GenerateRequest { max_tokens: Some(60), ..object(chat(true, &[])) };
        let answer = answer(&saying(says), request);
        assert_eq!(answer.reasoning(), "hmm");
        assert!(serde_json::from_str::<Value>(&answer.content()).is_ok(), "{answer:?}");
    }
}

#[test]
fn logprobs_are_the_models_own() {
    let model = ScriptedModel::new(Script::text("").then_choice(&[(120, -0.1), (65, -3.0)]));
    let engine = engine(model, config(1, 1));
    let constraint = Some(Constraint::Regex("A+".to_owned()));
    let request =
        GenerateRequest { constraint, logprobs: Some(2), max_tokens: Some(1), ..text("q") };
    let answer = answer(&engine, request);
    assert_eq!(answer.content(), "A", "x is likelier, but not allowed");
    let logprob = &answer.logprobs[0];
    assert_eq!((logprob.id, logprob.top[0].0), (65, 120));
    assert!(logprob.logprob < -2.9, "{logprob:?}");
}

#[test]
fn forms_that_do_not_compile_are_refused_at_once() {
    let engine = saying("x");
    let constraint = Some(Constraint::Regex("(".to_owned()));
    match engine.submit(GenerateRequest { constraint, ..text("q") }) {
        Err(SubmitError::Constraint { field: "regex", .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_form_without_a_way_on_ends_the_answer_as_if_cut() {
    // No token of this tokenizer is part of an answer of the second alternative only.
    let grammar = "start: \"a\" rest\nrest: /b/ & ~/b/\n";
    let constraint =
        Some(Constraint::Lark(grammar.replace("rest: ", "REST: ").replace(" rest", " REST")));
    match saying("ab").submit(GenerateRequest { constraint, ..text("q") }) {
        // Found out at once.
        Err(SubmitError::Constraint { field: "grammar", .. }) => {}
        Ok(events) => {
            assert_eq!(Answer::read(events).summary().finish_reason, FinishReason::Length);
        }
        Err(other) => panic!("{other}"),
    }
}
