//! Causal depthwise convolution over time.

use crate::math::silu;
use crate::simd::Lanes;

/// Taps of the filter: the current token and the three before it.
pub(crate) const TAPS: usize = 4;

/// The rows that a convolution reads, cut to the channels it is for.
#[derive(Clone, Copy)]
pub(crate) struct ConvRows<'a> {
    /// The three rows before the first of `u`.
    pub(crate) before: &'a [f32],
    pub(crate) before_stride: usize,
    pub(crate) u: &'a [f32],
    pub(crate) u_stride: usize,
}

impl<'a> ConvRows<'a> {
    /// Row `token - back`, from channel `c` on.
    #[inline(always)]
    fn row(self, token: usize, back: usize, c: usize) -> &'a [f32] {
        match token.checked_sub(back) {
            Some(token) => &self.u[token * self.u_stride + c..],
            None => &self.before[(TAPS - 1 + token - back) * self.before_stride + c..],
        }
    }
}

/// `out[t, c] = silu(sum_j w[c, j] u[t - 3 + j, c])` for tokens `first_token..`, `n_tokens` of
/// them. `w` is `[channels, 4]`, and its last column is for the current token.
#[inline(always)]
pub(crate) fn conv_silu<S: Lanes>(
    s: S,
    rows: ConvRows<'_>,
    w: &[f32],
    (first_token, n_tokens): (usize, usize),
    out: &mut [f32],
    out_stride: usize,
) {
    for (c, w) in w.chunks_exact(TAPS * S::N).enumerate() {
        let c = c * S::N;
        let taps = s.load_transposed4(w);
        let [mut x0, mut x1, mut x2] = [3, 2, 1].map(|back| s.load(rows.row(first_token, back, c)));
        for i in 0..n_tokens {
            let x3 = s.load(rows.row(first_token + i, 0, c));
            let sum = s.mul_add(taps[1], x1, s.mul(taps[0], x0));
            let sum = s.mul_add(taps[3], x3, s.mul_add(taps[2], x2, sum));
            s.store(silu(s, sum), &mut out[i * out_stride + c..]);
            (x0, x1, x2) = (x1, x2, x3);
        }
    }
}
