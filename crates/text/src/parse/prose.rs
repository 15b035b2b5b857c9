//! Where in Markdown a place of the text stands: a tag that is quoted there is only talked about.

/// Quotation marks and their partners.
const QUOTATION_MARKS: [(char, char); 6] = [
    ('"', '"'),
    ('\'', '\''),
    ('\u{201c}', '\u{201d}'),
    ('\u{2018}', '\u{2019}'),
    ('«', '»'),
    ('„', '\u{201c}'),
];

/// The marks that open a code fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fence {
    pub(super) mark: char,
    pub(super) len: usize,
}

impl Fence {
    /// Fewer marks are code in a line.
    pub(super) const LEN_MIN: usize = 3;
}

/// Reads the text character by character, so that what it knows does not depend on pieces.
#[derive(Debug)]
pub(super) struct Prose {
    fence: Option<Fence>,
    span: Option<Span>,
    /// Backticks directly before the place.
    n_backticks: usize,
    /// The character before those backticks is a backslash.
    escaped: bool,
    previous: Option<char>,
    line: Line,
}

/// Code or a quotation within a paragraph.
#[derive(Debug)]
struct Span {
    end: SpanEnd,
    /// Such a span goes on in the next line; without one, a single mark would quote too much.
    holds_tag: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum SpanEnd {
    Backticks(usize),
    Mark(char),
}

/// The line so far.
#[derive(Debug)]
struct Line {
    kind: LineKind,
    /// Marks at its start that may open or close a fence.
    lead: Option<Fence>,
    in_lead: bool,
    /// Something else stands after those marks.
    has_info: bool,
    /// A backtick stands after those marks: they open code in a line instead.
    has_backtick: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineKind {
    Blank,
    BlockQuote,
    Text,
}

impl Line {
    const START: Self = Self {
        kind: LineKind::Blank,
        lead: None,
        in_lead: false,
        has_info: false,
        has_backtick: false,
    };
}

impl Prose {
    pub(super) fn new() -> Self {
        Self {
            fence: None,
            span: None,
            n_backticks: 0,
            escaped: false,
            previous: None,
            line: Line::START,
        }
    }

    /// Ends all fences and spans, inside a line.
    pub(super) fn leave_quotes(&mut self) {
        let kind = self.line.kind;
        *self = Self::new();
        self.line.kind = kind;
    }

    /// The text goes on inside this fence, in a line of it.
    pub(super) fn enter_fence(&mut self, fence: Fence) {
        self.leave_quotes();
        self.fence = Some(fence);
    }

    pub(super) fn read(&mut self, text: &str) {
        text.chars().for_each(|char| self.read_char(char));
    }

    /// Nothing but whitespace stands before the place in its line.
    pub(super) fn begins_line(&self) -> bool {
        self.line.is_blank()
    }

    /// Whether marks at the place can open a fence.
    pub(super) fn may_open_fence(&self) -> bool {
        self.line.is_blank() && self.fence.is_none() && self.span.is_none()
    }

    /// The partner of the backtick or quotation mark before the place.
    pub(super) fn mark_before(&self) -> Option<char> {
        if self.previous == Some('`') { Some('`') } else { self.opening_mark() }
    }

    /// Whether a tag at the place is code or a quotation. The next character is no backtick.
    pub(super) fn is_quoted(&mut self) -> bool {
        self.end_backticks();
        self.fence.is_some()
            || self.span.is_some()
            || self.line.kind == LineKind::BlockQuote
            || self.opening_mark().is_some()
    }

    /// A quoted tag stands at the place: its quotation may go on over lines.
    pub(super) fn hold_tag(&mut self) {
        if let Some(end) = self.opening_mark().filter(|_| self.span.is_none()) {
            self.span = Some(Span { end: SpanEnd::Mark(end), holds_tag: true });
        }
        if let Some(span) = &mut self.span {
            span.holds_tag = true;
        }
    }

    /// The partner of the quotation mark before the place.
    fn opening_mark(&self) -> Option<char> {
        let previous = self.previous?;
        QUOTATION_MARKS.iter().find(|(open, _)| *open == previous).map(|(_, close)| *close)
    }

    fn read_char(&mut self, char: char) {
        if char == '`' {
            self.escaped = self.n_backticks == 0 && self.previous == Some('\\')
                || self.n_backticks > 0 && self.escaped;
            self.n_backticks += 1;
        } else {
            self.end_backticks();
            if self.span.as_ref().is_some_and(|span| span.end == SpanEnd::Mark(char)) {
                self.span = None;
            }
        }
        if char == '\n' {
            self.end_line();
        } else {
            self.line.read_char(char);
        }
        self.previous = Some(char);
    }

    fn end_backticks(&mut self) {
        let len = std::mem::take(&mut self.n_backticks);
        if len == 0 || self.fence.is_some() {
            return;
        }
        match &self.span {
            Some(span) if span.end == SpanEnd::Backticks(len) => self.span = None,
            Some(_) => {}
            None => {
                let len = len - usize::from(self.escaped);
                let end = SpanEnd::Backticks(len);
                self.span = (len > 0).then_some(Span { end, holds_tag: false });
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::replace(&mut self.line, Line::START);
        let lead = line.lead.filter(|lead| lead.len >= Fence::LEN_MIN);
        match (self.fence, lead) {
            (Some(fence), Some(lead)) => {
                if lead.mark == fence.mark && lead.len >= fence.len && !line.has_info {
                    self.fence = None;
                }
            }
            (Some(_), None) => {}
            (None, Some(lead)) if !(lead.mark == '`' && line.has_backtick) => {
                self.fence = Some(lead);
                self.span = None;
            }
            (None, _) => {
                if line.is_blank() || self.span.as_ref().is_some_and(|span| !span.holds_tag) {
                    self.span = None;
                }
            }
        }
    }
}

impl Line {
    fn is_blank(&self) -> bool {
        self.kind == LineKind::Blank
    }

    fn read_char(&mut self, char: char) {
        let may_lead = self.is_blank() && matches!(char, '`' | '~');
        match &mut self.lead {
            None if may_lead => {
                self.lead = Some(Fence { mark: char, len: 1 });
                self.in_lead = true;
            }
            Some(lead) if self.in_lead && lead.mark == char => lead.len += 1,
            _ => {
                self.in_lead = false;
                self.has_info |= !char.is_whitespace();
                self.has_backtick |= char == '`';
            }
        }
        if self.is_blank() && !char.is_whitespace() {
            self.kind = if char == '>' { LineKind::BlockQuote } else { LineKind::Text };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks each `<` in the text: `!` after it means quoted.
    #[track_caller]
    fn check(text: &str) {
        let mut prose = Prose::new();
        for (at, char) in text.char_indices() {
            if char == '<' {
                let expected = text[at..].starts_with("<!");
                assert_eq!(prose.is_quoted(), expected, "byte {at} of {text:?}");
            }
            prose.read(char.encode_utf8(&mut [0; 4]));
        }
    }

    #[test]
    fn quotations() {
        check("< a `<!` <");
        check("``<! ` <!`` < ` <!\n<");
        check("\\` < \\`` <!");
        check("> <!\n> <!\n<");
        check("```\n<!\n```\n<");
        check("  ```xml\n<!\n ```x\n<!\n````  \n<");
        check("~~~\n<!\n```\n<!\n~~~\n<");
        check("```<!``` <\n<");
        check("\"<!\" < \u{201c}<! it's <");
        check("a `b\n<");
    }

    #[test]
    fn a_span_with_a_tag_goes_on_until_it_is_closed() {
        for (text, quoted) in [("\n", true), ("x\ny", true), ("\n \n", false), ("` ", false)] {
            let mut prose = Prose::new();
            prose.read("like `");
            assert!(prose.is_quoted());
            prose.hold_tag();
            prose.read("<tool_call>");
            prose.read(text);
            assert_eq!(prose.is_quoted(), quoted, "{text:?}");
        }
    }
}
