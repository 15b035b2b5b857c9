//! The delta rule for a few tokens, and its commit.

use super::gemv::param;
use crate::Advance;
use crate::gpu::Kernels;
use lily_device::{Commands, DeviceError, Grid, Slice};
use lily_weights::Shape;

/// Rows of the ring that holds the last rows of `u`; a step of `delta_step` has at most
/// `CONV_RING - (conv_kernel - 1)` tokens.
pub(crate) const CONV_RING: usize = 32;
/// Value columns of a threadgroup, as in `kernels/delta_step.metal`.
const COLUMNS: usize = 32;
const THREADS: u32 = 128;

/// f32 weights of a delta-rule layer besides its projections.
#[derive(Clone, Debug)]
pub(crate) struct DeltaVectors {
    /// `[channels, conv_kernel]`
    pub(crate) conv1d: Slice,
    /// `[n_v_heads]`
    pub(crate) decay: Slice,
    /// `[n_v_heads]`
    pub(crate) dt_bias: Slice,
    /// `[v_head_dim]`
    pub(crate) norm: Slice,
}

/// What one sequence keeps for one delta-rule layer.
#[derive(Clone, Debug)]
pub(crate) struct DeltaState {
    /// Activations `[CONV_RING, channels]`, position p in row `p % CONV_RING`.
    pub(crate) ring: Slice,
    /// f32 `[n_v_heads, v_head_dim, k_head_dim]`
    pub(crate) state: Slice,
}

/// What a tentative step leaves for [`delta_commit`], f32.
#[derive(Clone, Debug)]
pub(crate) struct DeltaStash {
    /// `[n_tokens, n_v_heads, k_head_dim]`
    pub(crate) k: Slice,
    /// `[n_tokens, n_v_heads, v_head_dim]`
    pub(crate) d: Slice,
    /// `[n_tokens, n_v_heads]`
    pub(crate) g: Slice,
}

/// f32 inputs and outputs of [`delta_step`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeltaStep<'a> {
    pub(crate) n_tokens: usize,
    /// `[n_tokens, channels]`
    pub(crate) u: &'a Slice,
    /// `[n_tokens, n_v_heads]`
    pub(crate) b: &'a Slice,
    /// `[n_tokens, n_v_heads]`
    pub(crate) a: &'a Slice,
    /// u32, the position of the first token.
    pub(crate) seq: &'a Slice,
    /// `[n_tokens, n_v_heads, v_head_dim]`
    pub(crate) o: &'a Slice,
    /// `[n_tokens, n_v_heads, n_slices]` sums of squares.
    pub(crate) part: &'a Slice,
}

/// Sums of squares per head in [`DeltaStep::part`].
pub(crate) fn n_slices(shape: &Shape) -> usize {
    shape.v_head_dim / COLUMNS
}

/// Channels of the convolution.
pub(crate) fn conv_channels(shape: &Shape) -> usize {
    2 * shape.n_k_heads * shape.k_head_dim + shape.n_v_heads * shape.v_head_dim
}

/// Convolution, norms, gates and delta rule. With a stash the state stays as it was.
pub(crate) fn delta_step(
    kernels: &Kernels,
    commands: &mut Commands,
    shape: &Shape,
    step: DeltaStep<'_>,
    weights: &DeltaVectors,
    state: &DeltaState,
    stash: Option<&DeltaStash>,
) -> Result<(), DeviceError> {
    assert!(step.n_tokens + shape.conv_kernel - 1 <= CONV_RING, "the step fits the ring");
    let advance = if stash.is_some() { Advance::Tentative } else { Advance::Commit };
    let kernel = kernels.get("delta_step", "delta_step", &defines(advance))?;
    // Without a stash nothing is written there; any slice of its own will do.
    let (k, d, g) = stash.map_or((step.part, step.part, step.part), |s| (&s.k, &s.d, &s.g));
    let DeltaState { ring, state } = state;
    let DeltaVectors { conv1d, decay, dt_bias, .. } = weights;
    let buffers = [
        step.u, step.b, step.a, conv1d, decay, dt_bias, step.seq, ring, state, step.o, step.part,
        k, d, g,
    ]
    .map(Clone::clone);
    let params = [("n_tokens", param(step.n_tokens))];
    commands.dispatch(&kernel, grid(shape), &buffers, &params);
    Ok(())
}

/// Applies the first `n_tokens` tokens of a stash.
pub(crate) fn delta_commit(
    kernels: &Kernels,
    commands: &mut Commands,
    shape: &Shape,
    n_tokens: usize,
    stash: &DeltaStash,
    state: &DeltaState,
) -> Result<(), DeviceError> {
    let kernel = kernels.get("delta_step", "delta_commit", &defines(Advance::Tentative))?;
    let buffers = [stash.k.clone(), stash.d.clone(), stash.g.clone(), state.state.clone()];
    commands.dispatch(&kernel, grid(shape), &buffers, &[("n_tokens", param(n_tokens))]);
    Ok(())
}

fn defines(advance: Advance) -> [(&'static str, String); 2] {
    let tentative = u8::from(advance == Advance::Tentative);
    [("CONV_RING", CONV_RING.to_string()), ("TENTATIVE", tentative.to_string())]
}

fn grid(shape: &Shape) -> Grid {
    Grid::new([n_slices(shape), shape.n_v_heads, 1], THREADS)
}
