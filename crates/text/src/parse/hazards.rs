//! Each hazard seen in practice, by the text that a model wrote.

use super::*;
use serde_json::{Value as Json, json};

/// All pieces joined: reasoning, content, and calls as name and arguments.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) reasoning: String,
    pub(super) content: String,
    pub(super) calls: Vec<(String, String)>,
    pub(super) n_ended: usize,
}

impl Answer {
    pub(super) fn add(&mut self, deltas: Vec<Delta>) {
        for delta in deltas {
            match delta {
                Delta::Reasoning(text) => self.reasoning.push_str(&text),
                Delta::Content(text) => self.content.push_str(&text),
                Delta::ToolCallStart { index, name } => {
                    assert_eq!(index as usize, self.calls.len());
                    assert_eq!(self.n_ended, self.calls.len(), "calls do not overlap");
                    self.calls.push((name, String::new()));
                }
                Delta::ToolCallArguments { index, json } => {
                    assert_eq!(index as usize + 1, self.calls.len());
                    self.calls[index as usize].1.push_str(&json);
                }
                Delta::ToolCallEnd { index } => {
                    assert_eq!(index as usize, self.n_ended);
                    self.n_ended += 1;
                }
            }
        }
    }
}

pub(super) fn tools() -> Vec<ToolSchema> {
    let write = json!({"type": "function", "function": {"name": "write", "parameters": {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "text": {"type": "string"},
            "mode": {"type": "integer"},
            "force": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "meta": {"type": "object"},
            "note": {"type": ["string", "null"]},
        },
    }}});
    let now = json!({"name": "now"});
    [write, now].iter().map(|tool| ToolSchema::from_definition(tool).expect("named")).collect()
}

pub(super) fn parse_in(pieces: &[&str], starts_in_thinking: bool, parse_tools: bool) -> Answer {
    let options = ParserOptions { starts_in_thinking, tools: tools(), parse_tools };
    let mut parser = OutputParser::new(options);
    let mut answer = Answer::default();
    for piece in pieces {
        answer.add(parser.push(piece));
    }
    answer.add(parser.finish());
    assert_eq!(answer.n_ended, answer.calls.len(), "all calls are closed");
    answer
}

/// Parses the text whole and character by character.
#[track_caller]
fn parse(text: &str, starts_in_thinking: bool) -> Answer {
    let whole = parse_in(&[text], starts_in_thinking, true);
    let mut buffer = [0; 4];
    let chars: Vec<String> = text.chars().map(|c| c.encode_utf8(&mut buffer).to_string()).collect();
    let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
    assert_eq!(parse_in(&chars, starts_in_thinking, true), whole, "{text:?}");
    whole
}

/// An answer without thinking that holds this content and these calls.
#[track_caller]
fn check(text: &str, content: &str, calls: &[(&str, Json)]) {
    let answer = parse(text, false);
    assert_eq!(answer.reasoning, "", "{text:?}");
    assert_eq!(answer.content, content, "{text:?}");
    check_calls(&answer, calls);
}

#[track_caller]
fn check_calls(answer: &Answer, expected: &[(&str, Json)]) {
    let calls: Vec<(&str, Json)> = answer
        .calls
        .iter()
        .map(|(name, json)| {
            (name.as_str(), serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {json}")))
        })
        .collect();
    assert_eq!(calls, expected);
}

fn call(parameters: &str) -> String {
    format!("<tool_call>\n<function=write>\n{parameters}</function>\n</tool_call>")
}

fn parameter(name: &str, value: &str) -> String {
    format!("<parameter={name}>\n{value}\n</parameter>\n")
}

#[test]
fn reasoning_and_content_are_told_apart() {
    let answer = parse("I think.\n\nSo:\n</think>\n\nYes.\n\n  x \n", true);
    assert_eq!(answer.reasoning, "I think.\n\nSo:");
    assert_eq!(answer.content, "Yes.\n\n  x \n");
    let answer = parse("\n\nquick\n</think>ok", true);
    assert_eq!((answer.reasoning.as_str(), answer.content.as_str()), ("quick", "ok"));
    let answer = parse("<think>\nagain</think>\n\n    indented", true);
    assert_eq!((answer.reasoning.as_str(), answer.content.as_str()), ("again", "    indented"));
    let answer = parse("\n</think>\n\n", true);
    assert_eq!(answer, Answer::default());
    let answer = parse("<think>why</think>because", false);
    assert_eq!((answer.reasoning.as_str(), answer.content.as_str()), ("why", "because"));
}

#[test]
fn typed_arguments() {
    let parameters = [
        parameter("path", "a.txt"),
        parameter("mode", "420"),
        parameter("force", "True"),
        parameter("tags", "[\"x\", \"y\"]"),
        parameter("meta", "{\n  \"a\": null\n}"),
        parameter("note", "null"),
        parameter("other", "5"),
    ];
    let expected = json!({
        "path": "a.txt", "mode": 420, "force": true, "tags": ["x", "y"], "meta": {"a": null},
        "note": null, "other": "5",
    });
    check(&call(&parameters.concat()), "", &[("write", expected)]);
    check("<tool_call>\n<function=now>\n</function>\n</tool_call>", "", &[("now", json!({}))]);
}

#[test]
fn newlines_around_values_are_dropped_once() {
    let check_value = |inner: &str, expected: &str| {
        let text = call(&format!("<parameter=text>{inner}</parameter>\n"));
        check(&text, "", &[("write", json!({"text": expected}))]);
    };
    check_value("\nx\n", "x");
    check_value("x", "x");
    check_value("\n\n  x\n\n\n", "\n  x\n\n");
    check_value("\n\n", "");
    check_value("\n", "");
    check_value("", "");
    check_value("\n\n\n", "\n");
    check_value("\n\"quoted\" \\ \u{1} é\n", "\"quoted\" \\ \u{1} é");
}

#[test]
fn hazard_1_values_contain_anything() {
    for value in [
        "<a href='x'>&</a>",
        "{\"a\": \"</parameter>\"}",
        "if a < b and c <= d: <",
        "print('</parameter>')\nprint('</function>')\n<parameter=x>",
        "<parameter=path>\nnested",
        "</parameter> text",
        "</function>",
        "</tool_call> and <tool_call>",
        "<think></think>",
        "</parameter>\n<parameter=text>\nits own name again",
        "a\n</parameter>\n</function> and more\n</parameter>\n</function>, once more",
        "a\n</parameter>\n</function>\n\n# then text",
    ] {
        let text = call(&(parameter("text", value) + &parameter("mode", "1")));
        check(&text, "", &[("write", json!({"text": value, "mode": 1}))]);
        let text = call(&parameter("text", value));
        check(&text, "", &[("write", json!({"text": value}))]);
    }
}

#[test]
fn hazard_2_a_call_ends_the_reasoning() {
    let text = format!("I must write.\n{}", call(&parameter("mode", "1")));
    let answer = parse(&text, true);
    assert_eq!(answer.reasoning, "I must write.");
    check_calls(&answer, &[("write", json!({"mode": 1}))]);
    for mention in [
        "the <tool_call> tag",
        "a <tool_call>\n<function=unknown> here",
        "<tool_call>{\"name\": \"write\"}</tool_call>",
        "<tool_call>\n<function=",
    ] {
        let answer = parse(&format!("{mention}</think>x"), true);
        assert_eq!(answer.reasoning, mention);
        assert_eq!(answer.content, "x");
        check_calls(&answer, &[]);
    }
}

#[test]
fn hazard_3_unclosed_reasoning_is_reasoning() {
    let answer = parse("I think and think </thi", true);
    assert_eq!(answer.reasoning, "I think and think </thi");
    assert_eq!(answer.content, "");
    let mut parser = OutputParser::new(ParserOptions {
        starts_in_thinking: true,
        tools: Vec::new(),
        parse_tools: true,
    });
    parser.push("x");
    assert!(parser.in_reasoning());
    parser.push("</think>");
    assert!(!parser.in_reasoning());
}

#[test]
fn hazard_4_missing_closing_tags() {
    let full = [("write", json!({"path": "p", "mode": 1}))];
    let start = "<tool_call>\n<function=write>\n<parameter=path>\np\n</parameter>\n";
    for end in [
        "<parameter=mode>\n1\n</parameter>\n</function>\n</tool_call>",
        "<parameter=mode>\n1\n</parameter>\n</function>\n",
        "<parameter=mode>\n1\n</parameter>\n</function>\n</tool_",
        "<parameter=mode>\n1\n</parameter>\n</func",
        "<parameter=mode>\n1\n</parameter>\n</tool_call>",
        "<parameter=mode>\n1\n</parameter>\n",
        "<parameter=mode>\n1\n</parameter>\n<parameter=te",
        "<parameter=mode>\n1\n</parame",
        "<parameter=mode>\n1\n</function>\n</tool_call>",
        "<parameter=mode>\n1\n</tool_call>",
        "<parameter=mode>\n1\n",
    ] {
        check(&format!("{start}{end}"), "", &full);
    }
    let path = [("write", json!({"path": "p"}))];
    for end in ["", "<", "<parameter=mode", "<parameter=mode>", "<parameter=mode>\n1", "</function"]
    {
        check(&format!("{start}{end}"), "", &path);
    }
    // A string is closed where it was cut.
    check(
        &format!("{start}<parameter=text>\nabc"),
        "",
        &[("write", json!({"path": "p", "text": "abc"}))],
    );
    check(
        &format!("{start}<parameter=text>\nab\n</par"),
        "",
        &[("write", json!({"path": "p", "text": "ab"}))],
    );
    check(
        &format!("{start}<parameter=text>\na <"),
        "",
        &[("write", json!({"path": "p", "text": "a <"}))],
    );
    check("<tool_call>\n<function=write>", "", &[("write", json!({}))]);
}

#[test]
fn hazard_5_a_known_function_needs_no_outer_tag() {
    let bare = "Now:\n<function=write>\n<parameter=mode>\n1\n</parameter>\n</function>";
    check(bare, "Now:", &[("write", json!({"mode": 1}))]);
    check(&format!("{bare}\n</tool_call>\ndone"), "Now:\ndone", &[("write", json!({"mode": 1}))]);
    check("<function=other>x</function>", "<function=other>x</function>", &[]);
    check("<function=", "<function=", &[]);
}

#[test]
fn hazard_6_text_after_calls_is_content() {
    let text = format!("Before. {}\n\nAfter.\n", call(&parameter("mode", "1")));
    check(&text, "Before.\n\nAfter.\n", &[("write", json!({"mode": 1}))]);
    // Also when the outer tag was not closed.
    let text =
        "<tool_call>\n<function=write>\n<parameter=mode>\n1\n</parameter>\n</function>\nAfter.";
    check(text, "After.", &[("write", json!({"mode": 1}))]);
}

#[test]
fn hazard_7_strings_stay_strings() {
    for value in ["2", "true", "null", "[1]", "{}", "1.50"] {
        check(&call(&parameter("text", value)), "", &[("write", json!({"text": value}))]);
    }
}

#[test]
fn hazard_8_stray_closing_tags_are_dropped() {
    check("</think>\n\nHello", "Hello", &[]);
    check("Hello</think> you", "Hello you", &[]);
    let answer = parse("why</think>\n\n</think>\n\nHello </think>!", true);
    assert_eq!(answer.reasoning, "why");
    assert_eq!(answer.content, "Hello </think>!", "after thinking the tag may be meant");
}

#[test]
fn hazard_9_whitespace_before_a_call_is_not_content() {
    let answer = parse(&format!("why\n</think>\n\n \n{}\n\n", call("")), true);
    assert_eq!(answer.content, "");
    check_calls(&answer, &[("write", json!({}))]);
}

#[test]
fn hazard_10_strings_are_streamed_and_tags_are_not() {
    let options = ParserOptions { starts_in_thinking: false, tools: tools(), parse_tools: true };
    let mut parser = OutputParser::new(options);
    assert_eq!(parser.push("Hi <tool"), [Delta::Content("Hi".into())]);
    assert_eq!(
        parser.push("_call>\n<function=write>\n<parameter=text>"),
        [Delta::ToolCallStart { index: 0, name: "write".into() }]
    );
    let json = |text: &str| [Delta::ToolCallArguments { index: 0, json: text.into() }];
    assert_eq!(parser.push("\nab\"c\n"), json("{\"text\":\"ab\\\"c"));
    assert_eq!(parser.push("d</para"), json("\\nd"));
    assert_eq!(parser.push("graph>\n</parameter>\n<par"), json("</paragraph>"));
    assert_eq!(parser.push("ameter=tags>\n[1"), json("\""));
    assert_eq!(parser.push(", 2]"), []);
    assert_eq!(
        parser.push("\n</parameter>\n</function>\n</tool_call>"),
        [
            Delta::ToolCallArguments { index: 0, json: ",\"tags\":[1,2]}".into() },
            Delta::ToolCallEnd { index: 0 },
        ]
    );
}

#[test]
fn hazard_11_several_calls() {
    let one = call(&parameter("mode", "1"));
    let two = call(&parameter("mode", "2"));
    let both = [("write", json!({"mode": 1})), ("write", json!({"mode": 2}))];
    check(&format!("{one}\n{two}"), "", &both);
    check(&format!("{one}{two}"), "", &both);
    // Two functions in one pair of tags, and a first call that is not closed.
    let inner =
        |n: u8| format!("<function=write>\n{}</function>\n", parameter("mode", &n.to_string()));
    check(&format!("<tool_call>\n{}{}</tool_call>", inner(1), inner(2)), "", &both);
    check(&format!("<tool_call>\n{}{two}", inner(1)), "", &both);
}

#[test]
fn hazard_12_calls_as_json() {
    check(
        "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"text\": \"</tool_call>\", \"n\": 1.0}}\n</tool_call>",
        "",
        &[("write", json!({"text": "</tool_call>", "n": 1.0}))],
    );
    check("<tool_call>{\"name\": \"now\"}", "", &[("now", json!({}))]);
    check("<tool_call>{\"name\": \"now\"} x</tool_call>\ny", " x\ny", &[("now", json!({}))]);
    check(
        "<tool_call>{\"name\": \"now\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call> x",
        " x",
        &[("now", json!({"a": 1}))],
    );
    for text in [
        "<tool_call>{not json}</tool_call>",
        "<tool_call>{\"name\": \"now\"",
        "<tool_call>{\"name\": 1}</tool_call>",
        "<tool_call>{\"name\": \"now\", \"argu",
        "<tool_call> is a tag",
    ] {
        check(text, text, &[]);
    }
}

#[test]
fn without_tools_tags_are_text() {
    let text = format!("  x {} <function=write> ", call(&parameter("mode", "1")));
    let answer = parse_in(&[&text], false, false);
    assert_eq!(answer.content, text);
    assert!(answer.calls.is_empty());
    let answer = parse_in(&[&format!("why {text}</think>\n\n{text}")], true, false);
    assert_eq!(answer.reasoning, format!("why {text}").trim());
    assert_eq!(answer.content, text);
}
