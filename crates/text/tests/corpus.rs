//! What the model wrote, what it meant, and the parser between them.
//!
//! Each case of `corpus/*.json` is parsed whole, cut in two at every place, character by character
//! and in random pieces. docs/testing.md has the format.

use lily_text::{Delta, OutputParser, ParserOptions, ToolSchema};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Fewer files or cases mean that some were lost.
const N_CASES_MIN: usize = 250;
const N_RANDOM_CUTS: u64 = 16;

#[derive(Debug, Default, PartialEq)]
struct Answer {
    reasoning: String,
    content: String,
    /// Names and arguments as JSON text.
    calls: Vec<(String, String)>,
    n_ended: usize,
}

impl Answer {
    fn add(&mut self, deltas: Vec<Delta>) {
        for delta in deltas {
            match delta {
                Delta::Reasoning(text) => self.reasoning.push_str(&text),
                Delta::Content(text) => self.content.push_str(&text),
                Delta::ToolCallStart { index, name } => {
                    assert_eq!(index as usize, self.calls.len(), "calls are numbered in order");
                    assert_eq!(self.n_ended, self.calls.len(), "calls do not overlap");
                    self.calls.push((name, String::new()));
                }
                Delta::ToolCallArguments { index, json } => {
                    assert_eq!(index as usize + 1, self.calls.len(), "a call that is open");
                    self.calls[index as usize].1.push_str(&json);
                }
                Delta::ToolCallEnd { index } => {
                    assert_eq!(index as usize, self.n_ended, "the call that is open");
                    self.n_ended += 1;
                }
            }
        }
    }
}

struct Case {
    name: String,
    options: ParserOptions,
    text: String,
    reasoning: String,
    content: String,
    calls: Vec<(String, Value)>,
}

impl Case {
    fn new(theme: &str, tools: &Value, case: &Value) -> Self {
        let text = |key: &str| case.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let tools = case.get("tools").unwrap_or(tools).as_array().expect("tools are an array");
        let tools: Vec<ToolSchema> = (tools.iter())
            .map(|tool| ToolSchema::from_definition(tool).expect("a tool has a name"))
            .collect();
        let calls = case.get("calls").and_then(Value::as_array).into_iter().flatten();
        Self {
            name: format!("{theme}: {}", text("name")),
            options: ParserOptions {
                starts_in_thinking: case.get("starts_in_thinking") == Some(&Value::Bool(true)),
                parse_tools: !tools.is_empty(),
                tools,
            },
            text: text("text"),
            reasoning: text("reasoning"),
            content: text("content"),
            calls: calls
                .map(|call| {
                    let name = call["name"].as_str().expect("a call has a name").to_owned();
                    (name, call["arguments"].clone())
                })
                .collect(),
        }
    }

    fn parse(&self, pieces: &[&str]) -> Answer {
        let mut parser = OutputParser::new(self.options.clone());
        let mut answer = Answer::default();
        let mut len = 0;
        for piece in pieces {
            let deltas = parser.push(piece);
            len += piece.len();
            self.check_no_part_of_a_tag(&deltas, &self.text[..len]);
            answer.add(deltas);
        }
        answer.add(parser.finish());
        assert_eq!(answer.n_ended, answer.calls.len(), "{}: all calls are closed", self.name);
        answer
    }

    /// While text may come, what could become a tag is held back.
    fn check_no_part_of_a_tag(&self, deltas: &[Delta], pushed: &str) {
        let ends_in_part = |text: &str, tag: &str| {
            text.rfind('<').is_some_and(|at| {
                let part = &text[at..];
                part.len() < tag.len() && tag.starts_with(part)
                    && pushed.ends_with(part)
                    // The first of two is known to be text.
                    && !pushed.ends_with(&part.repeat(2))
            })
        };
        for delta in deltas {
            let part = match delta {
                Delta::Reasoning(text) => ends_in_part(text, "</think>"),
                Delta::Content(text) => {
                    self.options.parse_tools && ends_in_part(text, "<tool_call>")
                }
                _ => false,
            };
            assert!(!part, "{}: {delta:?} ends in part of a tag", self.name);
        }
    }

    /// What differs from the expectation.
    fn faults(&self) -> Vec<String> {
        let whole = self.parse(&[&self.text]);
        let mut faults = Vec::new();
        let mut compare =
            |what: &str, found: &dyn std::fmt::Debug, expected: &dyn std::fmt::Debug| {
                let (found, expected) = (format!("{found:?}"), format!("{expected:?}"));
                if found != expected {
                    faults.push(format!("  {what} is\n    {found}, not\n    {expected}"));
                }
            };
        compare("reasoning", &whole.reasoning, &self.reasoning);
        compare("content", &whole.content, &self.content);
        let calls: Vec<(String, Value)> = (whole.calls.iter())
            .map(|(name, json)| {
                let arguments: Value = serde_json::from_str(json)
                    .unwrap_or_else(|error| panic!("{}: {error} in {json}", self.name));
                assert!(arguments.is_object(), "{}: {json}", self.name);
                (name.clone(), arguments)
            })
            .collect();
        compare("calls", &calls, &self.calls);
        if let Some(pieces) = self.cuts().find(|pieces| self.parse(pieces) != whole) {
            let answer = self.parse(&pieces);
            faults.push(format!("  cut as {pieces:?}\n    {answer:?} instead of\n    {whole:?}"));
        }
        faults
    }

    fn cuts(&self) -> impl Iterator<Item = Vec<&str>> {
        let bounds: Vec<usize> = (self.text.char_indices().map(|(at, _)| at)).skip(1).collect();
        let at_each = bounds.clone().into_iter().map(|at| vec![at]);
        let random = (0..N_RANDOM_CUTS).map({
            let bounds = bounds.clone();
            move |seed| random_part(&bounds, seed)
        });
        let all = std::iter::once(bounds);
        at_each.chain(random).chain(all).map(|places| {
            let mut start = 0;
            let mut pieces: Vec<&str> = Vec::with_capacity(places.len() + 1);
            for end in places.into_iter().chain([self.text.len()]) {
                pieces.push(&self.text[start..end]);
                start = end;
            }
            pieces
        })
    }
}

/// Some of the places: the same for the same seed, on every machine.
fn random_part(places: &[usize], seed: u64) -> Vec<usize> {
    let mut state = seed + 1;
    let mut draw = || {
        // Knuth's MMIX generator; the low bits are poor.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let one_in = draw() % 12 + 1;
    places.iter().copied().filter(|_| draw() % one_in == 0).collect()
}

fn corpus_files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the corpus is there")
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    files
}

#[test]
fn the_model_is_understood() {
    let mut names = std::collections::BTreeSet::new();
    let mut faults = Vec::new();
    for file in corpus_files() {
        let text = std::fs::read_to_string(&file).expect("a readable file");
        let corpus: Value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let theme = file.file_stem().and_then(|stem| stem.to_str()).expect("a UTF-8 name");
        for case in corpus["cases"].as_array().expect("cases are an array") {
            let case = Case::new(theme, &corpus["tools"], case);
            assert!(names.insert(case.name.clone()), "two cases are named {}", case.name);
            let of_case = case.faults();
            if !of_case.is_empty() {
                faults.push(format!("{}\n  {:?}\n{}", case.name, case.text, of_case.join("\n")));
            }
        }
    }
    assert!(faults.is_empty(), "{} cases differ:\n\n{}", faults.len(), faults.join("\n\n"));
    assert!(names.len() >= N_CASES_MIN, "{} cases are too few", names.len());
}
