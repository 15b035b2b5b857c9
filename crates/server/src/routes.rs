//! Routes and their handlers.

use crate::App;
use crate::access;
use crate::ask::RequestId;
use crate::dialect::Dialect;
use crate::error::{ApiError, quoted};
use crate::limits::REQUEST_ID_BYTES_MAX;
use crate::metrics::ResponseCount;
use crate::{anthropic, chat, completions, models, native, ollama, openapi, page, responses};
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

pub(crate) fn router(app: Arc<App>) -> Router {
    let routes = Router::new()
        .route("/", get(index))
        .route("/openapi.json", get(openapi::openapi))
        .route("/health", get(models::health))
        .route("/metrics", get(metrics))
        .route("/v1/models", get(models::models))
        .route("/v1/models/{*id}", get(models::model))
        .route("/v1/chat/completions", post(chat::handle))
        .route("/v1/completions", post(completions::handle))
        .route("/v1/responses", post(responses::create))
        .route("/v1/responses/input_tokens", post(responses::input_tokens))
        .route("/v1/responses/{id}", get(responses::retrieve).delete(responses::delete))
        .route("/v1/responses/{id}/input_items", get(responses::input_items))
        .route("/tokenize", post(native::tokenize))
        .route("/detokenize", post(native::detokenize))
        .route("/apply-template", post(native::apply_template))
        .route("/v1/lily/props", get(native::props))
        .route("/v1/lily/slots", get(native::slots))
        .route("/v1/messages", post(anthropic::handle))
        .route("/v1/messages/count_tokens", post(anthropic::count_tokens))
        .route("/api/chat", post(ollama::chat))
        .route("/api/generate", post(ollama::generate))
        .route("/api/tags", get(ollama::tags))
        .route("/api/ps", get(ollama::loaded))
        .route("/api/show", post(ollama::show))
        .route("/api/version", get(ollama::version))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .layer(from_fn_with_state(Arc::clone(&app), access::check));
    let routes = match access::cors(&app.config.cors_origins) {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    routes.layer(from_fn_with_state(Arc::clone(&app), observe)).with_state(app)
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
    let dialect = Dialect::of(request.uri().path());
    let mut response = dialect.respond(next.run(request).await);
    let status = response.status();
    count.done(status);
    response.headers_mut().insert(X_REQUEST_ID, header);
    if status.is_client_error() || status.is_server_error() {
        tracing::info!(request = id, %method, route, status = status.as_u16(), "refused");
    }
    response
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
