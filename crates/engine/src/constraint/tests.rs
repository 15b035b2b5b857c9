//! What forms accept and refuse, without a model.

use super::*;
use crate::ToolChoice;
use crate::scripted::text_model;
use serde_json::json;
use std::time::{Duration, Instant};

fn grammars() -> Grammars {
    let text = text_model();
    Grammars::new(Arc::clone(&text.tokenizer), &text.eos_token_ids, text.tokenizer.vocab_size())
}

fn guide(form: &Form<'_>) -> Guide {
    grammars().guide(form).expect("it compiles").expect("there is a form")
}

fn of(constraint: &Constraint) -> Guide {
    guide(&Form { constraint: Some(constraint), ..Form::default() })
}

fn problem(form: &Form<'_>) -> (&'static str, String) {
    match grammars().guide(form) {
        Err(SubmitError::Constraint { field, problem }) => (field, problem),
        other => panic!("{other:?}"),
    }
}

/// Whether the text is allowed byte by byte and may end there.
fn accepts(mut guide: Guide, text: &str) -> bool {
    let tokenizer = crate::scripted::tokenizer();
    let row = vec![0.0; tokenizer.vocab_size()];
    let mut masked = Vec::new();
    let mut allows = |guide: &mut Guide, id: TokenId| {
        guide.mask(&row, &mut masked).is_ok() && masked[id as usize] > f32::NEG_INFINITY
    };
    for id in tokenizer.encode(text).expect("any text") {
        if !allows(&mut guide, id) || guide.push(id).is_err() {
            return false;
        }
    }
    allows(&mut guide, crate::scripted::END)
}

#[test]
fn json_is_on_one_line_with_or_without_spaces() {
    let schema = Constraint::JsonSchema(json!({
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"type": "boolean"}}},
        "required": ["a"],
        "additionalProperties": false,
    }));
    for text in [r#"{"a": 1}"#, r#"{"a":1,"b":[true,false]}"#, r#"{"a": -12, "b": []}"#] {
        assert!(accepts(of(&schema), text), "{text}");
    }
    for text in ["", "{}", r#"{"a": 1.5}"#, "{\n\"a\": 1}", r#"{"a":  1}"#, r#"{"a": 1} "#, "[1]"] {
        assert!(!accepts(of(&schema), text), "{text}");
    }
    assert!(accepts(of(&Constraint::JsonObject), r#"{"any": ["é", null, 1e3]}"#));
    assert!(!accepts(of(&Constraint::JsonObject), "[]"));
}

#[test]
fn regular_expressions_and_grammars_match_the_whole() {
    let regex = Constraint::Regex("(yes|no)/[0-9]{2}".to_owned());
    assert!(accepts(of(&regex), "yes/12"));
    assert!(!accepts(of(&regex), "yes/1"));
    assert!(!accepts(of(&regex), "yes/123"));
    let lark = Constraint::Lark("start: \"a\" NUMBER+\nNUMBER: /[0-9]/\n".to_owned());
    assert!(accepts(of(&lark), "a12"));
    assert!(!accepts(of(&lark), "b1"));
}

#[test]
fn newlines_come_first_after_thinking_only() {
    let regex = Constraint::Regex("yes".to_owned());
    let form =
        |after_thinking| Form { constraint: Some(&regex), after_thinking, ..Form::default() };
    for gap in ["", "\n", "\n\n"] {
        assert!(accepts(guide(&form(true)), &format!("{gap}yes")));
    }
    assert!(!accepts(guide(&form(true)), "\n\n\nyes"));
    assert!(!accepts(guide(&form(false)), "\nyes"));
}

#[test]
fn what_cannot_be_enforced_is_named() {
    let of_schema = |schema: Value| {
        let constraint = Constraint::JsonSchema(schema);
        problem(&Form { constraint: Some(&constraint), ..Form::default() })
    };
    let (field, text) = of_schema(json!({"type": "array", "uniqueItems": true}));
    assert_eq!(field, "json_schema");
    assert!(text.contains("uniqueItems"), "{text}");
    let (_, text) = of_schema(json!({"$ref": "#/$defs/nothing"}));
    assert!(text.contains("nothing"), "{text}");
    assert!(of_schema(json!({"type": "strong"})).1.contains("strong"));
    assert!(of_schema(json!({"type": "string", "pattern": "("})).1.contains('('));
    assert!(of_schema(json!(3)).1.contains("object"));
    let constraint = Constraint::Regex("a(b".to_owned());
    let (field, _) = problem(&Form { constraint: Some(&constraint), ..Form::default() });
    assert_eq!(field, "regex");
    let constraint = Constraint::Lark("start: unknown_rule".to_owned());
    let (field, text) = problem(&Form { constraint: Some(&constraint), ..Form::default() });
    assert_eq!(field, "grammar");
    assert!(text.contains("unknown_rule"), "{text}");
}

#[test]
fn annotations_are_no_constraint() {
    let schema = Constraint::JsonSchema(json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "T", "description": "d", "default": {}, "examples": [{}], "deprecated": true,
        "x-guidance": {"whitespace_flexible": true},
        "type": "object",
        "properties": {
            "format": {"type": "string", "format": "binary"},
            "deprecated": {"type": "null", "deprecated": true},
        },
        "required": ["format", "deprecated"],
        "additionalProperties": false,
    }));
    assert!(accepts(of(&schema), r#"{"format": "x", "deprecated": null}"#));
    assert!(!accepts(of(&schema), r#"{ "format": "x", "deprecated": null}"#));
}

/// Each of these is a request that somebody may send on purpose.
#[test]
fn hostile_forms_are_refused_or_compiled_in_bounded_time() {
    let nested =
        |n: usize| (0..n).fold(json!({"type": "null"}), |inner, _| json!({"items": inner}));
    let wide: Vec<Value> = (0..20_000).map(|i| json!(format!("value {i}"))).collect();
    let double = json!({"anyOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/x"}]});
    let all: Vec<Value> = (0..200).map(|i| json!({"pattern": format!("a.*{i}.*b")})).collect();
    let unions: Vec<Value> = (0..300).map(|i| json!({"const": i})).collect();
    let many = |n: usize| (0..n).map(|i| (format!("p{i}"), json!({}))).collect::<Value>();
    let patterns = |n: usize| -> Value {
        (0..n).map(|i| (format!("^a{i}.*b"), json!({"type": "null"}))).collect()
    };
    let chain = |n: usize| {
        let link =
            |i: usize| (format!("d{i}"), json!({"items": {"$ref": format!("#/$defs/d{}", i + 1)}}));
        let mut links: serde_json::Map<String, Value> = (0..n).map(link).collect();
        links.insert(format!("d{n}"), json!({}));
        json!({"$ref": "#/$defs/d0", "$defs": links})
    };
    let rules = |n: usize, c: char| {
        let rule = |i: usize| format!("{c}{i}: \"a\" {c}{}\n", i + 1);
        let first = if c == 'r' { "r0" } else { "T0" };
        let rules: String = (0..n).map(rule).collect();
        format!("start: {first}\n{rules}{c}{n}: \"a\"\n")
    };
    let forms = [
        Constraint::JsonSchema(nested(60)),
        Constraint::JsonSchema(nested(100)),
        Constraint::JsonSchema(json!({"enum": wide})),
        Constraint::JsonSchema(json!({"type": "array", "minItems": 1_000_000_000})),
        Constraint::JsonSchema(
            json!({"type": "array", "items": {"type": "null"}, "maxItems": 10_000_000_000_u64}),
        ),
        Constraint::JsonSchema(json!({"type": "string", "minLength": 1_000_000_000})),
        Constraint::JsonSchema(json!({"type": "string", "maxLength": 4_000_000_000_u64})),
        Constraint::JsonSchema(json!({"type": "string", "maxLength": 40_000_000_000_u64})),
        Constraint::JsonSchema(json!({"type": "string", "pattern": "^(a?){1000}{1000}$"})),
        Constraint::JsonSchema(json!({"type": "string", "pattern": "(a|b|ab)*c.{1,500}d.{1,500}"})),
        Constraint::JsonSchema(json!({"type": "string", "allOf": all})),
        Constraint::JsonSchema(json!({"$ref": "#/$defs/x", "$defs": {"x": double}})),
        Constraint::JsonSchema(json!({"$ref": "#"})),
        Constraint::JsonSchema(chain(8_000)),
        Constraint::JsonSchema(chain(1_500)),
        Constraint::JsonSchema(json!({"properties": many(15_000)})),
        Constraint::JsonSchema(json!({"properties": many(2_000), "required": ["p1"]})),
        Constraint::JsonSchema(json!({"allOf": [{"anyOf": unions}, {"anyOf": unions}]})),
        Constraint::JsonSchema(json!({"oneOf": unions})),
        Constraint::JsonSchema(json!({"patternProperties": patterns(300)})),
        Constraint::JsonSchema(json!({"patternProperties": patterns(24)})),
        Constraint::JsonSchema(json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]})),
        Constraint::JsonSchema(json!({"type": "integer", "multipleOf": 1e-300})),
        Constraint::JsonSchema(json!({"type": "integer", "multipleOf": 999_999_999_999_i64})),
        Constraint::JsonSchema(json!({"type": "number", "minimum": -1e308, "maximum": 1e308})),
        Constraint::Regex("((a{100}){100}){100}".to_owned()),
        Constraint::Regex("(".repeat(10_000)),
        Constraint::Regex("(a*)*".repeat(2_000)),
        Constraint::Lark("start: start start | \"a\"".to_owned()),
        Constraint::Lark(format!("start: {}\"a\"{}", "(".repeat(100_000), ")".repeat(100_000))),
        Constraint::Lark("start: \"a\"~1..2000000000".to_owned()),
        Constraint::Lark("start: A\nA: \"a\"~1..2000000000".to_owned()),
        Constraint::Lark("x".repeat(600_000)),
        Constraint::Lark(format!("start: A\nA: {}/z/", "/.*a.*b/ & ".repeat(40))),
        Constraint::Lark(rules(2_500, 'r')),
        Constraint::Lark(rules(2_500, 'T')),
        Constraint::Lark(String::new()),
    ];
    for constraint in &forms {
        let mut shown = format!("{constraint:?}");
        shown.truncate(80);
        let start = Instant::now();
        let mut outcome =
            grammars().guide(&Form { constraint: Some(constraint), ..Form::default() });
        if let Ok(Some(guide)) = &mut outcome {
            let _ = guide.mask(&vec![0.0; 265], &mut Vec::new());
        }
        let took = start.elapsed();
        // A second in an unoptimised test on a machine that does other things as well.
        assert!(took < Duration::from_secs(3), "{shown}: {took:?}");
    }
}

fn tool(strict: bool, parameters: &Value) -> Value {
    json!({"type": "function", "function": {"name": "f", "strict": strict, "parameters": parameters}})
}

fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "mode": {"enum": ["read", "write"]},
            "n": {"$ref": "#/$defs/count"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["path", "n"],
        "$defs": {"count": {"type": "integer", "minimum": 1}},
    })
}

fn call(parameters: &[(&str, &str)]) -> String {
    let mut text = "<tool_call>\n<function=f>\n".to_owned();
    for (name, value) in parameters {
        let _ = write!(text, "<parameter={name}>\n{value}\n</parameter>\n");
    }
    text + "</function>\n</tool_call>"
}

fn with_tools(tools: &[Value], choice: ToolChoice, single_call: bool) -> Form<'_> {
    Form { tools, tool_rule: ToolRule { choice, single_call }, ..Form::default() }
}

#[test]
fn required_calls_follow_the_schema() {
    let tools = [tool(true, &parameters())];
    let takes = |text: &str| accepts(guide(&with_tools(&tools, ToolChoice::Required, false)), text);
    let file = "fn f() {\n    \"</parameter>\" < 3\n}\n\n";
    assert!(takes(&call(&[("path", file), ("n", "3")])));
    assert!(takes(&call(&[("path", ""), ("mode", "write"), ("n", "12"), ("tags", "[\"a\"]")])));
    assert!(takes(&format!("{0}\n{0}", call(&[("path", "x"), ("n", "1")]))));
    for (text, why) in [
        (call(&[("path", "x")]), "a required parameter is missing"),
        (call(&[("n", "1"), ("path", "x")]), "another order"),
        (call(&[("path", "x"), ("n", "0")]), "below the minimum"),
        (call(&[("path", "x"), ("n", "one")]), "no number"),
        (call(&[("path", "x"), ("mode", "run"), ("n", "1")]), "not listed"),
        (call(&[("path", "x"), ("path", "y"), ("n", "1")]), "twice"),
        (call(&[("path", "x"), ("n", "1"), ("other", "y")]), "unknown"),
        (format!("Sure. {}", call(&[("path", "x"), ("n", "1")])), "prose before"),
        (format!("{}\n", call(&[("path", "x"), ("n", "1")])), "something after"),
        (String::new(), "no call"),
    ] {
        assert!(!takes(&text), "{why}: {text}");
    }
}

#[test]
fn loose_tools_take_other_parameters_once_the_known_ones_are_through() {
    let tools = [tool(false, &parameters())];
    let takes = |text: &str| accepts(guide(&with_tools(&tools, ToolChoice::Required, false)), text);
    assert!(takes(&call(&[("path", "x"), ("n", "1"), ("other", "y"), ("more", "[")])));
    assert!(!takes(&call(&[("path", "x"), ("n", "1"), ("path", "y")])));
    let mut closed = parameters();
    closed["additionalProperties"] = json!(false);
    let tools = [tool(false, &closed)];
    let form = with_tools(&tools, ToolChoice::Required, false);
    assert!(!accepts(guide(&form), &call(&[("path", "x"), ("n", "1"), ("other", "y")])));
}

#[test]
fn strict_tools_leave_the_choice_and_rule_the_call() {
    let tools = [tool(true, &parameters())];
    let takes = |text: &str| accepts(guide(&with_tools(&tools, ToolChoice::Auto, false)), text);
    let good = call(&[("path", "x"), ("n", "1")]);
    assert!(takes(""));
    assert!(takes("Just <words>, é.\n\n"));
    assert!(takes(&good));
    assert!(takes(&format!("Sure.\n\n{good}\n{good}")));
    assert!(!takes("I would write <tool_call> here"));
    assert!(!takes("<function=f>\n</function>"), "the parser takes it as a call");
    assert!(!takes(&call(&[("path", "x")])));
    assert!(!takes(&format!("{good} Done.")));
}

#[test]
fn a_constraint_beside_tools_is_one_or_the_other() {
    let tools = [tool(false, &parameters())];
    let constraint = Constraint::JsonObject;
    let takes = |text: &str| {
        let form = with_tools(&tools, ToolChoice::Auto, false);
        accepts(guide(&Form { constraint: Some(&constraint), ..form }), text)
    };
    assert!(takes("{}"));
    assert!(takes(&call(&[("path", "x"), ("n", "1")])));
    assert!(!takes("Sure."));
    assert!(!takes(&format!("{{}}{}", call(&[("path", "x"), ("n", "1")]))));
}

#[test]
fn a_single_call_is_the_only_one() {
    let tools = [tool(true, &json!({}))];
    let two = format!("{0}\n{0}", call(&[]));
    for choice in [ToolChoice::Auto, ToolChoice::Required] {
        assert!(accepts(guide(&with_tools(&tools, choice.clone(), false)), &two));
        assert!(!accepts(guide(&with_tools(&tools, choice.clone(), true)), &two));
        assert!(accepts(guide(&with_tools(&tools, choice, true)), &call(&[])));
    }
}

#[test]
fn named_tools_are_the_only_ones() {
    let other = json!({"function": {"name": "other"}});
    let tools = [tool(false, &json!({})), other];
    let named = |name: &str| ToolChoice::Named(vec![name.to_owned()]);
    assert!(accepts(guide(&with_tools(&tools, named("f"), false)), &call(&[])));
    assert!(!accepts(guide(&with_tools(&tools, named("other"), false)), &call(&[])));
    let (field, text) = problem(&with_tools(&tools, named("nobody"), false));
    assert_eq!(field, "tools");
    assert!(text.contains("nobody"), "{text}");
    assert_eq!(problem(&with_tools(&[], ToolChoice::Required, false)).0, "tools");
}

#[test]
fn tools_that_cannot_be_written_or_enforced_are_named() {
    let check = |tool: Value, part: &str| {
        let tools = [tool];
        let (field, text) = problem(&with_tools(&tools, ToolChoice::Required, false));
        assert_eq!(field, "tools");
        assert!(text.contains(part), "{text}");
    };
    let unique = json!({"properties": {"list": {"type": "array", "uniqueItems": true}}});
    check(tool(true, &unique), "uniqueItems");
    check(tool(true, &json!({"properties": {"a<b": {"type": "integer"}}})), "a<b");
    check(tool(true, &json!({"properties": {"a": false}, "required": ["a"]})), "`a`");
    let tools = [tool(false, &unique)];
    let form = with_tools(&tools, ToolChoice::Required, false);
    assert!(accepts(guide(&form), &call(&[("list", "[1, 1]")])), "a loose tool asks for less");
}

#[test]
fn a_free_answer_has_no_guide() {
    let tools = [tool(false, &parameters())];
    let free = |form: &Form<'_>| grammars().guide(form).expect("nothing to compile").is_none();
    assert!(free(&Form::default()));
    assert!(free(&with_tools(&tools, ToolChoice::Auto, true)));
}

/// Times with the vocabulary of a checkpoint: `LILY_TOKENIZER=.../tokenizer.json`.
#[test]
#[ignore = "measures, and needs a file"]
fn speed_with_a_real_vocabulary() {
    let path = std::env::var("LILY_TOKENIZER").expect("the path of a tokenizer.json");
    let bytes = std::fs::read(path).expect("the file is there");
    let tokenizer = Arc::new(Tokenizer::from_bytes(&bytes).expect("it is one"));
    let eos = tokenizer.token_id("<|im_end|>").expect("it has turns");
    let n = tokenizer.vocab_size();
    let grammars = Grammars::new(Arc::clone(&tokenizer), &[eos], n);
    let row = vec![0.0; n];
    let mut masked = Vec::new();
    let tools = [tool(true, &parameters())];
    let schema = Constraint::JsonSchema(parameters());
    let calls = call(&[("path", "src/a b.rs"), ("mode", "read"), ("n", "12")]);
    let json = r#"{"path": "größe 🌷\n and a longer text", "n": 12, "tags": ["a", "b c"]}"#;
    let cases = [
        (
            Form { constraint: Some(&schema), after_thinking: true, ..Form::default() },
            json.to_owned(),
        ),
        (Form { constraint: Some(&Constraint::JsonObject), ..Form::default() }, json.to_owned()),
        (with_tools(&tools, ToolChoice::Required, false), calls.clone()),
        (with_tools(&tools, ToolChoice::Auto, false), format!("Sure, I will.\n\n{calls}")),
    ];
    for (form, text) in cases {
        let start = Instant::now();
        let mut guide = grammars.guide(&form).expect("it compiles").expect("there is a form");
        let compiled = start.elapsed();
        let mut slowest = Duration::ZERO;
        let ids = tokenizer.encode(&text).expect("any text");
        let start = Instant::now();
        for &id in &ids {
            let step = Instant::now();
            guide.mask(&row, &mut masked).expect("it goes on");
            assert!(masked[id as usize] > f32::NEG_INFINITY, "{id} in {text}");
            guide.push(id).expect("it was allowed");
            slowest = slowest.max(step.elapsed());
        }
        let mean = start.elapsed() / u32::try_from(ids.len()).expect("few");
        guide.mask(&row, &mut masked).expect("it can end");
        assert!(masked[eos as usize] > f32::NEG_INFINITY);
        eprintln!("compiled in {compiled:?}, a token in {mean:?}, at most {slowest:?}");
    }
}
