//! Root-mean-square norms.

use crate::Pool;
use crate::math::sum_of_squares;
use crate::simd::{Lanes, dispatched};
use crate::split::Split;

/// Values that one task norms: below, a fork-join costs more than it saves.
const VALUES_PER_TASK: usize = 32 * 1024;

/// `out = x * rsqrt(mean(x^2) + eps) * gain` for every row of `gain.len()` values.
///
/// Norms whose checkpoint stores `w` for a gain of `1 + w` want the 1 already added.
pub fn rms_norm(pool: &Pool, x: &[f32], gain: &[f32], eps: f32, out: &mut [f32]) {
    let width = gain.len();
    assert!(width > 0 && x.len().is_multiple_of(width), "a norm works on whole rows");
    assert_eq!(x.len(), out.len(), "a norm has as many results as inputs");
    let rows_per_task = (VALUES_PER_TASK / width).max(1);
    let n_tasks = (x.len() / width).div_ceil(rows_per_task);
    let out = Split::new(out);
    pool.run(n_tasks, &|task| {
        let first = task * rows_per_task * width;
        let range = first..(first + rows_per_task * width).min(x.len());
        // SAFETY: every task has its own rows.
        let out = unsafe { out.part(range.clone()) };
        rms_norm_rows(&x[range], gain, eps, out);
    });
}

dispatched! {
    fn rms_norm_rows(x: &[f32], gain: &[f32], eps: f32, out: &mut [f32]) = rms_norm_rows_body
}

#[inline(always)]
fn rms_norm_rows_body<S: Lanes>(s: S, x: &[f32], gain: &[f32], eps: f32, out: &mut [f32]) {
    let width = gain.len();
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        out.copy_from_slice(x);
        rms_norm_in_place(s, out, gain, eps);
    }
}

/// `x = x * rsqrt(mean(x^2) + eps) * gain`
#[inline(always)]
pub(crate) fn rms_norm_in_place<S: Lanes>(s: S, x: &mut [f32], gain: &[f32], eps: f32) {
    let scale = rms_scale(sum_of_squares(s, x), x.len(), eps);
    for (x, gain) in x.iter_mut().zip(gain) {
        *x = *x * scale * gain;
    }
}

/// `rsqrt(mean + eps)` of a sum of `n` squares.
#[inline(always)]
pub(crate) fn rms_scale(sum: f32, n: usize, eps: f32) -> f32 {
    1.0 / (sum / n as f32 + eps).sqrt()
}
