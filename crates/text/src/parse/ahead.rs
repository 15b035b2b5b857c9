//! What stands at a place of the text: a tag, no tag, or too little text to say.

use serde_json::{Map, Value};

/// Longer names are text.
const NAME_MAX: usize = 256;
/// More whitespace between two tags makes them unrelated; it also bounds how far one looks again
/// and again.
const BLANK_MAX: usize = 256;

const TOOL_CALL: &str = "<tool_call>";
const TOOL_CALL_END: &str = "</tool_call>";

/// Whether a tag stands at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Yes,
    No,
    /// The text ends within it.
    Maybe,
}

/// Whether an opening tag with a name stands at a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ahead {
    Yes {
        name: String,
        /// Of the tag.
        len: usize,
    },
    No,
    Maybe,
}

/// Whether a call with its outer tag stands at a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallAhead {
    /// `<tool_call> <function=NAME>`.
    Function {
        name: String,
        /// Of both tags.
        len: usize,
    },
    /// `<tool_call> {"name": ..., "arguments": ...} </tool_call>`, the habit of older models.
    Json {
        name: String,
        /// JSON text of an object.
        arguments: String,
        /// Of the whole call.
        len: usize,
    },
    No,
    Maybe,
}

/// Whether the text begins with the tag.
pub(super) fn look(text: &str, tag: &str, at_end: bool) -> Look {
    if text.starts_with(tag) {
        Look::Yes
    } else if !at_end && tag.starts_with(text) {
        Look::Maybe
    } else {
        Look::No
    }
}

/// The text after whitespace; `None` if there is too much of it.
pub(super) fn skip_blank(text: &str) -> Option<&str> {
    let after = text.trim_start();
    (text.len() - after.len() <= BLANK_MAX).then_some(after)
}

/// `<function=NAME>`.
pub(super) fn function_ahead(text: &str, at_end: bool) -> Ahead {
    named_ahead(text, "<function=", at_end)
}

/// `<parameter=NAME>`.
pub(super) fn parameter_ahead(text: &str, at_end: bool) -> Ahead {
    named_ahead(text, "<parameter=", at_end)
}

fn named_ahead(text: &str, start: &str, at_end: bool) -> Ahead {
    match look(text, start, at_end) {
        Look::No => return Ahead::No,
        Look::Maybe => return Ahead::Maybe,
        Look::Yes => {}
    }
    let name = &text[start.len()..];
    match name.find(['<', '>', '\n']) {
        Some(len @ 1..=NAME_MAX) if name[len..].starts_with('>') => {
            let tag_len = start.len() + len + 1;
            match name[..len].trim() {
                "" => Ahead::No,
                name => Ahead::Yes { name: name.to_string(), len: tag_len },
            }
        }
        None if !at_end && name.len() <= NAME_MAX => Ahead::Maybe,
        _ => Ahead::No,
    }
}

/// A call with its outer tag.
pub(super) fn call_ahead(text: &str, at_end: bool) -> CallAhead {
    match look(text, TOOL_CALL, at_end) {
        Look::No => return CallAhead::No,
        Look::Maybe => return CallAhead::Maybe,
        Look::Yes => {}
    }
    let Some(inner) = skip_blank(&text[TOOL_CALL.len()..]) else { return CallAhead::No };
    let start = text.len() - inner.len();
    if inner.is_empty() {
        return if at_end { CallAhead::No } else { CallAhead::Maybe };
    }
    if inner.starts_with('{') {
        return json_ahead(inner, start, at_end);
    }
    match function_ahead(inner, at_end) {
        Ahead::Yes { name, len } => CallAhead::Function { name, len: start + len },
        Ahead::No => CallAhead::No,
        Ahead::Maybe => CallAhead::Maybe,
    }
}

/// A call written as JSON, ended by its tag or by the end of the text.
fn json_ahead(inner: &str, start: usize, at_end: bool) -> CallAhead {
    for (at, tag) in inner.match_indices(TOOL_CALL_END) {
        match serde_json::from_str::<Value>(&inner[..at]) {
            Ok(value) => {
                return json_call(value).map_or(CallAhead::No, |(name, arguments)| {
                    CallAhead::Json { name, arguments, len: start + at + tag.len() }
                });
            }
            // The tag stands in a string of the JSON text.
            Err(e) if e.is_eof() => {}
            Err(_) => return CallAhead::No,
        }
    }
    if !at_end {
        return CallAhead::Maybe;
    }
    match serde_json::from_str(inner).ok().and_then(json_call) {
        Some((name, arguments)) => CallAhead::Json { name, arguments, len: start + inner.len() },
        None => CallAhead::No,
    }
}

fn json_call(value: Value) -> Option<(String, String)> {
    let Value::Object(mut call) = value else { return None };
    let name = call.get("name")?.as_str().filter(|name| !name.is_empty())?.to_string();
    let arguments = match call.remove("arguments").or_else(|| call.remove("parameters")) {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(arguments)) => arguments,
        Some(Value::String(text)) => serde_json::from_str(&text).ok()?,
        Some(_) => return None,
    };
    Some((name, Value::Object(arguments).to_string()))
}
