//! The largest of many values, in one pass and without sorting them all.

use std::cmp::Ordering;

/// A value and where it stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ranked {
    pub(crate) index: usize,
    pub(crate) value: f32,
}

/// Values a pass looks at before it decides whether any is of interest; a power of two so that the
/// comparison becomes SIMD.
const BLOCK_LEN: usize = 64;

/// Room beside the `k` best, so that they are picked out rarely.
const SLACK_MIN: usize = 64;

/// Puts the `k` largest values into `out`, best first; of equal values the first is the better.
///
/// Negative infinity and NaN are never among them, so there can be fewer than `k`. The time is
/// linear in the number of values for every `k` and every order.
pub(crate) fn largest(values: &[f32], k: usize, out: &mut Vec<Ranked>) {
    out.clear();
    if k == 0 {
        return;
    }
    let full = (k + k.max(SLACK_MIN)).min(values.len() + 1);
    // The k-th best so far; an equal value further on is worse because it comes later.
    let mut threshold = f32::NEG_INFINITY;
    for (block_idx, block) in values.chunks(BLOCK_LEN).enumerate() {
        let n_above: u32 = block.iter().map(|&value| u32::from(value > threshold)).sum();
        if n_above == 0 {
            continue;
        }
        for (offset, &value) in block.iter().enumerate() {
            if value > threshold {
                out.push(Ranked { index: block_idx * BLOCK_LEN + offset, value });
                if out.len() == full {
                    out.select_nth_unstable_by(k - 1, best_first);
                    out.truncate(k);
                    threshold = out[k - 1].value;
                }
            }
        }
    }
    if out.len() > k {
        out.select_nth_unstable_by(k - 1, best_first);
        out.truncate(k);
    }
    out.sort_unstable_by(best_first);
}

/// The index of the largest value, the first of equals; `None` if all are negative infinity.
pub(crate) fn argmax(values: &[f32]) -> Option<usize> {
    let mut best: Option<Ranked> = None;
    for (block_idx, block) in values.chunks(BLOCK_LEN).enumerate() {
        let threshold = best.map_or(f32::NEG_INFINITY, |b| b.value);
        let n_above: u32 = block.iter().map(|&value| u32::from(value > threshold)).sum();
        if n_above == 0 {
            continue;
        }
        for (offset, &value) in block.iter().enumerate() {
            if value > best.map_or(f32::NEG_INFINITY, |b| b.value) {
                best = Some(Ranked { index: block_idx * BLOCK_LEN + offset, value });
            }
        }
    }
    best.map(|b| b.index)
}

/// Larger values first, then smaller indices. Values are never NaN here.
pub(crate) fn best_first(a: &Ranked, b: &Ranked) -> Ordering {
    b.value.partial_cmp(&a.value).unwrap_or(Ordering::Equal).then(a.index.cmp(&b.index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn by_sorting(values: &[f32], k: usize) -> Vec<Ranked> {
        let mut all: Vec<Ranked> = values
            .iter()
            .enumerate()
            .filter(|(_, v)| **v > f32::NEG_INFINITY)
            .map(|(index, &value)| Ranked { index, value })
            .collect();
        all.sort_by(best_first);
        all.truncate(k);
        all
    }

    fn check(values: &[f32], k: usize) {
        let mut out = Vec::new();
        largest(values, k, &mut out);
        assert_eq!(out, by_sorting(values, k), "k {k} of {values:?}");
        assert_eq!(argmax(values), by_sorting(values, 1).first().map(|b| b.index));
    }

    #[test]
    fn orders_and_edges() {
        check(&[], 3);
        check(&[1.0], 0);
        check(&[f32::NEG_INFINITY; 5], 3);
        check(&[0.0, -0.0, 0.0, -0.0], 2);
        let rising: Vec<f32> = (0..5_000u16).map(f32::from).collect();
        let falling: Vec<f32> = rising.iter().rev().copied().collect();
        for k in [1, 2, 20, 63, 64, 65, 4_999, 5_000, 6_000] {
            check(&rising, k);
            check(&falling, k);
            check(&[7.0; 300], k);
        }
    }

    proptest! {
        #[test]
        fn equals_sorting(
            values in prop::collection::vec(
                prop_oneof![8 => -8.0f32..8.0, 4 => (-3i8..3).prop_map(f32::from), 1 => Just(f32::NEG_INFINITY)],
                0..700,
            ),
            k in 0usize..400,
        ) {
            check(&values, k);
        }
    }
}
