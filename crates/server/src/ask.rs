//! A request as the engine takes it, and its way in: read, parsed, converted, queued. Every dialect
//! goes this way and differs only in its conversion.

use crate::App;
use crate::body;
use crate::error::ApiError;
use crate::run::Run;
use axum::extract::Request;
use lily_engine::{GenerateRequest, Prompt};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The id of a request, made or taken over where all requests pass.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) String);

/// A checked request.
#[derive(Debug)]
pub(crate) struct Ask {
    /// The request for the first choice.
    pub(crate) generate: GenerateRequest,
    /// Further prompts, answered by the same rules.
    pub(crate) more: Vec<Prompt>,
    /// Answers wanted to each prompt.
    pub(crate) n_choices: usize,
    /// Return the first tool call only.
    pub(crate) single_call: bool,
    /// Answer in pieces.
    pub(crate) stream: bool,
}

impl Ask {
    /// One request a choice, those of a prompt side by side; a seed counts up with them so that they
    /// differ and stay reproducible.
    pub(crate) fn requests(&self) -> impl Iterator<Item = GenerateRequest> + '_ {
        let prompts = std::iter::once(&self.generate.prompt).chain(&self.more);
        prompts.flat_map(|prompt| {
            (0..self.n_choices as u64).map(|i| {
                let mut request = GenerateRequest { prompt: prompt.clone(), ..self.rules() };
                request.sampling.seed = request.sampling.seed.map(|seed| seed.wrapping_add(i));
                request
            })
        })
    }

    /// The request without its prompt, which can be long.
    fn rules(&self) -> GenerateRequest {
        let GenerateRequest { prompt: _, sampling, stop, constraint, .. } = &self.generate;
        GenerateRequest {
            prompt: Prompt::Tokens(Vec::new()),
            sampling: sampling.clone(),
            stop: stop.clone(),
            constraint: constraint.clone(),
            ..self.generate
        }
    }
}

/// Reads, checks and queues a request. `convert` says what the wire type means: what the engine is
/// asked, and what the dialect has to remember for the answer.
///
/// Parsing, rendering and tokenising take milliseconds for a long prompt, so they run beside the
/// threads that serve connections.
///
/// # Errors
/// As [`read`] and `convert`, and as [`lily_engine::Engine::submit`].
pub(crate) async fn start<W, F>(
    app: Arc<App>,
    request: Request,
    convert: impl FnOnce(&App, W) -> Result<(Ask, F), ApiError> + Send + 'static,
) -> Result<(Run, F), ApiError>
where
    W: DeserializeOwned,
    F: Send + 'static,
{
    let arrived = Instant::now();
    if app.draining.load(Ordering::Relaxed) {
        return Err(ApiError::unavailable("the server is shutting down"));
    }
    read(Arc::clone(&app), request, move |id, wire| {
        let (ask, form) = convert(&app, wire)?;
        Run::submit(Arc::clone(&app), &ask, id, arrived).map(|run| (run, form))
    })
    .await
}

/// Reads and parses a body and does `work` with it beside the threads that serve connections.
///
/// # Errors
/// 400, 408, 413 and 415 as [`body::read`] and [`body::parse`], and what `work` returns.
pub(crate) async fn read<W, T>(
    app: Arc<App>,
    request: Request,
    work: impl FnOnce(String, W) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError>
where
    W: DeserializeOwned,
    T: Send + 'static,
{
    let (head, body) = request.into_parts();
    let bytes = body::read(&head.headers, body, app.config.max_body_bytes).await?;
    let RequestId(id) = head.extensions.get().cloned().expect("every request has one");
    let span = tracing::info_span!("http", request = id);
    let work = move || {
        let _entered = span.entered();
        if app.config.log_prompts {
            tracing::info!(request = id, body = %String::from_utf8_lossy(&bytes), "prompt");
        }
        let wire: W = body::parse(&bytes)?;
        drop(bytes);
        work(id, wire)
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(_) => Err(ApiError::internal("the request could not be prepared; see the log")),
    }
}
