//! `OpenAI`'s completions: text continued as it is, without roles and without parsing.

mod answer;
mod request;
pub(crate) mod wire;

pub(crate) use request::token_ids;

use crate::App;
use crate::ask;
use crate::chat::wire::{ChunkUsage, Timings};
use crate::chat::{finish_reason, timings, usage};
use crate::error::ApiError;
use crate::routes::seconds_since_1970;
use crate::run::{Progress, Run};
use crate::sse::{self, Writer};
use crate::tokens::{Counts, Vocabulary};
use answer::Text;
use axum::Json;
use axum::extract::{Request, State};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use request::Form;
use std::collections::VecDeque;
use std::sync::Arc;
use wire::{Completion, CompletionRequest, TextChoice};

/// `POST /v1/completions`.
pub(crate) async fn handle(State(app): State<Arc<App>>, request: Request) -> Response {
    let asked = ask::start(Arc::clone(&app), request, |app, wire: CompletionRequest| {
        tracing::debug!(model = wire.model, "asked for");
        request::ask(app, wire)
    });
    match asked.await {
        Ok((run, form)) if form.stream => sse::respond(run, Chunks::new(app, form), Vec::new()),
        Ok((run, form)) => complete(&app, run, &form).await,
        Err(error) => error.into_response(),
    }
}

async fn complete(app: &App, mut run: Run, form: &Form) -> Response {
    let vocabulary = Vocabulary(app.engine.text());
    let mut texts = Text::all(form);
    let mut choices: Vec<_> = texts.iter().map(Text::silence).collect();
    while let Some(progress) = run.next().await {
        match progress {
            Progress::PromptLogprobs { choice, logprobs } => {
                texts[choice].prompt(&logprobs, vocabulary);
            }
            Progress::Opened { choice, .. } => {
                if let Some(piece) = texts[choice].open(vocabulary) {
                    choices[choice].absorb(piece);
                }
            }
            Progress::Step { choice, deltas, logprobs } => {
                if let Some(piece) = texts[choice].step(deltas, &logprobs, vocabulary) {
                    choices[choice].absorb(piece);
                }
            }
            Progress::Ended { choice, summary } => {
                choices[choice].absorb(texts[choice].close(finish_reason(summary.finish_reason)));
            }
            Progress::Complete(summaries) => {
                return Json(Completion {
                    id: &app.ids.next("cmpl-"),
                    object: "text_completion",
                    created: seconds_since_1970(),
                    model: &app.config.model_id,
                    system_fingerprint: &app.config.system_fingerprint,
                    choices,
                    usage: Some(ChunkUsage::Total(usage(Counts::of(&summaries, form.n_choices)))),
                    timings: Some(timings(&summaries)),
                })
                .into_response();
            }
            Progress::Failed(error) => return error.into_response(),
        }
    }
    ApiError::internal("an answer ended without an end").into_response()
}

/// A completion in pieces.
struct Chunks {
    app: Arc<App>,
    id: String,
    created: u64,
    form: Form,
    texts: Vec<Text>,
}

impl Chunks {
    fn new(app: Arc<App>, form: Form) -> Self {
        let id = app.ids.next("cmpl-");
        Self { id, created: seconds_since_1970(), texts: Text::all(&form), app, form }
    }

    fn event(
        &self,
        choices: Vec<TextChoice>,
        usage: ChunkUsage,
        timings: Option<Timings>,
    ) -> Event {
        sse::data(&Completion {
            id: &self.id,
            object: "text_completion",
            created: self.created,
            model: &self.app.config.model_id,
            system_fingerprint: &self.app.config.system_fingerprint,
            choices,
            usage: self.form.include_usage.then_some(usage),
            timings,
        })
    }

    fn piece(&self, choice: TextChoice) -> Event {
        self.event(vec![choice], ChunkUsage::Pending, None)
    }
}

impl Writer for Chunks {
    fn write(&mut self, progress: Progress, events: &mut VecDeque<Event>) {
        let app = Arc::clone(&self.app);
        let vocabulary = Vocabulary(app.engine.text());
        match progress {
            Progress::PromptLogprobs { choice, logprobs } => {
                self.texts[choice].prompt(&logprobs, vocabulary);
            }
            Progress::Opened { choice, .. } => {
                let piece = self.texts[choice].open(vocabulary);
                events.extend(piece.map(|piece| self.piece(piece)));
            }
            Progress::Step { choice, deltas, logprobs } => {
                let piece = self.texts[choice].step(deltas, &logprobs, vocabulary);
                events.extend(piece.map(|piece| self.piece(piece)));
            }
            Progress::Ended { choice, summary } => {
                let last = self.texts[choice].close(finish_reason(summary.finish_reason));
                let timings = timings(std::slice::from_ref(&summary));
                events.push_back(self.event(vec![last], ChunkUsage::Pending, Some(timings)));
            }
            Progress::Complete(summaries) => {
                if self.form.include_usage {
                    let counts = Counts::of(&summaries, self.form.n_choices);
                    let usage = ChunkUsage::Total(usage(counts));
                    events.push_back(self.event(Vec::new(), usage, None));
                }
                events.push_back(Event::default().data("[DONE]"));
            }
            Progress::Failed(error) => events.push_back(Event::default().data(error.body())),
        }
    }

    fn keep_alive(&mut self) -> Event {
        self.piece(self.texts[0].silence())
    }
}
