//! The value of a parameter: where it ends, and its JSON text.
//!
//! A value may contain anything, tags included. It ends at a `</parameter>` that is followed by a
//! new parameter, by the end of the call, or by the end of the text. `</parameter></function>`
//! with something else after it may be part of the value or may lack its `</tool_call>`: the last
//! such place counts, once the call is known to have ended.

use super::ahead::{
    Ahead, Look, function_ahead, look, parameter_ahead, skip_blank, tagged_function_ahead,
};
use super::call::Call;
use super::schema::Types;

const PARAMETER_END: &str = "</parameter>";
const FUNCTION_END: &str = "</function>";
const TOOL_CALL_END: &str = "</tool_call>";

#[derive(Debug)]
pub(super) struct Value {
    name: String,
    types: Types,
    is_new: bool,
    /// The newline after the opening tag has been dealt with.
    started: bool,
    /// The key and the opening quote of a streamed string have been written.
    streaming: bool,
    /// Up to here, from the start of the text, no end was found.
    scanned: usize,
    possible_end: Option<End>,
}

/// Where a value ends and where the text after it begins.
#[derive(Clone, Copy, Debug)]
struct End {
    at: usize,
    next: usize,
}

enum Found {
    End(End),
    /// So many bytes are certainly part of the value.
    Open(usize),
}

/// What a `<` inside a value is.
enum Closer {
    Text,
    Unknown,
    End {
        next: usize,
    },
    /// An end, unless a later one is found in the same call.
    Possible {
        next: usize,
    },
    /// The call is over: the last possible end counts, if there is one.
    CallIsOver,
}

impl Value {
    pub(super) fn new(name: String, types: Types, is_new: bool) -> Self {
        Self {
            name,
            types,
            is_new,
            started: false,
            streaming: false,
            scanned: 0,
            possible_end: None,
        }
    }

    /// Reads on. Returns how much of the text is done with and whether the value has ended.
    pub(super) fn step(
        &mut self,
        text: &str,
        call: &mut Call,
        at_end: bool,
        json: &mut String,
    ) -> (usize, bool) {
        let mut start = 0;
        if !self.started {
            if text.is_empty() && !at_end {
                return (0, false);
            }
            start = usize::from(text.starts_with('\n'));
            self.started = true;
        }
        let text = &text[start..];
        match self.find_end(text, call, at_end) {
            Found::End(end) => {
                let value = text[..end.at].strip_suffix('\n').unwrap_or(&text[..end.at]);
                self.write_last(value, call, json);
                (start + end.next, true)
            }
            Found::Open(_) if at_end => {
                self.write_cut(text, call, json);
                (start + text.len(), true)
            }
            Found::Open(safe) if self.types.only_string() => {
                // The newline before the closing tag is not part of the value.
                let safe = text[..safe].strip_suffix('\n').map_or(safe, str::len);
                self.write_string(&text[..safe], call, json);
                self.scanned -= safe;
                if let Some(end) = &mut self.possible_end {
                    end.at -= safe;
                    end.next -= safe;
                }
                (start + safe, false)
            }
            Found::Open(_) => (start, false),
        }
    }

    fn find_end(&mut self, text: &str, call: &Call, at_end: bool) -> Found {
        while let Some(len) = text[self.scanned..].find('<') {
            let at = self.scanned + len;
            self.scanned = at;
            match closer(text, at, call, self.possible_end.is_some(), at_end) {
                Closer::End { next } => return Found::End(End { at, next }),
                Closer::Unknown => return Found::Open(self.possible_end.map_or(at, |end| end.at)),
                Closer::Possible { next } => self.possible_end = Some(End { at, next }),
                Closer::CallIsOver => {
                    if let Some(end) = self.possible_end {
                        return Found::End(end);
                    }
                }
                Closer::Text => {}
            }
            self.scanned = at + 1;
        }
        self.scanned = text.len();
        match self.possible_end {
            Some(end) if at_end => Found::End(end),
            Some(end) => Found::Open(end.at),
            None => Found::Open(text.len()),
        }
    }

    /// The whole value, or the end of a streamed one.
    fn write_last(&mut self, value: &str, call: &mut Call, json: &mut String) {
        if self.types.only_string() {
            self.write_string(value, call, json);
            if self.is_new {
                json.push('"');
            }
        } else if self.is_new {
            self.write_key(call, json);
            json.push_str(&self.types.convert(value));
        }
    }

    /// The text ended within the value. A string is closed where it is; another value counts only
    /// if its line was complete, since `12` may be the start of `123`.
    fn write_cut(&mut self, text: &str, call: &mut Call, json: &mut String) {
        let tags = [PARAMETER_END, FUNCTION_END, TOOL_CALL_END];
        let is_part_of_tag =
            |part: &str| part.len() > 1 && tags.iter().any(|t| t.starts_with(part));
        let tag_at = text.rfind('<').filter(|at| is_part_of_tag(&text[*at..]));
        let before_tag = &text[..tag_at.unwrap_or(text.len())];
        let value = before_tag.strip_suffix('\n').unwrap_or(before_tag);
        if self.types.only_string() || value.len() < text.len() {
            self.write_last(value, call, json);
        }
    }

    fn write_string(&mut self, piece: &str, call: &mut Call, json: &mut String) {
        if !self.is_new {
            return;
        }
        if !self.streaming {
            self.streaming = true;
            self.write_key(call, json);
            json.push('"');
        }
        let quoted = serde_json::Value::from(piece).to_string();
        json.push_str(&quoted[1..quoted.len() - 1]);
    }

    fn write_key(&self, call: &mut Call, json: &mut String) {
        json.push(if call.has_arguments { ',' } else { '{' });
        call.has_arguments = true;
        json.push_str(&serde_json::Value::from(self.name.as_str()).to_string());
        json.push(':');
    }
}

fn closer(text: &str, at: usize, call: &Call, has_possible_end: bool, at_end: bool) -> Closer {
    let here = &text[at..];
    match look(here, PARAMETER_END, at_end) {
        Look::Yes => return after_parameter(text, at + PARAMETER_END.len(), call, at_end),
        Look::Maybe => return Closer::Unknown,
        Look::No => {}
    }
    match look(here, FUNCTION_END, at_end) {
        // `</parameter>` is missing.
        Look::Yes => {
            return match end_of_call(&here[FUNCTION_END.len()..], at_end) {
                Look::Yes => Closer::End { next: at },
                Look::Maybe => Closer::Unknown,
                Look::No => Closer::Text,
            };
        }
        Look::Maybe => return Closer::Unknown,
        Look::No => {}
    }
    match look(here, TOOL_CALL_END, at_end) {
        Look::Yes if has_possible_end => return Closer::CallIsOver,
        // Both closing tags are missing.
        Look::Yes => {
            return match next_call_or_end(&here[TOOL_CALL_END.len()..], at_end) {
                Look::Yes => Closer::End { next: at },
                Look::Maybe => Closer::Unknown,
                Look::No => Closer::Text,
            };
        }
        Look::Maybe => return Closer::Unknown,
        Look::No => {}
    }
    match tagged_function_ahead(here, at_end) {
        Ahead::Yes { .. } => Closer::CallIsOver,
        Ahead::Maybe if has_possible_end => Closer::Unknown,
        _ => Closer::Text,
    }
}

/// What follows `</parameter>` says whether the value ends there.
fn after_parameter(text: &str, next: usize, call: &Call, at_end: bool) -> Closer {
    let Some(after) = skip_blank(&text[next..]) else { return Closer::Text };
    if after.is_empty() {
        return if at_end { Closer::End { next } } else { Closer::Unknown };
    }
    // At the end of the text a part of a tag counts as the tag.
    let tags = ["<parameter=", FUNCTION_END, TOOL_CALL_END];
    if at_end && tags.iter().any(|tag| tag.starts_with(after)) {
        return Closer::End { next };
    }
    match parameter_ahead(after, at_end) {
        Ahead::Yes { name, .. } if !call.has(&name) => return Closer::End { next },
        Ahead::Yes { .. } => return Closer::Text,
        Ahead::Maybe => return Closer::Unknown,
        Ahead::No if at_end && is_open_name(after) => return Closer::End { next },
        Ahead::No => {}
    }
    match (look(after, FUNCTION_END, at_end), look(after, TOOL_CALL_END, at_end)) {
        (Look::Yes, _) => match end_of_call(&after[FUNCTION_END.len()..], at_end) {
            Look::Yes => Closer::End { next },
            Look::Maybe => Closer::Unknown,
            Look::No => Closer::Possible { next },
        },
        (_, Look::Yes) => Closer::End { next },
        (Look::Maybe, _) | (_, Look::Maybe) => Closer::Unknown,
        _ => Closer::Text,
    }
}

/// `<parameter=NAM` at the end of the text.
fn is_open_name(text: &str) -> bool {
    text.strip_prefix("<parameter=").is_some_and(|name| !name.contains(['<', '>', '\n']))
}

/// After `</function>`: `</tool_call>`, a further call or nothing.
fn end_of_call(text: &str, at_end: bool) -> Look {
    let Some(after) = skip_blank(text) else { return Look::No };
    match look(after, TOOL_CALL_END, at_end) {
        Look::No if at_end && TOOL_CALL_END.starts_with(after) => Look::Yes,
        Look::No => match (next_call_or_end(text, at_end), function_ahead(after, at_end)) {
            (Look::Yes, _) | (_, Ahead::Yes { .. }) => Look::Yes,
            (Look::Maybe, _) | (_, Ahead::Maybe) => Look::Maybe,
            _ => Look::No,
        },
        found => found,
    }
}

/// A further call or nothing.
fn next_call_or_end(text: &str, at_end: bool) -> Look {
    let Some(after) = skip_blank(text) else { return Look::No };
    if after.is_empty() {
        return if at_end { Look::Yes } else { Look::Maybe };
    }
    match look(after, "<tool_call>", at_end) {
        Look::No if at_end && "<tool_call>".starts_with(after) => Look::Yes,
        found => found,
    }
}
