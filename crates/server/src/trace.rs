//! A record of answers for those who report one: what the model read, what it wrote, and what was
//! made of it.

use lily_engine::{GenerateRequest, Prompt, Summary, TextModel};
use lily_text::Delta;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{SystemTime, UNIX_EPOCH};

/// Records that wait for a slow disk; more are left out, with a warning, rather than delaying
/// anyone.
const QUEUE_MAX: usize = 256;

/// A file that records are appended to, one JSON object a line.
#[derive(Clone, Debug)]
pub struct Trace {
    sender: SyncSender<Record>,
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
                for record in receiver {
                    if let Err(error) = write(&file, &record) {
                        tracing::warn!(%error, path = %shown.display(), "a trace was not written");
                    }
                }
            })
            .map_err(failed)?;
        Ok(Self { sender })
    }

    pub(crate) fn record(&self, mut record: Record) {
        record.time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        if let Err(TrySendError::Full(_)) = self.sender.try_send(record) {
            tracing::warn!("a trace was left out: the disk is too slow");
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
