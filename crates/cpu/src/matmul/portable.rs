//! Quantised rows times 8-bit activations without special instructions: the reference of the
//! integer path, compiled for each instruction set.

use super::tile::{TileScratch, blocks_per_group};
use crate::activations::{BLOCK, SUM_BLOCK, Token};
use crate::simd::{Lanes, dispatched};
use lily_weights::Affine;
use lily_weights::quant::affine::{unpack_codes, words_per_row};

/// Unpacks row `row` into one byte per code, and spreads its scales and biases over the blocks.
pub(super) fn prepare_row(w: &Affine<'_>, row: usize, cols: usize, scratch: &mut TileScratch) {
    scratch.codes.resize(cols);
    let words = words_per_row(cols, w.bits);
    let row_words = &w.codes[row * words..(row + 1) * words];
    unpack_codes(row_words, w.bits, scratch.codes.as_mut_slice());
    let n_groups = cols / w.group;
    scratch.scales.clear();
    scratch.biases.clear();
    for g in row * n_groups..(row + 1) * n_groups {
        for _ in 0..blocks_per_group(w.group) {
            scratch.scales.push(w.scales.get(g));
            scratch.biases.push(w.biases.get(g));
        }
    }
}

/// The prepared row times a token: integers inside a block (or half a block, for groups of 32),
/// then `scale_w * scale_x * integer + bias_w * sum_x` over the blocks in order.
pub(super) fn dot(scratch: &TileScratch, token: &Token<'_>) -> f32 {
    let codes = scratch.codes.as_slice();
    if scratch.scales.len() * BLOCK == codes.len() {
        dot_64(codes, &scratch.scales, &scratch.biases, token)
    } else {
        dot_32(codes, &scratch.scales, &scratch.biases, token)
    }
}

dispatched! {
    fn dot_64(codes: &[u8], scales: &[f32], biases: &[f32], token: &Token<'_>) -> f32 = dot_64_body
}

dispatched! {
    fn dot_32(codes: &[u8], scales: &[f32], biases: &[f32], token: &Token<'_>) -> f32 = dot_32_body
}

#[inline(always)]
fn dot_64_body<S: Lanes>(
    _lanes: S,
    codes: &[u8],
    scales: &[f32],
    biases: &[f32],
    token: &Token<'_>,
) -> f32 {
    let blocks = codes.as_chunks::<BLOCK>().0.iter().zip(token.natural.as_chunks::<BLOCK>().0);
    let mut acc = 0.0_f32;
    for (i, (w, x)) in blocks.enumerate() {
        let scaled = integer_dot(w, x) * token.scales[i];
        acc += scaled * scales[i];
        acc += biases[i] * token.block_sums[i];
    }
    acc
}

#[inline(always)]
fn dot_32_body<S: Lanes>(
    _lanes: S,
    codes: &[u8],
    scales: &[f32],
    biases: &[f32],
    token: &Token<'_>,
) -> f32 {
    let halves =
        codes.as_chunks::<SUM_BLOCK>().0.iter().zip(token.natural.as_chunks::<SUM_BLOCK>().0);
    let mut acc = 0.0_f32;
    for (i, (w, x)) in halves.enumerate() {
        let scaled = integer_dot(w, x) * token.scales[i / 2];
        acc += scaled * scales[i];
        acc += biases[i] * token.sums[i];
    }
    acc
}

/// At most 64 * 255 * 127 < 2^22: exact in f32 too.
#[inline(always)]
fn integer_dot<const N: usize>(w: &[u8; N], x: &[i8; N]) -> f32 {
    let mut total = 0_i32;
    for i in 0..N {
        total += i32::from(w[i]) * i32::from(x[i]);
    }
    total as f32
}
