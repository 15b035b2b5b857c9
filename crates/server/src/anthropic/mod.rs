//! Anthropic's messages.

mod answer;
mod messages;
mod request;
mod stream;
#[cfg(test)]
mod tests;
mod tools;
mod wire;

use crate::App;
use crate::error::ApiError;
use crate::run::{Progress, Run};
use crate::{ask, sse};
use answer::{Answer, Folded};
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use lily_engine::{ChatPrompt, SubmitError, TextModel};
use lily_text::RenderOptions;
use request::Form;
use std::sync::Arc;
use wire::{Message, MessagesRequest, TokenCount};

/// `POST /v1/messages`.
pub(crate) async fn handle(State(app): State<Arc<App>>, request: Request) -> Response {
    let asked = ask::start(Arc::clone(&app), request, |_, wire| request::ask(wire)).await;
    match asked {
        Ok((run, form)) if form.stream => {
            sse::respond(run, stream::Events::new(app, form), Vec::new())
        }
        Ok((run, form)) => match complete(&app, run, form).await {
            Ok(answer) => Json(answer).into_response(),
            Err(error) => error.into_response(),
        },
        Err(error) => in_familiar_words(error).into_response(),
    }
}

/// `POST /v1/messages/count_tokens`.
pub(crate) async fn count_tokens(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Json<TokenCount>, ApiError> {
    ask::read(Arc::clone(&app), request, move |_, wire: MessagesRequest| {
        let asked = request::prompt(wire)?;
        let input_tokens = n_tokens(app.engine.text(), &asked.prompt)?;
        Ok(Json(TokenCount { input_tokens }))
    })
    .await
}

/// The complete answer, put together from the events of a stream.
async fn complete(app: &App, mut run: Run, form: Form) -> Result<Message, ApiError> {
    let (mut answer, mut folded) = (Answer::new(form.shows_thinking), Folded::new());
    while let Some(progress) = run.next().await {
        match progress {
            Progress::Complete(_) => return Ok(folded.finish()),
            Progress::Failed(error) => return Err(error),
            progress => {
                let events = stream::advance(app, &mut answer, progress);
                events.into_iter().for_each(|event| folded.absorb(event));
            }
        }
    }
    unreachable!("a run ends with `Complete` or `Failed`")
}

/// Tokens of a prompt as it would be computed.
fn n_tokens(text: &TextModel, prompt: &ChatPrompt) -> Result<usize, SubmitError> {
    let template = text.template.as_ref().ok_or(SubmitError::NoTemplate)?;
    let ends_open = !prompt.continue_final_message;
    let options = RenderOptions { add_generation_prompt: ends_open, ..prompt.options.clone() };
    let ids = template.encode(&text.tokenizer, &prompt.messages, &prompt.tools, &options)?;
    // A turn that is continued has no end yet.
    let end = ids.iter().rposition(|id| text.eos_token_ids.contains(id)).filter(|_| !ends_open);
    Ok(end.unwrap_or(ids.len()))
}

/// Agents shorten a conversation and try again when they read these words.
fn in_familiar_words(mut error: ApiError) -> ApiError {
    if error.code == Some("context_length_exceeded") {
        error.message = format!("prompt is too long: {}", error.message);
    }
    error
}
