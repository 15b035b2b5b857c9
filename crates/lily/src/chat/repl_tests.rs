//! Conversations with the demo model, typed by a script.

use super::*;
use crate::args::{Cli, Verb};
use crate::chat::render::Sink;
use crate::chat::start;
use clap::Parser;
use std::collections::VecDeque;
use std::io;

/// What is typed: a line, or `None` for Ctrl-C. Ctrl-D follows the last one.
struct Script {
    lines: VecDeque<Option<&'static str>>,
    remembered: Vec<String>,
}

impl Script {
    fn new(lines: &[Option<&'static str>]) -> Self {
        Self { lines: lines.iter().copied().collect(), remembered: Vec::new() }
    }
}

impl Lines for Script {
    fn line(&mut self, _: &str) -> Result<String, ReadlineError> {
        match self.lines.pop_front() {
            Some(Some(line)) => Ok(line.to_owned()),
            Some(None) => Err(ReadlineError::Interrupted),
            None => Err(ReadlineError::Eof),
        }
    }

    fn remember(&mut self, message: &str) {
        self.remembered.push(message.to_owned());
    }
}

fn session(flags: &[&str]) -> Session {
    let cli = Cli::parse_from([&["lily", "chat", "--temp", "0", "--threads", "1"], flags].concat());
    let Verb::Chat(args) = cli.verb else { panic!("chat") };
    start(&args).expect("the demo starts")
}

fn typed(session: &mut Session, lines: &[&'static str]) -> Vec<String> {
    let lines: Vec<_> = lines.iter().copied().map(Some).collect();
    let mut script = Script::new(&lines);
    converse(session, &mut script, &nowhere).expect("the conversation goes on");
    script.remembered
}

fn nowhere() -> Screen {
    Screen::new(Sink { out: Box::new(io::sink()), is_terminal: false, colours: false }, None)
}

fn text(message: &Message) -> &str {
    match &message.content {
        Content::Text(text) => text,
        Content::Parts(_) => panic!("chat makes no parts"),
    }
}

fn messages(lines: &[Option<&'static str>]) -> Vec<Option<String>> {
    let mut script = Script::new(lines);
    let mut messages = Vec::new();
    while let Ok(message) = read(&mut script) {
        messages.push(message);
    }
    messages
}

#[test]
fn messages_may_span_lines() {
    let check = |lines: &[&'static str], expected: &[&str]| {
        let lines: Vec<_> = lines.iter().copied().map(Some).collect();
        let expected: Vec<_> = expected.iter().map(|&text| Some(text.to_owned())).collect();
        assert_eq!(messages(&lines), expected, "{lines:?}");
    };
    check(&["a", "b"], &["a", "b"]);
    check(&["a\\", "b\\", "c", "d"], &["a\nb\nc", "d"]);
    check(&["\"\"\"", "a", "", "b \\", "\"\"\"", "c"], &["a\n\nb \\", "c"]);
    check(&["\"\"\"a", "b\"\"\"", "c"], &["a\nb", "c"]);
    check(&["\"\"\"a\"\"\""], &["a"]);
}

#[test]
fn a_message_can_be_broken_off() {
    assert_eq!(messages(&[Some("\"\"\""), Some("a"), None, Some("b")]), [None, Some("b".into())]);
    assert_eq!(messages(&[Some("a\\")]), [None]);
}

#[test]
fn the_second_ctrl_c_leaves() {
    let mut session = session(&[]);
    let mut script = Script::new(&[None, Some(""), None, None, Some("never read")]);
    converse(&mut session, &mut script, &nowhere).expect("leaves");
    assert_eq!(script.lines.len(), 1);
}

#[test]
fn the_conversation_grows_and_can_be_reset() {
    let mut session = session(&["--system", "Be brief."]);
    let remembered = typed(&mut session, &["Hello!", "What are you?", "/stats"]);
    assert_eq!(remembered, ["Hello!", "What are you?", "/stats"]);
    let roles: Vec<_> = session.messages.iter().map(|message| message.role.as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"]);
    assert!(text(&session.messages[4]).contains("demo"), "{}", text(&session.messages[4]));
    assert!(session.messages[4].reasoning.is_some());

    typed(&mut session, &["/reset", "/system Be long.", "/think off", "/nonsense", "/exit"]);
    assert_eq!(session.messages.len(), 1);
    assert_eq!(text(&session.messages[0]), "Be long.");
    assert_eq!(session.thinking, Some(false));

    typed(&mut session, &["Hello!"]);
    assert_eq!(session.messages[2].reasoning, None);
}

#[test]
fn a_conversation_is_saved_and_loaded() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("chat.json");
    let path = path.to_str().expect("UTF-8");
    let mut first = session(&[]);
    typed(&mut first, &["Hello!"]);
    save(&first, path);
    let mut second = session(&[]);
    load(&mut second, path);
    assert_eq!(second.messages, first.messages);
    load(&mut second, "/no/such/file");
    assert_eq!(second.messages, first.messages, "nothing is lost");
}

#[test]
fn a_message_beyond_the_context_is_taken_back() {
    let mut session = session(&["--ctx", "64"]);
    let long: &'static str = "word ".repeat(200).leak();
    typed(&mut session, &[long]);
    assert!(session.messages.is_empty());
    typed(&mut session, &["Hello!"]);
    assert_eq!(session.messages.len(), 2, "shorter ones are still answered");
}
