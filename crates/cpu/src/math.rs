//! Elementwise functions and reductions on slices.

use crate::simd::{Lanes, dispatched};

/// `exp(x)` to about 2 units in the last place; 0 below -87.7, saturated at `exp(88.3)`.
///
/// Source: Cephes `expf`, argument reduction by `ln 2` in two parts and a polynomial of degree 7.
#[inline(always)]
pub(crate) fn exp<S: Lanes>(s: S, x: S::V) -> S::V {
    // -127 ln 2, where the result becomes 0, and 127.49 ln 2.
    let x = s.max(s.splat(-88.029_69), s.min(s.splat(88.368_5), x));
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    let r = s.mul_add(n, s.splat(-0.693_359_4), x);
    let r = s.mul_add(n, s.splat(2.121_944_4e-4), r);
    let mut p = s.splat(1.987_569_2e-4);
    for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = s.mul_add(p, r, s.splat(c));
    }
    let p = s.mul_add(p, s.mul(r, r), r);
    s.scale_pow2(s.add(p, s.splat(1.0)), n)
}

/// `1 / (1 + exp(-x))`
#[inline(always)]
pub(crate) fn sigmoid<S: Lanes>(s: S, x: S::V) -> S::V {
    let one = s.splat(1.0);
    s.div(one, s.add(one, exp(s, s.sub(s.splat(0.0), x))))
}

/// `x * sigmoid(x)`
#[inline(always)]
pub(crate) fn silu<S: Lanes>(s: S, x: S::V) -> S::V {
    s.mul(x, sigmoid(s, x))
}

/// `log(1 + exp(x))`, without overflow for large `x` and without cancellation for small ones.
pub(crate) fn softplus(x: f32) -> f32 {
    (-x.abs()).exp().ln_1p() + x.max(0.0)
}

/// `1 / (1 + exp(-x))` of one value.
pub(crate) fn sigmoid_scalar(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Applies `f` to each vector of a slice. The last one is padded with zeros if need be.
#[inline(always)]
pub(crate) fn map_in_place<S: Lanes>(s: S, x: &mut [f32], f: impl Fn(S::V) -> S::V) {
    let mut chunks = x.chunks_exact_mut(S::N);
    for chunk in &mut chunks {
        s.store(f(s.load(chunk)), chunk);
    }
    let rest = chunks.into_remainder();
    if !rest.is_empty() {
        let mut padded = [0.0; 16];
        padded[..rest.len()].copy_from_slice(rest);
        s.store(f(s.load(&padded)), &mut padded);
        rest.copy_from_slice(&padded[..rest.len()]);
    }
}

/// `x . x`
#[inline(always)]
pub(crate) fn sum_of_squares<S: Lanes>(s: S, x: &[f32]) -> f32 {
    let mut acc = [s.splat(0.0); 4];
    let mut blocks = x.chunks_exact(4 * S::N);
    for block in &mut blocks {
        for (j, acc) in acc.iter_mut().enumerate() {
            let v = s.load(&block[j * S::N..]);
            *acc = s.mul_add(v, v, *acc);
        }
    }
    let mut chunks = blocks.remainder().chunks_exact(S::N);
    for chunk in &mut chunks {
        let v = s.load(chunk);
        acc[0] = s.mul_add(v, v, acc[0]);
    }
    let rest: f32 = chunks.remainder().iter().map(|v| v * v).sum();
    s.sum(s.add(s.add(acc[0], acc[1]), s.add(acc[2], acc[3]))) + rest
}

dispatched! {
    /// `x = sigmoid(x)`, elementwise.
    pub fn sigmoid_in_place(x: &mut [f32]) = sigmoid_in_place_body
}

#[inline(always)]
fn sigmoid_in_place_body<S: Lanes>(s: S, x: &mut [f32]) {
    map_in_place(s, x, |v| sigmoid(s, v));
}
