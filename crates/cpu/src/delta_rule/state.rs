//! What the layer remembers of a sequence, and how a verified prefix is added to it.

use super::key_head::{CHUNK, replay};
use crate::conv::TAPS;
use crate::split::Split;

/// Dimensions of a gated delta rule layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaShape {
    /// Heads of queries and keys.
    pub n_k_heads: usize,
    /// Heads of values; value head `j` uses key head `j / (n_v_heads / n_k_heads)`.
    pub n_v_heads: usize,
    /// Values of a query or key; a multiple of 16.
    pub k_head_dim: usize,
    /// Values of a value head; a multiple of 16.
    pub v_head_dim: usize,
    /// Taps of the convolution: 4.
    pub conv_kernel: usize,
    /// Of the gated norm.
    pub eps: f32,
}

impl DeltaShape {
    /// Channels of the convolution: queries, keys, values.
    pub(crate) fn channels(&self) -> usize {
        2 * self.key_width() + self.value_width()
    }

    pub(crate) fn key_width(&self) -> usize {
        self.n_k_heads * self.k_head_dim
    }

    pub(crate) fn value_width(&self) -> usize {
        self.n_v_heads * self.v_head_dim
    }

    /// Value heads of a key head.
    pub(crate) fn group(&self) -> usize {
        self.n_v_heads / self.n_k_heads
    }

    /// Values of the state of one value head.
    pub(crate) fn head_state(&self) -> usize {
        self.k_head_dim * self.v_head_dim
    }
}

/// What the layer remembers of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaState {
    pub(super) shape: DeltaShape,
    /// The last rows of `u`, `[conv_kernel - 1, channels]`.
    pub(super) conv: Vec<f32>,
    /// `[n_v_heads, k_head_dim, v_head_dim]`
    pub(super) s: Vec<f32>,
}

impl DeltaState {
    /// The state before the first token.
    pub fn new(shape: &DeltaShape) -> Self {
        assert_eq!(shape.conv_kernel, TAPS, "the convolution has four taps");
        assert!(
            shape.n_k_heads > 0 && shape.n_v_heads.is_multiple_of(shape.n_k_heads),
            "key heads share the value heads"
        );
        assert!(
            shape.k_head_dim > 0 && shape.k_head_dim.is_multiple_of(16),
            "k_head_dim must be a multiple of 16, not {}",
            shape.k_head_dim
        );
        assert!(
            shape.v_head_dim > 0 && shape.v_head_dim.is_multiple_of(16),
            "v_head_dim must be a multiple of 16, not {}",
            shape.v_head_dim
        );
        Self {
            shape: *shape,
            conv: vec![0.0; (TAPS - 1) * shape.channels()],
            s: vec![0.0; shape.n_v_heads * shape.head_state()],
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.conv) + size_of_val(&*self.s)
    }
}

/// What tentative tokens would add to a state: 57 KB a token and layer for the 35B.
#[derive(Clone, Debug, Default)]
pub struct DeltaStash {
    n_tokens: usize,
    /// `[T, channels]`
    u: Vec<f32>,
    /// Normed keys, `[n_k_heads, T, k_head_dim]`.
    k: Vec<f32>,
    /// `beta (v - S^T k)`, `[n_v_heads, T, v_head_dim]`.
    delta: Vec<f32>,
    /// Logarithms of the decay, `[n_v_heads, T]`.
    g: Vec<f32>,
}

/// The parts of a stash that the tasks of a layer fill.
pub(super) struct StashParts<'a> {
    pub(super) k: Split<'a, f32>,
    pub(super) delta: Split<'a, f32>,
    pub(super) g: Split<'a, f32>,
}

impl DeltaStash {
    /// Tokens held.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Starts over with these rows of `u`; the rest is to be filled in.
    pub(super) fn record(&mut self, shape: &DeltaShape, u: &[f32]) -> StashParts<'_> {
        self.n_tokens = u.len() / shape.channels();
        self.u.clear();
        self.u.extend_from_slice(u);
        self.k.resize(self.n_tokens * shape.key_width(), 0.0);
        self.delta.resize(self.n_tokens * shape.value_width(), 0.0);
        self.g.resize(self.n_tokens * shape.n_v_heads, 0.0);
        StashParts {
            k: Split::new(&mut self.k),
            delta: Split::new(&mut self.delta),
            g: Split::new(&mut self.g),
        }
    }
}

/// Advances a state by the first `n_kept` tokens of a stash. It must be the state that the tokens
/// were run from.
///
/// Equal to having run just these tokens, up to rounding.
pub fn apply(stash: &DeltaStash, n_kept: usize, state: &mut DeltaState) {
    let DeltaState { shape, conv, s } = state;
    let n_tokens = stash.n_tokens;
    assert!(n_kept <= n_tokens, "{n_kept} tokens cannot be kept of {n_tokens}");
    if n_kept == 0 {
        return;
    }
    let channels = shape.channels();
    assert_eq!(stash.u.len(), n_tokens * channels, "the stash is of a layer of this shape");

    // The last rows of the old ones followed by the kept ones.
    let n_old = (TAPS - 1).saturating_sub(n_kept);
    conv.copy_within((TAPS - 1 - n_old) * channels.., 0);
    let kept = &stash.u[..n_kept * channels];
    let new = (TAPS - 1 - n_old) * channels;
    conv[n_old * channels..].copy_from_slice(&kept[kept.len() - new..]);

    let (dk, dv, group) = (shape.k_head_dim, shape.v_head_dim, shape.group());
    let mut scaled = vec![0.0; CHUNK * dk];
    for (head, s) in s.chunks_exact_mut(shape.head_state()).enumerate() {
        let k = &stash.k[head / group * n_tokens * dk..][..n_kept * dk];
        let delta = &stash.delta[head * n_tokens * dv..][..n_kept * dv];
        let g = &stash.g[head * n_tokens..][..n_kept];
        let chunks = k.chunks(CHUNK * dk).zip(delta.chunks(CHUNK * dv));
        for ((k, delta), g) in chunks.zip(g.chunks(CHUNK)) {
            replay(k, delta, g, dv, s, &mut scaled);
        }
    }
}
