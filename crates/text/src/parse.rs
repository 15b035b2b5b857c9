//! The model's text to reasoning, content and tool calls, while it arrives.
//!
//! The pieces joined do not depend on how the text is cut, and no piece holds part of a tag. So
//! every decision waits until the text that it depends on is there; only [`OutputParser::finish`]
//! decides on what is missing.
//!
//! What is unambiguously a call becomes one; all else stays content, so that nothing is lost.
//!
//! A call begins with `<tool_call>` or a neighbour of it and a function or JSON behind, or with
//! the bare `<function=NAME>` of a known tool, and goes on as a call does. Its tag begins a line,
//! or it is an outer tag that ends one. Within a sentence it is spoken of: it is a call there only
//! if nothing follows it in the answer.
//!
//! A tag that Markdown quotes is content: in a fence, in code within a line, in a block quote,
//! directly after a quotation mark. One fence is different, since models write their call that way:
//! it holds nothing but complete calls of known tools and nothing follows it. Only the end of the
//! answer tells, so such a fence, and such a call within a sentence, is held back, up to a limit;
//! anything else in or after it releases it at once. The line of any fence waits for the first
//! visible character after it, and no longer.
//!
//! Whitespace: reasoning is trimmed at both ends; further think blocks are a paragraph of it.
//! Newlines before the first content, after `</think>` or after a call, are no content, nor is
//! whitespace before a call or after the last one. Everything else is kept as it is.

mod ahead;
mod call;
mod candidate;
mod content;
mod json_call;
mod prose;
mod schema;
mod value;

use ahead::{Ahead, CallAhead, Look, TextEnds, look, skip_blank};
use call::Call;
use candidate::Candidate;
use prose::Prose;
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
    prose: Prose,
    /// Outer tags of calls that are open.
    n_wrappers: u32,
    seen: Seen,
    /// A call has ended the reasoning; its closing tag may come yet.
    unclosed_thinking: bool,
    /// `<think>` in the content whose partner is content, too.
    n_think_texts: usize,
    /// Reads the text of a candidate: candidates do not nest.
    in_candidate: bool,
    /// The text ended within a call.
    was_cut: bool,
}

/// What has come.
#[derive(Debug, Default)]
struct Seen {
    /// More than whitespace, tags included.
    anything: bool,
    content: bool,
    reasoning: bool,
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
    /// What is a call only if nothing follows.
    Candidate(Box<Candidate>),
}

/// Text between two tags.
#[derive(Debug, Default)]
struct Segment {
    /// Follows a tag, so newlines at its start are no content.
    after_tag: bool,
    /// Follows a call, so that further ends of it are no content.
    after_call: bool,
    /// Something visible has been written.
    visible: bool,
    /// Whitespace that is dropped if a tag follows.
    held: String,
}

impl Segment {
    fn after_tag() -> Self {
        Self { after_tag: true, ..Self::default() }
    }

    fn after_call() -> Self {
        Self { after_tag: true, after_call: true, ..Self::default() }
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
            prose: Prose::new(),
            n_wrappers: 0,
            seen: Seen::default(),
            unclosed_thinking: false,
            n_think_texts: 0,
            in_candidate: false,
            was_cut: false,
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
            self.was_cut = true;
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
                Mode::Candidate(candidate) => self.step_candidate(candidate, at_end),
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
        if self.step_plain(&['<']) {
            return true;
        }
        if self.rest().is_empty() {
            return false;
        }
        let is_quoted = self.prose.is_quoted();
        let rest = self.rest();
        let close = self.think_end(at_end);
        // Some models repeat the tag that the prompt ends with.
        let open = if self.segment.visible { Look::No } else { look(rest, "<think>", at_end) };
        let call = if is_quoted { self.quoted_tag(at_end) } else { self.tagged_call(at_end) };
        match (close, open, call) {
            (Look::Yes, ..) => {
                self.done += "</think>".len();
                self.leave_reasoning();
            }
            (_, Look::Yes, _) => {
                self.done += "<think>".len();
                self.prose = Prose::new();
            }
            (_, _, CallAhead::Function { name, len, wrappers })
                if wrappers.all_trained
                    && (self.prose.begins_line() || wrappers.ends_line)
                    && (self.options.tools.is_empty() || self.tool(&name).is_some()) =>
            {
                // The model calls without closing its reasoning.
                self.leave_reasoning();
                self.unclosed_thinking = true;
                self.n_wrappers = wrappers.n;
                self.done += len;
                self.start_call(&name);
            }
            (Look::Maybe, ..) | (_, Look::Maybe, _) | (_, _, CallAhead::Maybe) => return false,
            _ => self.write_next_char(),
        }
        true
    }

    /// `</think>` at the place, unless quotation marks stand directly around it.
    fn think_end(&self, at_end: bool) -> Look {
        let found = look(self.rest(), "</think>", at_end);
        let Some(mark) = self.prose.mark_before().filter(|_| found == Look::Yes) else {
            return found;
        };
        match self.rest()["</think>".len()..].chars().next() {
            Some(next) if next == mark => Look::No,
            None if !at_end => Look::Maybe,
            _ => Look::Yes,
        }
    }

    fn leave_reasoning(&mut self) {
        self.segment = Segment::after_tag();
        self.prose = Prose::new();
        self.mode = Mode::Content;
        self.seen.anything = true;
    }

    fn step_body(&mut self, mut call: Call, at_end: bool) -> bool {
        let rest = self.rest();
        let here = rest.trim_start();
        let at = rest.len() - here.len();
        // What the text ends within counts for nothing.
        if here.is_empty() || at_end && ahead::is_part_of_call(here) {
            self.done = self.buffer.len();
            self.mode = Mode::Body(call);
            return false;
        }
        if call.is_fresh {
            match json_call::object_ahead(here, at_end) {
                Ok(Some(object)) => {
                    self.done += at + object.len;
                    let json = call.write_object(object.members);
                    if !json.is_empty() {
                        let index = call.index;
                        add(&mut self.deltas, Delta::ToolCallArguments { index, json });
                    }
                    self.mode = Mode::Body(call);
                    return true;
                }
                Err(TextEnds) => {
                    self.mode = Mode::Body(call);
                    return false;
                }
                Ok(None) => {}
            }
        }
        let stray = look(here, ahead::PARAMETER_END, at_end);
        let parameter = ahead::parameter_ahead(here, at_end);
        let function = look(here, "</function>", at_end);
        let end = ahead::wrapper_end(here, at_end);
        let next = look(here, "<tool_call>", at_end);
        match (parameter, function, end, next) {
            _ if stray == Look::Yes => {
                call.is_fresh = false;
                self.done += at + ahead::PARAMETER_END.len();
                self.mode = Mode::Body(call);
            }
            (Ahead::Yes { name, len }, ..) => {
                self.done += at + len;
                let value = call.start_value(name, &self.options.tools);
                self.mode = Mode::Value(call, value);
            }
            (_, Look::Yes, ..) => {
                self.done += at + "</function>".len();
                self.end_call(&call);
                self.mode = Mode::AfterFunction;
            }
            (_, _, Ok(Some(len)), _) => {
                self.done += at + len;
                self.end_call(&call);
                self.n_wrappers = self.n_wrappers.saturating_sub(1);
            }
            (_, _, _, Look::Yes) => {
                self.done += at;
                self.end_call(&call);
            }
            (Ahead::Maybe, ..)
            | (_, Look::Maybe, ..)
            | (_, _, Err(TextEnds), _)
            | (.., Look::Maybe) => {
                self.mode = Mode::Body(call);
                return false;
            }
            // No part of a call: it has ended, and the text is not lost.
            _ => {
                self.done += at;
                self.end_call(&call);
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
        match ahead::whole_function_ahead(after, at_end) {
            Ahead::Yes { name, len: tag_len }
                if self.n_wrappers > 0 || self.tool(&name).is_some() =>
            {
                self.done += len + tag_len;
                self.start_call(&name);
            }
            Ahead::Maybe => return false,
            // Ends of outer tags are dropped there.
            _ => self.mode = Mode::Content,
        }
        true
    }

    /// Writes what comes before the next of these; `false` if nothing does.
    fn step_plain(&mut self, stops: &[char]) -> bool {
        let rest = self.rest();
        let len = rest.find(stops).unwrap_or(rest.len());
        if len == 0 {
            return false;
        }
        self.write(len);
        true
    }

    /// The character at the place, which is an ASCII one, begins nothing.
    fn write_next_char(&mut self) {
        self.write('<'.len_utf8());
    }

    /// Writes so many bytes of reasoning or content, but for whitespace that may be no part of it.
    fn write(&mut self, len: usize) {
        let in_reasoning = self.in_reasoning();
        let mut text = &self.buffer[self.done..self.done + len];
        self.done += len;
        self.prose.read(text);
        if !self.segment.visible && self.segment.held.is_empty() {
            if in_reasoning {
                text = text.trim_start();
            } else if self.segment.after_tag && !self.seen.content {
                text = text.trim_start_matches(['\n', '\r']);
            }
        }
        let visible = text.trim_end();
        if visible.is_empty() {
            self.segment.held.push_str(text);
            return;
        }
        let mut piece = std::mem::take(&mut self.segment.held);
        if in_reasoning && !self.segment.visible && self.seen.reasoning {
            piece.push_str("\n\n");
        }
        piece.push_str(visible);
        self.segment.held.push_str(&text[visible.len()..]);
        self.segment.visible = true;
        self.seen.anything = true;
        self.seen.content |= !in_reasoning;
        self.seen.reasoning |= in_reasoning;
        let delta = if in_reasoning { Delta::Reasoning(piece) } else { Delta::Content(piece) };
        add(&mut self.deltas, delta);
    }

    fn tool(&self, name: &str) -> Option<&ToolSchema> {
        self.options.tools.iter().find(|tool| tool.name == name)
    }

    fn start_call(&mut self, name: &str) {
        let call = Call::new(self.n_calls, name, &self.options.tools);
        self.n_calls += 1;
        self.seen.anything = true;
        self.deltas.push(Delta::ToolCallStart { index: call.index, name: name.to_string() });
        self.after_call();
        self.mode = Mode::Body(call);
    }

    /// Ends the JSON text; the mode is content, with nothing of it written.
    fn end_call(&mut self, call: &Call) {
        call.end().into_iter().for_each(|delta| add(&mut self.deltas, delta));
        self.after_call();
    }

    fn write_whole_call(&mut self, name: String, json: String) {
        let index = self.n_calls;
        self.n_calls += 1;
        self.seen.anything = true;
        self.after_call();
        self.deltas.push(Delta::ToolCallStart { index, name });
        self.deltas.push(Delta::ToolCallArguments { index, json });
        self.deltas.push(Delta::ToolCallEnd { index });
    }

    fn after_call(&mut self) {
        self.segment = Segment::after_call();
        self.prose = Prose::new();
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
