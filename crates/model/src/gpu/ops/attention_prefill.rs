//! Attention of many tokens.

use super::gemv::param;
use super::{HeadNorms, KvRows};
use crate::gpu::{Activations, Kernels};
use lily_device::{Commands, Device, DeviceError, Grid, Slice, TileBody};
use lily_weights::Shape;

/// Pairs (token, query head) of a tile, whatever the body of `kernels/tile.h`.
const ROWS: usize = 64;
/// Threadgroups that fill the largest GPU: an H200 runs two on each of 132 multiprocessors.
const GROUPS_ENOUGH: usize = 264;

/// Memory that [`attention_prefill`] works in.
#[derive(Clone, Debug)]
pub(crate) struct AttentionScratch {
    /// Normed and rotated queries, activations.
    q: Slice,
    /// f32 sums, maxima and weights of the parts that the keys are cut into.
    parts: Slice,
}

impl AttentionScratch {
    /// Memory for up to `max_tokens` tokens.
    pub(crate) fn new(
        device: &dyn Device,
        shape: &Shape,
        activations: Activations,
        max_tokens: usize,
    ) -> Result<Self, DeviceError> {
        let [q, parts] = Self::sizes(shape, activations, max_tokens);
        Ok(Self {
            q: device.alloc(q, "queries")?.all(),
            parts: device.alloc(parts, "attention parts")?.all(),
        })
    }

    fn sizes(shape: &Shape, activations: Activations, max_tokens: usize) -> [usize; 2] {
        let q = shape.n_kv_heads * n_rows(shape, max_tokens) * shape.head_dim * activations.size();
        // More tokens have fewer parts, so the largest step need not be the one with most.
        let parts = (1..=max_tokens).map(|n| part_heads(shape, n)).max().unwrap_or(0);
        [q, parts.max(1) * (shape.head_dim + 2) * 4]
    }
}

/// Rows of a KV head, whole tiles.
fn n_rows(shape: &Shape, n_tokens: usize) -> usize {
    (n_tokens * shape.n_heads / shape.n_kv_heads).next_multiple_of(ROWS)
}

/// Parts that the keys are cut into.
fn n_splits(shape: &Shape, n_tokens: usize) -> usize {
    let tiles = n_rows(shape, n_tokens) / ROWS * shape.n_kv_heads;
    (GROUPS_ENOUGH / tiles).max(1)
}

/// Heads of which parts are kept.
fn part_heads(shape: &Shape, n_tokens: usize) -> usize {
    match n_splits(shape, n_tokens) {
        1 => 0,
        n_splits => n_splits * n_tokens * shape.n_heads,
    }
}

/// Inputs and output of [`attention_prefill`], activations if not said otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionPrefill<'a> {
    pub(crate) n_tokens: usize,
    /// `[n_tokens, n_heads, 2, head_dim]`: the query of a head, then its gate.
    pub(crate) qg: &'a Slice,
    /// `[n_tokens, n_kv_heads, head_dim]`
    pub(crate) k: &'a Slice,
    /// `[n_tokens, n_kv_heads, head_dim]`
    pub(crate) v: &'a Slice,
    /// f32 `[positions, 2, rotary_dim / 2]`
    pub(crate) rope: &'a Slice,
    /// u32, the position of the first token.
    pub(crate) seq: &'a Slice,
    /// `[n_tokens, n_heads, head_dim]`
    pub(crate) out: &'a Slice,
    pub(crate) scratch: &'a AttentionScratch,
}

/// Norms, rotation, the new KV rows, softmax and gate, for one or more tokens.
///
/// # Numerics
/// Scores, softmax and sums are f32. As bf16 the queries and the weights of the values are rounded
/// for the products: a score moves by at most `2^-9 |q| |k| / sqrt(head_dim)`, the result by 2^-9
/// of the largest value, besides the rounding of the KV rows themselves.
pub(crate) fn attention_prefill(
    kernels: &Kernels,
    commands: &mut Commands,
    shape: &Shape,
    step: AttentionPrefill<'_>,
    norms: &HeadNorms,
    cache: &KvRows,
) -> Result<(), DeviceError> {
    let AttentionPrefill { n_tokens, qg, scratch, .. } = step;
    let n_rows = n_rows(shape, n_tokens);
    let n_splits = n_splits(shape, n_tokens);
    let params = [
        ("n_tokens", param(n_tokens)),
        ("n_rows", param(n_rows)),
        ("capacity", param(cache.capacity)),
        ("n_splits", param(n_splits)),
    ];

    let defines = defines(kernels, n_splits);
    let kernel = kernels.get("attention_prefill", "qkv_prepare", &defines)?;
    let padded_tokens = n_rows.div_ceil(shape.n_heads / shape.n_kv_heads);
    let items = padded_tokens * shape.n_heads + n_tokens * 2 * shape.n_kv_heads;
    let buffers = [
        qg, step.k, step.v, &norms.q, &norms.k, step.rope, step.seq, &scratch.q, &cache.k, &cache.v,
    ]
    .map(Clone::clone);
    commands.dispatch(&kernel, Grid::linear(items.div_ceil(4), 128), &buffers, &params[..3]);

    let o_bytes = part_heads(shape, n_tokens).max(1) * shape.head_dim * 4;
    let (start, parts) = (scratch.parts.offset, &scratch.parts.buffer);
    let part_o = parts.slice(start..start + o_bytes);
    let part_m = parts.slice(start + o_bytes..start + scratch.parts.len);
    let kernel = kernels.get("attention_prefill", "attention_prefill", &defines)?;
    let buffers = [&scratch.q, &cache.k, &cache.v, qg, step.seq, &part_o, &part_m, step.out]
        .map(Clone::clone);
    let grid = Grid::new([n_rows / ROWS, shape.n_kv_heads, n_splits], threads(kernels));
    commands.dispatch(&kernel, grid, &buffers, &params);
    if n_splits > 1 {
        let kernel = kernels.get("attention_prefill", "attention_prefill_merge", &defines)?;
        let grid = Grid::linear((n_tokens * shape.n_heads).div_ceil(4), 128);
        commands.dispatch(&kernel, grid, &[qg.clone(), part_o, part_m, step.out.clone()], &params);
    }
    Ok(())
}

/// SIMD groups of a tile, and rows of each: registers of Apple's GPUs have room for 8 rows of 256
/// sums, and `mma.sync` needs 16.
fn simd_groups(kernels: &Kernels) -> (usize, usize) {
    match kernels.device().info().tile {
        TileBody::Mma => (ROWS / 16, 16),
        TileBody::Simdgroup | TileBody::Tensor => (ROWS / 8, 8),
    }
}

fn threads(kernels: &Kernels) -> u32 {
    param(simd_groups(kernels).0 * 32)
}

fn defines(kernels: &Kernels, n_splits: usize) -> Vec<(&'static str, String)> {
    let (simd_groups, rows) = simd_groups(kernels);
    // A stage of keys is 16 KiB and a half, at a head of 256. Half of it, larger tiles and fetching
    // the next stage ahead are slower on an H200 (106 to 173 TFLOP/s, this one 177, at 131,072).
    let keys = match kernels.activations() {
        Activations::F32 => 16,
        Activations::Bf16 => 32,
    };
    vec![
        ("SIMDGROUPS", simd_groups.to_string()),
        ("SG_ROWS", rows.to_string()),
        ("KEYS", keys.to_string()),
        ("ACT_BYTES", kernels.activations().size().to_string()),
        ("SPLIT", u8::from(n_splits > 1).to_string()),
        ("LILY_THREADS", threads(kernels).max(128).to_string()),
    ]
}
