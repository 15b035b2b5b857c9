//! Ollama's API.

mod answer;
mod clock;
mod models;
mod request;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use models::{loaded, show, tags, version};

use crate::App;
use crate::error::ApiError;
use crate::run::{Progress, Run};
use crate::{ask, ndjson};
use answer::{Answer, Form, Lines, Piece};
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use request::Asked;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// `POST /api/chat`.
pub(crate) async fn chat(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(app, request, Form::Chat, request::chat)
        .await
        .unwrap_or_else(IntoResponse::into_response)
}

/// `POST /api/generate`.
pub(crate) async fn generate(State(app): State<Arc<App>>, request: Request) -> Response {
    let convert = request::generate;
    answer(app, request, Form::Generate, convert).await.unwrap_or_else(IntoResponse::into_response)
}

/// A request on its way.
enum Started {
    Load { reason: &'static str },
    Running { run: Box<Run>, stream: bool },
}

async fn answer<W: DeserializeOwned + 'static>(
    app: Arc<App>,
    request: Request,
    form: Form,
    convert: fn(W) -> Result<Asked, ApiError>,
) -> Result<Response, ApiError> {
    let arrived = Instant::now();
    if app.draining.load(Ordering::Relaxed) {
        return Err(ApiError::unavailable("the server is shutting down"));
    }
    let shared = Arc::clone(&app);
    let started = ask::read(Arc::clone(&app), request, move |id, wire| match convert(wire)? {
        Asked::Load { reason } => Ok(Started::Load { reason }),
        Asked::Answer(ask) => {
            let stream = ask.stream;
            let run = Box::new(Run::submit(shared, &ask, id, arrived)?);
            Ok(Started::Running { run, stream })
        }
    })
    .await?;
    match started {
        Started::Load { reason } => Ok(Json(form.empty(&app, reason)).into_response()),
        Started::Running { run, stream: true } => Ok(ndjson::respond(*run, Lines::new(app, form))),
        Started::Running { run, stream: false } => complete(&app, *run, form).await,
    }
}

/// The complete answer, put together from the pieces of a stream.
async fn complete(app: &App, mut run: Run, form: Form) -> Result<Response, ApiError> {
    let (mut answer, mut sum) = (Answer::default(), Piece::default());
    while let Some(progress) = run.next().await {
        match progress {
            Progress::PromptLogprobs { .. } | Progress::Opened { .. } | Progress::Complete(_) => {}
            Progress::Step { deltas, logprobs, .. } => {
                answer.step(app, deltas, &logprobs).into_iter().for_each(|piece| sum.absorb(piece));
            }
            Progress::Ended { summary, .. } => {
                sum.absorb(answer.end());
                return Ok(Json(form.last_line(app, sum, &summary)).into_response());
            }
            Progress::Failed(error) => return Err(error),
        }
    }
    unreachable!("a run ends with `Complete` or `Failed`, and `Complete` follows `Ended`")
}
