//! Attention of one token.

use super::gemv::param;
use crate::gpu::Kernels;
use lily_device::{Commands, DeviceError, Grid, Slice};
use lily_weights::Shape;

/// Positions below this are read in one part, which saves the merge's dispatch: from here on an H200 is
/// faster with many (docs/benchmarks).
pub(crate) const SHORT_POSITIONS: usize = 768;

/// How the rows of a step are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Parts that the context is cut into.
    parts: usize,
    /// SIMD groups of a threadgroup.
    simdgroups: usize,
    /// Query heads that share the rows read, at most: more do not fit the registers of Apple's GPUs.
    queries_max: usize,
}

impl Cut {
    const LONG: Self = Self { parts: 64, simdgroups: 4, queries_max: 4 };
    /// Many SIMD groups for a head each: the few rows come from caches anyway.
    const SHORT: Self = Self { parts: 1, simdgroups: 16, queries_max: 1 };

    pub(crate) fn is_short(self) -> bool {
        self == Self::SHORT
    }

    /// For a step whose last token has this position.
    pub(crate) fn of(position: usize) -> Self {
        if position < SHORT_POSITIONS { Self::SHORT } else { Self::LONG }
    }
}

/// KV rows of one sequence and layer, activations `[n_kv_heads, capacity, head_dim]` each.
#[derive(Clone, Debug)]
pub(crate) struct KvRows {
    pub(crate) k: Slice,
    pub(crate) v: Slice,
    /// Rows that fit.
    pub(crate) capacity: usize,
}

/// f32 gains of q and k.
#[derive(Clone, Debug)]
pub(crate) struct HeadNorms {
    /// `[head_dim]`
    pub(crate) q: Slice,
    /// `[head_dim]`
    pub(crate) k: Slice,
}

/// f32 inputs and outputs of [`attention_decode`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionDecode<'a> {
    /// `[n_heads, 2, head_dim]`
    pub(crate) qg: &'a Slice,
    /// `[n_kv_heads, head_dim]`
    pub(crate) k: &'a Slice,
    /// `[n_kv_heads, head_dim]`
    pub(crate) v: &'a Slice,
    /// `[positions, 2, rotary_dim / 2]`
    pub(crate) rope: &'a Slice,
    /// u32, the position of the first token of the step.
    pub(crate) seq: &'a Slice,
    /// Which token of the step this is.
    pub(crate) offset: usize,
    pub(crate) cut: Cut,
    /// Of [`parts_floats`] values.
    pub(crate) parts: &'a Slice,
    /// `[n_heads, head_dim]`
    pub(crate) out: &'a Slice,
}

/// f32 values of scratch: a sum of rows, a maximum and a sum of weights per head and part.
pub(crate) fn parts_floats(shape: &Shape) -> usize {
    shape.n_heads * Cut::LONG.parts * (shape.head_dim + 2)
}

/// Norm, rotation, the new KV row, softmax and gate.
pub(crate) fn attention_decode(
    kernels: &Kernels,
    commands: &mut Commands,
    shape: &Shape,
    step: AttentionDecode<'_>,
    norms: &HeadNorms,
    cache: &KvRows,
) -> Result<(), DeviceError> {
    let group = shape.n_heads / shape.n_kv_heads;
    let Cut { parts, simdgroups, queries_max } = step.cut;
    let queries = (1..=queries_max.min(group)).rev().find(|n| group.is_multiple_of(*n));
    let queries = queries.expect("1 divides every number");
    let defines = [
        ("N_SPLITS", parts.to_string()),
        ("SIMDGROUPS", simdgroups.to_string()),
        ("QUERIES", queries.to_string()),
    ];
    let kernel = kernels.get("attention_decode", "attention_decode", &defines)?;
    let o_bytes = shape.n_heads * parts * shape.head_dim * 4;
    let start = step.parts.offset;
    let part_o = step.parts.buffer.slice(start..start + o_bytes);
    let part_m = step.parts.buffer.slice(start + o_bytes..start + step.parts.len);
    let buffers = [
        step.qg, step.k, step.v, &norms.q, &norms.k, step.rope, step.seq, &cache.k, &cache.v,
        &part_o, &part_m, step.out,
    ]
    .map(Clone::clone);
    let threads = param(simdgroups * 32);
    let grid = Grid::new([parts, shape.n_heads / queries, 1], threads);
    commands.dispatch(
        &kernel,
        grid,
        &buffers,
        &[("capacity", param(cache.capacity)), ("offset", param(step.offset))],
    );

    if parts == 1 {
        return Ok(());
    }
    let kernel = kernels.get("attention_decode", "attention_merge", &defines)?;
    let buffers = [step.qg.clone(), part_o, part_m, step.out.clone()];
    commands.dispatch(&kernel, Grid::linear(shape.n_heads, 256), &buffers, &[]);
    Ok(())
}
