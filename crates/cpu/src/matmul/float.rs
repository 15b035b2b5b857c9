//! Rows in f32 times activations in f32: the exact path, and that of unquantised weights.

use super::tile::TileScratch;
use crate::activations::Token;
use crate::simd::{Lanes, dispatched};

/// The prepared row times a token.
pub(super) fn dot(scratch: &TileScratch, token: &Token<'_>) -> f32 {
    dot_f32(&scratch.row, token.x)
}

dispatched! {
    /// `sum a_i b_i` in four interleaved vector sums.
    fn dot_f32(a: &[f32], b: &[f32]) -> f32 = dot_body
}

#[inline(always)]
fn dot_body<S: Lanes>(s: S, a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "both have the width of the matrix");
    let mut acc = [s.splat(0.0); 4];
    let step = 4 * S::N;
    let mut a_chunks = a.chunks_exact(step);
    let mut b_chunks = b.chunks_exact(step);
    for (a, b) in a_chunks.by_ref().zip(b_chunks.by_ref()) {
        for (i, acc) in acc.iter_mut().enumerate() {
            let (a, b) = (s.load(&a[i * S::N..]), s.load(&b[i * S::N..]));
            *acc = s.mul_add(a, b, *acc);
        }
    }
    let rest = a_chunks.remainder().iter().zip(b_chunks.remainder());
    let rest: f32 = rest.map(|(a, b)| a * b).sum();
    s.sum(s.add(s.add(acc[0], acc[1]), s.add(acc[2], acc[3]))) + rest
}
