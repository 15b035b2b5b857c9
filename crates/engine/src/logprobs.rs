//! Log-probabilities of a position: what the model thinks, before anything the request asks for.

use crate::TokenLogprob;
use crate::sample::token_id;
use crate::select::{Ranked, largest};
use lily_text::TokenId;

/// The log-probability of `id` and of the `n_top` most likely tokens.
///
/// `row` holds the logits without padding rows; the logarithm of the softmax is computed in f64.
pub(crate) fn logprobs(
    row: &[f32],
    id: TokenId,
    n_top: usize,
    best: &mut Vec<Ranked>,
) -> TokenLogprob {
    largest(row, n_top.max(1), best);
    let max = best.first().map_or(0.0, |b| b.value);
    let sum: f64 = row.iter().map(|&logit| f64::from((logit - max).exp())).sum();
    let log_sum = f64::from(max) + sum.ln();
    #[allow(clippy::cast_possible_truncation, reason = "the answer is an f32")]
    let logprob = |logit: f32| (f64::from(logit) - log_sum) as f32;
    TokenLogprob {
        id,
        logprob: logprob(row[id as usize]),
        top: best.iter().take(n_top).map(|b| (token_id(b.index), logprob(b.value))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_logits_share_the_probability() {
        let answer = logprobs(&[3.0; 4], 2, 2, &mut Vec::new());
        // One rounding to f32 of a value near 1.4.
        let close = |a: f32| (a - 0.25f32.ln()).abs() <= f32::EPSILON * 2.0;
        assert!(close(answer.logprob));
        let ids: Vec<_> = answer.top.iter().map(|t| t.0).collect();
        assert_eq!(ids, [0, 1]);
        assert!(answer.top.iter().all(|t| close(t.1)));
    }

    #[test]
    fn the_best_come_first_and_sum_to_one() {
        let row = [0.5, -2.0, 4.0, f32::NEG_INFINITY, 1.0];
        let answer = logprobs(&row, 1, 5, &mut Vec::new());
        let ids: Vec<_> = answer.top.iter().map(|t| t.0).collect();
        assert_eq!(ids, [2, 4, 0, 1], "an impossible token is not listed");
        let sum: f32 = answer.top.iter().map(|t| t.1.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6, "four roundings of f32: {sum}");
        assert!((answer.logprob - answer.top[3].1).abs() < f32::EPSILON);
        assert!(logprobs(&row, 1, 0, &mut Vec::new()).top.is_empty());
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let answer = logprobs(&[3.0e38, -3.0e38], 0, 1, &mut Vec::new());
        assert!(answer.logprob.abs() < f32::EPSILON);
    }
}
