//! A block of rows times some tokens: which kernel, and the memory it works in.

use super::{VECTOR_TOKENS_MAX, float, portable};
use crate::activations::{Activations, BLOCK, Precision};
use crate::buffer::AlignedBytes;
use lily_weights::{Matrix, Storage};
use std::ops::Range;

/// How a batch is multiplied. Chosen by the size of the batch alone, also where the experts see
/// only a part of it, so that a token gets the same sums however the others are routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Each row with each token in turn.
    Vector,
    /// Panels of rows unpacked for all tokens.
    Panel,
}

impl Method {
    pub(crate) fn for_batch(n_tokens: usize) -> Self {
        if n_tokens <= VECTOR_TOKENS_MAX { Self::Vector } else { Self::Panel }
    }
}

/// Rows `rows` of `weight` times the tokens `tokens` of `x`.
#[derive(Clone, Debug)]
pub(crate) struct RowTile<'a> {
    pub(crate) weight: &'a Matrix<'a>,
    pub(crate) rows: Range<usize>,
    pub(crate) x: &'a Activations,
    pub(crate) tokens: &'a [u32],
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "for the VNNI kernels"))]
    pub(crate) method: Method,
}

/// Memory of one task, kept from task to task.
#[derive(Debug, Default)]
pub(crate) struct TileScratch {
    /// `[n_tokens, n_rows]`
    pub(crate) tile: Vec<f32>,
    /// A row in f32.
    pub(crate) row: Vec<f32>,
    /// Unpacked codes of a row or of the rows of a panel.
    pub(crate) codes: AlignedBytes,
    /// Codes as the panel kernel wants them.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "for the VNNI kernels"))]
    pub(crate) panel: AlignedBytes,
    /// Scales, then biases, of a row or a panel, one per block of activations.
    pub(crate) scales: Vec<f32>,
    pub(crate) biases: Vec<f32>,
    /// A second tile, for the experts' gate beside their up.
    pub(crate) other: Vec<f32>,
}

impl RowTile<'_> {
    /// The product, `[n_tokens, n_rows]`, in `scratch.tile`.
    pub(crate) fn product<'s>(&self, scratch: &'s mut TileScratch) -> &'s mut [f32] {
        let len = self.tokens.len() * self.rows.len();
        // Every element is written: by row below, or by panel.
        if scratch.tile.len() < len {
            scratch.tile.resize(len, 0.0);
        }
        match self.weight.storage {
            Storage::Affine(weight) if self.x.has_codes() => {
                assert_eq!(self.x.precision(), Precision::Int8);
                #[cfg(target_arch = "x86_64")]
                if let Some(vnni) = super::x86::Vnni::detect() {
                    vnni.product(self, &weight, scratch);
                    return &mut scratch.tile[..len];
                }
                self.each_row(scratch, |row, scratch| {
                    portable::prepare_row(&weight, row, self.weight.cols, scratch);
                    portable::dot
                });
            }
            _ => self.each_row(scratch, |row, scratch| {
                scratch.row.resize(self.weight.cols, 0.0);
                self.weight.row_to_f32(row, &mut scratch.row);
                float::dot
            }),
        }
        &mut scratch.tile[..len]
    }

    /// Prepares each row once and multiplies it with every token.
    pub(crate) fn each_row(
        &self,
        scratch: &mut TileScratch,
        prepare: impl Fn(
            usize,
            &mut TileScratch,
        ) -> fn(&TileScratch, &crate::activations::Token<'_>) -> f32,
    ) {
        let n_rows = self.rows.len();
        for (i, row) in self.rows.clone().enumerate() {
            let dot = prepare(row, scratch);
            for (t, &token) in self.tokens.iter().enumerate() {
                let value = dot(scratch, &self.x.token(token as usize));
                scratch.tile[t * n_rows + i] = value;
            }
        }
    }
}

/// Scale and bias of a row per block of activations: a group of 128 spans two blocks.
pub(crate) fn blocks_per_group(group: usize) -> usize {
    (group / BLOCK).max(1)
}
