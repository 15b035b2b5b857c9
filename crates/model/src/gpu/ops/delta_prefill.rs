//! The delta rule for many tokens.

use super::gemv::param;
use super::{CONV_RING, DeltaState, DeltaVectors, conv_channels};
use crate::gpu::{Activations, Kernels};
use lily_device::{Commands, Device, DeviceError, Grid, Slice};
use lily_weights::Shape;

/// Tokens of a chunk, as in `kernels/delta_prefill.metal`.
const CHUNK: usize = 64;
/// Value columns of a threadgroup of `delta_chunks`: 256 threadgroups, two for each multiprocessor of
/// an H200, where 2048 tokens take 159 us a layer; with 32 columns they take 190 us.
const COLUMNS: usize = 16;
/// Tokens of a SIMD group of `delta_inputs`.
const TOKENS: usize = 16;

/// Memory that [`delta_prefill`] works in. `q` to `p` are blocks of activations, the rest f32.
#[derive(Clone, Debug)]
pub(crate) struct DeltaScratch {
    q: Slice,
    k: Slice,
    kt: Slice,
    v: Slice,
    t: Slice,
    p: Slice,
    beta: Slice,
    g: Slice,
    decays: Slice,
    rests: Slice,
    o: Slice,
}

impl DeltaScratch {
    /// Memory for up to `max_tokens` tokens.
    pub(crate) fn new(
        device: &dyn Device,
        shape: &Shape,
        activations: Activations,
        max_tokens: usize,
    ) -> Result<Self, DeviceError> {
        let sizes = Self::sizes(shape, activations, max_tokens);
        let memory = device.alloc(sizes.iter().sum(), "delta rule")?;
        let mut start = 0;
        let mut next = sizes.iter().map(|size| {
            start += size;
            memory.slice(start - size..start)
        });
        let mut next = || next.next().expect("a size per member");
        Ok(Self {
            q: next(),
            k: next(),
            kt: next(),
            v: next(),
            t: next(),
            p: next(),
            beta: next(),
            g: next(),
            decays: next(),
            rests: next(),
            o: next(),
        })
    }

    /// In the order of the members; whole chunks, so multiples of 128 bytes.
    fn sizes(shape: &Shape, activations: Activations, max_tokens: usize) -> [usize; 11] {
        let padded = max_tokens.next_multiple_of(CHUNK);
        let keys = padded * shape.n_k_heads * shape.k_head_dim * activations.size();
        let heads = padded * shape.n_v_heads;
        let values = heads * shape.v_head_dim;
        let square = heads * CHUNK * activations.size();
        let v = values * activations.size();
        let gates = heads * 4;
        [keys, keys, keys, v, square, square, gates, gates, gates, gates, values * 4]
    }
}

/// Inputs and output of [`delta_prefill`], activations if not said otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeltaPrefill<'a> {
    pub(crate) n_tokens: usize,
    /// `[n_tokens, channels]`
    pub(crate) u: &'a Slice,
    /// `[n_tokens, n_v_heads, v_head_dim]`
    pub(crate) z: &'a Slice,
    /// f32 `[n_tokens, n_v_heads]`
    pub(crate) b: &'a Slice,
    /// f32 `[n_tokens, n_v_heads]`
    pub(crate) a: &'a Slice,
    /// u32, the position of the first token.
    pub(crate) seq: &'a Slice,
    /// `[n_tokens, n_v_heads, v_head_dim]`
    pub(crate) out: &'a Slice,
    pub(crate) scratch: &'a DeltaScratch,
}

/// Convolution, norms, gates, delta rule and gated norm, for one or more tokens; the state advances.
pub(crate) fn delta_prefill(
    kernels: &Kernels,
    commands: &mut Commands,
    shape: &Shape,
    step: DeltaPrefill<'_>,
    weights: &DeltaVectors,
    state: &DeltaState,
) -> Result<(), DeviceError> {
    let DeltaPrefill { n_tokens, u, z, b, a, seq, out, scratch: s } = step;
    let DeltaVectors { conv1d, decay, dt_bias, norm } = weights;
    // More keys than that leave no threadgroup memory for the state.
    assert!(shape.k_head_dim <= 128, "a key head of {}", shape.k_head_dim);
    let padded = n_tokens.next_multiple_of(CHUNK);
    let params = [("n_tokens", param(n_tokens)), ("n_padded", param(padded))];
    let constants = [("COLUMNS", COLUMNS.to_string()), ("CONV_RING", CONV_RING.to_string())];
    let mut dispatch = |entry, grid: Grid, buffers: &[&Slice]| -> Result<(), DeviceError> {
        let threads = ("LILY_THREADS", grid.threads.to_string());
        let defines = [constants[0].clone(), constants[1].clone(), threads];
        let kernel = kernels.get("delta_prefill", entry, &defines)?;
        let buffers: Vec<Slice> = buffers.iter().copied().cloned().collect();
        commands.dispatch(&kernel, grid, &buffers, &params);
        Ok(())
    };

    let items = padded / TOKENS * (2 * shape.n_k_heads + shape.n_v_heads);
    let inputs =
        [u, b, a, conv1d, decay, dt_bias, seq, &state.ring, &s.q, &s.k, &s.kt, &s.v, &s.beta, &s.g];
    dispatch("delta_inputs", Grid::linear(items.div_ceil(2), 64), &inputs)?;

    let per_head = Grid::new([padded / CHUNK, shape.n_v_heads, 1], 128);
    let solve = [&s.q, &s.k, &s.beta, &s.g, &s.decays, &s.rests, &s.t, &s.p];
    dispatch("delta_solve", per_head, &solve)?;

    let channels = Grid::linear(conv_channels(shape).div_ceil(256), 256);
    dispatch("delta_ring", channels, &[u, seq, &state.ring])?;

    let slices = Grid::new([shape.v_head_dim / COLUMNS, shape.n_v_heads, 1], 256);
    let chunks =
        [&s.q, &s.k, &s.kt, &s.v, &s.beta, &s.decays, &s.rests, &s.t, &s.p, &state.state, &s.o];
    dispatch("delta_chunks", slices, &chunks)?;

    let heads = Grid::linear((n_tokens * shape.n_v_heads).div_ceil(4), 128);
    dispatch("delta_gated_norm", heads, &[&s.o, z, norm, out])
}
