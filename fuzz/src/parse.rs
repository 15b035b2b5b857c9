//! The output parser.

use crate::Input;
use lily_text::{Delta, OutputParser, ParserOptions};
use serde_json::Value;
use std::collections::BTreeSet;

/// All pieces joined. `text` has reasoning and content in their order.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    reasoning: String,
    content: String,
    text: String,
    calls: Vec<(String, String)>,
    n_ended: usize,
}

impl Answer {
    fn parse<'t>(options: &ParserOptions, pieces: impl Iterator<Item = &'t str>) -> Self {
        let mut parser = OutputParser::new(options.clone());
        let mut answer = Self::default();
        for piece in pieces {
            answer.add(parser.push(piece));
        }
        answer.add(parser.finish());
        assert_eq!(answer.n_ended, answer.calls.len(), "all calls are closed");
        answer
    }

    fn add(&mut self, deltas: Vec<Delta>) {
        for delta in deltas {
            match delta {
                Delta::Reasoning(text) => {
                    self.reasoning.push_str(&text);
                    self.text.push_str(&text);
                }
                Delta::Content(text) => {
                    self.content.push_str(&text);
                    self.text.push_str(&text);
                }
                Delta::ToolCallStart { index, name } => {
                    assert_eq!(index as usize, self.calls.len(), "calls are numbered in order");
                    assert_eq!(self.n_ended, self.calls.len(), "calls do not overlap");
                    assert!(!name.is_empty(), "a call has a name");
                    self.calls.push((name, String::new()));
                }
                Delta::ToolCallArguments { index, json } => {
                    assert_eq!(index as usize + 1, self.calls.len(), "the call that is open");
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

/// Panics if the parser breaks a promise: the answer does not depend on how the text is cut, the
/// arguments of every call are a JSON object, and without tools no text is lost.
pub fn check_parse(input: &Input) {
    let Input { options, text, .. } = input;
    let whole = Answer::parse(options, std::iter::once(text.as_str()));
    let chars = text.char_indices().map(|(at, char)| &text[at..at + char.len_utf8()]);
    assert_eq!(Answer::parse(options, chars), whole, "character by character");
    assert_eq!(Answer::parse(options, pieces(text, input.cut_seed)), whole, "in pieces");
    for (name, json) in &whole.calls {
        let arguments: Value = serde_json::from_str(json)
            .unwrap_or_else(|error| panic!("{error} in the arguments of {name}: {json}"));
        assert!(arguments.is_object(), "{json}");
    }
    if !options.parse_tools {
        assert!(whole.calls.is_empty(), "no tools, no calls");
        assert!(is_all_but_tags(text, &whole.text), "{text:?} became {:?}", whole.text);
    }
}

/// The text in pieces of one to eight characters.
fn pieces(text: &str, seed: u16) -> impl Iterator<Item = &str> {
    let mut state = u32::from(seed) + 1;
    let mut rest = text;
    std::iter::from_fn(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let n_chars = (state >> 29) as usize + 1;
        let end = rest.char_indices().nth(n_chars).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(end);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Whether the answer is the text without whitespace and some tags of thinking.
fn is_all_but_tags(text: &str, answer: &str) -> bool {
    let text: String = text.split_whitespace().collect();
    let answer: String = answer.split_whitespace().collect();
    let (text, answer) = (text.as_bytes(), answer.as_bytes());
    // The places of the answer that each place of the text can stand at.
    let mut at = vec![BTreeSet::new(); text.len() + 1];
    at[0].insert(0);
    for place in 0..text.len() {
        for in_answer in std::mem::take(&mut at[place]) {
            if answer.get(in_answer) == Some(&text[place]) {
                at[place + 1].insert(in_answer + 1);
            }
            for tag in ["<think>", "</think>"] {
                if text[place..].starts_with(tag.as_bytes()) {
                    at[place + tag.len()].insert(in_answer);
                }
            }
        }
    }
    at[text.len()].contains(&answer.len())
}
