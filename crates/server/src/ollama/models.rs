//! The served model, as Ollama shows models.

use super::clock::rfc3339;
use super::wire::{Details, Installed, Loaded, Models, ShowRequest, Shown, Version};
use crate::App;
use crate::ask;
use crate::error::ApiError;
use axum::Json;
use axum::extract::{Request, State};
use serde_json::{Map, json};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The version of Ollama whose fields are spoken here: clients compare it with the one they need.
const OLLAMA_VERSION: &str = "0.12.6";

/// What llama.cpp calls the architecture, which is the word that Ollama's clients know.
const ARCHITECTURE: &str = "qwen35moe";

/// `GET /api/version`.
pub(crate) async fn version() -> Json<Version> {
    Json(Version { version: OLLAMA_VERSION, lily: env!("CARGO_PKG_VERSION") })
}

/// `GET /api/tags`.
pub(crate) async fn tags(State(app): State<Arc<App>>) -> Json<Models<Installed>> {
    let name = name(&app);
    let installed = Installed {
        model: name.clone(),
        name,
        modified_at: rfc3339(app.started_s),
        size: 0,
        digest: digest(&app),
        details: details(),
    };
    Json(Models { models: vec![installed] })
}

/// `GET /api/ps`.
pub(crate) async fn loaded(State(app): State<Arc<App>>) -> Json<Models<Loaded>> {
    let name = name(&app);
    let loaded = Loaded {
        model: name.clone(),
        name,
        size: 0,
        digest: digest(&app),
        details: details(),
        // Never.
        expires_at: "9999-12-31T23:59:59Z",
        size_vram: 0,
        context_length: app.engine.context_tokens(),
    };
    Json(Models { models: vec![loaded] })
}

/// `POST /api/show`.
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Json<Shown>, ApiError> {
    ask::read(Arc::clone(&app), request, move |_, _: ShowRequest| Ok(Json(shown(&app)))).await
}

fn shown(app: &App) -> Shown {
    let context = app.engine.context_tokens();
    let mut model_info = Map::new();
    model_info.insert("general.architecture".to_owned(), ARCHITECTURE.into());
    model_info.insert("general.basename".to_owned(), app.config.model_id.as_str().into());
    model_info.insert(format!("{ARCHITECTURE}.context_length"), json!(context));
    Shown {
        modelfile: format!("FROM {}\nPARAMETER num_ctx {context}\n", name(app)),
        parameters: format!("num_ctx {context}"),
        template: "",
        license: "",
        details: details(),
        model_info,
        capabilities: ["completion", "tools", "thinking"],
        modified_at: rfc3339(app.started_s),
    }
}

/// Ollama's names have a tag.
fn name(app: &App) -> String {
    let id = &app.config.model_id;
    if id.contains(':') { id.clone() } else { format!("{id}:latest") }
}

/// Clients tell versions of a model apart by it; it is no digest of the weights.
fn digest(app: &App) -> String {
    let mut hasher = DefaultHasher::new();
    app.config.system_fingerprint.hash(&mut hasher);
    format!("{:016x}", hasher.finish()).repeat(4)
}

fn details() -> Details {
    Details {
        parent_model: "",
        format: "",
        family: ARCHITECTURE,
        families: [ARCHITECTURE],
        parameter_size: "",
        quantization_level: "",
    }
}
