//! The conversation: a prompt, history, slash commands, and Ctrl-C that stops the answer alone.

use super::transcript;
use super::{Answer, Session, stats};
use crate::chat::render::Screen;
use crate::output::{self, note};
use anyhow::{Context, Result};
use lily_engine::{EngineError, SubmitError};
use lily_text::{Content, Message, Role};
use rustyline::error::ReadlineError;
use rustyline::{Config, DefaultEditor};
use std::path::{Path, PathBuf};

const HELP: &str = "\
/reset            forget the conversation
/think [on|off]   think before answering, or show whether that is on
/system [TEXT]    set or show the system message
/stats            tokens and speed of the last answer
/save FILE        write the conversation as JSON
/load FILE        go on with a conversation that was saved
/help             this list
/exit             leave (so does Ctrl-D)
A line that ends with \\ goes on; \"\"\" starts and ends a longer text. A space before / sends the
line. Ctrl-C stops an answer.
";

/// Where messages come from; the program's tests have no terminal.
trait Lines {
    fn line(&mut self, prompt: &str) -> Result<String, ReadlineError>;
    /// A complete message, for the history.
    fn remember(&mut self, message: &str);
}

pub(super) fn run(session: &mut Session) -> Result<()> {
    let mut terminal = Terminal::new()?;
    note!("Type a message, /help for commands, Ctrl-D to leave.");
    converse(session, &mut terminal, &Screen::for_streams)
}

fn converse(
    session: &mut Session,
    lines: &mut dyn Lines,
    new_screen: &dyn Fn() -> Screen,
) -> Result<()> {
    let mut last: Option<Answer> = None;
    let mut is_leaving = false;
    loop {
        let text = match read(lines) {
            Ok(Some(text)) => text,
            Ok(None) => {
                note!("(message dropped)");
                continue;
            }
            Err(ReadlineError::Interrupted) if is_leaving => return Ok(()),
            Err(ReadlineError::Interrupted) => {
                note!("(Ctrl-C again or Ctrl-D leaves)");
                is_leaving = true;
                continue;
            }
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(error).context("the terminal could not be read"),
        };
        is_leaving = false;
        if text.trim().is_empty() {
            continue;
        }
        lines.remember(&text);
        match text.trim_end() {
            "/exit" | "/quit" => return Ok(()),
            command if command.starts_with('/') => obey(session, command, last.as_ref())?,
            _ => {
                if let Some(answer) = turn(session, text, new_screen())? {
                    last = Some(answer);
                }
            }
        }
    }
}

/// One message, which may span lines; `None` if it was broken off after its first line.
fn read(lines: &mut dyn Lines) -> Result<Option<String>, ReadlineError> {
    let mut text = lines.line("> ")?;
    let mut more = |text: &mut String| match lines.line(". ") {
        Ok(line) => {
            text.push('\n');
            text.push_str(&line);
            Ok(true)
        }
        Err(ReadlineError::Interrupted | ReadlineError::Eof) => Ok(false),
        Err(error) => Err(error),
    };
    if let Some(rest) = text.trim_start().strip_prefix(QUOTES) {
        let mut block = rest.to_owned();
        while !block.trim_end().ends_with(QUOTES) {
            if !more(&mut block)? {
                return Ok(None);
            }
        }
        let block = block.trim_end();
        let block = &block[..block.len() - QUOTES.len()];
        return Ok(Some(block.trim_matches('\n').to_owned()));
    }
    while text.ends_with('\\') {
        text.pop();
        if !more(&mut text)? {
            return Ok(None);
        }
    }
    Ok(Some(text))
}

const QUOTES: &str = "\"\"\"";

/// One question and its answer. A question that could not be answered is taken back, so that the
/// conversation goes on as if it had not been asked.
fn turn(session: &mut Session, text: String, mut screen: Screen) -> Result<Option<Answer>> {
    session.messages.push(Message::text(Role::User, text));
    let result = session.answer(&mut |delta| screen.show(delta));
    screen.finish()?;
    let answer = match result {
        Ok(answer) => answer,
        Err(error) => {
            session.messages.pop();
            refused(session, error)?;
            return Ok(None);
        }
    };
    match &answer.summary {
        Some(summary) => {
            if let Some(text) = session.cut(summary) {
                note!("{text}");
            }
        }
        None if answer.content.is_empty() && answer.calls.is_empty() => {
            session.messages.pop();
            note!("(stopped; the question is taken back, the up arrow brings it here again)");
            return Ok(None);
        }
        // What was said was said.
        None => note!("(stopped)"),
    }
    session.messages.push(said(&answer));
    Ok(Some(answer).filter(|answer| answer.summary.is_some()))
}

/// The answer as a turn of the conversation.
fn said(answer: &Answer) -> Message {
    let mut message = Message::text(Role::Assistant, answer.content.clone());
    message.reasoning = Some(answer.reasoning.clone()).filter(|text| !text.is_empty());
    // A call that was interrupted has no complete arguments.
    let calls = answer.calls.iter().map(|(name, json)| transcript::tool_call(name, json));
    message.tool_calls = calls.flatten().collect();
    message
}

/// Says why there is no answer, unless that ends the conversation.
fn refused(session: &Session, error: anyhow::Error) -> Result<()> {
    if !session.engine.is_alive() {
        return Err(error);
    }
    if matches!(error.downcast_ref(), Some(SubmitError::TooLong { .. })) {
        note!(
            "{error}. The conversation is as it was before this message: /save FILE keeps a copy, \
             /reset starts a new one."
        );
        return Ok(());
    }
    if error.is::<SubmitError>() || error.is::<EngineError>() {
        note!("error: {error:#}");
        return Ok(());
    }
    Err(error)
}

fn obey(session: &mut Session, text: &str, last: Option<&Answer>) -> Result<()> {
    let (name, argument) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let argument = argument.trim();
    match name {
        "/help" => output::print(HELP)?,
        "/reset" => {
            session.messages.retain(|message| message.role == Role::System);
            note!("(a new conversation)");
        }
        "/think" => think(session, argument),
        "/system" => system(session, argument),
        "/stats" => show_stats(session, last),
        "/save" | "/load" if argument.is_empty() => note!("{name} needs a file name"),
        "/save" => save(session, argument),
        "/load" => load(session, argument),
        _ => note!("there is no command {name}; /help lists them"),
    }
    Ok(())
}

fn think(session: &mut Session, argument: &str) {
    match argument {
        "on" => session.thinking = Some(true),
        "off" => session.thinking = Some(false),
        "" => {}
        other => {
            note!("/think takes on or off, not {other}");
            return;
        }
    }
    note!("(thinking is {})", if session.thinking.unwrap_or(true) { "on" } else { "off" });
}

fn system(session: &mut Session, argument: &str) {
    let first = session.messages.first_mut().filter(|message| message.role == Role::System);
    if argument.is_empty() {
        match first.map(|message| &message.content) {
            Some(Content::Text(text)) => note!("{text}"),
            _ => note!("(no system message; /system TEXT sets one)"),
        }
        return;
    }
    let message = Message::text(Role::System, argument);
    match first {
        Some(first) => *first = message,
        None => session.messages.insert(0, message),
    }
    note!("(system message set)");
}

fn show_stats(session: &Session, last: Option<&Answer>) {
    let Some(summary) = last.and_then(|answer| answer.summary.as_ref()) else {
        note!("(no answer yet)");
        return;
    };
    let used = summary.prompt.prompt_tokens + summary.completion_tokens;
    note!("{}; context {used} of {} tokens", stats(summary), session.engine.context_tokens());
}

fn save(session: &Session, path: &str) {
    let text = transcript::to_json(&session.messages);
    let saved = output::replace_file(Path::new(path), |out| Ok(out.write_all(text.as_bytes())?));
    match saved {
        Ok(()) => note!("(saved {} messages to {path})", session.messages.len()),
        Err(error) => note!("{error:#}; nothing was lost"),
    }
}

fn load(session: &mut Session, path: &str) {
    let loaded = std::fs::read_to_string(path)
        .map_err(anyhow::Error::from)
        .and_then(|text| transcript::from_json(&text));
    match loaded {
        Ok(messages) => {
            note!("(loaded {} messages from {path})", messages.len());
            session.messages = messages;
        }
        Err(error) => note!("{path} could not be loaded: {error:#}"),
    }
}

/// The user's terminal.
struct Terminal {
    editor: DefaultEditor,
    history: Option<PathBuf>,
}

impl Terminal {
    fn new() -> Result<Self> {
        let config = Config::builder()
            .max_history_size(1000)
            .context("the history cannot be limited")?
            .build();
        let mut editor = DefaultEditor::with_config(config)
            .context("the terminal cannot be used for a conversation; give a PROMPT instead")?;
        let history = history_file();
        if let Some(path) = &history {
            // There is none before the first conversation.
            let _ = editor.load_history(path);
        }
        Ok(Self { editor, history })
    }
}

impl Lines for Terminal {
    fn line(&mut self, prompt: &str) -> Result<String, ReadlineError> {
        self.editor.readline(prompt)
    }

    /// Kept at once, whatever ends this program. The line editor makes the file readable for the
    /// user alone.
    fn remember(&mut self, message: &str) {
        let added = self.editor.add_history_entry(message);
        let Some(path) = self.history.take_if(|_| added.is_ok()) else { return };
        match self.editor.append_history(&path) {
            Ok(()) => self.history = Some(path),
            Err(error) => {
                tracing::warn!("the history is not kept in {}: {error}", path.display());
            }
        }
    }
}

/// In the user's state directory; `None` without a home.
fn history_file() -> Option<PathBuf> {
    let state =
        std::env::var_os("XDG_STATE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let directory =
        state.or_else(|| Some(std::env::home_dir()?.join(".local/state")))?.join("lily");
    std::fs::create_dir_all(&directory).ok()?;
    Some(directory.join("chat_history"))
}

#[cfg(test)]
#[path = "repl_tests.rs"]
mod tests;
