//! The choice of the next token from a row of logits.
//!
//! The order is fixed and part of the API:
//!
//! 1. **Penalties and bias**, on the logits: repetition (divides positive and multiplies negative
//!    logits of every token of prompt and answer), then frequency and presence (subtract, tokens of
//!    the answer only), then `logit_bias`.
//! 2. **Temperature** divides what is left. 0 ends here: the largest logit wins, the lower id of
//!    equals.
//! 3. **top-k** keeps the k largest, the lower ids of equals.
//! 4. **top-p** keeps the fewest of the largest whose share of what top-k kept reaches p.
//! 5. **min-p** drops what has less than `min_p` times the probability of the best.
//! 6. One **draw** by the remaining probabilities.
//!
//! Temperature before the filters is what the recommended values of the checkpoint assume.
//! Each draw takes one number from a generator of the request's own, so an answer depends on the
//! seed and the request and not on what else runs.

use crate::select::{Ranked, argmax, best_first, largest};
use crate::{EngineError, Sampling};
use lily_model::DeviceSampling;
use lily_text::TokenId;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

/// Chooses the tokens of one answer.
#[derive(Debug)]
pub(crate) struct Sampler {
    settings: Settings,
    rng: ChaCha12Rng,
    /// Tokens of prompt and answer with how often the answer has them. Empty without penalties.
    n_generated: BTreeMap<TokenId, u32>,
    /// Ids from here on are padding rows of the embedding table and never chosen.
    vocab_size: usize,
}

/// Sampling values without gaps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) temperature: f32,
    /// 0 is off.
    pub(crate) top_k: usize,
    pub(crate) top_p: f32,
    pub(crate) min_p: f32,
    pub(crate) presence_penalty: f32,
    pub(crate) frequency_penalty: f32,
    pub(crate) repetition_penalty: f32,
    pub(crate) logit_bias: Vec<(TokenId, f32)>,
}

impl Settings {
    /// What the request says, else what the checkpoint recommends, else no effect.
    pub(crate) fn new(request: &Sampling, defaults: &Sampling) -> Self {
        let or = |a: Option<f32>, b: Option<f32>, neutral| a.or(b).unwrap_or(neutral);
        let top_k = request.top_k.or(defaults.top_k).unwrap_or(0);
        let bias =
            if request.logit_bias.is_empty() { &defaults.logit_bias } else { &request.logit_bias };
        Self {
            temperature: or(request.temperature, defaults.temperature, 1.0),
            top_k: usize::try_from(top_k).unwrap_or(usize::MAX),
            top_p: or(request.top_p, defaults.top_p, 1.0),
            min_p: or(request.min_p, defaults.min_p, 0.0),
            presence_penalty: or(request.presence_penalty, defaults.presence_penalty, 0.0),
            frequency_penalty: or(request.frequency_penalty, defaults.frequency_penalty, 0.0),
            repetition_penalty: or(request.repetition_penalty, defaults.repetition_penalty, 1.0),
            logit_bias: bias.clone(),
        }
    }

    #[allow(clippy::float_cmp, reason = "1 and 0 are exact and mean off")]
    fn has_penalties(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.presence_penalty != 0.0
            || self.frequency_penalty != 0.0
    }

    /// A logit after the penalties for a token of the prompt or the answer.
    fn penalised(&self, logit: f32, n_generated: u32) -> f32 {
        let r = self.repetition_penalty;
        let logit = if logit > 0.0 { logit / r } else { logit * r };
        let presence = if n_generated > 0 { self.presence_penalty } else { 0.0 };
        logit - self.frequency_penalty * n_generated as f32 - presence
    }
}

/// Memory that the samplers of all sequences use in turn.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Logits before penalties and bias, to be put back.
    originals: Vec<(usize, f32)>,
    candidates: Vec<Ranked>,
}

impl Sampler {
    /// A sampler at the start of an answer. Without a seed it draws what nobody can foresee.
    pub(crate) fn new(
        settings: Settings,
        seed: Option<u64>,
        prompt: &[TokenId],
        vocab_size: usize,
    ) -> Self {
        // The standard library seeds its hashers from the operating system.
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one("seed"));
        let mut n_generated = BTreeMap::new();
        #[allow(clippy::float_cmp, reason = "1 is exact and means off")]
        if settings.repetition_penalty != 1.0 {
            n_generated.extend(prompt.iter().map(|&id| (id, 0)));
        }
        Self { settings, rng: ChaCha12Rng::seed_from_u64(seed), n_generated, vocab_size }
    }

    /// Chooses a token. `row` is as before when this returns.
    ///
    /// # Errors
    /// [`EngineError::Logits`] if a logit is NaN or infinite, or none is left.
    pub(crate) fn sample(
        &mut self,
        row: &mut [f32],
        scratch: &mut Scratch,
    ) -> Result<TokenId, EngineError> {
        let n = self.vocab_size.min(row.len());
        let row = &mut row[..n];
        self.adjust(row, &mut scratch.originals);
        let chosen = if self.settings.temperature > 0.0 {
            let draw = unit_interval(self.rng.next_u64());
            pick(row, &self.settings, draw, &mut scratch.candidates)
        } else {
            check(row).and_then(|()| argmax(row).ok_or(NOTHING_LEFT))
        };
        for &(id, logit) in scratch.originals.iter().rev() {
            row[id] = logit;
        }
        let id = token_id(chosen?);
        self.note(id);
        Ok(id)
    }

    /// Counts a token of the answer that was not chosen here.
    pub(crate) fn note(&mut self, id: TokenId) {
        if self.settings.has_penalties() {
            *self.n_generated.entry(id).or_insert(0) += 1;
        }
    }

    /// The rules as a device takes them; `None` if they look at what was said before.
    pub(crate) fn device_rules(&self) -> Option<DeviceSampling> {
        let s = &self.settings;
        if s.has_penalties() || !s.logit_bias.is_empty() {
            return None;
        }
        let vocab_size = self.vocab_size;
        if s.temperature > 0.0 {
            if s.top_k == 0 || s.top_k > DeviceSampling::TOP_K_MAX {
                return None;
            }
            let Settings { temperature, top_k, top_p, min_p, .. } = *s;
            return Some(DeviceSampling { temperature, top_k, top_p, min_p, vocab_size });
        }
        // The largest logit: one candidate, whatever is drawn.
        Some(DeviceSampling { temperature: 1.0, top_k: 1, top_p: 1.0, min_p: 0.0, vocab_size })
    }

    /// The draws of the next `n` tokens.
    pub(crate) fn draws(&mut self, n: usize) -> Vec<f32> {
        if self.settings.temperature > 0.0 {
            #[expect(clippy::cast_possible_truncation, reason = "devices draw in f32")]
            let draw = |bits| unit_interval(bits) as f32;
            (0..n).map(|_| draw(self.rng.next_u64())).collect()
        } else {
            vec![0.0; n]
        }
    }

    fn adjust(&self, row: &mut [f32], originals: &mut Vec<(usize, f32)>) {
        originals.clear();
        let mut change = |id: TokenId, new: &dyn Fn(f32) -> f32| {
            if let Some(logit) = row.get_mut(id as usize) {
                originals.push((id as usize, *logit));
                *logit = new(*logit);
            }
        };
        if self.settings.has_penalties() {
            for (&id, &n_generated) in &self.n_generated {
                change(id, &|logit| self.settings.penalised(logit, n_generated));
            }
        }
        for &(id, bias) in &self.settings.logit_bias {
            change(id, &|logit| logit + bias);
        }
    }
}

pub(crate) const NOT_FINITE: EngineError =
    EngineError::Logits { problem: "are not finite numbers" };
const NOTHING_LEFT: EngineError = EngineError::Logits { problem: "leave no token to choose" };

/// NaN and positive infinity have no probability; negative infinity has, namely 0.
fn check(row: &[f32]) -> Result<(), EngineError> {
    // No early exit: so it runs as SIMD.
    let n_bad: usize = row.iter().map(|&x| usize::from(x.is_nan() || x == f32::INFINITY)).sum();
    if n_bad == 0 { Ok(()) } else { Err(NOT_FINITE) }
}

/// Steps 2 to 6 for a temperature above 0: an index of `row` by `draw`, from 0 to below 1.
fn pick(
    row: &[f32],
    settings: &Settings,
    draw: f64,
    candidates: &mut Vec<Ranked>,
) -> Result<usize, EngineError> {
    check(row)?;
    let all = settings.top_k == 0 || settings.top_k >= row.len();
    if all {
        candidates.clear();
        let finite = row.iter().enumerate().filter(|(_, logit)| **logit > f32::NEG_INFINITY);
        candidates.extend(finite.map(|(index, &value)| Ranked { index, value }));
    } else {
        largest(row, settings.top_k, candidates);
    }
    let max = candidates.iter().map(|c| c.value).fold(f32::NEG_INFINITY, f32::max);
    // From here on `value` is the probability relative to the best token: 1 for that one.
    for candidate in candidates.iter_mut() {
        candidate.value = ((candidate.value - max) / settings.temperature).exp();
    }
    if settings.top_p < 1.0 {
        let n_kept = nucleus(candidates, f64::from(settings.top_p));
        candidates.truncate(n_kept);
    }
    if settings.min_p > 0.0 {
        candidates.retain(|c| c.value >= settings.min_p);
    }
    let mut left = draw * total(candidates);
    for candidate in candidates.iter() {
        left -= f64::from(candidate.value);
        if left < 0.0 {
            return Ok(candidate.index);
        }
    }
    // Rounding can leave a trace of the draw.
    let last = candidates.iter().rev().find(|c| c.value > 0.0);
    last.map(|c| c.index).ok_or(NOTHING_LEFT)
}

/// Moves the fewest of the best candidates whose share reaches `top_p` to the front and returns
/// how many they are.
///
/// Halves instead of sorting: a part is only looked into if the border lies in it, so the time is
/// linear.
fn nucleus(candidates: &mut [Ranked], top_p: f64) -> usize {
    const SORT_LEN: usize = 32;
    let wanted = top_p * total(candidates);
    let (mut low, mut high) = (0, candidates.len());
    let mut kept = 0.0;
    while high - low > SORT_LEN {
        let half = (high - low) / 2;
        candidates[low..high].select_nth_unstable_by(half, best_first);
        let upper = total(&candidates[low..low + half]);
        if kept + upper >= wanted {
            high = low + half;
        } else {
            kept += upper;
            low += half;
        }
    }
    candidates[low..high].sort_unstable_by(best_first);
    for (i, candidate) in candidates[..high].iter().enumerate().skip(low) {
        kept += f64::from(candidate.value);
        if kept >= wanted {
            return i + 1;
        }
    }
    high
}

fn total(candidates: &[Ranked]) -> f64 {
    candidates.iter().map(|c| f64::from(c.value)).sum()
}

/// The 53 bits that an `f64` holds.
fn unit_interval(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

pub(crate) fn token_id(index: usize) -> TokenId {
    TokenId::try_from(index).expect("a vocabulary has far fewer than 2^32 rows")
}

#[cfg(test)]
#[path = "sample_tests.rs"]
mod tests;
