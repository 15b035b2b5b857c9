//! The engine's events become the lines that a client reads.
//!
//! A complete answer is the sum of the pieces of a stream, so both forms agree by construction.

use super::clock::rfc3339;
use super::wire::{self, Call, CallFunction, Figures, Logprob, Message};
use crate::App;
use crate::dialect::Dialect;
use crate::ndjson::{self, Writer};
use crate::routes::seconds_since_1970;
use crate::run::Progress;
use crate::tokens::{self, Vocabulary};
use lily_engine::{FinishReason, Summary, TokenLogprob};
use lily_text::Delta;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Which of the two forms an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Chat,
    Generate,
}

/// What a line adds to an answer.
#[derive(Debug, Default)]
pub(super) struct Piece {
    content: String,
    thinking: String,
    calls: Vec<Call>,
    logprobs: Vec<Logprob>,
}

impl Piece {
    fn is_empty(&self) -> bool {
        self.content.is_empty() && self.thinking.is_empty() && self.calls.is_empty()
    }

    /// Adds what follows.
    pub(super) fn absorb(&mut self, more: Self) {
        self.content.push_str(&more.content);
        self.thinking.push_str(&more.thinking);
        self.calls.extend(more.calls);
        self.logprobs.extend(more.logprobs);
    }
}

/// An answer in the making.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// The call that is being read, with the text of its arguments.
    open: Option<(Call, String)>,
    /// Log-probabilities of tokens whose text is still held back.
    pending: Vec<Logprob>,
}

impl Answer {
    /// What one step adds; `None` if nothing yet. Calls are complete, as Ollama's clients expect.
    pub(super) fn step(
        &mut self,
        app: &App,
        deltas: Vec<Delta>,
        logprobs: &[TokenLogprob],
    ) -> Option<Piece> {
        let vocabulary = Vocabulary(app.engine.text());
        let kept = logprobs.iter().filter(|token| !vocabulary.is_end(token.id));
        self.pending.extend(kept.map(|token| logprob(token, &vocabulary)));
        let mut piece = Piece::default();
        for delta in deltas {
            match delta {
                Delta::Reasoning(text) => piece.thinking.push_str(&text),
                Delta::Content(text) => piece.content.push_str(&text),
                Delta::ToolCallStart { index, name } => {
                    piece.calls.extend(self.close());
                    let function = CallFunction { index, name, arguments: serde_json::Map::new() };
                    let call = Call { id: app.ids.next("call_"), function };
                    self.open = Some((call, String::new()));
                }
                Delta::ToolCallArguments { json, .. } => {
                    if let Some((_, arguments)) = &mut self.open {
                        arguments.push_str(&json);
                    }
                }
                Delta::ToolCallEnd { .. } => piece.calls.extend(self.close()),
            }
        }
        if piece.is_empty() {
            return None;
        }
        piece.logprobs = std::mem::take(&mut self.pending);
        Some(piece)
    }

    /// What is left at the end.
    pub(super) fn end(&mut self) -> Piece {
        Piece {
            calls: self.close().into_iter().collect(),
            logprobs: std::mem::take(&mut self.pending),
            ..Piece::default()
        }
    }

    fn close(&mut self) -> Option<Call> {
        let (mut call, arguments) = self.open.take()?;
        // The parser writes valid objects; none of it is a call without arguments.
        call.function.arguments = serde_json::from_str(&arguments).unwrap_or_default();
        Some(call)
    }
}

impl Form {
    /// A line of a stream.
    pub(super) fn line(self, app: &App, piece: Piece) -> wire::Answer<'_> {
        let thinking = Some(piece.thinking).filter(|text| !text.is_empty());
        let (message, response, thinking) = match self {
            Self::Chat => {
                let (content, tool_calls) = (piece.content, piece.calls);
                let message = Message { role: "assistant", content, thinking, tool_calls };
                (Some(message), None, None)
            }
            Self::Generate => (None, Some(piece.content), thinking),
        };
        wire::Answer {
            model: &app.config.model_id,
            created_at: rfc3339(seconds_since_1970()),
            message,
            response,
            thinking,
            logprobs: piece.logprobs,
            done: false,
            done_reason: None,
            figures: None,
        }
    }

    /// The last line of a stream, or a complete answer.
    pub(super) fn last_line<'a>(
        self,
        app: &'a App,
        piece: Piece,
        summary: &Summary,
    ) -> wire::Answer<'a> {
        let reason = match summary.finish_reason {
            FinishReason::Length => "length",
            FinishReason::Stop | FinishReason::ToolCalls => "stop",
        };
        let line = self.line(app, piece);
        wire::Answer {
            done: true,
            done_reason: Some(reason),
            figures: Some(figures(summary)),
            ..line
        }
    }

    /// The answer to a request without a prompt.
    pub(super) fn empty<'a>(self, app: &'a App, reason: &'static str) -> wire::Answer<'a> {
        let line = self.line(app, Piece::default());
        wire::Answer { done: true, done_reason: Some(reason), ..line }
    }
}

/// The lines of an answer.
pub(super) struct Lines {
    app: Arc<App>,
    form: Form,
    answer: Answer,
}

impl Lines {
    pub(super) fn new(app: Arc<App>, form: Form) -> Self {
        Self { app, form, answer: Answer::default() }
    }
}

impl Writer for Lines {
    fn write(&mut self, progress: Progress, lines: &mut VecDeque<String>) {
        match progress {
            Progress::PromptLogprobs { .. } | Progress::Opened { .. } | Progress::Complete(_) => {}
            Progress::Step { deltas, logprobs, .. } => {
                if let Some(piece) = self.answer.step(&self.app, deltas, &logprobs) {
                    lines.push_back(ndjson::line(&self.form.line(&self.app, piece)));
                }
            }
            Progress::Ended { summary, .. } => {
                let line = self.form.last_line(&self.app, self.answer.end(), &summary);
                lines.push_back(ndjson::line(&line));
            }
            Progress::Failed(error) => {
                lines.push_back(ndjson::line(&Dialect::Ollama.body(&error)));
            }
        }
    }

    fn keep_alive(&mut self) -> String {
        ndjson::line(&self.form.line(&self.app, Piece::default()))
    }
}

fn figures(summary: &Summary) -> Figures {
    let prompt = summary.prompt;
    Figures {
        total_duration: ns(prompt.queued_s + prompt.prefill_s + summary.decode_s),
        load_duration: ns(prompt.queued_s),
        prompt_eval_count: prompt.prompt_tokens,
        prompt_eval_duration: ns(prompt.prefill_s),
        eval_count: summary.completion_tokens,
        eval_duration: ns(summary.decode_s),
    }
}

fn ns(seconds: f64) -> u64 {
    let duration = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn logprob(token: &TokenLogprob, vocabulary: &Vocabulary<'_>) -> Logprob {
    let entry = |id, logprob| wire::TokenLogprob {
        token: vocabulary.text(id),
        logprob: tokens::finite(logprob),
        bytes: vocabulary.bytes(id).to_vec(),
    };
    let top_logprobs = token.top.iter().map(|&(id, logprob)| entry(id, logprob)).collect();
    Logprob { token: entry(token.id, token.logprob), top_logprobs }
}
