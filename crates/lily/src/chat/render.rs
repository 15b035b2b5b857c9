//! The answer on the screen: thinking dimmed, content plain.

use anyhow::{Context, Result};
use lily_text::Delta;
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// Where the pieces of an answer go.
///
/// Thinking is no result: it goes to stdout only if a person looks at it there, else to stderr if
/// a person looks at that, else nowhere.
pub(super) struct Screen {
    content: Sink,
    thinking: Option<Sink>,
    in_thinking: bool,
    at_line_start: bool,
}

/// One stream.
pub(super) struct Sink {
    pub(super) out: Box<dyn Write>,
    pub(super) is_terminal: bool,
    /// Whether it may be dimmed.
    pub(super) colours: bool,
}

impl Screen {
    /// Onto the streams of this process, as they are connected.
    pub(super) fn for_streams() -> Self {
        let stdout = || Sink::new(io::stdout(), io::stdout().is_terminal());
        let thinking = if io::stdout().is_terminal() {
            Some(stdout())
        } else {
            io::stderr().is_terminal().then(|| Sink::new(io::stderr(), true))
        };
        Self::new(stdout(), thinking)
    }

    pub(super) fn new(content: Sink, thinking: Option<Sink>) -> Self {
        Self { content, thinking, in_thinking: false, at_line_start: true }
    }

    pub(super) fn show(&mut self, delta: &Delta) -> Result<()> {
        match delta {
            Delta::Reasoning(text) => self.reasoning(text),
            Delta::Content(text) => self.content(text),
            Delta::ToolCallStart { name, .. } => self.content(&format!("[calls {name} ")),
            Delta::ToolCallArguments { json, .. } => self.content(json),
            Delta::ToolCallEnd { .. } => self.content("]\n"),
        }
    }

    fn reasoning(&mut self, text: &str) -> Result<()> {
        let is_first = !std::mem::replace(&mut self.in_thinking, true);
        match &mut self.thinking {
            // Each piece by itself: whatever ends this program, the terminal is left plain.
            Some(sink) if sink.colours => {
                let text = sink.visible(text).into_owned();
                sink.write(&format!("{DIM}{text}{PLAIN}"))
            }
            Some(sink) => {
                let text = sink.visible(text).into_owned();
                sink.write(&format!("{}{text}", if is_first { "[thinking] " } else { "" }))
            }
            None => Ok(()),
        }
    }

    fn content(&mut self, text: &str) -> Result<()> {
        self.end_thinking("\n\n")?;
        self.at_line_start = text.ends_with('\n');
        let text = self.content.visible(text).into_owned();
        self.content.write(&text)
    }

    fn end_thinking(&mut self, end: &str) -> Result<()> {
        match &mut self.thinking {
            Some(sink) if std::mem::take(&mut self.in_thinking) => sink.write(end),
            _ => Ok(()),
        }
    }

    /// Leaves the cursor at the start of a line.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.end_thinking("\n")?;
        if std::mem::replace(&mut self.at_line_start, true) {
            return Ok(());
        }
        self.content.write("\n")
    }
}

impl Sink {
    fn new(out: impl Write + 'static, is_terminal: bool) -> Self {
        Self { out: Box::new(out), is_terminal, colours: is_terminal && wants_colours() }
    }

    fn write(&mut self, text: &str) -> Result<()> {
        self.out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush())
            .context("the answer could not be written")
    }

    /// A terminal obeys control characters, and a model is not to command the user's terminal.
    fn visible<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let commands = |c: char| c.is_control() && c != '\n' && c != '\t';
        if !self.is_terminal || !text.contains(commands) {
            return Cow::Borrowed(text);
        }
        let shown = text.chars().filter(|&c| c != '\r').map(|c| match u32::from(c) {
            _ if !commands(c) => c,
            code @ 0..0x20 => char::from_u32(0x2400 + code).unwrap_or('\u{FFFD}'),
            0x7F => '\u{2421}',
            _ => '\u{FFFD}',
        });
        Cow::Owned(shown.collect())
    }
}

/// A line that is less important than the answer; for stderr.
pub(super) fn dimmed(text: &str) -> String {
    if io::stderr().is_terminal() && wants_colours() {
        format!("{DIM}{text}{PLAIN}")
    } else {
        text.to_owned()
    }
}

/// Terminals are dimmed unless the user or the terminal does not want any of that.
fn wants_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|value| value != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Shows an answer on a stream that is or is no terminal, with thinking beside it or nowhere.
    fn shown(is_terminal: bool, colours: bool, deltas: &[Delta]) -> String {
        let shared = Shared::default();
        let sink = || Sink { out: Box::new(shared.clone()), is_terminal, colours };
        let mut screen = Screen::new(sink(), is_terminal.then(sink));
        for delta in deltas {
            screen.show(delta).expect("shown");
        }
        screen.finish().expect("shown");
        String::from_utf8(shared.0.borrow().clone()).expect("UTF-8")
    }

    fn thought(text: &str) -> Delta {
        Delta::Reasoning(text.to_owned())
    }

    fn said(text: &str) -> Delta {
        Delta::Content(text.to_owned())
    }

    #[test]
    fn thinking_is_dimmed_marked_or_left_out() {
        let answer = [thought("hm"), thought("m"), said("yes")];
        let dim = "\x1b[2mhm\x1b[0m\x1b[2mm\x1b[0m\n\nyes\n";
        assert_eq!(shown(true, true, &answer), dim);
        assert_eq!(shown(true, false, &answer), "[thinking] hmm\n\nyes\n");
        assert_eq!(shown(false, false, &answer), "yes\n");
    }

    #[test]
    fn the_cursor_ends_at_the_start_of_a_line() {
        assert_eq!(shown(false, false, &[said("a\n")]), "a\n");
        assert_eq!(shown(false, false, &[]), "");
        assert_eq!(shown(true, false, &[thought("cut")]), "[thinking] cut\n");
    }

    #[test]
    fn a_terminal_gets_no_commands_and_a_pipe_gets_everything() {
        let answer = [said("\x1b[31mred\r\n\tbell\u{7}\u{9b}")];
        assert_eq!(shown(true, true, &answer), "␛[31mred\n\tbell␇\u{FFFD}\n");
        assert_eq!(shown(false, false, &answer), "\x1b[31mred\r\n\tbell\u{7}\u{9b}\n");
    }

    #[test]
    fn calls_are_shown_as_they_come() {
        let call = [
            Delta::ToolCallStart { index: 0, name: "now".to_owned() },
            Delta::ToolCallArguments { index: 0, json: "{}".to_owned() },
            Delta::ToolCallEnd { index: 0 },
        ];
        assert_eq!(shown(false, false, &call), "[calls now {}]\n");
    }
}
