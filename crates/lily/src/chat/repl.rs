//! The conversation: a prompt, history, slash commands, and Ctrl-C that stops the answer alone.

use super::{Answer, Session};
use crate::chat::render::Screen;
use crate::output;
use anyhow::{Context, Result};
use lily_engine::{EngineError, SubmitError};
use lily_text::{Message, Role};
use rustyline::error::ReadlineError;
use rustyline::{Config, DefaultEditor};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const HELP: &str = "\
/reset            forget the conversation
/think [on|off]   think before answering, or show whether that is on
/system [TEXT]    set or show the system message
/stats            tokens and speed of the last answer
/save FILE        write the conversation as JSON
/help             this list
/exit             leave (so does Ctrl-D)
A line that ends with \\ goes on; \"\"\" starts and ends a longer text. Ctrl-C stops an answer.
";

/// The answer was stopped by Ctrl-C.
#[derive(Debug, thiserror::Error)]
#[error("stopped")]
struct Interrupted;

pub(super) fn run(session: &mut Session) -> Result<()> {
    let interrupted = watch_interrupts()?;
    let config = Config::builder()
        .max_history_size(1000)
        .map(|builder| builder.auto_add_history(true).build())
        .context("the history cannot be limited")?;
    let mut editor = DefaultEditor::with_config(config)
        .context("the terminal cannot be used for a conversation; give a PROMPT instead")?;
    let history = history_file();
    if let Some(path) = &history {
        // There is none before the first conversation.
        let _ = editor.load_history(path);
    }
    eprintln!("Type a message, /help for commands, Ctrl-D to leave.");
    let mut last: Option<Answer> = None;
    loop {
        match read(&mut editor) {
            Ok(text) if text.trim().is_empty() => {}
            Ok(text) if text.trim() == "/exit" => break,
            Ok(text) if text.starts_with('/') => command(session, text.trim(), last.as_ref())?,
            Ok(text) => {
                interrupted.store(false, Ordering::Relaxed);
                if let Some(answer) = turn(session, text, &interrupted)? {
                    last = Some(answer);
                }
            }
            Err(ReadlineError::Interrupted) => eprintln!("(Ctrl-D or /exit leaves)"),
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error).context("the terminal could not be read"),
        }
    }
    if let Some(path) = &history {
        save_history(&mut editor, path);
    }
    Ok(())
}

/// One message, which may span lines.
fn read(editor: &mut DefaultEditor) -> Result<String, ReadlineError> {
    let mut line = editor.readline("> ")?;
    if line.trim() == "\"\"\"" {
        let mut text = String::new();
        loop {
            let line = editor.readline(". ")?;
            if line.trim() == "\"\"\"" {
                return Ok(text);
            }
            text += &line;
            text.push('\n');
        }
    }
    while line.ends_with('\\') {
        line.pop();
        line.push('\n');
        line += &editor.readline(". ")?;
    }
    Ok(line)
}

/// One question and its answer. A question that could not be answered is taken back, so that the
/// conversation goes on as if it had not been asked.
fn turn(session: &mut Session, text: String, interrupted: &AtomicBool) -> Result<Option<Answer>> {
    session.messages.push(Message::text(Role::User, text));
    let mut screen = Screen::one_shot();
    let mut shown = String::new();
    let result = session.answer(&mut |delta| {
        if interrupted.load(Ordering::Relaxed) {
            return Err(Interrupted.into());
        }
        if let lily_text::Delta::Content(text) = delta {
            shown += text;
        }
        screen.show(delta)
    });
    screen.finish()?;
    match result {
        Ok(answer) => {
            let mut message = Message::text(Role::Assistant, answer.content.clone());
            message.reasoning = Some(answer.reasoning.clone()).filter(|text| !text.is_empty());
            session.messages.push(message);
            Ok(Some(answer))
        }
        Err(error) if error.is::<Interrupted>() => {
            // What was said was said.
            session.messages.push(Message::text(Role::Assistant, shown));
            eprintln!("(stopped)");
            Ok(None)
        }
        Err(error) => {
            session.messages.pop();
            if matches!(error.downcast_ref(), Some(SubmitError::TooLong { .. })) {
                eprintln!("{error}. Nothing was lost: /reset starts over, /save keeps a copy.");
                return Ok(None);
            }
            if error.is::<SubmitError>() || error.is::<EngineError>() {
                eprintln!("error: {error:#}");
                return Ok(None);
            }
            Err(error)
        }
    }
}

fn command(session: &mut Session, text: &str, last: Option<&Answer>) -> Result<()> {
    let (name, argument) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let argument = argument.trim();
    match name {
        "/help" => output::print(HELP)?,
        "/reset" => {
            session.messages.retain(|message| message.role == Role::System);
            eprintln!("(a new conversation)");
        }
        "/think" => think(session, argument),
        "/system" => system(session, argument),
        "/stats" => stats(last),
        "/save" => save(session, argument),
        _ => eprintln!("there is no command {name}; /help lists them"),
    }
    Ok(())
}

fn think(session: &mut Session, argument: &str) {
    match argument {
        "on" => session.thinking = Some(true),
        "off" => session.thinking = Some(false),
        "" => {}
        other => {
            eprintln!("/think takes on or off, not {other}");
            return;
        }
    }
    let state = if session.thinking.unwrap_or(true) { "on" } else { "off" };
    eprintln!("(thinking is {state})");
}

fn system(session: &mut Session, argument: &str) {
    let first = session.messages.first().is_some_and(|message| message.role == Role::System);
    if argument.is_empty() {
        match session.messages.first().filter(|_| first) {
            Some(Message { content: lily_text::Content::Text(text), .. }) => eprintln!("{text}"),
            _ => eprintln!("(no system message; /system TEXT sets one)"),
        }
        return;
    }
    let message = Message::text(Role::System, argument);
    if first {
        session.messages[0] = message;
    } else {
        session.messages.insert(0, message);
    }
    eprintln!("(system message set)");
}

fn stats(last: Option<&Answer>) {
    let Some(Answer { summary, .. }) = last else {
        eprintln!("(no answer yet)");
        return;
    };
    let rate = |n: usize, seconds: f64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
    eprintln!(
        "prompt {} tokens in {:.2} s ({:.0} tok/s), answer {} tokens ({} thinking) in {:.2} s ({:.1} tok/s)",
        summary.prompt.prompt_tokens,
        summary.prompt.prefill_s,
        rate(summary.prompt.prompt_tokens, summary.prompt.prefill_s),
        summary.completion_tokens,
        summary.reasoning_tokens,
        summary.decode_s,
        rate(summary.completion_tokens, summary.decode_s),
    );
}

fn save(session: &Session, path: &str) {
    if path.is_empty() {
        eprintln!("/save needs a file name");
        return;
    }
    let messages: Vec<_> = session
        .messages
        .iter()
        .map(|message| {
            let content = match &message.content {
                lily_text::Content::Text(text) => text.as_str(),
                lily_text::Content::Parts(_) => "",
            };
            let mut value = json!({"role": message.role.as_str(), "content": content});
            if let Some(reasoning) = &message.reasoning {
                value["reasoning_content"] = json!(reasoning);
            }
            value
        })
        .collect();
    let text = json!({ "messages": messages }).to_string() + "\n";
    match std::fs::write(path, text) {
        Ok(()) => eprintln!("(saved {} messages to {path})", messages.len()),
        Err(error) => eprintln!("{path} could not be written: {error}; nothing was lost"),
    }
}

/// Sets a flag at Ctrl-C while an answer is written; at the prompt the line editor sees the key.
fn watch_interrupts() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let shared = Arc::clone(&flag);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the signal watcher could not be started")?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            while tokio::signal::ctrl_c().await.is_ok() {
                shared.store(true, Ordering::Relaxed);
            }
        });
    });
    Ok(flag)
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

/// History holds what was typed: for the user's eyes only.
fn save_history(editor: &mut DefaultEditor, path: &std::path::Path) {
    if let Err(error) = editor.save_history(path) {
        tracing::warn!("the history could not be saved to {}: {error}", path.display());
        return;
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if let Err(error) = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)) {
            tracing::warn!("the history may be readable by others: {error}");
        }
    }
}
