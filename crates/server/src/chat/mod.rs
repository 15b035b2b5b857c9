//! `OpenAI`'s chat completions.

mod answer;
pub(crate) mod choice;
pub(crate) mod format;
mod messages;
mod request;
mod stream;
#[cfg(test)]
mod tests;
pub(crate) mod thinking;
pub(crate) mod wire;

pub(crate) use answer::{finish_reason, timings, token_logprob, total, usage};
pub(crate) use request::prompt_of;

use crate::App;
use crate::error::ApiError;
use crate::routes::seconds_since_1970;
use crate::run::{Progress, Run};
use crate::tokens::Vocabulary;
use crate::{ask, sse};
use answer::Answer;
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use request::Form;
use std::sync::Arc;
use wire::{ChatCompletion, ChatCompletionRequest, Choice};

/// `POST /v1/chat/completions`.
pub(crate) async fn handle(State(app): State<Arc<App>>, request: Request) -> Response {
    let asked = ask::start(Arc::clone(&app), request, |_, wire: ChatCompletionRequest| {
        tracing::debug!(model = wire.model, "asked for");
        request::ask(wire)
    });
    match asked.await {
        Ok((run, form)) if form.stream => {
            let writer = stream::Chunks::new(app, seconds_since_1970(), form);
            sse::respond(run, writer, Vec::new())
        }
        Ok((run, form)) => match complete(&app, run, form).await {
            Ok(answer) => Json(answer).into_response(),
            Err(error) => error.into_response(),
        },
        Err(error) => error.into_response(),
    }
}

/// The complete answer, put together from the pieces of a stream.
async fn complete(app: &App, mut run: Run, form: Form) -> Result<ChatCompletion, ApiError> {
    let mut answers: Vec<_> = (0..form.n_choices).map(|i| Answer::new(i, form.logprobs)).collect();
    let mut choices: Vec<_> = (0..form.n_choices).map(Choice::empty).collect();
    while let Some(progress) = run.next().await {
        match progress {
            Progress::PromptLogprobs { .. } => {}
            Progress::Opened { choice, .. } => choices[choice].absorb(answers[choice].open()),
            Progress::Step { choice, deltas, logprobs } => {
                let vocabulary = Vocabulary(app.engine.text());
                let pieces = answers[choice].step(deltas, &logprobs, vocabulary, &app.ids);
                for piece in pieces {
                    choices[choice].absorb(piece);
                }
            }
            Progress::Ended { choice, summary } => {
                choices[choice].absorb(answers[choice].close(summary.finish_reason));
            }
            Progress::Complete(summaries) => {
                return Ok(ChatCompletion {
                    id: app.ids.next("chatcmpl-"),
                    object: "chat.completion",
                    created: seconds_since_1970(),
                    model: app.config.model_id.clone(),
                    choices,
                    usage: total(&summaries),
                    system_fingerprint: app.config.system_fingerprint.clone(),
                    timings: timings(&summaries),
                });
            }
            Progress::Failed(error) => return Err(error),
        }
    }
    unreachable!("a run ends with `Complete` or `Failed`")
}
