//! Keeps what people and tools say from becoming control tokens.
//!
//! Before rendering, the first character of every added-token string in such text is replaced by a
//! private-use character that occurs nowhere else; after rendering, the text between the tokens
//! that the template wrote is turned back and encoded with token matching off. One character for
//! one character, so that a template can trim, split and cut as it likes. A string end that could
//! become a token together with what the template writes next is replaced too.

use crate::message::{Content, Message, Part, RenderOptions, Role};
use crate::tokenizer::{AddedTokens, Tokenizer};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

/// Private-use characters: the planes 0, 15 and 16.
const PRIVATE: [std::ops::RangeInclusive<char>; 3] =
    ['\u{e000}'..='\u{f8ff}', '\u{f0000}'..='\u{ffffd}', '\u{100000}'..='\u{10fffd}'];

pub(super) struct Shield<'t> {
    added: &'t AddedTokens,
    /// A first character of added tokens and what stands for it.
    pairs: Vec<(char, char)>,
    /// Another character that occurs nowhere.
    mark: Option<char>,
}

impl<'t> Shield<'t> {
    /// Chooses characters that occur in none of the texts.
    pub(super) fn new<'s>(
        tokenizer: &'t Tokenizer,
        sources: impl IntoIterator<Item = &'s str>,
        messages: &[Message],
        tools: &[Value],
        options: &RenderOptions,
    ) -> Self {
        let mut taken = BTreeSet::new();
        let mut see = |text: &str| {
            taken.extend(text.chars().filter(|c| PRIVATE.iter().any(|range| range.contains(c))));
        };
        sources.into_iter().for_each(&mut see);
        for message in messages {
            see_value(&message.to_value(), &mut see);
        }
        for tool in tools {
            see_value(tool, &mut see);
        }
        for (key, value) in &options.extra {
            see(key);
            see_value(value, &mut see);
        }
        let mut free = PRIVATE.into_iter().flatten().filter(|c| !taken.contains(c));
        let added = tokenizer.added();
        let pairs = added.first_chars().into_iter().zip(free.by_ref()).collect();
        Self { added, pairs, mark: free.next() }
    }

    /// A character that occurs in none of the texts and stands for nothing.
    pub(super) fn mark(&self) -> Option<char> {
        self.mark
    }

    /// The turn for the template, shielded but for what the template acts on.
    pub(super) fn message(&self, message: &Message) -> Value {
        let mut value = message.to_value();
        let Some(turn) = value.as_object_mut() else { return value };
        for (key, field) in turn.iter_mut() {
            if key == "content" {
                *field = self.content(message);
            } else if key != "role" {
                *field = self.value(field);
            }
        }
        value
    }

    fn content(&self, message: &Message) -> Value {
        let whole = match &message.content {
            Content::Text(text) => text.as_str(),
            // The text of a single part is what the template sees as a whole.
            Content::Parts(parts) => match parts.as_slice() {
                [Part::Text(text)] => text.as_str(),
                _ => "",
            },
        };
        let visible = match message.role {
            Role::Assistant if message.reasoning.is_none() => inline_reasoning(whole),
            Role::User => wrapped_result(whole),
            _ => Vec::new(),
        };
        let shielded = |text: &str| Value::from(self.text(text, &visible).into_owned());
        match &message.content {
            Content::Text(text) => shielded(text),
            Content::Parts(_) => {
                let mut parts = message.to_value()["content"].take();
                for part in parts.as_array_mut().into_iter().flatten() {
                    if let Some(Value::String(text)) = part.get("text") {
                        part["text"] = shielded(text);
                    }
                }
                parts
            }
        }
    }

    /// A value with all its strings shielded, keys included.
    pub(super) fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::from(self.text(text, &[]).into_owned()),
            Value::Array(list) => list.iter().map(|item| self.value(item)).collect(),
            Value::Object(map) => Value::Object(self.map(map)),
            other => other.clone(),
        }
    }

    pub(super) fn map(&self, map: &Map<String, Value>) -> Map<String, Value> {
        map.iter().map(|(k, v)| (self.text(k, &[]).into_owned(), self.value(v))).collect()
    }

    /// The text but for `visible`, places of tags in order.
    fn text<'s>(&self, text: &'s str, visible: &[Range<usize>]) -> Cow<'s, str> {
        let mut shielded = String::new();
        let mut done = 0;
        let visible_end = AddedTokens::visible_end(text);
        for (at, c) in text.char_indices() {
            let Some((_, mark)) = self.pairs.iter().find(|(first, _)| *first == c) else {
                continue;
            };
            let acted_on = visible.binary_search_by_key(&at, |range| range.start).is_ok();
            if !acted_on && self.added.may_begin(text, at, visible_end) {
                shielded.push_str(&text[done..at]);
                shielded.push(*mark);
                done = at + c.len_utf8();
            }
        }
        if done == 0 {
            return Cow::Borrowed(text);
        }
        shielded.push_str(&text[done..]);
        Cow::Owned(shielded)
    }

    /// Turns rendered text back.
    pub(super) fn reveal<'s>(&self, text: &'s str) -> Cow<'s, str> {
        if !text.contains(|c| self.pairs.iter().any(|(_, mark)| *mark == c)) {
            return Cow::Borrowed(text);
        }
        let reveal =
            |c| self.pairs.iter().find(|(_, mark)| *mark == c).map_or(c, |(first, _)| *first);
        Cow::Owned(text.chars().map(reveal).collect())
    }
}

fn see_value(value: &Value, see: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => see(text),
        Value::Array(list) => list.iter().for_each(|item| see_value(item, see)),
        Value::Object(map) => map.iter().for_each(|(key, item)| {
            see(key);
            see_value(item, see);
        }),
        _ => {}
    }
}

/// The tags at which templates cut the reasoning out of an assistant turn: all up to the last
/// `</think>`. What comes after it is content.
fn inline_reasoning(text: &str) -> Vec<Range<usize>> {
    let Some(last) = text.rfind("</think>") else { return Vec::new() };
    let end = last + "</think>".len();
    let places =
        |tag: &'static str| text[..end].match_indices(tag).map(|(at, found)| at..at + found.len());
    let mut tags: Vec<_> = places("<think>").chain(places("</think>")).collect();
    tags.sort_unstable_by_key(|tag| tag.start);
    tags
}

/// The tags around a user turn that is a tool result as a whole.
fn wrapped_result(text: &str) -> Vec<Range<usize>> {
    const OPEN: &str = "<tool_response>";
    const CLOSE: &str = "</tool_response>";
    let trimmed = text.trim();
    let start = text.len() - text.trim_start().len();
    let end = start + trimmed.len();
    if trimmed.len() < OPEN.len() + CLOSE.len()
        || !trimmed.starts_with(OPEN)
        || !trimmed.ends_with(CLOSE)
    {
        return Vec::new();
    }
    vec![start..start + OPEN.len(), end - CLOSE.len()..end]
}
