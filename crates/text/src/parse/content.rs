//! Content: which tags count, and what begins a call.

use super::ahead::{
    Ahead, CallAhead, FenceAhead, Look, TOOL_CALL, TextEnds, Wrappers, call_ahead, call_end,
    fence_ahead, is_part_of_end, look, whole_function_ahead, wrapper_end,
};
use super::candidate::Candidate;
use super::prose::Prose;
use super::{Mode, OutputParser, Segment};

const THINK: &str = "<think>";
const THINK_END: &str = "</think>";

/// What a tag of thinking means at a place.
enum Think {
    Opens,
    /// It closes nothing; models write it out of habit.
    Stray,
    /// It is spoken of.
    Text,
    No,
    Maybe,
}

impl OutputParser {
    pub(super) fn step_content(&mut self, at_end: bool) -> bool {
        if self.step_plain(&['<', '`', '~']) {
            return true;
        }
        let rest = self.rest();
        if rest.is_empty() {
            return false;
        }
        if !rest.starts_with('<') {
            return self.step_fence(at_end);
        }
        let is_quoted = self.prose.is_quoted();
        match self.think(is_quoted, at_end) {
            Think::Opens => {
                self.done += THINK.len();
                self.segment = Segment::default();
                self.prose = Prose::new();
                self.mode = Mode::Reasoning;
                self.seen.anything = true;
                return true;
            }
            Think::Stray => {
                self.done += THINK_END.len();
                self.unclosed_thinking = false;
                self.seen.anything = true;
                if !self.segment.visible {
                    self.segment = Segment { after_tag: true, ..std::mem::take(&mut self.segment) };
                    self.segment.held.clear();
                    self.prose = Prose::new();
                }
                return true;
            }
            Think::Text => {
                self.write_next_char();
                return true;
            }
            Think::Maybe => return false,
            Think::No => {}
        }
        if !self.options.parse_tools {
            self.write_next_char();
            return true;
        }
        match self.end_of_wrapper(is_quoted, at_end) {
            Ok(Some(len)) => {
                self.done += len;
                self.n_wrappers = self.n_wrappers.saturating_sub(1);
                self.segment = Segment::after_call();
                return true;
            }
            Ok(None) => {}
            Err(TextEnds) => return false,
        }
        if is_quoted {
            if self.quoted_tag(at_end) == CallAhead::Maybe {
                return false;
            }
            self.write_next_char();
            return true;
        }
        self.step_call(at_end)
    }

    fn think(&mut self, is_quoted: bool, at_end: bool) -> Think {
        let rest = self.rest();
        match (look(rest, THINK, at_end), look(rest, THINK_END, at_end)) {
            (Look::Yes, _) => {
                let after = &rest[THINK.len()..];
                let opens = !is_quoted && (!self.seen.anything || !self.segment.visible);
                let may_open = !is_quoted && self.prose.begins_line();
                if !opens && may_open && after.is_empty() && !at_end {
                    return Think::Maybe;
                }
                if opens || may_open && after.starts_with('\n') {
                    return Think::Opens;
                }
                self.n_think_texts += usize::from(!is_quoted);
                Think::Text
            }
            (_, Look::Yes) if is_quoted => Think::Text,
            (_, Look::Yes) if self.n_think_texts > 0 => {
                self.n_think_texts -= 1;
                Think::Text
            }
            (_, Look::Yes) => {
                let is_stray = !self.segment.visible
                    || !self.options.starts_in_thinking
                    || self.unclosed_thinking;
                if is_stray { Think::Stray } else { Think::Text }
            }
            (Look::Maybe, _) | (_, Look::Maybe) => Think::Maybe,
            _ => Think::No,
        }
    }

    /// The length of an end of a call that is over.
    fn end_of_wrapper(&self, is_quoted: bool, at_end: bool) -> Result<Option<usize>, TextEnds> {
        let rest = self.rest();
        let directly_after = self.segment.after_call && !self.segment.visible;
        if is_quoted || !directly_after && self.n_wrappers == 0 {
            return Ok(None);
        }
        if at_end && is_part_of_end(rest) {
            return Ok(Some(rest.len()));
        }
        if directly_after { call_end(rest, at_end) } else { wrapper_end(rest, at_end) }
    }

    /// Notes a tag of a call that is only spoken of, so that the rest of it is, too.
    pub(super) fn quoted_tag(&mut self, at_end: bool) -> CallAhead {
        if !self.options.parse_tools {
            return CallAhead::No;
        }
        let rest = self.rest();
        match (look(rest, TOOL_CALL, at_end), look(rest, "<function", at_end)) {
            (Look::Yes, _) | (_, Look::Yes) => self.prose.hold_tag(),
            (Look::Maybe, _) | (_, Look::Maybe) => return CallAhead::Maybe,
            _ => {}
        }
        CallAhead::No
    }

    /// A call with an outer tag at the place.
    pub(super) fn tagged_call(&self, at_end: bool) -> CallAhead {
        if self.options.parse_tools { call_ahead(self.rest(), at_end) } else { CallAhead::No }
    }

    fn step_call(&mut self, at_end: bool) -> bool {
        let begins_line = self.prose.begins_line();
        let rest = self.rest();
        let call = call_ahead(rest, at_end);
        let bare = if begins_line { whole_function_ahead(rest, at_end) } else { Ahead::No };
        let is_sentence =
            |wrappers: Wrappers| !begins_line && !wrappers.ends_line && !self.in_candidate;
        match (call, bare) {
            (CallAhead::Function { wrappers, .. } | CallAhead::Json { wrappers, .. }, _)
                if is_sentence(wrappers) =>
            {
                self.mode = Mode::Candidate(Box::new(Candidate::new(self, None, 0)));
            }
            (CallAhead::Function { name, len, wrappers }, _)
                if wrappers.all_trained || self.tool(&name).is_some() =>
            {
                self.done += len;
                self.n_wrappers = wrappers.n;
                self.start_call(&name);
            }
            (CallAhead::Json { calls, len, wrappers }, _)
                if wrappers.all_trained
                    || calls.iter().all(|(name, _)| self.tool(name).is_some()) =>
            {
                self.done += len;
                self.n_wrappers = wrappers.n;
                for (name, arguments) in calls {
                    self.write_whole_call(name, arguments);
                }
            }
            (_, Ahead::Yes { name, len }) if self.tool(&name).is_some() => {
                self.done += len;
                self.start_call(&name);
            }
            (CallAhead::Maybe, _) | (_, Ahead::Maybe) => return false,
            _ => self.write_next_char(),
        }
        true
    }

    /// A fence at the place, if it may wrap a call.
    fn step_fence(&mut self, at_end: bool) -> bool {
        let may_wrap =
            self.options.parse_tools && !self.in_candidate && self.prose.may_open_fence();
        let found = if may_wrap {
            fence_ahead(self.rest(), |name| self.tool(name).is_some(), at_end)
        } else {
            FenceAhead::No
        };
        match found {
            FenceAhead::Yes { fence, len } => {
                self.mode = Mode::Candidate(Box::new(Candidate::new(self, Some(fence), len)));
            }
            FenceAhead::No => self.write_next_char(),
            FenceAhead::Maybe => return false,
        }
        true
    }
}
