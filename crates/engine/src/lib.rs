//! One thread that owns the model: schedule, sample, stream.
//!
//! Requests go in by [`Engine::submit`], [`Event`]s come out by [`Events`]. The engine knows no
//! HTTP and no wire JSON; it never blocks on a client.

mod event;
mod request;

pub use event::{EngineError, Event, Events, FinishReason, PromptStats, Summary, TokenLogprob};
pub use request::{
    ChatPrompt, EngineConfig, GenerateRequest, Prompt, Sampling, SamplingDefaults, SubmitError, TextModel,
};

use lily_model::Model;
use std::sync::Arc;

/// A handle to the engine thread; clones share it.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner;

/// What is going on right now, for `/metrics` and `/health`.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineStats {
    /// Requests waiting for a place in the batch.
    pub n_queued: usize,
    /// Requests being prefilled or decoded.
    pub n_running: usize,
    /// Requests ever accepted.
    pub n_requests: u64,
    /// Requests that ended because the client went away.
    pub n_cancelled: u64,
    /// Prompt tokens computed since the start.
    pub n_prompt_tokens: u64,
    /// Tokens generated since the start.
    pub n_generated_tokens: u64,
    /// Seconds spent in `forward` for prompts.
    pub prefill_s: f64,
    /// Seconds spent in `forward` for decoding.
    pub decode_s: f64,
}

impl Engine {
    /// Starts the engine thread.
    pub fn start(model: Box<dyn Model>, text: TextModel, config: EngineConfig) -> Self {
        let _ = (model, text, config);
        Self { inner: Arc::new(Inner) }
    }

    /// Renders, tokenises and checks the request on the caller's thread, then queues it.
    ///
    /// # Errors
    /// [`SubmitError`]: the queue is full, the prompt does not fit, a value makes no sense, or the
    /// engine has stopped.
    pub fn submit(&self, request: GenerateRequest) -> Result<Events, SubmitError> {
        let _ = (request, &self.inner);
        unimplemented!("written next")
    }

    /// Context length in tokens that a request may use, prompt and answer together.
    pub fn context_tokens(&self) -> usize {
        unimplemented!("written next")
    }

    /// The tokenizer, template and defaults in use.
    pub fn text(&self) -> &TextModel {
        unimplemented!("written next")
    }

    /// Counters and gauges.
    pub fn stats(&self) -> EngineStats {
        unimplemented!("written next")
    }

    /// Takes no more requests and finishes those that are running; returns when the thread ended.
    pub fn drain(&self) {}

    /// Ends running requests at once with [`EngineError::Stopped`]; returns when the thread ended.
    pub fn stop(&self) {}
}
