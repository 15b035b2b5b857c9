//! Mixture of experts for many tokens.

use super::gemm::{OutType, TileShape, gemm};
use super::gemv::{Output, param};
use super::moe_decode::GpuMoe;
use crate::gpu::{GpuExperts, GpuMatrix, Kernels};
use lily_device::{Buffer, Commands, Device, DeviceError, Grid, Slice};
use lily_weights::Shape;
use std::sync::Arc;

/// Scratch of [`moe_prefill`] for up to some number of tokens.
#[derive(Debug)]
pub(crate) struct MoeScratch {
    /// u32 `[T, top_k]`
    experts: Slice,
    /// f32 `[T, top_k]`
    weights: Slice,
    counts: Slice,
    offsets: Slice,
    tiles: Slice,
    sorted: Slice,
    /// Activations `[T * top_k, expert_width]`
    a: Slice,
    /// Activations `[T * top_k, hidden]`
    y: Slice,
    /// Activations `[T, shared_expert_width]`
    shared_a: Slice,
    /// Activations `[T, hidden]`
    shared_y: Slice,
}

impl MoeScratch {
    pub(crate) fn new(
        device: &Arc<dyn Device>,
        shape: &Shape,
        n_tokens: usize,
        act_bytes: usize,
    ) -> Result<Self, DeviceError> {
        let pairs = n_tokens * shape.n_experts_per_token;
        let alloc = |bytes: usize| -> Result<Slice, DeviceError> {
            device.alloc(bytes, "experts scratch").map(|buffer: Buffer| buffer.all())
        };
        Ok(Self {
            experts: alloc(pairs * 4)?,
            weights: alloc(pairs * 4)?,
            counts: alloc(shape.n_experts * 4)?,
            offsets: alloc(shape.n_experts * 4)?,
            tiles: alloc(n_tiles(shape, n_tokens, 16) * 12)?,
            sorted: alloc(pairs * 4)?,
            a: alloc(pairs * shape.expert_width * act_bytes)?,
            y: alloc(pairs * shape.hidden * act_bytes)?,
            shared_a: alloc(n_tokens * shape.shared_expert_width * act_bytes)?,
            shared_y: alloc(n_tokens * shape.hidden * act_bytes)?,
        })
    }
}

/// Tiles of at most `pairs_each` pairs that `n_tokens` tokens may need: each expert has one that is
/// not full.
fn n_tiles(shape: &Shape, n_tokens: usize, pairs_each: usize) -> usize {
    let pairs = n_tokens * shape.n_experts_per_token;
    pairs / pairs_each + shape.n_experts.min(pairs)
}

/// Inputs and outputs of [`moe_prefill`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct MoePrefill<'a> {
    pub(crate) n_tokens: usize,
    /// Normed activations `[n_tokens, hidden]`.
    pub(crate) h: &'a Slice,
    /// f32 `[n_tokens, n_experts]`
    pub(crate) router_logits: &'a Slice,
    /// f32 `[n_tokens]`
    pub(crate) shared_logit: &'a Slice,
    /// The residual stream, added to; f32 `[n_tokens, hidden]`.
    pub(crate) x: &'a Slice,
}

/// `x += moe(h)`, from the router's logits on.
pub(crate) fn moe_prefill(
    kernels: &Kernels,
    commands: &mut Commands,
    shape: &Shape,
    step: MoePrefill<'_>,
    w: &GpuMoe,
    s: &MoeScratch,
) -> Result<(), DeviceError> {
    let n_tokens = step.n_tokens;
    let pairs = n_tokens * shape.n_experts_per_token;
    let n_pairs = [("n_pairs", param(pairs))];
    // As many rows a tile as an expert has on average.
    let acts = kernels.activations();
    let tile = TileShape::new(pairs.div_ceil(shape.n_experts), shape.hidden, acts);
    let down_tile = TileShape::new(pairs.div_ceil(shape.n_experts), shape.expert_width, acts);
    let n_tiles = n_tiles(shape, n_tokens, tile.m);
    let tiles = s.tiles.buffer.slice(0..n_tiles * 12);
    let defines = [("TILE_PAIRS", tile.m.to_string())];
    let one_per_token = Grid::linear(n_tokens, 32);
    let one_per_expert = Grid::linear(shape.n_experts, 256);

    let kernel = kernels.get("moe_prefill", "route", &defines)?;
    let buffers = [step.router_logits, &s.experts, &s.weights].map(Clone::clone);
    commands.dispatch(&kernel, one_per_token, &buffers, &[]);
    let kernel = kernels.get("moe_prefill", "count", &defines)?;
    let buffers = [&s.experts, &s.counts].map(Clone::clone);
    commands.dispatch(&kernel, one_per_expert, &buffers, &n_pairs);
    let kernel = kernels.get("moe_prefill", "plan", &defines)?;
    let buffers = [&s.counts, &s.offsets, &tiles].map(Clone::clone);
    let params = [("n_tiles", param(n_tiles))];
    commands.dispatch(&kernel, Grid::linear(1, 256), &buffers, &params);
    let kernel = kernels.get("moe_prefill", "scatter", &defines)?;
    let buffers = [&s.experts, &s.offsets, &s.sorted].map(Clone::clone);
    commands.dispatch(&kernel, one_per_expert, &buffers, &n_pairs);

    let routed = Some((&tiles, &s.sorted, n_tiles));
    let (gate, up) = (&w.gate, &w.up);
    gate_up(kernels, commands, n_tokens, step.h, (gate, up), tile, routed, &s.a)?;
    expert_down(kernels, commands, &w.down, down_tile, (&tiles, n_tiles), s)?;

    let alone = |matrix: &GpuMatrix| GpuExperts {
        n_experts: 1,
        stride_rows: matrix.rows,
        matrix: matrix.clone(),
    };
    let (gate, up) = (alone(&w.shared_gate), alone(&w.shared_up));
    let tile = TileShape::new(n_tokens, shape.hidden, acts);
    gate_up(kernels, commands, n_tokens, step.h, (&gate, &up), tile, None, &s.shared_a)?;
    let out = (&s.shared_y, OutType::Act, Output::Store);
    gemm(kernels, commands, n_tokens, &s.shared_a, &w.shared_down, out)?;

    let kernel = kernels.get("moe_prefill", "combine", &defines)?;
    let buffers = [&s.y, &s.weights, &s.shared_y, step.shared_logit, step.x].map(Clone::clone);
    commands.dispatch(&kernel, Grid::linear(n_tokens, 256), &buffers, &[]);
    Ok(())
}

/// `a = silu(gate h) * (up h)`, for the pairs of the tiles or for all tokens.
#[expect(clippy::too_many_arguments, reason = "two callers, both above")]
fn gate_up(
    kernels: &Kernels,
    commands: &mut Commands,
    n_tokens: usize,
    h: &Slice,
    (gate, up): (&GpuExperts, &GpuExperts),
    tile: TileShape,
    routed: Option<(&Slice, &Slice, usize)>,
    a: &Slice,
) -> Result<(), DeviceError> {
    let (g, u) = (&gate.matrix, &up.matrix);
    assert!(g.format == u.format && g.rows == u.rows, "gate and up are stored alike");
    let mut defines = tile.defines(g.cols);
    defines.extend(g.format.defines());
    defines.extend([OutType::Act.define(), ("ACCUMULATE", "0".to_owned())]);
    defines.push(("ROUTED", u8::from(routed.is_some()).to_string()));
    let kernel = kernels.get("gemm", "gate_up", &defines)?;
    // Without a plan the tiles are the tokens in order, and neither list is read.
    let (tiles, sorted, n_tiles) =
        routed.unwrap_or((&g.codes, &g.codes, n_tokens.div_ceil(tile.m)));
    let buffers =
        [h, &g.codes, &g.scales, &g.biases, &u.codes, &u.scales, &u.biases, tiles, sorted, a]
            .map(Clone::clone);
    let grid = Grid::new([g.rows.div_ceil(tile.n / 2), n_tiles, 1], tile.threads());
    let params = [
        ("n_tokens", param(n_tokens)),
        ("rows", param(g.rows)),
        ("gate_stride", param(gate.stride_rows)),
        ("up_stride", param(up.stride_rows)),
    ];
    commands.dispatch(&kernel, grid, &buffers, &params);
    Ok(())
}

fn expert_down(
    kernels: &Kernels,
    commands: &mut Commands,
    down: &GpuExperts,
    tile: TileShape,
    (tiles, n_tiles): (&Slice, usize),
    s: &MoeScratch,
) -> Result<(), DeviceError> {
    let w = &down.matrix;
    let mut defines = tile.defines(w.cols);
    defines.extend(w.format.defines());
    defines.extend([OutType::Act.define(), ("ACCUMULATE", "0".to_owned())]);
    defines.push(("ROUTED", "1".to_owned()));
    let kernel = kernels.get("gemm", "expert_down", &defines)?;
    let buffers = [&s.a, &w.codes, &w.scales, &w.biases, tiles, &s.sorted, &s.y].map(Clone::clone);
    let grid = Grid::new([w.rows.div_ceil(tile.n), n_tiles, 1], tile.threads());
    let params = [("rows", param(w.rows)), ("stride", param(down.stride_rows))];
    commands.dispatch(&kernel, grid, &buffers, &params);
    Ok(())
}
