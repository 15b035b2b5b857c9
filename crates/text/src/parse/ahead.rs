//! What stands at a place of the text: a tag, no tag, or too little text to say.

use super::json_call::{JsonAhead, json_ahead, object_ahead};
use super::prose::Fence;

/// Longer names are text.
const NAME_MAX: usize = 256;
/// More whitespace between two tags makes them unrelated; it also bounds how far one looks again
/// and again.
const BLANK_MAX: usize = 256;
/// Blanks around the equals sign of a tag.
const TAG_BLANK_MAX: usize = 8;
/// Wrappers around one call; models double them, no more.
const WRAPPERS_MAX: usize = 4;
/// Longer info strings of a fence do not belong to a call.
const INFO_MAX: usize = 64;

pub(super) const TOOL_CALL: &str = "<tool_call>";
pub(super) const PARAMETER_END: &str = "</parameter>";
pub(super) const FUNCTION_END: &str = "</function>";

/// The tag that the model was trained on and its neighbours, to which it drifts.
const WRAPPERS: [&str; 5] =
    [TOOL_CALL, "<function_call>", "<tool_calls>", "<function_calls>", "<tools>"];
/// Their ends, after those of the parts of a call.
const CALL_ENDS: [&str; 7] = [
    PARAMETER_END,
    FUNCTION_END,
    "</tool_call>",
    "</function_call>",
    "</tool_calls>",
    "</function_calls>",
    "</tools>",
];

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

/// Tags around a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wrappers {
    pub(super) n: u32,
    /// All are the one that the model was trained on, a single token that prose hardly holds.
    pub(super) all_trained: bool,
    /// A line ends after the first.
    pub(super) ends_line: bool,
}

/// Whether a call with an outer tag stands at a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallAhead {
    /// `<tool_call> <function=NAME>`.
    Function {
        name: String,
        /// Of all these tags.
        len: usize,
        wrappers: Wrappers,
    },
    /// `<tool_call> {"name": ..., "arguments": ...}`, the habit of older models.
    Json {
        /// Names and JSON texts of objects; not empty.
        calls: Vec<(String, String)>,
        /// Of the opening tags and the JSON text.
        len: usize,
        wrappers: Wrappers,
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

/// The length of the tag at the start, one of these; `Err` if the text ends within one.
fn look_any(text: &str, tags: &[&str], at_end: bool) -> Result<Option<usize>, TextEnds> {
    if let Some(tag) = tags.iter().find(|tag| text.starts_with(**tag)) {
        return Ok(Some(tag.len()));
    }
    let may_come = !at_end && tags.iter().any(|tag| tag.starts_with(text));
    if may_come { Err(TextEnds) } else { Ok(None) }
}

/// The text ends before one can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextEnds;

/// The length of the end of a wrapper.
pub(super) fn wrapper_end(text: &str, at_end: bool) -> Result<Option<usize>, TextEnds> {
    look_any(text, &CALL_ENDS[2..], at_end)
}

/// The length of any tag that ends a part of a call.
pub(super) fn call_end(text: &str, at_end: bool) -> Result<Option<usize>, TextEnds> {
    look_any(text, &CALL_ENDS, at_end)
}

/// Whether the text, which is all that is left, is the start of a tag that ends part of a call.
pub(super) fn is_part_of_end(text: &str) -> bool {
    text.len() > 1 && CALL_ENDS.iter().any(|tag| tag.starts_with(text))
}

/// Whether the text, which is all that is left, is the start of a tag that can stand in a call.
pub(super) fn is_part_of_call(text: &str) -> bool {
    is_open_parameter(text) || is_part_of_end(text) || TOOL_CALL.starts_with(text)
}

/// The text after whitespace; `None` if there is too much of it.
pub(super) fn skip_blank(text: &str) -> Option<&str> {
    let after = text.trim_start();
    (text.len() - after.len() <= BLANK_MAX).then_some(after)
}

/// `<function=NAME>`.
pub(super) fn function_ahead(text: &str, at_end: bool) -> Ahead {
    named_ahead(text, "<function", at_end)
}

/// `<parameter=NAME>`.
pub(super) fn parameter_ahead(text: &str, at_end: bool) -> Ahead {
    named_ahead(text, "<parameter", at_end)
}

/// `<parameter=NAM` at the end of the text.
pub(super) fn is_open_parameter(text: &str) -> bool {
    parameter_ahead(text, false) == Ahead::Maybe
}

/// `START=NAME>`, also written `START name="NAME">`.
fn named_ahead(text: &str, start: &str, at_end: bool) -> Ahead {
    let ends = if at_end { Ahead::No } else { Ahead::Maybe };
    match look(text, start, at_end) {
        Look::No => return Ahead::No,
        Look::Maybe => return Ahead::Maybe,
        Look::Yes => {}
    }
    let is_blank = |char| matches!(char, ' ' | '\t');
    let mut after = text[start.len()..].trim_start_matches(is_blank);
    if after.len() < text.len() - start.len() {
        match look(after, "name", at_end) {
            Look::Yes => after = after["name".len()..].trim_start_matches(is_blank),
            Look::Maybe => return ends,
            Look::No => {}
        }
    }
    if text.len() - start.len() - after.len() > "name".len() + TAG_BLANK_MAX {
        return Ahead::No;
    }
    let Some(name) = after.strip_prefix('=') else {
        return if after.is_empty() { ends } else { Ahead::No };
    };
    match name.find(['<', '>', '\n']) {
        Some(len @ 1..=NAME_MAX) if name[len..].starts_with('>') => {
            match clean_name(&name[..len]) {
                "" => Ahead::No,
                clean => {
                    Ahead::Yes { name: clean.to_string(), len: text.len() - name.len() + len + 1 }
                }
            }
        }
        None if name.len() <= NAME_MAX => ends,
        _ => Ahead::No,
    }
}

/// The name without blanks, quotation marks and further attributes.
fn clean_name(text: &str) -> &str {
    let name = text.trim();
    for mark in ['"', '\''] {
        if let Some(quoted) = name.strip_prefix(mark) {
            return quoted.split(mark).next().unwrap_or_default().trim();
        }
    }
    match name.split_once(char::is_whitespace) {
        Some((first, attributes)) if attributes.contains('=') => first,
        _ => name,
    }
}

/// `<function=NAME>` with what can stand in a call after it.
pub(super) fn whole_function_ahead(text: &str, at_end: bool) -> Ahead {
    let Ahead::Yes { name, len } = function_ahead(text, at_end) else {
        return function_ahead(text, at_end);
    };
    let Some(body) = skip_blank(&text[len..]) else { return Ahead::No };
    match begins_body(body, at_end) {
        Look::Yes => Ahead::Yes { name, len },
        Look::No => Ahead::No,
        Look::Maybe => Ahead::Maybe,
    }
}

/// Whether a parameter, arguments as JSON, the end of the call or of the text, or the next call
/// stands at the place.
fn begins_body(text: &str, at_end: bool) -> Look {
    if text.is_empty() {
        return if at_end { Look::Yes } else { Look::Maybe };
    }
    // At the end of the text a part of a tag counts as the tag.
    if at_end && is_part_of_call(text) {
        return Look::Yes;
    }
    match (parameter_ahead(text, at_end), look(text, TOOL_CALL, at_end), call_end(text, at_end)) {
        (Ahead::Yes { .. }, ..) | (_, Look::Yes, _) | (.., Ok(Some(_))) => return Look::Yes,
        (Ahead::Maybe, ..) | (_, Look::Maybe, _) | (.., Err(TextEnds)) => return Look::Maybe,
        _ => {}
    }
    match object_ahead(text, at_end) {
        Ok(Some(_)) => Look::Yes,
        Ok(None) => Look::No,
        Err(TextEnds) => Look::Maybe,
    }
}

/// A call with its outer tag.
pub(super) fn call_ahead(text: &str, at_end: bool) -> CallAhead {
    let mut wrappers = Wrappers { n: 0, all_trained: true, ends_line: false };
    let mut inner = text;
    loop {
        match look_any(inner, &WRAPPERS, at_end) {
            Err(TextEnds) => return CallAhead::Maybe,
            Ok(None) => break,
            Ok(Some(len)) => {
                wrappers.all_trained &= len == TOOL_CALL.len() && inner.starts_with(TOOL_CALL);
                wrappers.n += 1;
                let Some(after) = skip_blank(&inner[len..]) else { return CallAhead::No };
                if wrappers.n == 1 {
                    let blank = &inner[len..inner.len() - after.len()];
                    wrappers.ends_line = blank.contains('\n');
                }
                inner = after;
            }
        }
        if inner.is_empty() || wrappers.n as usize > WRAPPERS_MAX {
            break;
        }
    }
    if wrappers.n == 0 || wrappers.n as usize > WRAPPERS_MAX {
        return CallAhead::No;
    }
    if inner.is_empty() {
        return if at_end { CallAhead::No } else { CallAhead::Maybe };
    }
    let start = text.len() - inner.len();
    match json_ahead(inner, at_end) {
        JsonAhead::Yes { calls, len } => {
            return CallAhead::Json { calls, len: start + len, wrappers };
        }
        JsonAhead::Maybe => return CallAhead::Maybe,
        JsonAhead::No => {}
    }
    match whole_function_ahead(inner, at_end) {
        Ahead::Yes { name, len } => CallAhead::Function { name, len: start + len, wrappers },
        Ahead::No => CallAhead::No,
        Ahead::Maybe => CallAhead::Maybe,
    }
}

/// `<tool_call>` with a function after it, inside a value.
pub(super) fn tagged_function_ahead(text: &str, at_end: bool) -> Ahead {
    match look(text, TOOL_CALL, at_end) {
        Look::No => return Ahead::No,
        Look::Maybe => return Ahead::Maybe,
        Look::Yes => {}
    }
    let Some(inner) = skip_blank(&text[TOOL_CALL.len()..]) else { return Ahead::No };
    match function_ahead(inner, at_end) {
        Ahead::Yes { name, len } => Ahead::Yes { name, len: text.len() - inner.len() + len },
        Ahead::No if inner.is_empty() && !at_end => Ahead::Maybe,
        other => other,
    }
}

/// A code fence at the place with a call as the first thing inside.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FenceAhead {
    Yes {
        fence: Fence,
        /// Of the fence's line and the blanks after it.
        len: usize,
    },
    No,
    Maybe,
}

pub(super) fn fence_ahead(text: &str, is_tool: impl Fn(&str) -> bool, at_end: bool) -> FenceAhead {
    let ends = if at_end { FenceAhead::No } else { FenceAhead::Maybe };
    let Some(mark) = text.chars().next().filter(|mark| matches!(mark, '`' | '~')) else {
        return FenceAhead::No;
    };
    let info = text.trim_start_matches(mark);
    let n_marks = text.len() - info.len();
    if info.is_empty() {
        return ends;
    }
    if n_marks < Fence::LEN_MIN {
        return FenceAhead::No;
    }
    let line_end = info.find('\n');
    let info = &info[..line_end.unwrap_or(info.len())];
    if info.len() > INFO_MAX || info.contains(['`', '<']) {
        return FenceAhead::No;
    }
    let Some(line_end) = line_end else { return ends };
    let Some(inner) = skip_blank(&text[n_marks + line_end + 1..]) else { return FenceAhead::No };
    if inner.is_empty() {
        return ends;
    }
    let fence = Fence { mark, len: n_marks };
    let yes = FenceAhead::Yes { fence, len: text.len() - inner.len() };
    match (look_any(inner, &WRAPPERS, at_end), function_ahead(inner, at_end)) {
        (Ok(Some(_)), _) => yes,
        (_, Ahead::Yes { name, .. }) if is_tool(&name) => yes,
        (Err(TextEnds), _) | (_, Ahead::Maybe) => ends,
        _ => FenceAhead::No,
    }
}
