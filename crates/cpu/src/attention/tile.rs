//! A tile of queries against a span of keys.

use super::Queries;
use crate::kv::{BLOCK_TOKENS, KvPages, TILE_TOKENS};
use crate::math::{exp, sigmoid};
use crate::norm::rms_norm_in_place;
#[cfg(target_arch = "x86_64")]
use crate::simd::Avx512;
use crate::simd::{Lanes, Line, dispatched};
use crate::split::Split;
use crate::tile::{Extent, Lhs, LineRhs, multiply_lines};
use std::ops::Range;

/// Query heads of one KV head for a few tokens, and the keys they meet.
///
/// Row `r` is query head `r % group` of token `tokens.start + r / group`.
#[derive(Clone, Debug)]
pub(super) struct Tile {
    pub(super) kv_head: usize,
    /// Tokens in the cache before this call.
    pub(super) past: usize,
    /// Tokens of this call.
    pub(super) tokens: Range<usize>,
    /// Tokens of the cache; starts at a page.
    pub(super) keys: Range<usize>,
}

/// Memory of a task.
#[derive(Debug, Default)]
pub(super) struct TileWorkspace {
    pub(super) rows: Vec<f32>,
    pub(super) buffers: TileBuffers,
}

#[derive(Debug, Default)]
pub(super) struct TileBuffers {
    /// `[rows, head_dim]`
    q: Vec<f32>,
    /// `[rows, TILE_TOKENS]`: scores, then their exponentials.
    scores: Vec<f32>,
}

/// Values of a row: `head_dim` weighted sums of values, the largest score, and the sum of the
/// weights, all relative to that score. Padded so that rows keep the alignment of vectors.
pub(super) const fn row_len(head_dim: usize) -> usize {
    head_dim + 16
}

/// Attention of a tile over its keys, unfinished: see [`row_len`] for what is left in `rows`.
pub(super) fn attend<L: Line>(
    queries: &Queries<'_>,
    tile: &Tile,
    pages: KvPages<'_, L>,
    rows: &mut [f32],
    buffers: &mut TileBuffers,
) {
    #[cfg(target_arch = "x86_64")]
    if let Some(lanes) = Avx512::<true>::detect() {
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma")]
        fn avx512_bf16<L: Line>(
            lanes: Avx512<true>,
            queries: &Queries<'_>,
            tile: &Tile,
            pages: KvPages<'_, L>,
            rows: &mut [f32],
            buffers: &mut TileBuffers,
        ) {
            attend_body(lanes, queries, tile, pages, rows, buffers);
        }
        // SAFETY: the value proves that the machine has the features.
        return unsafe { avx512_bf16(lanes, queries, tile, pages, rows, buffers) };
    }
    attend_f32(queries, tile, pages, rows, buffers);
}

dispatched! {
    /// With products in f32, whatever the cache holds.
    fn attend_f32<L: Line>(
        queries: &Queries<'_>,
        tile: &Tile,
        pages: KvPages<'_, L>,
        rows: &mut [f32],
        buffers: &mut TileBuffers,
    ) = attend_body
}

#[inline(always)]
fn attend_body<S: Lanes, L: Line>(
    s: S,
    queries: &Queries<'_>,
    tile: &Tile,
    pages: KvPages<'_, L>,
    rows: &mut [f32],
    buffers: &mut TileBuffers,
) {
    let d = queries.shape.head_dim;
    let group = queries.shape.n_heads / queries.shape.n_kv_heads;
    let n_rows = tile.tokens.len() * group;
    let rows = &mut rows[..n_rows * row_len(d)];
    rows.fill(0.0);
    for row in rows.chunks_exact_mut(row_len(d)) {
        row[d] = f32::NEG_INFINITY;
    }
    let TileBuffers { q, scores } = buffers;
    q.resize(n_rows * d, 0.0);
    load_queries(s, queries, tile, group, q);
    for q in q.chunks_exact_mut(d) {
        L::pack(s, q);
    }
    scores.resize(n_rows * TILE_TOKENS, 0.0);

    for first in tile.keys.clone().step_by(TILE_TOKENS) {
        let n_keys = TILE_TOKENS.min(tile.keys.end - first);
        let columns = n_keys.next_multiple_of(BLOCK_TOKENS);
        let next = first + TILE_TOKENS;
        let more = next < tile.past + tile.tokens.end;
        scores.fill(0.0);
        multiply_lines(
            s,
            Extent { rows: n_rows, k: d, columns },
            Lhs { values: q, row_stride: d, k_stride: 1 },
            LineRhs {
                lines: pages.keys(tile.kv_head, first),
                ahead: if more { pages.keys(tile.kv_head, next) } else { &[] },
                k_stride: 1,
                column_stride: d / 2,
            },
            scores,
            TILE_TOKENS,
        );
        let with_scores =
            rows.chunks_exact_mut(row_len(d)).zip(scores.chunks_exact_mut(TILE_TOKENS));
        for (r, (row, scores)) in with_scores.enumerate() {
            let seen = tile.past + tile.tokens.start + r / group + 1;
            let n_visible = seen.saturating_sub(first).min(n_keys);
            online_softmax(s, &mut scores[..columns], n_visible, row);
            L::pack(s, scores);
        }
        multiply_lines(
            s,
            Extent { rows: n_rows, k: n_keys.next_multiple_of(2), columns: d },
            Lhs { values: scores, row_stride: TILE_TOKENS, k_stride: 1 },
            LineRhs {
                lines: pages.values(tile.kv_head, first),
                ahead: if more { pages.values(tile.kv_head, next) } else { &[] },
                k_stride: 1,
                column_stride: TILE_TOKENS / 2,
            },
            rows,
            row_len(d),
        );
    }
}

/// Norms, rotates and scales the queries of a tile.
#[inline(always)]
fn load_queries<S: Lanes>(s: S, queries: &Queries<'_>, tile: &Tile, group: usize, q: &mut [f32]) {
    let shape = queries.shape;
    let d = shape.head_dim;
    let scale = 1.0 / (d as f32).sqrt();
    for (r, q) in q.chunks_exact_mut(d).enumerate() {
        let token = tile.tokens.start + r / group;
        let head = tile.kv_head * group + r % group;
        q.copy_from_slice(&queries.qg[(token * shape.n_heads + head) * 2 * d..][..d]);
        rms_norm_in_place(s, q, queries.gain, shape.eps);
        queries.rope.rotate(queries.first_position + token, q);
        for q in q {
            *q *= scale;
        }
    }
}

/// Turns the first `n_visible` scores of a row into weights and the others into 0, and brings the
/// row to the new maximum.
#[inline(always)]
fn online_softmax<S: Lanes>(s: S, scores: &mut [f32], n_visible: usize, row: &mut [f32]) {
    let (sums, state) = row.split_at_mut(row.len() - 16);
    if n_visible == 0 {
        scores.fill(0.0);
        return;
    }
    scores[n_visible..].fill(f32::NEG_INFINITY);
    let mut largest = s.splat(state[0]);
    for scores in scores.chunks_exact(S::N) {
        largest = s.max(largest, s.load(scores));
    }
    let largest = s.largest(largest);
    if largest > state[0] {
        // 0 for the first keys, whose maximum was -infinity: the sums are 0 anyway.
        let scale = (state[0] - largest).exp();
        for sums in sums.chunks_exact_mut(S::N) {
            s.store(s.mul(s.load(sums), s.splat(scale)), sums);
        }
        state[0] = largest;
        state[1] *= scale;
    }
    let mut sum = s.splat(0.0);
    for scores in scores.chunks_exact_mut(S::N) {
        let weight = exp(s, s.sub(s.load(scores), s.splat(state[0])));
        sum = s.add(sum, weight);
        s.store(weight, scores);
    }
    state[1] += s.sum(sum);
}

dispatched! {
    /// Merges the rows of all spans of a tile, divides by the sum of the weights and multiplies
    /// with the sigmoid of the gate. `spans` has the rows of one span after another; `out` is
    /// `[T, n_heads, head_dim]`, and nothing else may write to the heads and tokens of the tile.
    pub(super) fn finish(
        queries: &Queries<'_>,
        tile: &Tile,
        spans: &[f32],
        rows_len: usize,
        out: &Split<'_, f32>,
    ) = finish_body
}

#[inline(always)]
fn finish_body<S: Lanes>(
    s: S,
    queries: &Queries<'_>,
    tile: &Tile,
    spans: &[f32],
    rows_len: usize,
    out: &Split<'_, f32>,
) {
    let shape = queries.shape;
    let d = shape.head_dim;
    let group = shape.n_heads / shape.n_kv_heads;
    for r in 0..tile.tokens.len() * group {
        let rows = spans.chunks_exact(rows_len).map(|rows| &rows[r * row_len(d)..][..row_len(d)]);
        let token = tile.tokens.start + r / group;
        let head = token * shape.n_heads + tile.kv_head * group + r % group;
        // SAFETY: no other task has this token and this KV head.
        let out = unsafe { out.part(head * d..(head + 1) * d) };
        out.fill(0.0);
        let largest = rows.clone().map(|row| row[d]).fold(f32::NEG_INFINITY, f32::max);
        let mut sum = 0.0;
        for row in rows.filter(|row| row[d + 1] != 0.0) {
            let scale = (row[d] - largest).exp();
            sum += scale * row[d + 1];
            for (out, row) in out.chunks_exact_mut(S::N).zip(row.chunks_exact(S::N)) {
                s.store(s.mul_add(s.splat(scale), s.load(row), s.load(out)), out);
            }
        }
        let gates = &queries.qg[(2 * head + 1) * d..][..d];
        for (out, gate) in out.chunks_exact_mut(S::N).zip(gates.chunks_exact(S::N)) {
            let mean = s.div(s.load(out), s.splat(sum));
            s.store(s.mul(mean, sigmoid(s, s.load(gate))), out);
        }
    }
}
