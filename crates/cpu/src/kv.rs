//! Keys and values of one attention layer and one sequence.
//!
//! Memory is a list of pages of 256 tokens, which copies of a cache share until one of them writes.
//! Inside a page each KV head has its keys, then its values, in [`Line`]s of 2 x 16 values that
//! the inner loops of attention read in order:
//!
//! - keys: `[block of 16 tokens, pair of dimensions]`, a line being 16 tokens by 2 dimensions, so
//!   that a vector of scores needs no horizontal sum;
//! - values: `[tile of 64 tokens, block of 16 dimensions, pair of tokens]`, a line being 16
//!   dimensions by 2 tokens.

use crate::simd::{Bf16Line, F32Line, Line};
use std::sync::Arc;

/// Tokens of a page.
pub(crate) const PAGE_TOKENS: usize = 256;
/// Tokens of a block of keys.
pub(crate) const BLOCK_TOKENS: usize = 16;

/// Tokens of a tile of values, and so the tokens that attention takes at a time.
pub(crate) const TILE_TOKENS: usize = 64;

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvDtype {
    /// Exactly.
    F32,
    /// Rounded to bf16, as the model was trained.
    Bf16,
}

/// Keys and values of one attention layer and one sequence.
#[derive(Clone, Debug)]
pub struct KvCache {
    pages: Pages,
    n_kv_heads: usize,
    head_dim: usize,
    capacity_tokens: usize,
    len: usize,
}

#[derive(Clone, Debug)]
enum Pages {
    F32(Vec<Arc<[F32Line]>>),
    Bf16(Vec<Arc<[Bf16Line]>>),
}

impl KvCache {
    /// Tokens of the pieces that copies share.
    pub const PAGE_TOKENS: usize = PAGE_TOKENS;

    /// An empty cache. Its memory grows page by page with the tokens.
    pub fn new(dtype: KvDtype, n_kv_heads: usize, head_dim: usize, capacity_tokens: usize) -> Self {
        assert!(
            head_dim > 0 && head_dim.is_multiple_of(16),
            "head_dim must be a multiple of 16, not {head_dim}"
        );
        let pages = match dtype {
            KvDtype::F32 => Pages::F32(Vec::new()),
            KvDtype::Bf16 => Pages::Bf16(Vec::new()),
        };
        Self { pages, n_kv_heads, head_dim, capacity_tokens, len: 0 }
    }

    /// Tokens held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no token is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The most tokens that may be held.
    pub fn capacity(&self) -> usize {
        self.capacity_tokens
    }

    /// How keys and values are kept.
    pub fn dtype(&self) -> KvDtype {
        match &self.pages {
            Pages::F32(_) => KvDtype::F32,
            Pages::Bf16(_) => KvDtype::Bf16,
        }
    }

    /// Forgets the tokens from `len` on, and gives their whole pages back.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        let n_pages = self.len.div_ceil(PAGE_TOKENS);
        match &mut self.pages {
            Pages::F32(pages) => pages.truncate(n_pages),
            Pages::Bf16(pages) => pages.truncate(n_pages),
        }
    }

    /// Bytes of the pages, counting those shared with copies.
    pub fn bytes(&self) -> usize {
        match &self.pages {
            Pages::F32(pages) => pages.iter().map(|page| size_of_val(&**page)).sum(),
            Pages::Bf16(pages) => pages.iter().map(|page| size_of_val(&**page)).sum(),
        }
    }

    /// Adds tokens: `k`, normed and rotated, and `v` are `[n_tokens, n_kv_heads, head_dim]`.
    pub fn append(&mut self, k: &[f32], v: &[f32]) {
        let width = self.n_kv_heads * self.head_dim;
        assert!(
            k.len() == v.len() && k.len().is_multiple_of(width),
            "keys and values are whole tokens"
        );
        let n_tokens = k.len() / width;
        assert!(
            n_tokens <= self.capacity_tokens - self.len,
            "a cache for {} tokens holds {} and cannot take {n_tokens} more",
            self.capacity_tokens,
            self.len
        );
        match &mut self.pages {
            Pages::F32(pages) => append(pages, self.head_dim, self.len, width, k, v),
            Pages::Bf16(pages) => append(pages, self.head_dim, self.len, width, k, v),
        }
        self.len += n_tokens;
    }

    /// Calls the variant of a kernel for this cache's kind of line.
    pub(crate) fn read<R: KvReader>(&self, reader: R) -> R::Out {
        match &self.pages {
            Pages::F32(pages) => reader.read(KvPages { pages, head_dim: self.head_dim }),
            Pages::Bf16(pages) => reader.read(KvPages { pages, head_dim: self.head_dim }),
        }
    }

    pub(crate) fn n_kv_heads(&self) -> usize {
        self.n_kv_heads
    }

    pub(crate) fn head_dim(&self) -> usize {
        self.head_dim
    }
}

/// What is done with the pages of a cache, whatever their lines are.
pub(crate) trait KvReader {
    type Out;
    fn read<L: Line>(self, pages: KvPages<'_, L>) -> Self::Out;
}

/// The pages of a cache.
#[derive(Clone, Copy)]
pub(crate) struct KvPages<'a, L> {
    pages: &'a [Arc<[L]>],
    head_dim: usize,
}

impl<'a, L: Line> KvPages<'a, L> {
    /// The keys of a head in a page, from the block that starts at `token` on: a block has
    /// `head_dim / 2` lines.
    #[inline(always)]
    pub(crate) fn keys(self, head: usize, token: usize) -> &'a [L] {
        let block = token % PAGE_TOKENS / BLOCK_TOKENS;
        let half = head_half(self.head_dim);
        let first = 2 * head * half;
        &self.pages[token / PAGE_TOKENS][first + block * self.head_dim / 2..first + half]
    }

    /// The values of a head in a page, from the tile that starts at `token` on: a tile has
    /// `TILE_TOKENS / 2` lines for every 16 dimensions.
    #[inline(always)]
    pub(crate) fn values(self, head: usize, token: usize) -> &'a [L] {
        let tile = token % PAGE_TOKENS / TILE_TOKENS;
        let half = head_half(self.head_dim);
        let first = (2 * head + 1) * half;
        &self.pages[token / PAGE_TOKENS]
            [first + tile * TILE_TOKENS * self.head_dim / 32..first + half]
    }
}

/// Lines of the keys, or of the values, of one head in one page.
const fn head_half(head_dim: usize) -> usize {
    PAGE_TOKENS * head_dim / 32
}

fn append<L: Line>(
    pages: &mut Vec<Arc<[L]>>,
    head_dim: usize,
    len: usize,
    width: usize,
    k: &[f32],
    v: &[f32],
) {
    let half = head_half(head_dim);
    let rows = k.chunks_exact(width).zip(v.chunks_exact(width));
    for (token, (k, v)) in (len..).zip(rows) {
        let slot = token % PAGE_TOKENS;
        if slot == 0 {
            pages.push(std::iter::repeat_n(L::ZERO, 2 * half * width / head_dim).collect());
        }
        let page = Arc::make_mut(pages.last_mut().expect("the token before is in the last page"));
        let heads = page.chunks_exact_mut(2 * half);
        let rows = k.chunks_exact(head_dim).zip(v.chunks_exact(head_dim));
        for (head, (k, v)) in heads.zip(rows) {
            let (keys, values) = head.split_at_mut(half);
            let block = &mut keys[slot / BLOCK_TOKENS * head_dim / 2..][..head_dim / 2];
            for (line, pair) in block.iter_mut().zip(k.as_chunks::<2>().0) {
                line.set(slot % BLOCK_TOKENS, pair[0], pair[1]);
            }
            let tile = TILE_TOKENS * head_dim / 32;
            let tile = &mut values[slot / TILE_TOKENS * tile..][..tile];
            let columns = tile.chunks_exact_mut(TILE_TOKENS / 2);
            for (lines, v) in columns.zip(v.as_chunks::<16>().0) {
                let line = &mut lines[slot % TILE_TOKENS / 2];
                for (column, &v) in v.iter().enumerate() {
                    // The first of a pair clears the second: what a forgotten token left there
                    // must not meet a probability of 0 as an infinity.
                    if slot.is_multiple_of(2) {
                        line.set(column, v, 0.0);
                    } else {
                        line.set_odd(column, v);
                    }
                }
            }
        }
    }
}
