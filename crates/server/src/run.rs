//! One request from its submission to its end: its choices side by side, in the order in which
//! the engine brings them on.

use crate::App;
use crate::convert::{Answer, Chat, Vocabulary, timings, total};
use crate::error::ApiError;
use crate::metrics::Record;
use crate::openai::{ChunkChoice, Timings, Usage};
use futures_util::stream::{BoxStream, SelectAll, StreamExt};
use lily_engine::{Event, Events, GenerateRequest, Summary, TextModel};
use lily_text::TokenId;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// What a request has come to.
#[derive(Debug)]
pub(crate) enum Progress {
    /// A piece of a choice.
    Chunk(ChunkChoice),
    /// The last piece of a choice.
    Last(ChunkChoice, Timings),
    /// All choices are complete.
    Complete(Usage, Timings),
    /// The request broke off; nothing follows.
    Failed(ApiError),
}

/// A request in progress. Dropping it cancels its choices.
pub(crate) struct Run {
    app: Arc<App>,
    events: SelectAll<BoxStream<'static, (usize, Option<Event>)>>,
    answers: Vec<Answer>,
    summaries: Vec<Option<Summary>>,
    ready: VecDeque<Progress>,
    ended: bool,
    record: Record,
}

impl Run {
    /// Queues the choices of a request.
    ///
    /// # Errors
    /// As [`lily_engine::Engine::submit`]; then no choice of it stays queued.
    pub(crate) fn submit(
        app: Arc<App>,
        chat: &Chat,
        request_id: String,
        arrived: Instant,
    ) -> Result<Self, ApiError> {
        let mut events = SelectAll::new();
        let mut answers = Vec::with_capacity(chat.n_choices);
        for (i, request) in chat.requests().enumerate() {
            let request = GenerateRequest { deadline: app.config.deadline, ..request };
            answers.push(Answer::new(i, chat.single_call, request.logprobs.is_some()));
            events.push(choice(i, app.engine.submit(request)?));
        }
        let metrics = Arc::clone(&app.metrics);
        let record = Record::new(metrics, request_id, arrived, chat.n_choices, chat.stream);
        let summaries = vec![None; chat.n_choices];
        Ok(Self { app, events, answers, summaries, ready: VecDeque::new(), ended: false, record })
    }

    /// Waits for the next piece; `None` after `Complete` or `Failed`.
    pub(crate) async fn next(&mut self) -> Option<Progress> {
        loop {
            if let Some(progress) = self.ready.pop_front() {
                return Some(progress);
            }
            if self.ended {
                return None;
            }
            match self.events.next().await {
                Some((i, Some(event))) => self.advance(i, event),
                Some((i, None)) if self.summaries[i].is_none() => {
                    self.fail(i, ApiError::unavailable("the engine ended before the answer did"));
                }
                Some(_) => {}
                None => self.ended = true,
            }
        }
    }

    fn advance(&mut self, i: usize, event: Event) {
        match event {
            Event::PromptLogprobs(_) => {}
            Event::Started(_) => self.ready.push_back(Progress::Chunk(self.answers[i].open())),
            Event::Step { deltas, logprobs } => {
                self.record.step(i);
                let vocabulary = Checkpoint(self.app.engine.text());
                let chunks = self.answers[i].step(deltas, &logprobs, &vocabulary, &self.app.ids);
                self.ready.extend(chunks.into_iter().map(Progress::Chunk));
            }
            Event::Finished(summary) => {
                self.record.finished(i, &summary);
                let chunk = self.answers[i].close(summary.finish_reason);
                let timing = timings(std::slice::from_ref(&summary));
                self.ready.push_back(Progress::Last(chunk, timing));
                self.summaries[i] = Some(summary);
                if self.summaries.iter().all(Option::is_some) {
                    let summaries: Vec<_> = self.summaries.iter().flatten().cloned().collect();
                    self.ready
                        .push_back(Progress::Complete(total(&summaries), timings(&summaries)));
                    self.ended = true;
                }
            }
            Event::Failed(error) => self.fail(i, error.into()),
        }
    }

    fn fail(&mut self, i: usize, error: ApiError) {
        self.record.failed(i);
        self.events.clear();
        self.ready.push_back(Progress::Failed(error));
        self.ended = true;
    }
}

/// The events of a choice, and `None` when its channel closes.
fn choice(i: usize, events: Events) -> BoxStream<'static, (usize, Option<Event>)> {
    futures_util::stream::unfold(Some(events), move |events| async move {
        let mut events = events?;
        match events.next().await {
            Some(event) => Some(((i, Some(event)), Some(events))),
            None => Some(((i, None), None)),
        }
    })
    .boxed()
}

/// The vocabulary of the served checkpoint.
struct Checkpoint<'a>(&'a TextModel);

impl Vocabulary for Checkpoint<'_> {
    fn bytes(&self, id: TokenId) -> &[u8] {
        self.0.tokenizer.token_bytes(id)
    }

    fn is_end(&self, id: TokenId) -> bool {
        self.0.eos_token_ids.contains(&id)
    }
}
