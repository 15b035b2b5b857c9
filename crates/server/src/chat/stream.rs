//! A chat answer in pieces.

use super::answer::{Answer, timings, total};
use super::request::Form;
use super::wire::{ChatCompletionChunk, ChunkChoice, ChunkUsage, Timings};
use crate::App;
use crate::run::Progress;
use crate::sse::{self, Writer};
use crate::tokens::Vocabulary;
use axum::response::sse::Event;
use std::collections::VecDeque;
use std::sync::Arc;

/// What all chunks of a stream share.
pub(super) struct Chunks {
    app: Arc<App>,
    id: String,
    created: u64,
    include_usage: bool,
    answers: Vec<Answer>,
}

impl Chunks {
    pub(super) fn new(app: Arc<App>, created: u64, form: Form) -> Self {
        let answers = (0..form.n_choices).map(|i| Answer::new(i, form.logprobs)).collect();
        let id = app.ids.next("chatcmpl-");
        Self { app, id, created, include_usage: form.include_usage, answers }
    }

    fn chunk(
        &self,
        choices: Vec<ChunkChoice>,
        usage: ChunkUsage,
        timings: Option<Timings>,
    ) -> Event {
        sse::data(&ChatCompletionChunk {
            id: &self.id,
            object: "chat.completion.chunk",
            created: self.created,
            model: &self.app.config.model_id,
            system_fingerprint: &self.app.config.system_fingerprint,
            choices,
            usage: self.include_usage.then_some(usage),
            timings,
        })
    }

    fn piece(&self, choice: ChunkChoice) -> Event {
        self.chunk(vec![choice], ChunkUsage::Pending, None)
    }
}

impl Writer for Chunks {
    fn write(&mut self, progress: Progress, events: &mut VecDeque<Event>) {
        match progress {
            Progress::PromptLogprobs { .. } => {}
            Progress::Opened { choice, .. } => {
                events.push_back(self.piece(self.answers[choice].open()));
            }
            Progress::Step { choice, deltas, logprobs } => {
                let vocabulary = Vocabulary(self.app.engine.text());
                let ids = &self.app.ids;
                for piece in self.answers[choice].step(deltas, &logprobs, vocabulary, ids) {
                    events.push_back(self.piece(piece));
                }
            }
            Progress::Ended { choice, summary } => {
                let last = self.answers[choice].close(summary.finish_reason);
                let timings = timings(std::slice::from_ref(&summary));
                events.push_back(self.chunk(vec![last], ChunkUsage::Pending, Some(timings)));
            }
            Progress::Complete(summaries) => {
                if self.include_usage {
                    let usage = ChunkUsage::Total(total(&summaries));
                    events.push_back(self.chunk(Vec::new(), usage, None));
                }
                events.push_back(Event::default().data("[DONE]"));
            }
            // The head of the response is out. No `[DONE]` follows, so that an answer that broke
            // off is not taken for a complete one.
            Progress::Failed(error) => events.push_back(Event::default().data(error.body())),
        }
    }

    fn keep_alive(&mut self) -> Event {
        self.piece(self.answers[0].silence())
    }
}
