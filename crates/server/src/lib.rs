//! OpenAI-compatible HTTP server.
//!
//! One request passes through these modules in this order: `routes` (bounds, ids), `body` (bytes
//! to wire types), `openai` (the wire types), `convert` (their meaning), `run` (the engine's
//! events), `sse` (events to the client). `error` has the failures, `limits` every bound,
//! `metrics` what is counted and logged.
//!
//! The server knows no model and no tensor; it sees an [`Engine`] and the text types.

#![forbid(unsafe_code)]

mod access;
mod active;
mod anthropic;
mod ask;
mod body;
mod chat;
mod completions;
mod conversation;
mod dialect;
mod error;
mod ids;
mod json;
mod limits;
mod listen;
mod metrics;
mod models;
mod native;
mod ndjson;
mod ollama;
mod openapi;
mod page;
mod responses;
mod routes;
mod run;
mod sse;
mod tokens;
mod tools;
mod trace;
mod values;

pub use trace::{Trace, TraceError};

use active::Active;
use axum::Router;
use ids::Ids;
use lily_engine::Engine;
use metrics::Metrics;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Name of the model in `/v1/models` and in answers. Requests may name any model.
    pub model_id: String,
    /// Largest request body; a larger one is refused with 413.
    pub max_body_bytes: usize,
    /// Write request bodies to the log, at INFO. Nothing else ever logs what a prompt says.
    pub log_prompts: bool,
    /// Longest time for a request, queueing included; `None` is no limit.
    pub deadline: Option<Duration>,
    /// Silence on a stream after which an empty piece shows that the connection lives.
    pub keep_alive: Duration,
    /// Requests must bring one of these, as `Authorization: Bearer` or `x-api-key`; none lets
    /// everyone in.
    pub api_keys: Vec<String>,
    /// Origins whose pages may read answers, such as `https://app.example`; `*` is any.
    pub cors_origins: Vec<String>,
    /// Names by which clients may address this server (`Host` without the port); none allows any.
    pub hosts: Vec<String>,
    /// Where answers are recorded with their prompts.
    pub trace: Option<Trace>,
    /// `system_fingerprint` of answers: should change with anything that changes answers, such as
    /// the version of the program and the checkpoint.
    pub system_fingerprint: String,
}

impl ServerConfig {
    /// The usual values for a model of this name: bodies up to 32 MiB, no prompt in the log, no
    /// deadline, no key, no other origins, and a fingerprint of version and name.
    pub fn new(model_id: impl Into<String>) -> Self {
        let model_id = model_id.into();
        Self {
            max_body_bytes: limits::BODY_BYTES_MAX_DEFAULT,
            log_prompts: false,
            deadline: None,
            api_keys: Vec::new(),
            cors_origins: Vec::new(),
            hosts: Vec::new(),
            trace: None,
            keep_alive: limits::KEEP_ALIVE_INTERVAL,
            system_fingerprint: format!("lily-{}-{model_id}", env!("CARGO_PKG_VERSION")),
            model_id,
        }
    }
}

/// Why serving ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The engine could not be drained.
    #[error("cannot end in order: {0}")]
    Io(#[from] io::Error),
}

/// What the handlers share.
struct App {
    engine: Engine,
    config: ServerConfig,
    metrics: Arc<Metrics>,
    ids: Ids,
    active: Arc<Active>,
    responses: responses::Store,
    /// Seconds since 1970.
    started_s: u64,
    /// No more requests are taken.
    draining: AtomicBool,
}

impl App {
    fn new(engine: Engine, config: ServerConfig) -> Arc<Self> {
        Arc::new(Self {
            metrics: Arc::new(Metrics::new(&config.model_id)),
            ids: Ids::new(),
            active: Arc::default(),
            responses: responses::Store::new(
                limits::STORED_RESPONSES_MAX,
                limits::STORED_BYTES_MAX,
            ),
            started_s: routes::seconds_since_1970(),
            draining: AtomicBool::new(false),
            engine,
            config,
        })
    }
}

/// The routes, for tests and for embedding in another axum application.
pub fn router(engine: Engine, config: ServerConfig) -> Router {
    routes::router(App::new(engine, config))
}

/// Serves until `shutdown` resolves, then drains: no new connections, running answers finish. The
/// engine is drained as well when this returns. To cut the drain short, call [`Engine::stop`]:
/// running answers then end with an error.
///
/// # Errors
/// [`ServerError::Io`] when the engine cannot be drained.
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    config: ServerConfig,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServerError> {
    let app = App::new(engine.clone(), config);
    let routes = routes::router(Arc::clone(&app));
    let drain = async move {
        shutdown.await;
        app.draining.store(true, Ordering::Relaxed);
    };
    listen::serve(listener, routes, drain).await;
    tokio::task::spawn_blocking(move || engine.drain())
        .await
        .map_err(|error| io::Error::other(error).into())
}
