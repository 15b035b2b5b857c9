//! Gated attention between its projections.
//!
//! Queries are taken in tiles of up to 64 rows, a row being one query head of one token, all for
//! the same KV head, so that a key or value read from memory serves every row. A tile goes over
//! the keys with a running maximum and sum (online softmax). When there are few tiles, as in
//! decoding, the keys are cut into spans instead, whose partial results are merged afterwards.
//! How the work is cut depends only on the shape, so results do not depend on the threads.

mod tile;

use crate::kv::{KvCache, KvPages, KvReader, PAGE_TOKENS};
use crate::norm::rms_norm_in_place;
use crate::simd::{Lanes, Line, dispatched};
use crate::split::{Split, Workspaces};
use crate::{Pool, RopeTable};
use tile::{Tile, TileBuffers, TileWorkspace, attend, finish, row_len};

/// Rows of a tile: large enough that a tile of keys is worth reading, small enough that queries,
/// scores and sums stay in a second-level cache of 256 KiB at a head dimension of 256.
const TILE_ROWS: usize = 64;
/// With as many tiles the keys are not cut: 16 threads have work.
const TILES_ENOUGH: usize = 16;
/// The most spans that the keys are cut into.
const SPANS_MAX: usize = 32;
/// Pages of a span: the first keys and values of a span may have been fetched ahead by another
/// thread, so short spans wait for memory more often.
const SPAN_PAGES_MIN: usize = 2;

/// Dimensions of an attention layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// Query heads.
    pub n_heads: usize,
    /// KV heads; query head `h` reads KV head `h / (n_heads / n_kv_heads)`.
    pub n_kv_heads: usize,
    /// Values of a head; a multiple of 16.
    pub head_dim: usize,
    /// Leading values of a head that turn with the position.
    pub rotary_dim: usize,
    /// Of the query and key norms.
    pub eps: f32,
}

/// What attention reads and writes: T tokens of one sequence.
#[derive(Debug)]
pub struct AttentionArgs<'a> {
    /// Dimensions.
    pub shape: &'a AttentionShape,
    /// Angles.
    pub rope: &'a RopeTable,
    /// Gain of the query norm, `[head_dim]`, with the 1 added.
    pub q_gain: &'a [f32],
    /// Gain of the key norm, `[head_dim]`, with the 1 added.
    pub k_gain: &'a [f32],
    /// `[T, n_heads, 2, head_dim]`: the query of a head, then its gate.
    pub qg: &'a [f32],
    /// `[T, n_kv_heads, head_dim]`; normed and rotated in place.
    pub k: &'a mut [f32],
    /// `[T, n_kv_heads, head_dim]`.
    pub v: &'a [f32],
    /// Rotary position of the first token.
    pub first_position: usize,
    /// The tokens before; `k` and `v` are added to it.
    pub cache: &'a mut KvCache,
    /// `[T, n_heads, head_dim]`.
    pub out: &'a mut [f32],
    /// Memory.
    pub scratch: &'a mut AttentionScratch,
}

/// Memory of [`attention`], reused from call to call.
#[derive(Debug, Default)]
pub struct AttentionScratch {
    partials: Vec<f32>,
    tiles: Workspaces<TileWorkspace>,
}

/// Attention from the projections to the gated heads.
///
/// Norms the queries and keys of each head, rotates them, adds keys and values to the cache,
/// attends causally to the whole cache and multiplies with the sigmoid of the gate.
///
/// # Numerics
/// f32 throughout, with an f32 cache. A bf16 cache rounds keys and values to 2^-9 of themselves.
/// Where the machine multiplies bf16 natively, queries and softmax weights are then rounded as
/// well: a score moves by at most `2^-9 |q| |k| / sqrt(head_dim)`, no more than by the rounding of
/// the key, and the mean of the values by at most twice that, and 2^-9, of the largest value.
pub fn attention(pool: &Pool, args: AttentionArgs<'_>) {
    let AttentionArgs { shape, rope, q_gain, k_gain, qg, k, v, first_position, .. } = args;
    let AttentionArgs { cache, out, scratch, .. } = args;
    let AttentionShape { n_heads, n_kv_heads, head_dim, .. } = *shape;
    assert!(n_kv_heads > 0 && n_heads.is_multiple_of(n_kv_heads), "KV heads share the query heads");
    assert_eq!(
        (cache.n_kv_heads(), cache.head_dim()),
        (n_kv_heads, head_dim),
        "the cache was made for this shape"
    );
    assert!(
        rope.rotary_dim() == shape.rotary_dim && shape.rotary_dim <= head_dim,
        "one rotary_dim"
    );
    assert!(q_gain.len() == head_dim && k_gain.len() == head_dim, "a gain per value of a head");
    assert!(out.len().is_multiple_of(n_heads * head_dim), "the result is whole tokens");
    let n_tokens = out.len() / (n_heads * head_dim);
    assert_eq!(qg.len(), 2 * out.len(), "a query and a gate per token and head");
    assert_eq!(k.len(), n_tokens * n_kv_heads * head_dim, "a key per token and KV head");
    assert_eq!(v.len(), k.len(), "a value per token and KV head");
    if n_tokens == 0 {
        return;
    }

    let past = cache.len();
    prepare_keys(shape, rope, k_gain, first_position, k);
    cache.append(k, v);

    let plan = Plan::new(shape, n_tokens, past);
    let queries = Queries { shape, rope, gain: q_gain, qg, first_position };
    let out = Split::new(out);
    let AttentionScratch { partials, tiles } = scratch;
    if plan.n_spans == 1 {
        pool.run(plan.n_tasks(), &|task| {
            let tile = plan.tile(task);
            tiles.with(|TileWorkspace { rows, buffers }| {
                rows.resize(plan.rows_len(), 0.0);
                cache.read(Attend { queries: &queries, tile: &tile, rows, buffers });
                finish(&queries, &tile, rows, plan.rows_len(), &out);
            });
        });
        return;
    }
    let rows_len = plan.rows_len();
    partials.resize(plan.n_tasks() * rows_len, 0.0);
    let spans = Split::new(partials);
    pool.run(plan.n_tasks(), &|task| {
        // SAFETY: every task has its own partial result.
        let rows = unsafe { spans.part(task * rows_len..(task + 1) * rows_len) };
        tiles.with(|TileWorkspace { buffers, .. }| {
            cache.read(Attend { queries: &queries, tile: &plan.tile(task), rows, buffers });
        });
    });
    pool.run(plan.n_tasks() / plan.n_spans, &|tile| {
        let first = tile * plan.n_spans;
        let spans = &partials[first * rows_len..(first + plan.n_spans) * rows_len];
        finish(&queries, &plan.tile(first), spans, rows_len, &out);
    });
}

/// The query side of a call.
#[derive(Clone, Copy)]
struct Queries<'a> {
    shape: &'a AttentionShape,
    rope: &'a RopeTable,
    gain: &'a [f32],
    qg: &'a [f32],
    first_position: usize,
}

/// How the work is cut.
struct Plan {
    n_tokens: usize,
    past: usize,
    n_kv_heads: usize,
    head_dim: usize,
    /// Query heads of a KV head.
    group: usize,
    tile_tokens: usize,
    n_tiles: usize,
    n_spans: usize,
    span: usize,
}

impl Plan {
    fn new(shape: &AttentionShape, n_tokens: usize, past: usize) -> Self {
        let group = shape.n_heads / shape.n_kv_heads;
        let tile_tokens = (TILE_ROWS / group).max(1);
        let n_tiles = n_tokens.div_ceil(tile_tokens);
        let n_pages = (past + n_tokens).div_ceil(PAGE_TOKENS);
        let enough = n_tiles * shape.n_kv_heads >= TILES_ENOUGH;
        let pages = if enough { n_pages } else { n_pages.div_ceil(SPANS_MAX).max(SPAN_PAGES_MIN) };
        Self {
            n_tokens,
            past,
            n_kv_heads: shape.n_kv_heads,
            head_dim: shape.head_dim,
            group,
            tile_tokens,
            n_tiles,
            n_spans: n_pages.div_ceil(pages),
            span: pages * PAGE_TOKENS,
        }
    }

    fn n_tasks(&self) -> usize {
        self.n_tiles * self.n_kv_heads * self.n_spans
    }

    /// The part of a task. The last tiles, which see the most keys, come first.
    fn tile(&self, task: usize) -> Tile {
        let (rest, span) = (task / self.n_spans, task % self.n_spans);
        let (tile, kv_head) = (rest / self.n_kv_heads, rest % self.n_kv_heads);
        let first = (self.n_tiles - 1 - tile) * self.tile_tokens;
        let tokens = first..(first + self.tile_tokens).min(self.n_tokens);
        let end = ((span + 1) * self.span).min(self.past + tokens.end);
        Tile { kv_head, past: self.past, keys: span * self.span..end, tokens }
    }

    /// Values of the rows of a tile.
    fn rows_len(&self) -> usize {
        self.tile_tokens * self.group * row_len(self.head_dim)
    }
}

struct Attend<'a> {
    queries: &'a Queries<'a>,
    tile: &'a Tile,
    rows: &'a mut [f32],
    buffers: &'a mut TileBuffers,
}

impl KvReader for Attend<'_> {
    type Out = ();
    fn read<L: Line>(self, pages: KvPages<'_, L>) {
        attend(self.queries, self.tile, pages, self.rows, self.buffers);
    }
}

dispatched! {
    /// Norms and rotates the keys of all tokens.
    fn prepare_keys(
        shape: &AttentionShape,
        rope: &RopeTable,
        gain: &[f32],
        first_position: usize,
        k: &mut [f32],
    ) = prepare_keys_body
}

#[inline(always)]
fn prepare_keys_body<S: Lanes>(
    s: S,
    shape: &AttentionShape,
    rope: &RopeTable,
    gain: &[f32],
    first_position: usize,
    k: &mut [f32],
) {
    let tokens = k.chunks_exact_mut(shape.n_kv_heads * shape.head_dim);
    for (position, heads) in (first_position..).zip(tokens) {
        for head in heads.chunks_exact_mut(shape.head_dim) {
            rms_norm_in_place(s, head, gain, shape.eps);
            rope.rotate(position, head);
        }
    }
}
