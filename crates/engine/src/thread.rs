//! The engine thread: it alone owns the model and the states of sequences.
//!
//! A tick admits requests, lets go of cancelled and late ones, runs one forward pass and hands its
//! logits to the sequences. It blocks only for work, never for a client.

use crate::inbox::{Inbox, Intake};
use crate::job::{Job, Watch};
use crate::prompt_cache::{self, PromptCache, TOKENS_MIN};
use crate::schedule::{Need, Schedule, Work};
use crate::sequence::{Outcome, Sequence, Vocabulary};
use crate::{EngineEnd, EngineError, Event, Summary};
use lily_model::{Logits, Model, ModelError, Rows, SeqState, Step};
use lily_text::TokenId;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Tokens that a device chooses before the engine looks at them: a client that goes away or a stop
/// string costs so many in vain, some milliseconds on a GPU.
const TOKENS_AHEAD: usize = 4;

/// Prompt tokens of a pass that takes so long, on a slow CPU, that nobody should have to wait for
/// its end: a shorter pass costs little more than to decode, and need not save what it changes.
const INTERRUPTIBLE_TOKENS: usize = 16;

/// What the thread owns.
pub(crate) struct Core {
    pub(crate) model: Box<dyn Model>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) schedule: Schedule,
    pub(crate) vocabulary: Vocabulary,
    pub(crate) sequences: Vec<Sequence>,
    pub(crate) logits: Logits,
    pub(crate) n_ticks: u64,
    /// The next request does not fit into memory beside those that run.
    pub(crate) waits_for_memory: bool,
    pub(crate) cache: PromptCache,
}

/// Runs until the engine is drained, stopped or broken.
pub(crate) fn run(mut core: Core) {
    let inbox = Arc::clone(&core.inbox);
    let (end, error) = match catch_unwind(AssertUnwindSafe(|| core.serve())) {
        Ok(end) => (end, EngineError::Stopped),
        Err(payload) => {
            tracing::error!(panic = panic_message(&*payload), "the engine thread panicked");
            (EngineEnd::Panicked, EngineError::Panicked)
        }
    };
    // Nothing can be added from here on, so nobody is left without an answer.
    for job in inbox.close() {
        job.send(Event::Failed(error.clone()));
    }
    for sequence in &core.sequences {
        sequence.job.send(Event::Failed(error.clone()));
    }
    // A model that panicked once may do so again when it is freed.
    if catch_unwind(AssertUnwindSafe(|| drop(core))).is_err() {
        tracing::error!("freeing the model panicked as well");
    }
    inbox.end(end);
}

fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

impl Core {
    fn serve(&mut self) -> EngineEnd {
        loop {
            match self.inbox.take(self.sequences.is_empty(), !self.waits_for_memory) {
                Intake::End(end) => return end,
                Intake::Work { admitted, departed } => {
                    for (job, error) in departed {
                        self.part(&job, error.map_or(Outcome::Cancelled, Outcome::Failed));
                    }
                    self.admit(admitted);
                }
            }
            self.n_ticks += 1;
            self.tick();
        }
    }

    /// Gives jobs their memory. The first that finds none waits for one that runs to end.
    fn admit(&mut self, jobs: Vec<Job>) {
        let mut refused = Vec::new();
        for job in jobs {
            if !refused.is_empty() {
                refused.push(job);
                continue;
            }
            let capacity = job.request.prompt.len() + job.request.n_answer_max;
            match self.new_state(capacity) {
                Ok(state) => self.begin(job, state),
                Err(ModelError::OutOfMemory { .. }) if !self.sequences.is_empty() => {
                    refused.push(job);
                }
                Err(error) => {
                    self.inbox.release(job.submitted.elapsed());
                    self.part(&job, Outcome::Failed(EngineError::Model(error.to_string())));
                }
            }
        }
        self.waits_for_memory |= !refused.is_empty();
        for job in refused.into_iter().rev() {
            self.inbox.put_back(job);
        }
    }

    /// Memory for a sequence, for which kept prompts give way.
    fn new_state(&mut self, capacity: usize) -> Result<SeqState, ModelError> {
        loop {
            match self.model.new_state(capacity) {
                Err(ModelError::OutOfMemory { .. }) if self.cache.evict() => {}
                state => return state,
            }
        }
    }

    /// Starts a request behind what is known of its prompt.
    fn begin(&mut self, job: Job, mut state: SeqState) {
        let prompt = &job.request.prompt;
        // Every row of a scored prompt is wanted.
        let is_on = self.cache.is_on() && job.request.prompt_logprobs.is_none();
        let places =
            if is_on { prompt_cache::places(prompt, self.vocabulary.turn) } else { Vec::new() };
        let mut n_cached = 0;
        if let Some((n, snapshot)) = self.cache.longest(prompt).filter(|_| is_on) {
            match self.model.restore(&mut state, snapshot) {
                Ok(()) => n_cached = n,
                // Nothing was changed: the prompt is read from its start.
                Err(error) => tracing::warn!(%error, "a kept prompt could not be used"),
            }
        }
        let (vocabulary, tick) = (&self.vocabulary, self.n_ticks);
        self.sequences.push(Sequence::new(job, state, n_cached, &places, vocabulary, tick));
    }

    /// Keeps a state that has read `tokens`, if that may help another request.
    fn keep(&mut self, sequence: usize, tokens: &[TokenId]) {
        if !self.cache.takes(tokens.len()) || self.cache.has(tokens) {
            return;
        }
        let n_shared = self.cache.shared_len(tokens);
        if tokens.len() - n_shared < TOKENS_MIN {
            return;
        }
        loop {
            match self.model.snapshot(self.sequences[sequence].state()) {
                Ok(snapshot) => break self.cache.insert(tokens, snapshot),
                Err(ModelError::OutOfMemory { .. }) if self.cache.evict() => {}
                Err(error) => break tracing::debug!(%error, "a prompt was not kept"),
            }
        }
        self.inbox.counters.set_cache(self.cache.n_entries(), self.cache.held_bytes());
    }

    fn tick(&mut self) {
        let now = Instant::now();
        for sequence in &mut self.sequences {
            if sequence.job.is_cancelled() {
                sequence.outcome = Some(Outcome::Cancelled);
            } else if let Some(error) = sequence.job.deadline_error(now) {
                sequence.outcome = Some(Outcome::Failed(error));
            }
        }
        self.remove_ended();
        let needs: Vec<_> = self.sequences.iter().map(Sequence::need).collect();
        let works = self.schedule.plan(&needs);
        tracing::trace!(n = self.n_ticks, n_sequences = works.len(), "tick");
        match self.forward(&works) {
            // Somebody left: the next tick lets go of them and repeats the pass for the others.
            Ok(()) | Err(ModelError::Interrupted) => {}
            Err(error) => self.isolate(&works, &error),
        }
        self.remove_ended();
    }

    /// One pass: computes, samples, sends.
    fn forward(&mut self, works: &[Work]) -> Result<(), ModelError> {
        if works.is_empty() || self.decode_ahead(works)? {
            return Ok(());
        }
        let watch: Vec<Watch> = self.sequences.iter().map(|s| s.job.watch()).collect();
        let mut batch = Vec::with_capacity(works.len());
        let mut wanted = works.iter().peekable();
        for (i, sequence) in self.sequences.iter_mut().enumerate() {
            if let Some(work) = wanted.next_if(|work| work.sequence == i) {
                batch.push(sequence.step(work.chunk_len));
            }
        }
        let n_rows_of = |step: &Step<'_>| match step.rows {
            Rows::None => 0,
            Rows::Last => 1,
            Rows::All => step.tokens.len(),
        };
        let counts: Vec<usize> = batch.iter().map(n_rows_of).collect();
        let n_prompt: usize = works.iter().filter_map(|w| w.chunk_len).sum();
        let start = Instant::now();
        if n_prompt < INTERRUPTIBLE_TOKENS {
            self.model.forward(&mut batch, &mut self.logits)?;
        } else {
            let interrupt = || watch.iter().any(Watch::wants_out) || self.inbox.is_stopping();
            self.model.forward_interruptible(&mut batch, &mut self.logits, &interrupt)?;
        }
        let now = Instant::now();
        let n_decoded = works.iter().filter(|w| w.chunk_len.is_none()).count();
        self.inbox.counters.add_pass(now.duration_since(start), n_prompt, n_decoded);

        let n_rows: usize = counts.iter().sum();
        assert_eq!(self.logits.n_rows(), n_rows, "the model returns a row for each one asked for");
        let row_len = self.logits.vocab_size.max(1);
        let mut rest = self.logits.values.as_mut_slice();
        let mut kept = Vec::new();
        for (work, n_rows) in works.iter().zip(counts) {
            let (rows, after) = rest.split_at_mut(n_rows * row_len);
            rest = after;
            let sequence = &mut self.sequences[work.sequence];
            if let Some(chunk_len) = work.chunk_len {
                if let Some(tokens) = sequence.place(chunk_len) {
                    kept.push((work.sequence, tokens.to_vec()));
                }
                sequence.score(chunk_len, rows, &mut self.vocabulary);
                sequence.prefilled(chunk_len, self.n_ticks, now);
            }
            if let Some(row) = rows.chunks_exact_mut(row_len).next_back()
                && sequence.need() == Need::Decode
            {
                let n = sequence.extend(row, &mut self.vocabulary);
                self.inbox.counters.n_generated_tokens.fetch_add(n, Ordering::Relaxed);
            }
        }
        for (sequence, tokens) in kept {
            self.keep(sequence, &tokens);
        }
        Ok(())
    }

    /// A sequence that decodes by itself, on a model that can choose its tokens: several at once, so
    /// that the device does not wait for the engine between them. `false` if this is no such case.
    fn decode_ahead(&mut self, works: &[Work]) -> Result<bool, ModelError> {
        let [Work { sequence, chunk_len: None }] = *works else { return Ok(false) };
        if !self.model.samples() || self.sequences.len() > 1 {
            return Ok(false);
        }
        let sequence = &mut self.sequences[sequence];
        let Some((rules, draws)) = sequence.ahead(TOKENS_AHEAD) else { return Ok(false) };
        let start = Instant::now();
        let (state, last) = sequence.last();
        let Some(chosen) = self.model.decode_sampled(state, last, &rules, &draws)? else {
            return Ok(false);
        };
        let n = sequence.extend_chosen(&chosen, &self.vocabulary);
        self.inbox.counters.add_pass(start.elapsed(), 0, n);
        self.inbox.counters.n_generated_tokens.fetch_add(n as u64, Ordering::Relaxed);
        Ok(true)
    }

    /// A failed pass changed nothing, so each sequence is tried alone: only those fail that fail
    /// by themselves.
    fn isolate(&mut self, works: &[Work], error: &ModelError) {
        if let [work] = works {
            let error = EngineError::Model(error.to_string());
            self.sequences[work.sequence].outcome = Some(Outcome::Failed(error));
            return;
        }
        tracing::warn!(%error, n_sequences = works.len(), "a pass failed; trying its sequences alone");
        for work in works {
            match self.forward(std::slice::from_ref(work)) {
                Ok(()) | Err(ModelError::Interrupted) => {}
                Err(error) => self.isolate(std::slice::from_ref(work), &error),
            }
        }
    }

    /// Frees the memory and the place first, so that a client that reacts to the end finds them.
    fn remove_ended(&mut self) {
        let mut i = 0;
        while i < self.sequences.len() {
            if self.sequences[i].outcome.is_none() {
                i += 1;
                continue;
            }
            if let Some(tokens) = self.sequences[i].read_tokens() {
                self.keep(i, &tokens);
            }
            let Sequence { job, outcome, admitted, .. } = self.sequences.remove(i);
            self.waits_for_memory = false;
            self.inbox.release(admitted.elapsed());
            self.part(&job, outcome.unwrap_or(Outcome::Cancelled));
        }
    }

    /// Tells the client and the log how a request ended.
    fn part(&self, job: &Job, outcome: Outcome) {
        let _entered = job.span.enter();
        match outcome {
            Outcome::Finished(summary) => {
                log(&summary);
                job.send(Event::Finished(summary));
            }
            Outcome::Failed(error) => {
                tracing::warn!(%error, prompt_tokens = job.request.prompt.len(), "failed");
                job.send(Event::Failed(error));
            }
            Outcome::Cancelled => {
                self.inbox.counters.n_cancelled.fetch_add(1, Ordering::Relaxed);
                tracing::info!(prompt_tokens = job.request.prompt.len(), "cancelled");
            }
        }
    }
}

fn log(summary: &Summary) {
    let rate = |n: usize, seconds: f64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
    let Summary { prompt, completion_tokens, reasoning_tokens, decode_s, .. } = summary;
    let n_computed = prompt.prompt_tokens - prompt.cached_tokens;
    // The first token comes out of the prefill.
    let n_decoded = completion_tokens.saturating_sub(1);
    tracing::info!(
        finish_reason = ?summary.finish_reason,
        prompt_tokens = prompt.prompt_tokens,
        cached_tokens = prompt.cached_tokens,
        completion_tokens,
        reasoning_tokens,
        queued_s = format_args!("{:.3}", prompt.queued_s),
        prefill_tokens_per_s = format_args!("{:.1}", rate(n_computed, prompt.prefill_s)),
        decode_tokens_per_s = format_args!("{:.1}", rate(n_decoded, *decode_s)),
        "finished"
    );
}
