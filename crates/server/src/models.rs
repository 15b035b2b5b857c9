//! The model that is served, and how the server is.

use crate::App;
use crate::error::{ApiError, quoted};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Answer of `GET /v1/models`.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct ModelList {
    /// `list`.
    pub(crate) object: &'static str,
    pub(crate) data: Vec<ModelCard>,
}

/// Answer of `GET /v1/models/{id}`.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct ModelCard {
    pub(crate) id: String,
    /// `model`.
    pub(crate) object: &'static str,
    /// When the server started.
    pub(crate) created: u64,
    pub(crate) owned_by: &'static str,
    /// Tokens that prompt and answer may have together; an extension.
    pub(crate) max_model_len: usize,
}

/// Answer of `GET /health`.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Health {
    /// `ok`, `draining` or `stopped`.
    pub(crate) status: &'static str,
    pub(crate) model: String,
    pub(crate) requests_running: usize,
    pub(crate) requests_queued: usize,
}

pub(crate) async fn models(State(app): State<Arc<App>>) -> Json<ModelList> {
    Json(ModelList { object: "list", data: vec![card(&app)] })
}

pub(crate) async fn model(
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

pub(crate) async fn health(State(app): State<Arc<App>>) -> Response {
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
