//! The value of a parameter: where it ends, and its JSON text.
//!
//! A value may contain anything, tags included. It ends at a `</parameter>` that is followed by a
//! new parameter, by the end of the call, or by the end of the text. `</parameter></function>`
//! with something else after it may be part of the value or may lack its `</tool_call>`: the last
//! such place counts, once the call is known to have ended.
//!
//! A whole call within a value belongs to it, and so does the `</parameter>` of each parameter
//! there. If the text ends after such a call and the value never did, the ends of the value's own
//! call were forgotten, and the value ends before it. So did a value before a line
//! `<parameter=NAME>` that names what the tool still lacks, if the next `</parameter>` ends a
//! parameter.

use super::ahead::{
    Ahead, FUNCTION_END, Look, PARAMETER_END, TOOL_CALL, TextEnds, function_ahead,
    is_open_parameter, is_part_of_end, look, parameter_ahead, skip_blank, tagged_function_ahead,
    wrapper_end,
};
use super::call::Call;
use super::schema::Types;

/// Calls within a value that may be further calls are held back up to this length.
const INNER_MAX: usize = 1 << 16;

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what is done with is independent of each other")]
pub(super) struct Value {
    name: String,
    types: Types,
    is_new: bool,
    /// The newline after the opening tag has been dealt with.
    started: bool,
    /// The key and the opening quote of a streamed string have been written.
    streaming: bool,
    /// Something visible of it has been written.
    visible: bool,
    /// Up to here, from the start of the text, no end was found.
    scanned: usize,
    possible_end: Option<End>,
    inner: Inner,
}

/// Tags within the value that open something.
#[derive(Debug, Default)]
struct Inner {
    /// Calls that are open.
    n_calls: usize,
    /// Parameters that are open in them.
    n_parameters: usize,
    /// Where the first call begins.
    first_call: Option<usize>,
    /// Openings of parameters outside calls that are not closed.
    n_open: usize,
    has_function: bool,
    /// A parameter that may be the next one of the value's own call.
    next: Option<usize>,
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
    /// `</parameter>` that does not end the value.
    InnerEnd,
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
            visible: false,
            scanned: 0,
            possible_end: None,
            inner: Inner::default(),
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
                self.visible |= !text[..safe].trim().is_empty();
                self.forget(safe);
                (start + safe, false)
            }
            Found::Open(_) => (start, false),
        }
    }

    /// The text begins so much later.
    fn forget(&mut self, len: usize) {
        self.scanned -= len;
        if let Some(end) = &mut self.possible_end {
            end.at -= len;
            end.next -= len;
        }
        for place in [&mut self.inner.first_call, &mut self.inner.next].into_iter().flatten() {
            *place -= len;
        }
    }

    fn find_end(&mut self, text: &str, call: &Call, at_end: bool) -> Found {
        while let Some(len) = text[self.scanned..].find('<') {
            let at = self.scanned + len;
            self.scanned = at;
            let found = self.closer(text, at, call, at_end);
            match found {
                Closer::End { next } => return Found::End(self.end_at(End { at, next })),
                Closer::Unknown => return Found::Open(self.certain(text, at)),
                Closer::Possible { next } => {
                    self.inner.next = None;
                    self.possible_end = Some(End { at, next });
                }
                Closer::CallIsOver => {
                    if let Some(end) = self.possible_end {
                        return Found::End(end);
                    }
                }
                Closer::InnerEnd => {
                    self.inner.next = None;
                    self.inner.n_open = self.inner.n_open.saturating_sub(1);
                }
                Closer::Text => {}
            }
            self.scanned = at + 1;
        }
        self.scanned = text.len();
        if !at_end {
            return Found::Open(self.certain(text, text.len()));
        }
        let before_call = self
            .first_call(text)
            .filter(|_| self.inner.n_calls == 0)
            .map(|at| End { at, next: at });
        let before_next = self.inner.next.map(|at| End { at, next: at });
        match self.possible_end.or(before_next).or(before_call) {
            Some(end) => Found::End(end),
            None => Found::Open(text.len()),
        }
    }

    /// Before a parameter that turned out to be the next one, or at this end.
    fn end_at(&self, end: End) -> End {
        self.inner.next.map_or(end, |at| End { at, next: at })
    }

    /// Up to here the text is part of the value, whatever comes.
    fn certain(&self, text: &str, at: usize) -> usize {
        let possible = self.possible_end.map(|end| end.at);
        let places = [possible, self.first_call(text), self.inner.next];
        places.into_iter().flatten().fold(at, usize::min)
    }

    /// A call within the value that may turn out to be a further one.
    fn first_call(&self, text: &str) -> Option<usize> {
        self.inner.first_call.filter(|at| text.len() - at <= INNER_MAX)
    }

    fn closer(&mut self, text: &str, at: usize, call: &Call, at_end: bool) -> Closer {
        let here = &text[at..];
        match look(here, PARAMETER_END, at_end) {
            Look::Yes if self.inner.n_calls > 0 && self.inner.n_parameters > 0 => {
                self.inner.n_parameters -= 1;
                return Closer::Text;
            }
            Look::Yes => {
                let is_open = self.inner.n_open > 0;
                return after_parameter(text, at + PARAMETER_END.len(), call, is_open, at_end);
            }
            Look::Maybe => return Closer::Unknown,
            Look::No => {}
        }
        if self.inner.n_calls == 0 {
            match look(here, FUNCTION_END, at_end) {
                // `</parameter>` is missing.
                Look::Yes => {
                    return match end_of_call(&here[FUNCTION_END.len()..], true, at_end) {
                        Look::Yes => Closer::End { next: at },
                        Look::Maybe => Closer::Unknown,
                        Look::No => Closer::Text,
                    };
                }
                Look::Maybe => return Closer::Unknown,
                Look::No => {}
            }
        }
        match look(here, "</tool_call>", at_end) {
            Look::Yes if self.inner.n_calls > 0 => {
                self.inner.n_calls -= 1;
                self.inner.n_parameters = 0;
                return Closer::Text;
            }
            Look::Yes if self.possible_end.is_some() => return Closer::CallIsOver,
            // Both closing tags are missing.
            Look::Yes => {
                return match next_call_or_end(&here["</tool_call>".len()..], at_end) {
                    Look::Yes => Closer::End { next: at },
                    Look::Maybe => Closer::Unknown,
                    Look::No => Closer::Text,
                };
            }
            Look::Maybe => return Closer::Unknown,
            Look::No => {}
        }
        self.opening(text, at, call, at_end)
    }

    /// Whether the place begins a line with something visible before it.
    fn begins_later_line(&self, text: &str, at: usize) -> bool {
        text[..at].ends_with('\n') && (self.visible || !text[..at].trim().is_empty())
    }

    /// What opens at the place, if it matters for the end of the value.
    fn opening(&mut self, text: &str, at: usize, call: &Call, at_end: bool) -> Closer {
        let here = &text[at..];
        match tagged_function_ahead(here, at_end) {
            Ahead::Yes { .. } if self.possible_end.is_some() => return Closer::CallIsOver,
            Ahead::Yes { .. } => {
                self.inner.n_calls += 1;
                if self.begins_later_line(text, at) {
                    self.inner.first_call.get_or_insert(at);
                }
                return Closer::Text;
            }
            Ahead::Maybe => return Closer::Unknown,
            Ahead::No => {}
        }
        match function_ahead(here, at_end) {
            Ahead::Yes { .. } => {
                self.inner.has_function = true;
                return Closer::Text;
            }
            Ahead::Maybe => return Closer::Unknown,
            Ahead::No => {}
        }
        match parameter_ahead(here, at_end) {
            Ahead::Yes { .. } if self.inner.n_calls > 0 => self.inner.n_parameters += 1,
            Ahead::Yes { name, len } => {
                let after = &here[len..];
                if after.is_empty() && !at_end {
                    return Closer::Unknown;
                }
                let is_next = !self.inner.has_function
                    && self.possible_end.is_none()
                    && self.inner.next.is_none()
                    && self.begins_later_line(text, at)
                    && after.starts_with('\n')
                    && call.lacks(&name);
                if is_next {
                    self.inner.next = Some(at);
                } else {
                    self.inner.n_open += 1;
                }
            }
            Ahead::Maybe => return Closer::Unknown,
            Ahead::No => {}
        }
        Closer::Text
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
        let tag_at = text.rfind('<').filter(|at| is_part_of_end(&text[*at..]));
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

/// What follows `</parameter>` says whether the value ends there.
fn after_parameter(text: &str, next: usize, call: &Call, is_open: bool, at_end: bool) -> Closer {
    let Some(after) = skip_blank(&text[next..]) else { return Closer::InnerEnd };
    if after.is_empty() {
        return if at_end { Closer::End { next } } else { Closer::Unknown };
    }
    // At the end of the text a part of a tag counts as the tag.
    if at_end && (is_part_of_end(after) || is_open_parameter(after) || after == "<") {
        return Closer::End { next };
    }
    match parameter_ahead(after, at_end) {
        Ahead::Yes { name, .. } if !call.has(&name) => return Closer::End { next },
        Ahead::Yes { .. } => return Closer::InnerEnd,
        Ahead::Maybe => return Closer::Unknown,
        Ahead::No => {}
    }
    match look(after, PARAMETER_END, at_end) {
        // The tag was written twice, unless the first ends what the value itself opened.
        Look::Yes if !is_open => {
            let next = text.len() - after.len() + PARAMETER_END.len();
            return after_parameter(text, next, call, true, at_end);
        }
        Look::Yes => return Closer::InnerEnd,
        Look::Maybe => return Closer::Unknown,
        Look::No => {}
    }
    match look(after, FUNCTION_END, at_end) {
        Look::Yes => {
            return match end_of_call(&after[FUNCTION_END.len()..], false, at_end) {
                Look::Yes => Closer::End { next },
                Look::Maybe => Closer::Unknown,
                Look::No => Closer::Possible { next },
            };
        }
        Look::Maybe => return Closer::Unknown,
        Look::No => {}
    }
    match (wrapper_end(after, at_end), tagged_function_ahead(after, at_end)) {
        (Ok(Some(_)), _) => Closer::End { next },
        // The ends of the call are missing.
        (_, Ahead::Yes { .. }) if !is_open => Closer::End { next },
        (Err(TextEnds), _) | (_, Ahead::Maybe) => Closer::Unknown,
        _ => Closer::InnerEnd,
    }
}

/// After `</function>`: the end of a wrapper, a further call or nothing.
fn end_of_call(text: &str, lacks_parameter_end: bool, at_end: bool) -> Look {
    let Some(mut after) = skip_blank(text) else { return Look::No };
    // Some models write it twice, or the ends in the wrong order.
    if let Some(twice) = after.strip_prefix(FUNCTION_END) {
        let Some(blank) = skip_blank(twice) else { return Look::No };
        after = blank;
    } else if lacks_parameter_end && let Some(swapped) = after.strip_prefix(PARAMETER_END) {
        return match skip_blank(swapped) {
            Some("") if at_end => Look::Yes,
            Some(after) => match wrapper_end(after, at_end) {
                Ok(Some(_)) => Look::Yes,
                Ok(None) => Look::No,
                Err(TextEnds) => Look::Maybe,
            },
            None => Look::No,
        };
    } else if !at_end
        && !after.is_empty()
        && (FUNCTION_END.starts_with(after)
            || lacks_parameter_end && PARAMETER_END.starts_with(after))
    {
        return Look::Maybe;
    }
    match wrapper_end(after, at_end) {
        Ok(Some(_)) => return Look::Yes,
        Ok(None) if at_end && (is_part_of_end(after) || after == "<") => return Look::Yes,
        Ok(None) => {}
        Err(TextEnds) => return Look::Maybe,
    }
    match (next_call_or_end(after, at_end), function_ahead(after, at_end)) {
        (Look::Yes, _) | (_, Ahead::Yes { .. }) => Look::Yes,
        (Look::Maybe, _) | (_, Ahead::Maybe) => Look::Maybe,
        _ => Look::No,
    }
}

/// A further call or nothing.
fn next_call_or_end(text: &str, at_end: bool) -> Look {
    let Some(after) = skip_blank(text) else { return Look::No };
    if after.is_empty() {
        return if at_end { Look::Yes } else { Look::Maybe };
    }
    match look(after, TOOL_CALL, at_end) {
        Look::No if at_end && TOOL_CALL.starts_with(after) => Look::Yes,
        found => found,
    }
}
