//! A record of answers for those who report one: what the model read, what it wrote, and what was
//! made of it.

use lily_engine::{GenerateRequest, Prompt, Summary, TextModel};
use lily_text::Delta;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Records that wait for a slow disk; more are left out, with a warning, rather than delaying
/// anyone.
const QUEUE_MAX: usize = 256;

/// A file that records are appended to, one JSON object a line.
#[derive(Clone, Debug)]
pub struct Trace {
    sender: SyncSender<Message>,
}

#[derive(Debug)]
enum Message {
    // Boxed: the other is a pointer, and a queue has room for many.
    Record(Box<Record>),
    /// Answered when all before it is written.
    Flush(SyncSender<()>),
}

/// A file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the trace to {}: {source}", path.display())]
pub struct TraceError {
    path: PathBuf,
    source: io::Error,
}

/// One answer.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Record {
    /// Seconds since 1970, at the end.
    time: f64,
    request: String,
    choice: usize,
    /// The prompt as the model reads it, tags included.
    prompt: String,
    /// The text as the model wrote it, tags included.
    raw: String,
    reasoning: String,
    content: String,
    tool_calls: Vec<Call>,
    /// `stop`, `length`, `tool_calls`; `null` if it broke off.
    finish_reason: Option<&'static str>,
    stop_string: Option<String>,
    token_ids: Vec<u32>,
}

#[derive(Debug, Default, Serialize)]
struct Call {
    name: String,
    /// JSON text as sent to the client.
    arguments: String,
}

impl Trace {
    /// Opens the file for appending and starts the thread that writes.
    ///
    /// # Errors
    /// [`TraceError`] when the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let failed = |source| TraceError { path: path.to_owned(), source };
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let shown = path.to_owned();
        std::thread::Builder::new()
            .name("lily-trace".to_owned())
            .spawn(move || {
                for message in receiver {
                    match message {
                        Message::Record(record) => {
                            if let Err(error) = write(&file, &record) {
                                let path = shown.display();
                                tracing::warn!(%error, %path, "a trace was not written");
                            }
                        }
                        // Nobody may wait any more.
                        Message::Flush(done) => drop(done.try_send(())),
                    }
                }
            })
            .map_err(failed)?;
        Ok(Self { sender })
    }

    pub(crate) fn record(&self, mut record: Record) {
        record.time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        if let Err(TrySendError::Full(_)) = self.sender.try_send(Message::Record(Box::new(record)))
        {
            tracing::warn!("a trace was left out: the disk is too slow");
        }
    }

    /// Waits until what was recorded is written, but no longer than `limit`; for the end of a
    /// program, which would take the records that wait with it.
    pub fn flush(&self, limit: Duration) {
        let (sender, receiver) = sync_channel(1);
        let end = Instant::now() + limit;
        let mut message = Message::Flush(sender);
        while let Err(TrySendError::Full(back)) = self.sender.try_send(message) {
            if Instant::now() > end {
                return;
            }
            message = back;
            std::thread::sleep(Duration::from_millis(5));
        }
        if receiver.recv_timeout(end.saturating_duration_since(Instant::now())).is_err() {
            tracing::warn!("the last traces may be missing: the disk is too slow");
        }
    }
}

/// In one call, so that lines of two servers do not mix.
fn write(mut file: &File, record: &Record) -> io::Result<()> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    file.write_all(&line)
}

impl Record {
    pub(crate) fn new(request: &str, choice: usize, prompt: String) -> Self {
        Self { request: request.to_owned(), choice, prompt, ..Self::default() }
    }

    pub(crate) fn add(&mut self, delta: &Delta) {
        match delta {
            Delta::Reasoning(text) => self.reasoning.push_str(text),
            Delta::Content(text) => self.content.push_str(text),
            Delta::ToolCallStart { name, .. } => {
                self.tool_calls.push(Call { name: name.clone(), arguments: String::new() });
            }
            Delta::ToolCallArguments { index, json } => {
                if let Some(call) = self.tool_calls.get_mut(*index as usize) {
                    call.arguments.push_str(json);
                }
            }
            Delta::ToolCallEnd { .. } => {}
        }
    }

    pub(crate) fn end(&mut self, summary: &Summary, reason: &'static str, text: &TextModel) {
        self.raw = raw(text, &summary.token_ids);
        self.finish_reason = Some(reason);
        self.stop_string.clone_from(&summary.stop_string);
        self.token_ids.clone_from(&summary.token_ids);
    }
}

/// What a request becomes for the model; empty if it cannot be rendered.
pub(crate) fn prompt(text: &TextModel, request: &GenerateRequest) -> String {
    match &request.prompt {
        Prompt::Text(prompt) => prompt.clone(),
        Prompt::Tokens(ids) => raw(text, ids),
        Prompt::Chat(chat) => {
            let Some(template) = &text.template else { return String::new() };
            let lily_engine::ChatPrompt { messages, tools, options, .. } = chat;
            let prompt = if chat.continue_final_message {
                let ids = template.encode_continued(&text.tokenizer, messages, tools, options);
                ids.map(|ids| raw(text, &ids))
            } else {
                template.render(messages, tools, options)
            };
            prompt.unwrap_or_default()
        }
    }
}

/// Text with the special tokens that [`lily_text::Tokenizer::decode`] leaves out.
pub(crate) fn raw(text: &TextModel, ids: &[u32]) -> String {
    let bytes: Vec<u8> =
        ids.iter().flat_map(|&id| text.tokenizer.token_bytes(id)).copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_is_written_before_the_end() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("trace.jsonl");
        let trace = Trace::open(&path).expect("opened");
        for choice in 0..100 {
            trace.record(Record::new("one", choice, "a long prompt ".repeat(10_000)));
        }
        trace.flush(Duration::from_secs(30));
        let text = std::fs::read_to_string(&path).expect("written");
        assert_eq!(text.lines().count(), 100);
    }
}
