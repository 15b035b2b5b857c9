//! Calls written as JSON, the habit of older models, and arguments written as one object.

use super::ahead::{TextEnds, call_end, is_part_of_end, skip_blank};
use serde_json::{Map, Value};

/// Longer JSON calls are text: they are looked at again with every token.
const JSON_CALL_MAX: usize = 1 << 16;

/// Whether calls as JSON stand at a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum JsonAhead {
    Yes {
        /// Names and JSON texts of objects; not empty.
        calls: Vec<(String, String)>,
        /// Of the JSON text, and of a code fence around it.
        len: usize,
    },
    No,
    Maybe,
}

/// `{"name": ..., "arguments": ...}`, several of them, an array of them, or these in a code fence.
pub(super) fn json_ahead(text: &str, at_end: bool) -> JsonAhead {
    let ends = if at_end { JsonAhead::No } else { JsonAhead::Maybe };
    let (mut rest, fence) = match fence(text) {
        Ok(found) => found,
        Err(TextEnds) => return ends,
    };
    let mut calls = Vec::new();
    let mut len = 0;
    while rest.starts_with(['{', '[']) {
        let Some(value_len) = value_len(rest) else {
            if at_end || rest.len() > JSON_CALL_MAX {
                break;
            }
            return JsonAhead::Maybe;
        };
        let Some(more) = serde_json::from_str(&rest[..value_len]).ok().and_then(json_calls) else {
            break;
        };
        calls.extend(more);
        rest = &rest[value_len..];
        len = text.len() - rest.len();
        // A further one may follow.
        let Some(after) = skip_blank(rest) else { break };
        let after = after.strip_prefix(',').map_or(after, str::trim_start);
        if after.is_empty() && !at_end {
            return JsonAhead::Maybe;
        }
        rest = after;
    }
    if calls.is_empty() {
        return JsonAhead::No;
    }
    if let Some(fence) = fence {
        if let Some(after) = rest.strip_prefix(fence) {
            len = text.len() - after.len();
        } else if !at_end && fence.starts_with(rest) {
            return JsonAhead::Maybe;
        }
    }
    JsonAhead::Yes { calls, len }
}

/// The text inside a code fence, and the fence, if the text begins with one.
fn fence(text: &str) -> Result<(&str, Option<&'static str>), TextEnds> {
    const FENCE: &str = "```";
    let Some(info) = text.strip_prefix(FENCE) else {
        return if FENCE.starts_with(text) { Err(TextEnds) } else { Ok((text, None)) };
    };
    let inner = info.trim_start_matches(|char: char| char.is_ascii_alphanumeric() || char == '_');
    match skip_blank(inner) {
        Some("") => Err(TextEnds),
        Some(inner) => Ok((inner, Some(FENCE))),
        None => Ok((text, None)),
    }
}

/// Arguments.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) members: Map<String, Value>,
    /// Of the JSON text.
    pub(super) len: usize,
}

/// The object at the start with the end of its call, or of the text, after it.
pub(super) fn object_ahead(text: &str, at_end: bool) -> Result<Option<Object>, TextEnds> {
    if !text.starts_with('{') {
        return Ok(None);
    }
    let Some(len) = value_len(text) else {
        return if at_end || text.len() > JSON_CALL_MAX { Ok(None) } else { Err(TextEnds) };
    };
    let Ok(Value::Object(members)) = serde_json::from_str(&text[..len]) else { return Ok(None) };
    let Some(after) = skip_blank(&text[len..]) else { return Ok(None) };
    let found = Ok(Some(Object { members, len }));
    if after.is_empty() || is_part_of_end(after) {
        return if at_end { found } else { Err(TextEnds) };
    }
    match call_end(after, at_end)? {
        Some(_) => found,
        None => Ok(None),
    }
}

/// Length of the JSON object or array at the start, if it is closed. Brackets in strings do not
/// count.
fn value_len(text: &str) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate().take(JSON_CALL_MAX) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => {
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

fn json_calls(value: Value) -> Option<Vec<(String, String)>> {
    match value {
        Value::Array(values) => values.into_iter().map(json_call).collect(),
        value => json_call(value).map(|call| vec![call]),
    }
}

fn json_call(value: Value) -> Option<(String, String)> {
    let Value::Object(mut call) = value else { return None };
    if let Some(Value::Object(function)) = call.get_mut("function") {
        call = std::mem::take(function);
    }
    // The definition of a tool names its parameters, too.
    if call.contains_key("description") {
        return None;
    }
    let name = call.get("name").or_else(|| call.get("function"))?.as_str()?.trim().to_string();
    let arguments = match call.remove("arguments").or_else(|| call.remove("parameters")) {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(arguments)) => arguments,
        Some(Value::String(text)) => serde_json::from_str(&text).ok()?,
        Some(_) => return None,
    };
    (!name.is_empty()).then(|| (name, Value::Object(arguments).to_string()))
}
