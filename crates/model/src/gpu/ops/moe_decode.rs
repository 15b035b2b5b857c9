//! Mixture of experts for a few tokens.

use super::gemv::param;
use crate::gpu::{GpuExperts, GpuMatrix, Kernels};
use lily_device::{Commands, DeviceError, Grid, Slice};
use lily_weights::Shape;

const SIMDGROUPS: usize = 8;
/// Rows of gate, and of up, that a SIMD group handles.
const ROWS_GATE_UP: usize = 2;
/// Rows of down; each is nine short dot products.
const ROWS_DOWN: usize = 1;

/// Router, experts and shared expert.
#[derive(Clone, Debug)]
pub(crate) struct GpuMoe {
    pub(crate) router: GpuMatrix,
    pub(crate) gate: GpuExperts,
    pub(crate) up: GpuExperts,
    pub(crate) down: GpuExperts,
    pub(crate) shared_gate: GpuMatrix,
    pub(crate) shared_up: GpuMatrix,
    pub(crate) shared_down: GpuMatrix,
    /// `[1, hidden]`
    pub(crate) shared_expert_gate: GpuMatrix,
}

/// Inputs, outputs and scratch of [`moe_decode`], f32 unless said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MoeDecode<'a> {
    pub(crate) n_tokens: usize,
    /// The residual stream, read and added to, `[n_tokens, hidden]`.
    pub(crate) x: &'a Slice,
    /// Gain of the norm before the experts.
    pub(crate) gain: &'a Slice,
    /// `[n_tokens, n_experts]`
    pub(crate) router_logits: &'a Slice,
    /// `[n_tokens]`
    pub(crate) shared_logit: &'a Slice,
    /// Scratch `[n_tokens, top_k + 1, max expert width]`.
    pub(crate) a: &'a Slice,
    /// Scratch, u32 `[n_tokens, top_k]`.
    pub(crate) experts: &'a Slice,
}

/// Values of [`MoeDecode::a`] for a token.
pub(crate) fn a_floats(shape: &Shape) -> usize {
    (shape.n_experts_per_token + 1) * shape.expert_width.max(shape.shared_expert_width)
}

/// `x += moe(norm(x))`, from the router's logits on.
pub(crate) fn moe_decode(
    kernels: &Kernels,
    commands: &mut Commands,
    shape: &Shape,
    step: MoeDecode<'_>,
    w: &GpuMoe,
) -> Result<(), DeviceError> {
    let (gate, up, down) = (&w.gate.matrix, &w.up.matrix, &w.down.matrix);
    assert!(
        gate.format == up.format && w.shared_gate.format == w.shared_up.format,
        "gate and up are stored alike"
    );
    let width = shape.expert_width.max(shape.shared_expert_width);
    let kernel = kernel(kernels, "moe_gate_up", gate, &w.shared_gate, ROWS_GATE_UP)?;
    let buffers = [
        step.x,
        step.gain,
        step.router_logits,
        step.shared_logit,
        &gate.codes,
        &gate.scales,
        &gate.biases,
        &up.codes,
        &up.scales,
        &up.biases,
        &w.shared_gate.codes,
        &w.shared_gate.scales,
        &w.shared_gate.biases,
        &w.shared_up.codes,
        &w.shared_up.scales,
        &w.shared_up.biases,
        step.a,
        step.experts,
    ]
    .map(Clone::clone);
    let blocks = width.div_ceil(SIMDGROUPS * ROWS_GATE_UP);
    let grid = Grid::new([blocks, shape.n_experts_per_token + 1, step.n_tokens], 256);
    let params =
        [("gate_stride", param(w.gate.stride_rows)), ("up_stride", param(w.up.stride_rows))];
    commands.dispatch(&kernel, grid, &buffers, &params);

    let kernel = self::kernel(kernels, "moe_down", down, &w.shared_down, ROWS_DOWN)?;
    let buffers = [
        step.a,
        step.experts,
        &down.codes,
        &down.scales,
        &down.biases,
        &w.shared_down.codes,
        &w.shared_down.scales,
        &w.shared_down.biases,
        step.x,
    ]
    .map(Clone::clone);
    let blocks = shape.hidden.div_ceil(SIMDGROUPS * ROWS_DOWN);
    let params = [("stride", param(w.down.stride_rows))];
    commands.dispatch(&kernel, Grid::new([blocks, step.n_tokens, 1], 256), &buffers, &params);
    Ok(())
}

fn kernel(
    kernels: &Kernels,
    entry: &'static str,
    routed: &GpuMatrix,
    shared: &GpuMatrix,
    rows: usize,
) -> Result<lily_device::Kernel, DeviceError> {
    let [(_, bits), (_, group), (_, scale)] = shared.format.defines();
    let mut defines = vec![("S_BITS", bits), ("S_GROUP", group), ("S_SCALE", scale)];
    defines.extend(routed.format.defines());
    defines.push(("ROWS", rows.to_string()));
    kernels.get("moe_decode", entry, &defines)
}
