//! The model's text to reasoning, content and tool calls, while it arrives.
//!
//! The pieces joined do not depend on how the text is cut, and no piece holds part of a tag. So
//! every decision waits until the text that it depends on is there; only [`OutputParser::finish`]
//! decides on what is missing.
//!
//! Whitespace: reasoning is trimmed at both ends. Newlines before the first content, after
//! `</think>` or after a call, are no content, nor is whitespace before a call or after the last
//! one. Everything else is kept as it is.

mod ahead;
mod call;
mod schema;
mod value;

use ahead::{Ahead, CallAhead, Look, call_ahead, function_ahead, look, skip_blank};
use call::Call;
pub use schema::ToolSchema;
use value::Value;

/// What the parser must know of the prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct ParserOptions {
    /// Whether the prompt ends inside an open `<think>`.
    pub starts_in_thinking: bool,
    /// The tools of the request: types of parameters, and names for calls without an outer tag.
    pub tools: Vec<ToolSchema>,
    /// Whether calls are looked for; if not, their tags are content.
    pub parse_tools: bool,
}

/// A piece of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// More reasoning.
    Reasoning(String),
    /// More content.
    Content(String),
    /// A call begins.
    ToolCallStart {
        /// Its number in the answer, from 0.
        index: u32,
        /// Name of the function.
        name: String,
    },
    /// More of the JSON text of a call's arguments; all pieces joined are one valid object.
    ToolCallArguments {
        /// Number of the call.
        index: u32,
        /// A piece of JSON text.
        json: String,
    },
    /// A call is complete.
    ToolCallEnd {
        /// Number of the call.
        index: u32,
    },
}

/// Parses one answer.
#[derive(Debug)]
pub struct OutputParser {
    options: ParserOptions,
    mode: Mode,
    /// Text not yet understood, from `done` on.
    buffer: String,
    done: usize,
    deltas: Vec<Delta>,
    segment: Segment,
    n_calls: u32,
    /// Between `<tool_call>` and `</tool_call>`.
    in_call_tags: bool,
    /// Nothing but whitespace has come.
    fresh: bool,
    /// Content has been written.
    has_content: bool,
}

#[derive(Debug)]
enum Mode {
    Reasoning,
    Content,
    /// Inside `<function=...>`, between parameters.
    Body(Call),
    /// Inside `<parameter=...>`.
    Value(Call, Value),
    /// After `</function>`.
    AfterFunction,
}

/// Text between two tags.
#[derive(Debug, Default)]
struct Segment {
    /// Follows a tag, so newlines at its start are no content.
    after_tag: bool,
    /// Something visible has been written.
    visible: bool,
    /// Whitespace that is dropped if a tag follows.
    held: String,
}

impl Segment {
    fn after_tag() -> Self {
        Self { after_tag: true, ..Self::default() }
    }
}

impl OutputParser {
    /// Starts at the first token of the answer.
    pub fn new(options: ParserOptions) -> Self {
        Self {
            mode: if options.starts_in_thinking { Mode::Reasoning } else { Mode::Content },
            options,
            buffer: String::new(),
            done: 0,
            deltas: Vec::new(),
            segment: Segment::default(),
            n_calls: 0,
            in_call_tags: false,
            fresh: true,
            has_content: false,
        }
    }

    /// What this text adds to the answer.
    pub fn push(&mut self, text: &str) -> Vec<Delta> {
        self.buffer.push_str(text);
        self.run(false)
    }

    /// What the end of the text adds to the answer. A call that is cut off becomes valid JSON.
    pub fn finish(&mut self) -> Vec<Delta> {
        let mut deltas = self.run(true);
        if let Mode::Body(call) = &self.mode {
            call.end().into_iter().for_each(|delta| add(&mut deltas, delta));
            self.mode = Mode::AfterFunction;
        }
        let is_content = matches!(self.mode, Mode::Content);
        let held = std::mem::take(&mut self.segment.held);
        if is_content && !held.is_empty() && (self.segment.visible || !self.segment.after_tag) {
            add(&mut deltas, Delta::Content(held));
        }
        deltas
    }

    /// Whether the text so far ends inside the reasoning.
    pub fn in_reasoning(&self) -> bool {
        matches!(self.mode, Mode::Reasoning)
    }

    fn run(&mut self, at_end: bool) -> Vec<Delta> {
        loop {
            let goes_on = match std::mem::replace(&mut self.mode, Mode::Content) {
                Mode::Reasoning => {
                    self.mode = Mode::Reasoning;
                    self.step_reasoning(at_end)
                }
                Mode::Content => self.step_content(at_end),
                Mode::Body(call) => self.step_body(call, at_end),
                Mode::Value(call, value) => self.step_value(call, value, at_end),
                Mode::AfterFunction => self.step_after_function(at_end),
            };
            if !goes_on {
                break;
            }
        }
        self.buffer.drain(..self.done);
        self.done = 0;
        std::mem::take(&mut self.deltas)
    }

    fn rest(&self) -> &str {
        &self.buffer[self.done..]
    }

    fn step_reasoning(&mut self, at_end: bool) -> bool {
        if self.step_plain() {
            return true;
        }
        let rest = self.rest();
        if rest.is_empty() {
            return false;
        }
        let close = look(rest, "</think>", at_end);
        // Some models repeat the tag that the prompt ends with.
        let open = if self.segment.visible { Look::No } else { look(rest, "<think>", at_end) };
        let call = self.tagged_call(at_end);
        match (close, open, call) {
            (Look::Yes, ..) => {
                self.done += "</think>".len();
                self.leave_reasoning();
            }
            (_, Look::Yes, _) => self.done += "<think>".len(),
            (_, _, CallAhead::Function { name, len })
                if self.options.tools.is_empty() || self.tool(&name).is_some() =>
            {
                // The model calls without closing its reasoning.
                self.leave_reasoning();
                self.start_tagged_call(&name, len);
            }
            (Look::Maybe, ..) | (_, Look::Maybe, _) | (_, _, CallAhead::Maybe) => return false,
            _ => self.write_next_char(),
        }
        true
    }

    fn leave_reasoning(&mut self) {
        self.segment = Segment::after_tag();
        self.mode = Mode::Content;
        self.fresh = false;
    }

    fn step_content(&mut self, at_end: bool) -> bool {
        if self.step_plain() {
            return true;
        }
        let rest = self.rest();
        if rest.is_empty() {
            return false;
        }
        // A closing tag without an opening one is dropped where a model writes it out of habit.
        let stray = !self.segment.visible || !self.options.starts_in_thinking;
        let close = if stray { look(rest, "</think>", at_end) } else { Look::No };
        let open = if self.fresh { look(rest, "<think>", at_end) } else { Look::No };
        let end = if self.in_call_tags { look(rest, "</tool_call>", at_end) } else { Look::No };
        if at_end && self.in_call_tags && rest.len() > 1 && "</tool_call>".starts_with(rest) {
            // The text ends within the tag.
            self.done = self.buffer.len();
            return true;
        }
        let bare = if self.options.parse_tools { function_ahead(rest, at_end) } else { Ahead::No };
        match (close, open, end, self.tagged_call(at_end), bare) {
            (Look::Yes, ..) => {
                self.done += "</think>".len();
                if !self.segment.visible {
                    self.segment = Segment::after_tag();
                }
                self.fresh = false;
            }
            (_, Look::Yes, ..) => {
                self.done += "<think>".len();
                self.segment = Segment::default();
                self.mode = Mode::Reasoning;
                self.fresh = false;
            }
            (_, _, Look::Yes, ..) => {
                self.done += "</tool_call>".len();
                self.in_call_tags = false;
                self.segment = Segment::after_tag();
            }
            (_, _, _, CallAhead::Function { name, len }, _) => self.start_tagged_call(&name, len),
            (_, _, _, CallAhead::Json { name, arguments, len }, _) => {
                // Dropped later if it is still to come.
                self.in_call_tags = !rest[..len].ends_with("</tool_call>");
                self.done += len;
                self.write_whole_call(name, arguments);
            }
            (_, _, _, _, Ahead::Yes { name, len }) if self.tool(&name).is_some() => {
                self.done += len;
                self.start_call(&name);
            }
            (Look::Maybe, ..)
            | (_, Look::Maybe, ..)
            | (_, _, Look::Maybe, ..)
            | (_, _, _, CallAhead::Maybe, _)
            | (_, _, _, _, Ahead::Maybe) => return false,
            _ => self.write_next_char(),
        }
        true
    }

    /// `<tool_call>` at the place with a call after it.
    fn tagged_call(&self, at_end: bool) -> CallAhead {
        if self.options.parse_tools { call_ahead(self.rest(), at_end) } else { CallAhead::No }
    }

    fn step_body(&mut self, call: Call, at_end: bool) -> bool {
        let rest = self.rest();
        let Some(at) = rest.find('<') else {
            self.done = self.buffer.len();
            self.mode = Mode::Body(call);
            return false;
        };
        let here = &rest[at..];
        let parameter = ahead::parameter_ahead(here, at_end);
        let function = look(here, "</function>", at_end);
        let end = look(here, "</tool_call>", at_end);
        let next = look(here, "<tool_call>", at_end);
        match (parameter, function, end, next) {
            (Ahead::Yes { name, len }, ..) => {
                self.done += at + len;
                let mut call = call;
                let value = call.start_value(name, &self.options.tools);
                self.mode = Mode::Value(call, value);
            }
            (_, Look::Yes, ..) => {
                self.done += at + "</function>".len();
                self.end_call(&call);
                self.mode = Mode::AfterFunction;
            }
            (_, _, Look::Yes, _) => {
                self.done += at + "</tool_call>".len();
                self.end_call(&call);
                self.in_call_tags = false;
                self.segment = Segment::after_tag();
            }
            (_, _, _, Look::Yes) => {
                self.done += at;
                self.end_call(&call);
                self.segment = Segment::after_tag();
            }
            (Ahead::Maybe, ..)
            | (_, Look::Maybe, ..)
            | (_, _, Look::Maybe, _)
            | (.., Look::Maybe) => {
                self.done += at;
                self.mode = Mode::Body(call);
                return false;
            }
            _ => {
                self.done += at + 1;
                self.mode = Mode::Body(call);
            }
        }
        true
    }

    fn step_value(&mut self, mut call: Call, mut value: Value, at_end: bool) -> bool {
        let mut json = String::new();
        let (done, ended) = value.step(self.rest(), &mut call, at_end, &mut json);
        self.done += done;
        if !json.is_empty() {
            add(&mut self.deltas, Delta::ToolCallArguments { index: call.index, json });
        }
        self.mode = if ended { Mode::Body(call) } else { Mode::Value(call, value) };
        ended
    }

    fn step_after_function(&mut self, at_end: bool) -> bool {
        self.mode = Mode::AfterFunction;
        let rest = self.rest();
        let (len, after) = match skip_blank(rest) {
            Some(after) => (rest.len() - after.len(), after),
            None => (0, rest),
        };
        if after.is_empty() {
            return false;
        }
        match (look(after, "</tool_call>", at_end), function_ahead(after, at_end)) {
            (Look::Yes, _) => {
                self.done += len + "</tool_call>".len();
                self.in_call_tags = false;
                self.mode = Mode::Content;
            }
            (_, Ahead::Yes { name, len: tag_len })
                if self.in_call_tags || self.tool(&name).is_some() =>
            {
                self.done += len + tag_len;
                self.start_call(&name);
            }
            (Look::Maybe, _) | (_, Ahead::Maybe) => return false,
            _ => self.mode = Mode::Content,
        }
        self.segment = Segment::after_tag();
        true
    }

    /// Writes what comes before the next `<`; `false` if nothing does.
    fn step_plain(&mut self) -> bool {
        let rest = self.rest();
        let len = rest.find('<').unwrap_or(rest.len());
        if len == 0 {
            return false;
        }
        self.write(len);
        true
    }

    /// The `<` at the place is no tag.
    fn write_next_char(&mut self) {
        self.write('<'.len_utf8());
    }

    /// Writes so many bytes of reasoning or content, but for whitespace that may be no part of it.
    fn write(&mut self, len: usize) {
        let in_reasoning = self.in_reasoning();
        let mut text = &self.buffer[self.done..self.done + len];
        self.done += len;
        if !self.segment.visible && self.segment.held.is_empty() {
            if in_reasoning {
                text = text.trim_start();
            } else if self.segment.after_tag && !self.has_content {
                text = text.trim_start_matches(['\n', '\r']);
            }
        }
        let visible = text.trim_end();
        if visible.is_empty() {
            self.segment.held.push_str(text);
            return;
        }
        let mut piece = std::mem::take(&mut self.segment.held);
        piece.push_str(visible);
        self.segment.held.push_str(&text[visible.len()..]);
        self.segment.visible = true;
        self.fresh = false;
        self.has_content |= !in_reasoning;
        let delta = if in_reasoning { Delta::Reasoning(piece) } else { Delta::Content(piece) };
        add(&mut self.deltas, delta);
    }

    fn tool(&self, name: &str) -> Option<&ToolSchema> {
        self.options.tools.iter().find(|tool| tool.name == name)
    }

    fn start_tagged_call(&mut self, name: &str, len: usize) {
        self.done += len;
        self.in_call_tags = true;
        self.start_call(name);
    }

    fn start_call(&mut self, name: &str) {
        let call = Call::new(self.n_calls, name, &self.options.tools);
        self.n_calls += 1;
        self.fresh = false;
        self.segment = Segment::after_tag();
        self.deltas.push(Delta::ToolCallStart { index: call.index, name: name.to_string() });
        self.mode = Mode::Body(call);
    }

    fn end_call(&mut self, call: &Call) {
        call.end().into_iter().for_each(|delta| add(&mut self.deltas, delta));
    }

    fn write_whole_call(&mut self, name: String, json: String) {
        let index = self.n_calls;
        self.n_calls += 1;
        self.fresh = false;
        self.segment = Segment::after_tag();
        self.deltas.push(Delta::ToolCallStart { index, name });
        self.deltas.push(Delta::ToolCallArguments { index, json });
        self.deltas.push(Delta::ToolCallEnd { index });
    }
}

/// Adds a piece, joined with the last one where that is of the same kind.
fn add(deltas: &mut Vec<Delta>, delta: Delta) {
    match (deltas.last_mut(), delta) {
        (Some(Delta::Reasoning(last)), Delta::Reasoning(text))
        | (Some(Delta::Content(last)), Delta::Content(text)) => last.push_str(&text),
        (
            Some(Delta::ToolCallArguments { index: last_index, json: last }),
            Delta::ToolCallArguments { index, json },
        ) if *last_index == index => last.push_str(&json),
        (_, delta) => deltas.push(delta),
    }
}

#[cfg(test)]
mod hazards;
#[cfg(test)]
mod properties;
