//! Which experts a token goes to, and with what weights.

use crate::Pool;
use crate::split::Split;

/// About 20 us of work, well above what a fork-join costs.
const TOKENS_PER_TASK: usize = 64;

/// The chosen experts of every token, row-major `[n_tokens, top_k]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Routes {
    /// Rows.
    pub n_tokens: usize,
    /// Experts of each token.
    pub top_k: usize,
    /// Expert indices, best first.
    pub experts: Vec<u32>,
    /// Their weights, which sum to 1 for each token.
    pub weights: Vec<f32>,
}

/// Takes the `top_k` largest of `logits`, `[n_tokens, n_experts]`, and the softmax over those.
///
/// Equal logits go to the lower index. NaN counts as the smallest value, so a broken row still
/// names valid experts.
pub fn route(pool: &Pool, logits: &[f32], n_experts: usize, top_k: usize, routes: &mut Routes) {
    assert!(
        n_experts > 0 && logits.len().is_multiple_of(n_experts),
        "router logits are whole rows"
    );
    assert!(
        (1..=n_experts).contains(&top_k),
        "a token goes to at least one and at most all experts"
    );
    let n_tokens = logits.len() / n_experts;
    routes.n_tokens = n_tokens;
    routes.top_k = top_k;
    routes.experts.clear();
    routes.experts.resize(n_tokens * top_k, 0);
    routes.weights.clear();
    routes.weights.resize(n_tokens * top_k, 0.0);
    let experts = Split::new(&mut routes.experts);
    let weights = Split::new(&mut routes.weights);
    pool.run(n_tokens.div_ceil(TOKENS_PER_TASK), &|task| {
        let first = task * TOKENS_PER_TASK;
        let end = (first + TOKENS_PER_TASK).min(n_tokens);
        // SAFETY: every task has its own tokens.
        let experts = unsafe { experts.part(first * top_k..end * top_k) };
        // SAFETY: as above.
        let weights = unsafe { weights.part(first * top_k..end * top_k) };
        let rows = experts.chunks_exact_mut(top_k).zip(weights.chunks_exact_mut(top_k));
        let logits = logits[first * n_experts..end * n_experts].chunks_exact(n_experts);
        for ((experts, weights), logits) in rows.zip(logits) {
            largest(logits, experts, weights);
            softmax(weights);
        }
    });
}

/// The `experts.len()` largest logits, best first, by insertion into a sorted list.
fn largest(logits: &[f32], experts: &mut [u32], values: &mut [f32]) {
    let k = values.len();
    let mut n_held = 0;
    for (expert, &logit) in (0_u32..).zip(logits) {
        let logit = if logit.is_nan() { f32::NEG_INFINITY } else { logit };
        if n_held == k && logit <= values[k - 1] {
            continue;
        }
        // Strictly greater moves ahead, so that ties stay in index order.
        let at = values[..n_held].iter().rposition(|&held| held >= logit).map_or(0, |i| i + 1);
        n_held = (n_held + 1).min(k);
        values.copy_within(at..n_held - 1, at + 1);
        experts.copy_within(at..n_held - 1, at + 1);
        values[at] = logit;
        experts[at] = expert;
    }
}

/// Softmax of a descending row. Infinities share the weight equally.
fn softmax(row: &mut [f32]) {
    let max = row[0];
    let mut sum = 0.0;
    for v in &mut *row {
        *v = if max.is_finite() { (*v - max).exp() } else { f32::from(*v >= max) };
        sum += *v;
    }
    for v in row {
        *v /= sum;
    }
}
