//! One answer in the making, and how a row of logits takes it on.

use crate::answer::Answer;
use crate::constraint::Guide;
use crate::job::{Job, Prepared};
use crate::logprobs::logprobs;
use crate::sample::{NOT_FINITE, Sampler, Scratch};
use crate::schedule::Need;
use crate::select::Ranked;
use crate::thinking::Thinking;
use crate::{EngineError, Event, FinishReason, PromptStats, Summary, TokenLogprob};
use lily_model::{Advance, DeviceSampling, Rows, SeqState, Step};
use lily_text::{TokenId, Tokenizer};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A request that has its place and its memory.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) job: Job,
    state: SeqState,
    sampler: Sampler,
    answer: Answer,
    thinking: Thinking,
    /// Rules the answer once it does not think.
    guide: Option<Guide>,
    /// Tokens that come next whatever the model says.
    forced: VecDeque<TokenId>,
    /// Tokens of the prompt that are computed.
    n_prefilled: usize,
    /// Of those, the ones that another request had computed.
    n_cached: usize,
    /// Lengths of the prompt at which its state is kept, the next one last.
    places: Vec<usize>,
    waiting_since: u64,
    token_ids: Vec<TokenId>,
    /// Tokens of the answer that the state has read.
    n_read: usize,
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
    /// A row of logits without what a form forbids.
    pub(crate) masked: Vec<f32>,
    /// What ends a think block.
    pub(crate) closing: Vec<TokenId>,
    /// `<tool_call>`
    pub(crate) tool_call: Option<TokenId>,
    /// `<|im_start|>`
    pub(crate) turn: Option<TokenId>,
}

impl Sequence {
    /// `state` may have read the first tokens of the prompt. It is kept at `places`, ascending.
    pub(crate) fn new(
        mut job: Job,
        state: SeqState,
        n_cached: usize,
        places: &[usize],
        vocabulary: &Vocabulary,
        tick: u64,
    ) -> Self {
        let guide = job.request.guide.take();
        let Prepared { settings, seed, prompt, parser, stop, .. } = &job.request;
        let sampler = Sampler::new(settings.clone(), *seed, prompt, vocabulary.size);
        let tokenizer = Arc::clone(&vocabulary.tokenizer);
        let answer = Answer::new(tokenizer, parser.clone(), stop);
        let thinking = Thinking::new(job.request.is_thinking, job.request.thinking_budget);
        let mut sequence = Self {
            job,
            state,
            sampler,
            answer,
            thinking,
            guide,
            forced: VecDeque::new(),
            n_prefilled: n_cached,
            n_cached,
            places: places.iter().copied().rev().filter(|&place| place > n_cached).collect(),
            waiting_since: tick,
            token_ids: Vec::new(),
            n_read: 0,
            admitted: Instant::now(),
            prefill_start: None,
            prefill_end: None,
            prompt_stats: PromptStats::default(),
            outcome: None,
        };
        sequence.keep_budget(vocabulary);
        sequence
    }

    pub(crate) fn need(&self) -> Need {
        let end = self.places.last().copied().unwrap_or(self.job.request.prompt.len());
        match end - self.n_prefilled {
            0 => Need::Decode,
            n_left => Need::Prefill {
                n_left,
                waiting_since: self.waiting_since,
                is_scored: self.job.request.prompt_logprobs.is_some(),
            },
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
                let rows = match (self.job.request.prompt_logprobs, end == prompt.len()) {
                    (Some(_), _) => Rows::All,
                    (None, true) => Rows::Last,
                    (None, false) => Rows::None,
                };
                (&prompt[self.n_prefilled..end], rows)
            }
        };
        Step { state: &mut self.state, tokens, rows, advance: Advance::Commit }
    }

    /// The tokens read so far, if the state is to be kept at the end of a chunk of `chunk_len`.
    pub(crate) fn place(&self, chunk_len: usize) -> Option<&[TokenId]> {
        let end = self.n_prefilled + chunk_len;
        (self.places.last() == Some(&end)).then(|| &self.job.request.prompt[..end])
    }

    pub(crate) fn state(&self) -> &SeqState {
        &self.state
    }

    /// Prompt and answer as far as the state has read them, if it is an answer that has ended well.
    pub(crate) fn read_tokens(&self) -> Option<Vec<TokenId>> {
        let Some(Outcome::Finished(summary)) = &self.outcome else { return None };
        let prompt = &self.job.request.prompt;
        // None if a device has read beyond the end of the answer.
        let answer = summary.token_ids.get(..self.n_read)?;
        Some([prompt, answer].concat())
    }

    /// Sends the log-probabilities of the tokens that these rows of a chunk predict.
    ///
    /// The row after the last token of the prompt predicts none of them.
    pub(crate) fn score(&mut self, chunk_len: usize, rows: &[f32], vocabulary: &mut Vocabulary) {
        let Some(n_top) = self.job.request.prompt_logprobs else { return };
        let prompt = &self.job.request.prompt;
        let predicted = prompt.iter().skip(self.n_prefilled + 1).take(chunk_len);
        let row_len = rows.len() / chunk_len.max(1);
        let n = vocabulary.size.min(row_len);
        let piece: Vec<TokenLogprob> = predicted
            .zip(rows.chunks_exact(row_len.max(1)))
            .map(|(&id, row)| logprobs(&row[..n], id, n_top, &mut vocabulary.best))
            .collect();
        if piece.iter().any(|token| token.logprob.is_nan()) {
            self.outcome = Some(Outcome::Failed(NOT_FINITE));
        } else if !piece.is_empty() {
            self.job.send(Event::PromptLogprobs(piece));
        }
    }

    /// Notes that a chunk was computed.
    pub(crate) fn prefilled(&mut self, chunk_len: usize, tick: u64, now: Instant) {
        self.n_prefilled += chunk_len;
        self.waiting_since = tick;
        if self.places.last() == Some(&self.n_prefilled) {
            self.places.pop();
        }
        if self.n_prefilled < self.job.request.prompt.len() || self.outcome.is_some() {
            return;
        }
        let start = self.prefill_start.unwrap_or(now);
        self.prefill_end = Some(now);
        self.prompt_stats = PromptStats {
            prompt_tokens: self.job.request.prompt.len(),
            cached_tokens: self.n_cached,
            queued_s: start.duration_since(self.job.submitted).as_secs_f64(),
            prefill_s: now.duration_since(start).as_secs_f64(),
        };
        self.job.send(Event::Started(self.prompt_stats));
        if self.job.request.n_answer_max == 0 {
            let summary = self.summary(FinishReason::Length);
            self.outcome = Some(Outcome::Finished(summary));
        }
    }

    /// Chooses the next token from the logits and sends what it adds; returns how many tokens that
    /// were, none or one.
    ///
    /// Nothing happens to an answer that has ended: with its prompt, or by an error of it.
    pub(crate) fn extend(&mut self, row: &mut [f32], vocabulary: &mut Vocabulary) -> u64 {
        if self.outcome.is_some() {
            return 0;
        }
        let Some(id) = self.choose(row, vocabulary) else { return 0 };
        let logprobs = self.job.request.logprobs.map(|n_top| {
            let n = vocabulary.size.min(row.len());
            logprobs(&row[..n], id, n_top, &mut vocabulary.best)
        });
        self.push(id, logprobs, vocabulary);
        1
    }

    /// `None` if the answer ends here instead.
    fn choose(&mut self, row: &mut [f32], vocabulary: &mut Vocabulary) -> Option<TokenId> {
        if let Some(id) = self.forced.pop_front() {
            self.sampler.note(id);
            return Some(id);
        }
        let Vocabulary { scratch, masked, .. } = vocabulary;
        let chosen = match self.guide.as_mut().filter(|_| !self.thinking.is_open()) {
            Some(guide) => {
                let n = vocabulary.size.min(row.len());
                if let Err(problem) = guide.mask(&row[..n], masked) {
                    self.give_up(&problem);
                    return None;
                }
                self.sampler.sample(masked, scratch)
            }
            None => self.sampler.sample(row, scratch),
        };
        match chosen {
            // Its thinking over, the model goes on without saying so. The form comes first.
            Ok(id) if self.leaves_thinking(id, vocabulary) => {
                self.forced.extend(&vocabulary.closing);
                self.forced.pop_front()
            }
            Ok(id) => Some(id),
            Err(error) => {
                self.outcome = Some(Outcome::Failed(error));
                None
            }
        }
    }

    /// Whether a token would end thinking, before an answer that has a form, without its tag.
    fn leaves_thinking(&self, id: TokenId, vocabulary: &Vocabulary) -> bool {
        let is_end = vocabulary.eos_token_ids.contains(&id) && !self.job.request.ignore_eos;
        let leaves = is_end || vocabulary.tool_call == Some(id);
        leaves && self.thinking.is_open() && self.guide.is_some() && !vocabulary.closing.is_empty()
    }

    /// Ends an answer whose form leaves no way to go on.
    fn give_up(&mut self, problem: &str) {
        let _entered = self.job.span.clone().entered();
        tracing::warn!(problem, "the form of the answer leaves no way to go on; it ends as if cut");
        let deltas = self.answer.finish();
        if !deltas.is_empty() {
            self.job.send(Event::Step { deltas, logprobs: Vec::new() });
        }
        let summary = self.summary(FinishReason::Length);
        self.outcome = Some(Outcome::Finished(summary));
    }

    /// Closes a think block that has taken its budget.
    fn keep_budget(&mut self, vocabulary: &Vocabulary) {
        if self.thinking.is_spent() && self.forced.is_empty() {
            self.forced.extend(&vocabulary.closing);
        }
    }

    /// Rules and draws for some tokens in a row, if a device may choose them: at most `n_max`.
    pub(crate) fn ahead(&mut self, n_max: usize) -> Option<(DeviceSampling, Vec<f32>)> {
        let is_watched =
            self.guide.is_some() || self.thinking.has_budget() || !self.forced.is_empty();
        if is_watched || self.job.request.logprobs.is_some() || self.need() != Need::Decode {
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
        let n_read = self.n_read + ids.len();
        let mut n_taken = 0;
        for &id in ids {
            if self.outcome.is_some() {
                break;
            }
            if id as usize >= vocabulary.size {
                self.outcome = Some(Outcome::Failed(NOT_FINITE));
                break;
            }
            self.push(id, None, vocabulary);
            n_taken += 1;
        }
        self.n_read = n_read;
        n_taken
    }

    /// Adds a token and sends what it adds.
    fn push(&mut self, id: TokenId, logprobs: Option<TokenLogprob>, vocabulary: &Vocabulary) {
        self.n_read = self.token_ids.len();
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
            return;
        }
        if let Err(problem) = self.follow(id, is_eos, vocabulary) {
            self.give_up(&problem);
        }
    }

    /// Takes thinking and form on by a token.
    fn follow(&mut self, id: TokenId, is_eos: bool, vocabulary: &Vocabulary) -> Result<(), String> {
        if is_eos {
            return Ok(());
        }
        if !self.thinking.is_open() {
            return self.guide.as_mut().map_or(Ok(()), |guide| guide.push(id));
        }
        let is_text = !vocabulary.tokenizer.is_special(id);
        let bytes = if is_text { vocabulary.tokenizer.token_bytes(id) } else { &[] };
        if let Some(n_after) = self.thinking.push(bytes) {
            let after = &bytes[bytes.len() - n_after..];
            return self.guide.as_mut().map_or(Ok(()), |guide| guide.push_bytes(after));
        }
        // The parser also ends the reasoning at a call.
        if self.answer.is_reasoning() == Some(false) {
            self.thinking.close();
        }
        self.keep_budget(vocabulary);
        Ok(())
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
