//! One thread that owns the model: schedule, sample, stream.
//!
//! Requests go in by [`Engine::submit`], [`Event`]s come out by [`Events`]. The engine knows no
//! HTTP and no wire JSON; it never blocks on a client.
//!
//! A request passes through the files in this order: [`request`](GenerateRequest), `validate`,
//! `constraint` (which compiles grammars), `job`, `inbox`, `thread` (which asks `prompt_cache` and
//! `schedule`),
//! `sequence` (which asks `thinking`), `sample`, `answer` (which asks `stop`), [`event`](Event).
//! [`scripted`] is for tests.
#![forbid(unsafe_code)]

mod answer;
mod constraint;
mod event;
mod inbox;
mod job;
mod limits;
mod logprobs;
mod prompt_cache;
mod request;
mod sample;
mod schedule;
pub mod scripted;
mod select;
mod sequence;
mod stop;
mod thinking;
mod thread;
mod validate;

pub use event::{
    EngineEnd, EngineError, Event, Events, FinishReason, PromptStats, Summary, TokenLogprob,
};
pub use request::{
    ChatPrompt, Constraint, EngineConfig, GenerateRequest, Prompt, Sampling, SamplingDefaults,
    SubmitError, TextModel, ToolChoice, ToolRule,
};

use constraint::Grammars;
use inbox::{Inbox, Phase};
use job::{Job, Prepared};
use lily_model::{Logits, Model};
use prompt_cache::PromptCache;
use schedule::Schedule;
use sequence::Vocabulary;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use thread::Core;
use tokio::sync::mpsc::unbounded_channel;

/// A handle to the engine thread; clones share it. When the last is dropped, the thread finishes
/// what it has and ends.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    inbox: Arc<Inbox>,
    text: TextModel,
    grammars: Grammars,
    context_tokens: usize,
    n_submitted: AtomicU64,
}

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
    /// Seconds spent in `forward` for prompts; a pass of both is divided by their tokens.
    pub prefill_s: f64,
    /// Seconds spent in `forward` for decoding.
    pub decode_s: f64,
    /// Prompts, or beginnings of prompts, that are kept.
    pub n_cache_entries: usize,
    /// Bytes that those take.
    pub cache_bytes: usize,
}

impl Engine {
    /// Starts the engine thread.
    ///
    /// A context longer than the checkpoint was made for is cut to that length.
    pub fn start(model: Box<dyn Model>, text: TextModel, config: EngineConfig) -> Self {
        let EngineConfig {
            context_tokens,
            max_running,
            max_queued,
            prefill_chunk_tokens,
            cache_bytes,
        } = config;
        let schedule = Schedule::new(max_running, prefill_chunk_tokens, model.max_batch_tokens());
        let context_tokens = context_tokens.min(model.shape().max_positions);
        let vocab_size = text.tokenizer.vocab_size().min(model.shape().vocab_size);
        let inbox = Arc::new(Inbox::new(schedule.max_running, max_queued));
        tracing::debug!(?schedule, context_tokens, max_queued, vocab_size, "engine starts");
        let size = model.snapshot_size();
        let core = Core {
            model,
            inbox: Arc::clone(&inbox),
            schedule,
            vocabulary: Vocabulary {
                tokenizer: Arc::clone(&text.tokenizer),
                eos_token_ids: text.eos_token_ids.clone(),
                size: vocab_size,
                scratch: sample::Scratch::default(),
                best: Vec::new(),
                masked: Vec::new(),
                closing: thinking::closing_tokens(&text.tokenizer),
                tool_call: text.tokenizer.token_id("<tool_call>"),
                turn: text.tokenizer.token_id("<|im_start|>"),
            },
            sequences: Vec::new(),
            logits: Logits::default(),
            n_ticks: 0,
            waits_for_memory: false,
            cache: PromptCache::new(cache_bytes, size),
        };
        let builder = std::thread::Builder::new().name("lily-engine".to_owned());
        if let Err(error) = builder.spawn(move || thread::run(core)) {
            tracing::error!(%error, "the engine thread could not be started");
            inbox.end(EngineEnd::Panicked);
        }
        let grammars = Grammars::new(Arc::clone(&text.tokenizer), &text.eos_token_ids, vocab_size);
        let n_submitted = AtomicU64::new(0);
        let inner = Inner { inbox, text, grammars, context_tokens, n_submitted };
        Self { inner: Arc::new(inner) }
    }

    /// Renders, tokenises and checks the request on the caller's thread, then queues it.
    ///
    /// The log lines of the request are in a span below the caller's.
    ///
    /// # Errors
    /// [`SubmitError`]: the queue is full, the prompt does not fit, a value makes no sense, or the
    /// engine has stopped.
    pub fn submit(&self, request: GenerateRequest) -> Result<Events, SubmitError> {
        let submitted = Instant::now();
        let inner = &*self.inner;
        inner.inbox.check_open()?;
        let request = Prepared::new(request, &inner.text, &inner.grammars, inner.context_tokens)?;
        let id = inner.n_submitted.fetch_add(1, Ordering::Relaxed);
        let span = tracing::info_span!("request", id);
        let (events, receiver) = unbounded_channel();
        inner.inbox.push(Job { request, events, span, submitted })?;
        Ok(Events { receiver })
    }

    /// Context length in tokens that a request may use, prompt and answer together.
    pub fn context_tokens(&self) -> usize {
        self.inner.context_tokens
    }

    /// The tokenizer, template and defaults in use.
    pub fn text(&self) -> &TextModel {
        &self.inner.text
    }

    /// Counters and gauges.
    pub fn stats(&self) -> EngineStats {
        self.inner.inbox.counters.stats()
    }

    /// Whether the engine thread runs. Draining engines do; after a panic it is `false` for ever.
    pub fn is_alive(&self) -> bool {
        !matches!(self.inner.inbox.phase(), Phase::Ended(_))
    }

    /// Takes no more requests and finishes those that are running or waiting; returns when the
    /// thread ended.
    pub fn drain(&self) {
        self.inner.inbox.advance(Phase::Draining);
        self.wait();
    }

    /// Ends running and waiting requests at once with [`EngineError::Stopped`]; returns when the
    /// thread ended, which takes as long as a layer of the pass in progress if that reads a prompt.
    pub fn stop(&self) {
        self.inner.inbox.advance(Phase::Stopping);
        self.wait();
    }

    /// Waits until the thread ended, for whatever reason.
    pub fn wait(&self) -> EngineEnd {
        self.inner.inbox.wait()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.inbox.advance(Phase::Draining);
    }
}
