//! One answer in the making, and how a row of logits takes it on.

use crate::answer::Answer;
use crate::job::{Job, Prepared};
use crate::logprobs::logprobs;
use crate::sample::{NOT_FINITE, Sampler, Scratch};
use crate::schedule::Need;
use crate::select::Ranked;
use crate::{EngineError, Event, FinishReason, PromptStats, Summary, TokenLogprob};
use lily_model::{Advance, DeviceSampling, Rows, SeqState, Step};
use lily_text::{TokenId, Tokenizer};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A request that has its place and its memory.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) job: Job,
    state: SeqState,
    sampler: Sampler,
    answer: Answer,
    /// Tokens of the prompt that are computed.
    n_prefilled: usize,
    waiting_since: u64,
    token_ids: Vec<TokenId>,
    pub(crate) admitted: Instant,
    /// When the first chunk began.
    prefill_start: Option<Instant>,
    /// When the last chunk was computed.
    prefill_end: Option<Instant>,
    prompt_stats: PromptStats,
    /// How it ended; it then waits to be removed.
    pub(crate) outcome: Option<Outcome>,
}

/// How a request ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Finished(Summary),
    Failed(EngineError),
    Cancelled,
}

/// What the samplers and answers of all sequences share.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) eos_token_ids: Vec<TokenId>,
    /// Rows of logits beyond this are padding.
    pub(crate) size: usize,
    pub(crate) scratch: Scratch,
    pub(crate) best: Vec<Ranked>,
}

impl Sequence {
    pub(crate) fn new(job: Job, state: SeqState, vocabulary: &Vocabulary, tick: u64) -> Self {
        let Prepared { settings, seed, prompt, parser, stop, .. } = &job.request;
        let sampler = Sampler::new(settings.clone(), *seed, prompt, vocabulary.size);
        let tokenizer = Arc::clone(&vocabulary.tokenizer);
        let answer = Answer::new(tokenizer, parser.clone(), stop);
        Self {
            job,
            state,
            sampler,
            answer,
            n_prefilled: 0,
            waiting_since: tick,
            token_ids: Vec::new(),
            admitted: Instant::now(),
            prefill_start: None,
            prefill_end: None,
            prompt_stats: PromptStats::default(),
            outcome: None,
        }
    }

    pub(crate) fn need(&self) -> Need {
        match self.job.request.prompt.len() - self.n_prefilled {
            0 => Need::Decode,
            n_left => Need::Prefill { n_left, waiting_since: self.waiting_since },
        }
    }

    /// The part of a pass: the last token, or a chunk of the prompt.
    pub(crate) fn step(&mut self, chunk_len: Option<usize>) -> Step<'_> {
        let prompt = &self.job.request.prompt;
        let (tokens, rows) = match chunk_len {
            None => {
                let last = self.token_ids.len() - 1;
                (&self.token_ids[last..], Rows::Last)
            }
            Some(len) => {
                self.prefill_start.get_or_insert_with(Instant::now);
                let end = self.n_prefilled + len;
                let rows = if end == prompt.len() { Rows::Last } else { Rows::None };
                (&prompt[self.n_prefilled..end], rows)
            }
        };
        Step { state: &mut self.state, tokens, rows, advance: Advance::Commit }
    }

    /// Notes that a chunk was computed.
    pub(crate) fn prefilled(&mut self, chunk_len: usize, tick: u64, now: Instant) {
        self.n_prefilled += chunk_len;
        self.waiting_since = tick;
        if self.n_prefilled < self.job.request.prompt.len() {
            return;
        }
        let start = self.prefill_start.unwrap_or(now);
        self.prefill_end = Some(now);
        self.prompt_stats = PromptStats {
            prompt_tokens: self.job.request.prompt.len(),
            cached_tokens: 0,
            queued_s: start.duration_since(self.job.submitted).as_secs_f64(),
            prefill_s: now.duration_since(start).as_secs_f64(),
        };
        self.job.send(Event::Started(self.prompt_stats));
    }

    /// Chooses the next token from the logits and sends what it adds.
    pub(crate) fn extend(&mut self, row: &mut [f32], vocabulary: &mut Vocabulary) {
        let id = match self.sampler.sample(row, &mut vocabulary.scratch) {
            Ok(id) => id,
            Err(error) => {
                self.outcome = Some(Outcome::Failed(error));
                return;
            }
        };
        let logprobs = self.job.request.logprobs.map(|n_top| {
            let n = vocabulary.size.min(row.len());
            logprobs(&row[..n], id, n_top, &mut vocabulary.best)
        });
        self.push(id, logprobs, vocabulary);
    }

    /// Rules and draws for some tokens in a row, if a device may choose them: at most `n_max`.
    pub(crate) fn ahead(&mut self, n_max: usize) -> Option<(DeviceSampling, Vec<f32>)> {
        if self.job.request.logprobs.is_some() || self.need() != Need::Decode {
            return None;
        }
        let rules = self.sampler.device_rules()?;
        let n_left = self.job.request.n_answer_max - self.token_ids.len();
        Some((rules, self.sampler.draws(n_max.min(n_left))))
    }

    /// The state, and the token to feed next.
    pub(crate) fn last(&mut self) -> (&mut SeqState, TokenId) {
        let last = *self.token_ids.last().expect("a sequence that decodes has a token");
        (&mut self.state, last)
    }

    /// Takes what a device chose, up to the end of the answer.
    pub(crate) fn extend_chosen(&mut self, ids: &[TokenId], vocabulary: &Vocabulary) -> usize {
        for (n, &id) in ids.iter().enumerate() {
            if self.outcome.is_some() {
                return n;
            }
            if id as usize >= vocabulary.size {
                self.outcome = Some(Outcome::Failed(NOT_FINITE));
                return n;
            }
            self.push(id, None, vocabulary);
        }
        ids.len()
    }

    /// Adds a token and sends what it adds.
    fn push(&mut self, id: TokenId, logprobs: Option<TokenLogprob>, vocabulary: &Vocabulary) {
        self.token_ids.push(id);
        let is_eos = vocabulary.eos_token_ids.contains(&id);
        let mut deltas = if is_eos { Vec::new() } else { self.answer.push(id) };
        let ended = if (is_eos && !self.job.request.ignore_eos) || self.stop_string_found() {
            Some(FinishReason::Stop)
        } else if self.token_ids.len() == self.job.request.n_answer_max {
            Some(FinishReason::Length)
        } else {
            None
        };
        if ended.is_some() {
            deltas.extend(self.answer.finish());
        }
        self.job.send(Event::Step { deltas, logprobs: logprobs.into_iter().collect() });
        if let Some(reason) = ended {
            let summary = self.summary(reason);
            self.outcome = Some(Outcome::Finished(summary));
        }
    }

    fn stop_string_found(&self) -> bool {
        self.answer.stop_string().is_some()
    }

    fn summary(&mut self, reason: FinishReason) -> Summary {
        // The last flush can complete a stop string at the length limit.
        let reason = if self.stop_string_found() { FinishReason::Stop } else { reason };
        let finish_reason = match reason {
            FinishReason::Stop if self.answer.n_tool_calls() > 0 => FinishReason::ToolCalls,
            reason => reason,
        };
        Summary {
            finish_reason,
            stop_string: self.answer.stop_string().map(str::to_owned),
            prompt: self.prompt_stats,
            completion_tokens: self.token_ids.len(),
            reasoning_tokens: self.answer.n_reasoning_tokens(),
            decode_s: self.prefill_end.map_or(Duration::ZERO, |t| t.elapsed()).as_secs_f64(),
            token_ids: std::mem::take(&mut self.token_ids),
        }
    }
}
