//! Routes and their handlers.

use crate::App;
use crate::body;
use crate::convert;
use crate::error::{ApiError, quoted};
use crate::limits::REQUEST_ID_BYTES_MAX;
use crate::metrics::ResponseCount;
use crate::openai::{ChatCompletion, ChatCompletionRequest, Choice, Health, ModelCard, ModelList};
use crate::page;
use crate::run::{Progress, Run};
use crate::sse;
use axum::extract::{MatchedPath, Path, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id of a request, made or taken over by [`observe`].
#[derive(Clone, Debug)]
struct RequestId(String);

pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model))
        .route("/v1/chat/completions", post(chat_completions))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .layer(from_fn_with_state(Arc::clone(&app), observe))
        .with_state(app)
}

/// Gives every request an id, counts every response, and logs the failures.
async fn observe(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let id = request
        .headers()
        .get(X_REQUEST_ID)
        .and_then(|v| v.to_str().ok())
        .filter(|id| (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()))
        .map_or_else(|| app.ids.next("req_"), str::to_owned);
    let header = HeaderValue::from_str(&id).expect("visible ASCII");
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str);
    let count = ResponseCount::new(Arc::clone(&app.metrics), route.to_owned());
    let (method, route) = (request.method().clone(), route.to_owned());
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = next.run(request).await;
    let status = response.status();
    count.done(status);
    response.headers_mut().insert(X_REQUEST_ID, header);
    if status.is_client_error() || status.is_server_error() {
        tracing::info!(request = id, %method, route, status = status.as_u16(), "refused");
    }
    response
}

async fn chat_completions(State(app): State<Arc<App>>, request: Request) -> Response {
    let arrived = Instant::now();
    match start(Arc::clone(&app), request, arrived).await {
        Ok((run, form)) => match form {
            Form::Stream { include_usage } => {
                sse::respond(app, seconds_since_1970(), include_usage, run)
            }
            Form::Complete { n_choices } => complete(&app, run, n_choices).await,
        },
        Err(error) => error.into_response(),
    }
}

/// How the answer is wanted.
enum Form {
    Stream { include_usage: bool },
    Complete { n_choices: usize },
}

/// Reads, checks and queues a request. Parsing, rendering and tokenising take milliseconds for a
/// long prompt, so they run beside the threads that serve connections.
async fn start(app: Arc<App>, request: Request, arrived: Instant) -> Result<(Run, Form), ApiError> {
    if app.draining.load(Ordering::Relaxed) {
        return Err(ApiError::unavailable("the server is shutting down"));
    }
    let (head, body) = request.into_parts();
    let bytes = body::read(&head.headers, body, app.config.max_body_bytes).await?;
    let RequestId(id) = head.extensions.get().cloned().expect("every request passes `observe`");
    let span = tracing::info_span!("http", request = id);
    let work = move || {
        let _entered = span.entered();
        if app.config.log_prompts {
            tracing::info!(request = id, body = %String::from_utf8_lossy(&bytes), "prompt");
        }
        let request: ChatCompletionRequest = body::parse(&bytes)?;
        drop(bytes);
        tracing::debug!(request = id, model = request.model, "asked for");
        let chat = convert::chat(request)?;
        let form = if chat.stream {
            Form::Stream { include_usage: chat.include_usage }
        } else {
            Form::Complete { n_choices: chat.n_choices }
        };
        Run::submit(app, &chat, id, arrived).map(|run| (run, form))
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(_) => Err(ApiError::internal("the request could not be prepared; see the log")),
    }
}

async fn complete(app: &App, mut run: Run, n_choices: usize) -> Response {
    let mut choices: Vec<_> = (0..n_choices).map(Choice::empty).collect();
    while let Some(progress) = run.next().await {
        match progress {
            Progress::Chunk(chunk) | Progress::Last(chunk, _) => {
                let index = chunk.index;
                choices[index].absorb(chunk);
            }
            Progress::Complete(usage, timings) => {
                return Json(ChatCompletion {
                    id: app.ids.next("chatcmpl-"),
                    object: "chat.completion",
                    created: seconds_since_1970(),
                    model: app.config.model_id.clone(),
                    choices,
                    usage,
                    system_fingerprint: app.config.system_fingerprint.clone(),
                    timings,
                })
                .into_response();
            }
            Progress::Failed(error) => return error.into_response(),
        }
    }
    unreachable!("a run ends with `Complete` or `Failed`")
}

async fn models(State(app): State<Arc<App>>) -> Json<ModelList> {
    Json(ModelList { object: "list", data: vec![card(&app)] })
}

async fn model(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<ModelCard>, ApiError> {
    if id == app.config.model_id {
        return Ok(Json(card(&app)));
    }
    let message = format!("no model `{}`; this server has `{}`", quoted(&id), app.config.model_id);
    Err(ApiError::not_found("model_not_found", message))
}

fn card(app: &App) -> ModelCard {
    ModelCard {
        id: app.config.model_id.clone(),
        object: "model",
        created: app.started_s,
        owned_by: "lily",
        max_model_len: app.engine.context_tokens(),
    }
}

async fn health(State(app): State<Arc<App>>) -> Response {
    let stats = app.engine.stats();
    let (code, status) = if app.draining.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else if !app.engine.is_alive() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopped")
    } else {
        (StatusCode::OK, "ok")
    };
    let health = Health {
        status,
        model: app.config.model_id.clone(),
        requests_running: stats.n_running,
        requests_queued: stats.n_queued,
    };
    (code, Json(health)).into_response()
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, text)], app.metrics.render(&app.engine)).into_response()
}

async fn index() -> Response {
    page::respond()
}

async fn not_found(method: Method, uri: Uri) -> ApiError {
    let message = format!("no endpoint {method} {}; GET / lists them", quoted(uri.path()));
    ApiError::not_found("not_found", message)
}

async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not take {method}; GET / lists what it takes", uri.path());
    ApiError::method_not_allowed(message)
}

pub(crate) fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
