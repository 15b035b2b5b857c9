//! What is a call only if nothing follows it: alone in a code fence, or within a sentence.

use super::ahead::{FenceAhead, fence_ahead};
use super::prose::{Fence, Prose};
use super::{Delta, Mode, OutputParser, Segment, add};

/// Longer ones are content: they are held back as a whole.
const CANDIDATE_MAX: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct Candidate {
    /// Reads the text by itself, one character at a time, so that what it has found at a place
    /// does not depend on pieces.
    parser: OutputParser,
    fence: Option<Fence>,
    deltas: Vec<Delta>,
    /// What was read, from the place where the candidate begins.
    n_read: usize,
    /// Marks of the closing fence.
    n_marks: usize,
    /// After the closing fence.
    is_closed: bool,
}

impl Candidate {
    /// The candidate begins at the place, and its first call so many bytes later.
    pub(super) fn new(outer: &OutputParser, fence: Option<Fence>, start: usize) -> Self {
        Self {
            parser: inner_parser(outer, outer.n_calls),
            fence,
            deltas: Vec::new(),
            n_read: start,
            n_marks: 0,
            is_closed: false,
        }
    }

    /// Takes what the parser found; `false` if it is not only calls of known tools.
    fn take(&mut self, deltas: Vec<Delta>, outer: &OutputParser) -> bool {
        for delta in deltas {
            match delta {
                Delta::Reasoning(_) => return false,
                Delta::ToolCallStart { name, .. } if outer.tool(&name).is_none() => return false,
                Delta::Content(text) => {
                    // The end of the fence, in a line of its own.
                    let Some(fence) = self.fence.filter(|_| self.parser.n_calls > 0) else {
                        return false;
                    };
                    let marks = text.trim();
                    let goes_on = self.n_marks == 0 || !text.starts_with(char::is_whitespace);
                    if !marks.chars().all(|char| char == fence.mark)
                        || !goes_on && !marks.is_empty()
                    {
                        return false;
                    }
                    self.n_marks += marks.len();
                }
                delta => add(&mut self.deltas, delta),
            }
        }
        true
    }

    fn has_call(&self) -> bool {
        self.deltas.iter().any(|delta| matches!(delta, Delta::ToolCallEnd { .. }))
    }
}

fn inner_parser(outer: &OutputParser, n_calls: u32) -> OutputParser {
    let mut options = outer.options.clone();
    options.starts_in_thinking = false;
    let mut parser = OutputParser::new(options);
    parser.in_candidate = true;
    parser.n_calls = n_calls;
    parser.seen.anything = true;
    parser
}

impl OutputParser {
    pub(super) fn step_candidate(&mut self, mut candidate: Box<Candidate>, at_end: bool) -> bool {
        while let Some(char) = self.rest()[candidate.n_read..].chars().next() {
            if candidate.is_closed && !char.is_whitespace() {
                let rest = &self.rest()[candidate.n_read..];
                match fence_ahead(rest, |name| self.tool(name).is_some(), at_end) {
                    FenceAhead::Yes { fence, len } => {
                        let n_calls = candidate.parser.n_calls;
                        candidate.parser = inner_parser(self, n_calls);
                        candidate.fence = Some(fence);
                        candidate.n_read += len;
                        candidate.n_marks = 0;
                        candidate.is_closed = false;
                        continue;
                    }
                    FenceAhead::Maybe => {
                        self.mode = Mode::Candidate(candidate);
                        return false;
                    }
                    FenceAhead::No => return self.release(&candidate),
                }
            }
            candidate.n_read += char.len_utf8();
            if candidate.n_read > CANDIDATE_MAX {
                return self.release(&candidate);
            }
            if candidate.is_closed {
                continue;
            }
            let deltas = candidate.parser.push(char.encode_utf8(&mut [0; 4]));
            if !candidate.take(deltas, self) {
                return self.release(&candidate);
            }
            if char == '\n' && candidate.n_marks > 0 {
                if candidate.fence.is_none_or(|fence| candidate.n_marks < fence.len) {
                    return self.release(&candidate);
                }
                candidate.is_closed = true;
            }
        }
        if !at_end {
            self.mode = Mode::Candidate(candidate);
            return false;
        }
        if !candidate.is_closed {
            let deltas = candidate.parser.finish();
            if !candidate.take(deltas, self) {
                return self.release(&candidate);
            }
        }
        if candidate.parser.was_cut || !candidate.has_call() {
            return self.release(&candidate);
        }
        self.done += candidate.n_read;
        self.n_calls = candidate.parser.n_calls;
        self.seen.anything = true;
        self.segment = Segment::after_call();
        self.prose = Prose::new();
        self.deltas.append(&mut candidate.deltas);
        self.mode = Mode::Content;
        true
    }

    /// It was no call: what was read of it is content.
    fn release(&mut self, candidate: &Candidate) -> bool {
        self.mode = Mode::Content;
        self.write(candidate.n_read);
        match candidate.fence.filter(|_| !candidate.is_closed) {
            Some(fence) => self.prose.enter_fence(fence),
            None => self.prose.leave_quotes(),
        }
        true
    }
}
