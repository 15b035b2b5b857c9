//! The answer on the screen: thinking dimmed, content plain.

use anyhow::{Context, Result};
use lily_text::Delta;
use std::io::{self, IsTerminal, Write};

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// Where the pieces of an answer go.
///
/// Thinking is no result: it goes to stdout only if a person looks at it there, else to stderr if
/// a person looks at that, else nowhere.
pub(super) struct Screen {
    thinking: Thinking,
    colours: bool,
    in_thinking: bool,
    ends_with_newline: bool,
}

#[derive(PartialEq)]
enum Thinking {
    Stdout,
    Stderr,
    Hidden,
}

impl Screen {
    /// For one answer, maybe into a pipe.
    pub(super) fn one_shot() -> Self {
        let thinking = if io::stdout().is_terminal() {
            Thinking::Stdout
        } else if io::stderr().is_terminal() {
            Thinking::Stderr
        } else {
            Thinking::Hidden
        };
        Self { thinking, colours: colours(), in_thinking: false, ends_with_newline: true }
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
        let start = if self.colours && !self.in_thinking { DIM } else { "" };
        self.in_thinking = true;
        let text = format!("{start}{text}");
        match self.thinking {
            Thinking::Stdout => write(&mut io::stdout().lock(), &text),
            Thinking::Stderr => write(&mut io::stderr().lock(), &text),
            Thinking::Hidden => Ok(()),
        }
    }

    fn end_thinking(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.in_thinking) {
            return Ok(());
        }
        let end = if self.colours { format!("{PLAIN}\n\n") } else { "\n\n".to_owned() };
        match self.thinking {
            Thinking::Stdout => write(&mut io::stdout().lock(), &end),
            Thinking::Stderr => write(&mut io::stderr().lock(), &end),
            Thinking::Hidden => Ok(()),
        }
    }

    fn content(&mut self, text: &str) -> Result<()> {
        self.end_thinking()?;
        self.ends_with_newline = text.ends_with('\n');
        write(&mut io::stdout().lock(), text)
    }

    /// Leaves the cursor at the start of a line and the colours as they were.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.end_thinking()?;
        if self.ends_with_newline { Ok(()) } else { write(&mut io::stdout().lock(), "\n") }
    }
}

fn write(to: &mut impl Write, text: &str) -> Result<()> {
    to.write_all(text.as_bytes())
        .and_then(|()| to.flush())
        .context("the answer could not be written")
}

/// Dimming is for terminals, unless the user does not want any.
pub(super) fn colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && io::stdout().is_terminal()
}
