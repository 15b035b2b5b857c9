//! `OpenAI`'s responses.

mod answer;
mod custom;
mod input;
mod request;
mod store;
mod stream;
#[cfg(test)]
mod tests;
mod tools;
mod wire;

pub(crate) use store::Store;

use crate::App;
use crate::error::{ApiError, quoted};
use crate::limits::{ITEMS_PAGE_DEFAULT, ITEMS_PAGE_MAX};
use crate::run::{Progress, Run};
use crate::{ask, openapi, sse};
use answer::{Answer, Nobody, to_json};
use axum::Json;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use lily_engine::Prompt;
use request::{Form, in_our_words};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use store::{Stored, StoredItem};
use wire::{Deleted, InputTokens, ItemList, ResponsesRequest};

/// `POST /v1/responses`.
pub(crate) async fn create(State(app): State<Arc<App>>, request: Request) -> Response {
    let asked = ask::start(Arc::clone(&app), request, request::ask).await;
    match asked {
        Ok((run, form)) if form.stream => {
            let (events, opening) = stream::Events::new(app, form);
            sse::respond(run, events, opening)
        }
        Ok((run, form)) => match complete(app, run, form).await {
            Ok(json) => json_body(json),
            Err(error) => error.into_response(),
        },
        Err(error) => in_our_words(error).into_response(),
    }
}

/// The complete response, put together from the pieces of a stream.
async fn complete(app: Arc<App>, mut run: Run, form: Form) -> Result<String, ApiError> {
    let mut answer = Answer::new(app, form);
    while let Some(progress) = run.next().await {
        match progress {
            Progress::PromptLogprobs { .. } | Progress::Opened { .. } => {}
            Progress::Step { choice: _, deltas, logprobs } => {
                answer.step(deltas, &logprobs, &mut Nobody);
            }
            Progress::Ended { choice: _, summary } => answer.finish(&summary, &mut Nobody),
            Progress::Complete(_) => return Ok(to_json(&answer.response())),
            Progress::Failed(error) => return Err(error),
        }
    }
    unreachable!("a run ends with `Complete` or `Failed`")
}

/// `GET /v1/responses/{id}`.
pub(crate) async fn retrieve(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, ApiError> {
    if parameters(&uri)?.get("stream").is_some_and(|stream| stream == "true") {
        let problem = "is true, but a stored response is not streamed again";
        return Err(ApiError::unsupported("stream", problem));
    }
    Ok(json_body(stored(&app, &id)?.json.clone()))
}

/// `DELETE /v1/responses/{id}`.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<Deleted>, ApiError> {
    if !app.responses.remove(&id) {
        return Err(not_found(&id));
    }
    Ok(Json(Deleted { id, object: "response", deleted: true }))
}

/// `GET /v1/responses/{id}/input_items`: all items that the response answered, the newest first.
pub(crate) async fn input_items(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Json<ItemList>, ApiError> {
    let response = stored(&app, &id)?;
    let parameters = parameters(&uri)?;
    let limit = match parameters.get("limit") {
        None => ITEMS_PAGE_DEFAULT,
        Some(text) => {
            text.parse().ok().filter(|limit| (1..=ITEMS_PAGE_MAX).contains(limit)).ok_or_else(
                || {
                    let problem =
                        format!("is `{}`, but must be from 1 to {ITEMS_PAGE_MAX}", quoted(text));
                    ApiError::invalid("limit", problem)
                },
            )?
        }
    };
    let mut items: Vec<&StoredItem> = response.input.iter().collect();
    match parameters.get("order").map(String::as_str) {
        None | Some("desc") => items.reverse(),
        Some("asc") => {}
        Some(other) => {
            let problem = format!("is `{}`, but must be asc or desc", quoted(other));
            return Err(ApiError::invalid("order", problem));
        }
    }
    if let Some(after) = parameters.get("after") {
        let place = items.iter().position(|item| *item.id == **after);
        let place = place.ok_or_else(|| {
            ApiError::invalid("after", format!("is `{}`, which is no item", quoted(after)))
        })?;
        items.drain(..=place);
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    let data = items.iter().map(|item| serde_json::from_str::<Value>(&item.json));
    let data = data.collect::<Result<_, _>>().map_err(|e| ApiError::internal(e.to_string()))?;
    let id = |item: Option<&&StoredItem>| item.map(|item| item.id.to_string());
    let (first_id, last_id) = (id(items.first()), id(items.last()));
    Ok(Json(ItemList { object: "list", data, first_id, last_id, has_more }))
}

/// `POST /v1/responses/input_tokens`: what the prompt of a request would take.
pub(crate) async fn input_tokens(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Json<InputTokens>, ApiError> {
    let work = Arc::clone(&app);
    let count = move |_, wire: ResponsesRequest| {
        let (ask, _) = request::ask(&work, wire)?;
        let Prompt::Chat(prompt) = ask.generate.prompt else { unreachable!("it is a chat") };
        let text = work.engine.text();
        let no_template = || ApiError::bad_request("this checkpoint has no chat template");
        let template = text.template.as_ref().ok_or_else(no_template)?;
        template
            .encode(&text.tokenizer, &prompt.messages, &prompt.tools, &prompt.options)
            .map_err(|e| ApiError::invalid("input", format!("cannot be rendered: {e}")))
    };
    let tokens = ask::read(app, request, count).await?;
    Ok(Json(InputTokens { object: "response.input_tokens", input_tokens: tokens.len() }))
}

fn stored(app: &App, id: &str) -> Result<Arc<Stored>, ApiError> {
    app.responses.get(id).ok_or_else(|| not_found(id))
}

fn not_found(id: &str) -> ApiError {
    let message = format!("Response with id '{}' not found.", quoted(id));
    ApiError::not_found("response_not_found", message)
}

/// What stands behind the `?`.
fn parameters(uri: &Uri) -> Result<HashMap<String, String>, ApiError> {
    match Query::<Vec<(String, String)>>::try_from_uri(uri) {
        Ok(Query(pairs)) => Ok(pairs.into_iter().collect()),
        Err(error) => Err(ApiError::bad_request(format!("the query cannot be read: {error}"))),
    }
}

fn json_body(json: String) -> Response {
    let media = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, media)], json).into_response()
}

/// The paths of this API.
pub(crate) fn describe(paths: &mut openapi::Paths) {
    paths.post::<ResponsesRequest, wire::Response<'_>>(
        "/v1/responses",
        "Answer a conversation and keep it.",
        openapi::Answer::JsonOrEvents,
    );
    paths.post::<ResponsesRequest, InputTokens>(
        "/v1/responses/input_tokens",
        "The tokens of a conversation.",
        openapi::Answer::Json,
    );
    paths.get::<wire::Response<'_>>("/v1/responses/{id}", "A kept response.");
    paths.delete::<Deleted>("/v1/responses/{id}", "Forget a response.");
    paths.get::<ItemList>("/v1/responses/{id}/input_items", "What a kept response answered.");
}
