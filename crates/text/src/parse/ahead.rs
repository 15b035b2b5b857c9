//! What stands at a place of the text: a tag, no tag, or too little text to say.

use serde_json::{Map, Value};

/// Longer names are text.
const NAME_MAX: usize = 256;
/// More whitespace between two tags makes them unrelated; it also bounds how far one looks again
/// and again.
const BLANK_MAX: usize = 256;

/// Longer JSON calls are text: they are looked at again with every token.
const JSON_CALL_MAX: usize = 1 << 16;

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

/// `<tool_call>` with a function after it: the name of the function and the length of both tags.
pub(super) fn tagged_function_ahead(text: &str, at_end: bool) -> Ahead {
    match look(text, TOOL_CALL, at_end) {
        Look::No => return Ahead::No,
        Look::Maybe => return Ahead::Maybe,
        Look::Yes => {}
    }
    let Some(inner) = skip_blank(&text[TOOL_CALL.len()..]) else { return Ahead::No };
    match function_ahead(inner, at_end) {
        Ahead::Yes { name, len } => Ahead::Yes { name, len: text.len() - inner.len() + len },
        other => other,
    }
}

/// A call with its outer tag.
pub(super) fn call_ahead(text: &str, at_end: bool) -> CallAhead {
    if let Some(after) = text.strip_prefix(TOOL_CALL)
        && let Some(inner) = skip_blank(after).filter(|inner| inner.starts_with('{'))
    {
        return json_ahead(inner, text.len() - inner.len(), at_end);
    }
    match tagged_function_ahead(text, at_end) {
        Ahead::Yes { name, len } => CallAhead::Function { name, len },
        Ahead::No => CallAhead::No,
        Ahead::Maybe => CallAhead::Maybe,
    }
}

/// A call written as JSON, with its closing tag or without.
fn json_ahead(inner: &str, start: usize, at_end: bool) -> CallAhead {
    let Some(json_len) = object_len(inner) else {
        let too_long = at_end || inner.len() > JSON_CALL_MAX;
        return if too_long { CallAhead::No } else { CallAhead::Maybe };
    };
    let len = match skip_blank(&inner[json_len..])
        .map(|rest| (look(rest, TOOL_CALL_END, at_end), rest))
    {
        Some((Look::Maybe, _)) => return CallAhead::Maybe,
        Some((Look::Yes, rest)) => inner.len() - rest.len() + TOOL_CALL_END.len(),
        _ => json_len,
    };
    match serde_json::from_str(&inner[..json_len]).ok().and_then(json_call) {
        Some((name, arguments)) => CallAhead::Json { name, arguments, len: start + len },
        None => CallAhead::No,
    }
}

/// Length of the JSON object at the start, if it is closed. Braces in strings do not count.
fn object_len(text: &str) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate().take(JSON_CALL_MAX) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' if !in_string => depth += 1,
            b'}' if !in_string => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
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
