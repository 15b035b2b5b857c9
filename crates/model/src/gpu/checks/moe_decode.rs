//! Experts of a few tokens.

use super::gemv::{dot_tolerance, product};
use super::support::{Case, Check, Cx, max_error};
use crate::gpu::ops::{self, GpuMoe, MoeDecode};
use crate::gpu::{Activations, Format, GpuExperts};
use lily_device::{Commands, DeviceError};
use lily_weights::Shape;

pub(super) const CHECKS: &[Check] = &[Check { name: "moe_decode", run: moe }];

/// The experts that `logits` choose, best first (equal logits: the lower index), and their weights.
pub(super) fn choose(logits: &[f32], top_k: usize) -> (Vec<usize>, Vec<f64>) {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
    order.truncate(top_k);
    let top = f64::from(logits[order[0]]);
    let weights: Vec<f64> = order.iter().map(|e| (f64::from(logits[*e]) - top).exp()).collect();
    let sum: f64 = weights.iter().sum();
    (order, weights.into_iter().map(|w| w / sum).collect())
}

/// Gate, up and down of one expert in f64: `weight * down(silu(gate h) * up h)`, and the sizes of
/// the terms.
pub(super) fn expert(
    [gate, up, down]: [&[f32]; 3],
    hidden: usize,
    h: &[f64],
    weight: f64,
) -> (Vec<f64>, f64) {
    let (gate, gate_size) = product(gate, hidden, h);
    let (up, up_size) = product(up, hidden, h);
    let a: Vec<f64> =
        gate.iter().zip(&up).map(|(g, u)| weight * g / (1.0 + (-g).exp()) * u).collect();
    let (y, size) = product(down, a.len(), &a);
    (y, size + weight * (gate_size + up_size))
}

/// Experts of one format, stacked, and their values.
pub(super) fn stack(
    cx: &mut Cx,
    n_experts: usize,
    rows: usize,
    cols: usize,
    format: Format,
) -> Result<(GpuExperts, Vec<f32>), DeviceError> {
    let (mut matrix, values) = cx.matrix(n_experts * rows, cols, format)?;
    matrix.rows = rows;
    Ok((GpuExperts { n_experts, stride_rows: rows, matrix }, values))
}

fn moe(cx: &mut Cx) -> Result<Case, DeviceError> {
    let n_experts = cx.rng.pick(&[4, 16, 31, 40]);
    let shape = Shape {
        hidden: 128 * cx.rng.range(1, 4),
        n_experts,
        n_experts_per_token: cx.rng.range(1, 4),
        expert_width: 128 * cx.rng.range(1, 3),
        shared_expert_width: 128 * cx.rng.range(1, 3),
        ..Shape::qwen36_35b()
    };
    let (hidden, top_k) = (shape.hidden, shape.n_experts_per_token);
    let n_tokens = cx.rng.range(1, 4);
    let (routed, shared) = (cx.format(), cx.format());
    let (gate, gate_values) = stack(cx, n_experts, shape.expert_width, hidden, routed)?;
    let (up, up_values) = stack(cx, n_experts, shape.expert_width, hidden, routed)?;
    let (down, down_values) = stack(cx, n_experts, hidden, shape.expert_width, routed)?;
    let (shared_gate, sg_values) = cx.matrix(shape.shared_expert_width, hidden, shared)?;
    let (shared_up, su_values) = cx.matrix(shape.shared_expert_width, hidden, shared)?;
    let (shared_down, sd_values) = cx.matrix(hidden, shape.shared_expert_width, shared)?;
    let (router, _) = cx.matrix(n_experts, hidden, routed)?;
    let (shared_expert_gate, _) = cx.matrix(1, hidden, routed)?;
    let w =
        GpuMoe { router, gate, up, down, shared_gate, shared_up, shared_down, shared_expert_gate };
    let x = cx.rng.floats(n_tokens * hidden, 1.0);
    let gain = cx.rng.floats(hidden, 1.5);
    let mut logits = cx.rng.floats(n_tokens * n_experts, 3.0);
    // Ties and hopeless experts.
    logits[0] = logits[n_experts - 1];
    logits[1] = f32::NEG_INFINITY;
    let shared_logit = cx.rng.floats(n_tokens, 3.0);
    let slices = [
        cx.floats(&x, "x")?,
        cx.floats(&gain, "gain")?,
        cx.floats(&logits, "logits")?,
        cx.floats(&shared_logit, "shared logit")?,
        cx.poisoned(n_tokens * ops::a_floats(&shape) * 4, "a")?,
        cx.poisoned(n_tokens * top_k * 4, "experts")?,
    ];
    let [x_slice, gain_slice, router_logits, shared_slice, a, experts] = &slices;
    let kernels = cx.kernels(&shape, Activations::F32);
    let mut commands = Commands::new();
    let step = MoeDecode {
        n_tokens,
        x: x_slice,
        gain: gain_slice,
        router_logits,
        shared_logit: shared_slice,
        a,
        experts,
    };
    ops::moe_decode(&kernels, &mut commands, &shape, step, &w)?;
    cx.run(&commands)?;

    let mut expected = Vec::new();
    let mut expected_experts = Vec::new();
    let mut size_max = 0.0_f64;
    for t in 0..n_tokens {
        let x = &x[t * hidden..][..hidden];
        let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / hidden as f64;
        let factor = (mean + f64::from(shape.rms_eps)).sqrt().recip();
        let h: Vec<f64> =
            x.iter().zip(&gain).map(|(x, g)| f64::from(*x) * factor * f64::from(*g)).collect();
        let (chosen, weights) = choose(&logits[t * n_experts..][..n_experts], top_k);
        let mut y: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let mut size = 1.0;
        let mut add = |parts: [&[f32]; 3], weight: f64| {
            let (part, part_size) = expert(parts, hidden, &h, weight);
            y.iter_mut().zip(&part).for_each(|(y, part)| *y += part);
            size += part_size;
        };
        for (e, weight) in chosen.iter().zip(&weights) {
            let of = |values: &[f32]| -> Vec<f32> {
                let n = shape.expert_width * hidden;
                values[e * n..(e + 1) * n].to_vec()
            };
            add([&of(&gate_values), &of(&up_values), &of(&down_values)], *weight);
        }
        let weight = 1.0 / (1.0 + f64::from(-shared_logit[t]).exp());
        add([&sg_values, &su_values, &sd_values], weight);
        size_max = size_max.max(size);
        expected.extend(y);
        expected_experts.extend(chosen);
    }
    let mut error = max_error(&cx.read_floats(x_slice)?, &expected);
    let actual: Vec<usize> = cx.read_words(experts)?.iter().map(|e| *e as usize).collect();
    if actual != expected_experts {
        error = f64::INFINITY;
    }
    let what = format!(
        "{n_tokens} tokens, {top_k} of {n_experts}, {hidden} -> {}, {}, {routed:?}, {shared:?}",
        shape.expert_width, shape.shared_expert_width
    );
    // Two products after one another, each rounded as a sum of its own size; `size_max` adds the
    // sizes of all rows of the inner ones, of which an output sees the weighted mean.
    Ok(Case { what, error, tolerance: 0.3 * dot_tolerance(size_max) })
}
