//! The experts of a layer: gate and up with SwiGLU, then down, weighted and summed.
//!
//! Two fork-joins. In the first a task computes some rows of the gate and up projections of one
//! expert; in the second some rows of the result, over all experts in a fixed order, so that no
//! two tasks write the same value and the sum does not depend on timing.

use crate::activations::{Activations, Precision};
use crate::matmul::{Method, RowTile, TileScratch, rows_per_task};
use crate::simd::{Lanes, dispatched};
use crate::split::{Split, Workspaces};
use crate::{Pool, Routes};
use lily_weights::{Matrix, MoeWeights};
use std::ops::Range;

/// Buffers of the experts, kept from call to call.
#[derive(Debug)]
pub struct MoeScratch {
    plan: Plan,
    /// SwiGLU outputs of the routed experts, one row per token and chosen expert.
    routed: Activations,
    /// The same of the shared expert, one row per token.
    shared: Activations,
    tiles: Workspaces<TileScratch>,
}

impl MoeScratch {
    /// Empty buffers for the arithmetic of the activations that will be given.
    pub fn new(precision: Precision) -> Self {
        Self {
            plan: Plan::default(),
            routed: Activations::new(precision),
            shared: Activations::new(precision),
            tiles: Workspaces::default(),
        }
    }
}

/// Tokens by expert: a slot is one token at one of its experts, slots of an expert are adjacent.
#[derive(Debug, Default)]
struct Plan {
    /// Experts that have tokens, ascending, with their slots.
    experts: Vec<(usize, Range<usize>)>,
    /// Token of each slot.
    tokens: Vec<u32>,
    /// Weight of each slot.
    weights: Vec<f32>,
    /// 0, 1, 2, …
    identity: Vec<u32>,
}

/// An index that fits: batches and slots are bounded by the scratch memory they need.
pub(crate) fn index(i: usize) -> u32 {
    u32::try_from(i).expect("a batch has fewer than 2^32 rows")
}

impl Plan {
    fn set(&mut self, routes: &Routes, n_experts: usize) {
        let n_slots = routes.experts.len();
        let mut starts = vec![0_usize; n_experts + 1];
        for &expert in &routes.experts {
            starts[expert as usize + 1] += 1;
        }
        for e in 0..n_experts {
            starts[e + 1] += starts[e];
        }
        self.experts.clear();
        let filled = (0..n_experts).filter(|&e| starts[e] < starts[e + 1]);
        self.experts.extend(filled.map(|e| (e, starts[e]..starts[e + 1])));
        self.tokens.resize(n_slots, 0);
        self.weights.resize(n_slots, 0.0);
        for (i, (&expert, &weight)) in routes.experts.iter().zip(&routes.weights).enumerate() {
            let slot = &mut starts[expert as usize];
            self.tokens[*slot] = index(i / routes.top_k);
            self.weights[*slot] = weight;
            *slot += 1;
        }
        self.identity.clear();
        self.identity.extend((0..n_slots.max(routes.n_tokens)).map(index));
    }
}

/// Gate and up of one expert and the slots it serves.
struct Expert<'a> {
    gate: Matrix<'a>,
    up: Matrix<'a>,
    tokens: &'a [u32],
    /// First row of its output.
    first_slot: usize,
    out: &'a Split<'a, f32>,
}

/// `y[t] += sum_k w_k down_k(silu(gate_k x) * up_k x) + shared_weight[t] * shared(x)`
///
/// `y` is `[n_tokens, hidden]`, `shared_weight` `[n_tokens]`.
///
/// # Panics
/// If a shape does not fit: shapes come from a verified checkpoint.
pub fn moe(
    pool: &Pool,
    w: &MoeWeights,
    x: &Activations,
    routes: &Routes,
    shared_weight: &[f32],
    y: &mut [f32],
    scratch: &mut MoeScratch,
) {
    let n_tokens = x.n_tokens();
    assert_eq!(routes.n_tokens, n_tokens, "every token is routed");
    assert_eq!(shared_weight.len(), n_tokens, "every token has a weight for the shared expert");
    assert_eq!(y.len(), n_tokens * x.cols(), "y is [n_tokens, hidden]");
    let method = Method::for_batch(n_tokens);
    let MoeScratch { plan, routed, shared, tiles } = scratch;
    plan.set(routes, w.gate.rows);
    gate_up(pool, w, x, plan, routed, shared, tiles, method);
    routed.quantize(pool);
    shared.quantize(pool);
    down(pool, w, plan, [routed, shared], shared_weight, y, tiles, method);
}

#[expect(clippy::too_many_arguments, reason = "the parts of one scratch, borrowed apart")]
fn gate_up(
    pool: &Pool,
    w: &MoeWeights,
    x: &Activations,
    plan: &Plan,
    routed: &mut Activations,
    shared: &mut Activations,
    tiles: &Workspaces<TileScratch>,
    method: Method,
) {
    let n_tokens = x.n_tokens();
    let routed = Split::new(routed.reshape(plan.tokens.len(), w.expert_gate.rows));
    let shared = Split::new(shared.reshape(n_tokens, w.shared_gate_proj.rows));
    let mut experts: Vec<Expert<'_>> = plan
        .experts
        .iter()
        .map(|(e, slots)| Expert {
            gate: w.expert_gate.expert(*e),
            up: w.expert_up.expert(*e),
            tokens: &plan.tokens[slots.clone()],
            first_slot: slots.start,
            out: &routed,
        })
        .collect();
    experts.push(Expert {
        gate: w.shared_gate_proj.view(),
        up: w.shared_up_proj.view(),
        tokens: &plan.identity[..n_tokens],
        first_slot: 0,
        out: &shared,
    });
    let mut tasks: Vec<(usize, Range<usize>)> = Vec::new();
    for (idx, expert) in experts.iter().enumerate() {
        // The other experts give the threads enough to share.
        let step = rows_per_task(&expert.gate, expert.tokens.len(), 1);
        let rows = expert.gate.rows;
        tasks.extend((0..rows).step_by(step).map(|row| (idx, row..(row + step).min(rows))));
    }
    pool.run(tasks.len(), &|task| {
        let (idx, rows) = &tasks[task];
        let expert = &experts[*idx];
        tiles.with(|scratch| {
            let tile =
                |weight| RowTile { weight, rows: rows.clone(), x, tokens: expert.tokens, method };
            tile(&expert.gate).product(scratch);
            std::mem::swap(&mut scratch.tile, &mut scratch.other);
            let n = tile(&expert.up).product(scratch).len();
            swiglu(&mut scratch.other[..n], &scratch.tile[..n]);
            for (i, values) in scratch.other[..n].chunks_exact(rows.len()).enumerate() {
                let start = (expert.first_slot + i) * expert.gate.rows;
                // SAFETY: tasks have different slots or disjoint rows of the same slots.
                let out = unsafe { expert.out.part(start + rows.start..start + rows.end) };
                out.copy_from_slice(values);
            }
        });
    });
}

#[expect(clippy::too_many_arguments, reason = "the parts of one scratch, borrowed apart")]
fn down(
    pool: &Pool,
    w: &MoeWeights,
    plan: &Plan,
    [routed, shared]: [&Activations; 2],
    shared_weight: &[f32],
    y: &mut [f32],
    tiles: &Workspaces<TileScratch>,
    method: Method,
) {
    let hidden = w.expert_down.rows;
    let n_tokens = shared_weight.len();
    let shared_down = w.shared_down_proj.view();
    // A task reads its rows of every expert in use: as many tasks as balance needs, no more.
    let step = (hidden / (8 * pool.n_threads())).clamp(16, 128) / 16 * 16;
    let y = Split::new(y);
    pool.run(hidden.div_ceil(step), &|task| {
        let rows = task * step..((task + 1) * step).min(hidden);
        tiles.with(|scratch| {
            let mut add = |weight: &Matrix<'_>,
                           x: &Activations,
                           slots: &[u32],
                           route: &dyn Fn(usize) -> (usize, f32)| {
                let tile = RowTile { weight, rows: rows.clone(), x, tokens: slots, method };
                let values = tile.product(scratch);
                for (&slot, values) in slots.iter().zip(values.chunks_exact(rows.len())) {
                    let (token, weight) = route(slot as usize);
                    let start = token * hidden;
                    // SAFETY: tasks have disjoint rows.
                    let out = unsafe { y.part(start + rows.start..start + rows.end) };
                    out.iter_mut().zip(values).for_each(|(out, value)| *out += weight * value);
                }
            };
            for (e, slots) in &plan.experts {
                let by_plan = |slot: usize| (plan.tokens[slot] as usize, plan.weights[slot]);
                add(&w.expert_down.expert(*e), routed, &plan.identity[slots.clone()], &by_plan);
            }
            let by_token = |token: usize| (token, shared_weight[token]);
            add(&shared_down, shared, &plan.identity[..n_tokens], &by_token);
        });
    });
}

dispatched! {
    /// `gate = silu(gate) * up`, elementwise.
    fn swiglu(gate: &mut [f32], up: &[f32]) = swiglu_body
}

#[inline(always)]
fn swiglu_body<S: Lanes>(s: S, gate: &mut [f32], up: &[f32]) {
    let mut gates = gate.chunks_exact_mut(S::N);
    let mut ups = up.chunks_exact(S::N);
    for (gate, up) in gates.by_ref().zip(ups.by_ref()) {
        let value = s.mul(crate::math::silu(s, s.load(gate)), s.load(up));
        s.store(value, gate);
    }
    for (gate, up) in gates.into_remainder().iter_mut().zip(ups.remainder()) {
        let mut lanes = [0.0; 16];
        lanes[0] = *gate;
        let value = crate::math::silu(s, s.load(&lanes));
        s.store(value, &mut lanes);
        *gate = lanes[0] * up;
    }
}
