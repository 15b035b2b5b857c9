//! Gated delta rule between its projections: convolution, SiLU, L2 norms, gates, recurrence,
//! gated norm.
//!
//! One task does everything for a key head and the value heads that use it, so a layer is one
//! fork-join. Tokens are taken in chunks; a decoding step is a chunk of one.

mod key_head;
mod state;

pub use state::{DeltaShape, DeltaStash, DeltaState, apply};

use crate::Pool;
use crate::split::{Split, Workspaces};
use key_head::{KeyHead, Recurrent, Workspace, run_key_head};

/// Weights of the layer besides the projections.
#[derive(Clone, Copy, Debug)]
pub struct DeltaWeights<'a> {
    /// `[channels, 4]`; the last column is for the current token.
    pub conv1d: &'a [f32],
    /// `-exp(A_log)`, `[n_v_heads]`.
    pub decay: &'a [f32],
    /// `[n_v_heads]`
    pub dt_bias: &'a [f32],
    /// Gain of the gated norm, `[v_head_dim]`.
    pub norm: &'a [f32],
}

/// What the projections gave for T tokens of one sequence.
#[derive(Clone, Copy, Debug)]
pub struct DeltaInputs<'a> {
    /// `[T, channels]`: queries, keys and values before the convolution.
    pub u: &'a [f32],
    /// `[T, n_v_heads, v_head_dim]`: gates of the output.
    pub z: &'a [f32],
    /// `[T, n_v_heads]`: `beta` before its sigmoid.
    pub b: &'a [f32],
    /// `[T, n_v_heads]`: time steps before their softplus.
    pub a: &'a [f32],
}

/// Memory of the delta rule, reused from call to call.
#[derive(Debug, Default)]
pub struct DeltaScratch(Workspaces<Workspace>);

/// Runs T tokens from the projections to the gated heads, `out` `[T, n_v_heads, v_head_dim]`, and
/// advances the state.
///
/// # Numerics
/// f32 throughout. Cutting the tokens into calls differently changes rounding only.
pub fn gated_delta_net(
    pool: &Pool,
    shape: &DeltaShape,
    weights: &DeltaWeights<'_>,
    inputs: DeltaInputs<'_>,
    state: &mut DeltaState,
    out: &mut [f32],
    scratch: &mut DeltaScratch,
) {
    check(shape, weights, &inputs, state, out);
    let DeltaState { conv, s, .. } = state;
    let recurrent = Recurrent::Advance { conv: Split::new(conv), s: Split::new(s) };
    run(pool, shape, weights, inputs, &recurrent, out, scratch);
}

/// [`gated_delta_net`] that leaves the state as it was. What [`apply`] needs to advance it later,
/// by some of the tokens, goes into `stash`.
#[expect(clippy::too_many_arguments, reason = "those of `gated_delta_net` and the stash")]
pub fn gated_delta_net_tentative(
    pool: &Pool,
    shape: &DeltaShape,
    weights: &DeltaWeights<'_>,
    inputs: DeltaInputs<'_>,
    state: &DeltaState,
    stash: &mut DeltaStash,
    out: &mut [f32],
    scratch: &mut DeltaScratch,
) {
    check(shape, weights, &inputs, state, out);
    let stash = stash.record(shape, inputs.u);
    let recurrent = Recurrent::Keep { conv: &state.conv, s: &state.s, stash };
    run(pool, shape, weights, inputs, &recurrent, out, scratch);
}

fn check(
    shape: &DeltaShape,
    weights: &DeltaWeights<'_>,
    inputs: &DeltaInputs<'_>,
    state: &DeltaState,
    out: &[f32],
) {
    let (channels, width) = (shape.channels(), shape.value_width());
    assert_eq!(*shape, state.shape, "the state was made for this shape");
    assert_eq!(weights.conv1d.len(), channels * shape.conv_kernel, "a filter per channel");
    assert_eq!(weights.decay.len(), shape.n_v_heads, "a decay per value head");
    assert_eq!(weights.dt_bias.len(), shape.n_v_heads, "a dt_bias per value head");
    assert_eq!(weights.norm.len(), shape.v_head_dim, "a gain per value of a head");
    assert!(out.len().is_multiple_of(width), "the result is whole tokens");
    let n_tokens = out.len() / width;
    assert_eq!(inputs.u.len(), n_tokens * channels, "a row of channels per token");
    assert_eq!(inputs.z.len(), out.len(), "an output gate per result");
    assert_eq!(inputs.b.len(), n_tokens * shape.n_v_heads, "a beta per token and value head");
    assert_eq!(inputs.a.len(), n_tokens * shape.n_v_heads, "a time step per token and value head");
}

fn run(
    pool: &Pool,
    shape: &DeltaShape,
    weights: &DeltaWeights<'_>,
    inputs: DeltaInputs<'_>,
    recurrent: &Recurrent<'_>,
    out: &mut [f32],
    scratch: &mut DeltaScratch,
) {
    let out = Split::new(out);
    pool.run(shape.n_k_heads, &|head| {
        let head = KeyHead { head, shape, weights, inputs, recurrent, out: &out };
        scratch.0.with(|workspace| run_key_head(&head, workspace));
    });
}
