//! Experts of many tokens.

use super::gemm::{staged, tile_tolerance};
use super::moe_decode::{choose, expert, stack};
use super::support::{Case, Check, Cx, max_error};
use crate::gpu::Activations;
use crate::gpu::ops::{self, GpuMoe, MoePrefill, MoeScratch};
use lily_device::{Commands, DeviceError};
use lily_weights::Shape;

pub(super) const CHECKS: &[Check] = &[Check { name: "moe_prefill", run: moe }];

fn moe(cx: &mut Cx) -> Result<Case, DeviceError> {
    let acts = cx.rng.pick(&[Activations::F32, Activations::Bf16]);
    let n_experts = cx.rng.pick(&[4, 16, 31, 40]);
    let shape = Shape {
        hidden: 128 * cx.rng.range(1, 2),
        n_experts,
        n_experts_per_token: cx.rng.range(1, 4),
        expert_width: 128,
        shared_expert_width: 128 * cx.rng.range(1, 2),
        ..Shape::qwen36_35b()
    };
    let (hidden, top_k, width) = (shape.hidden, shape.n_experts_per_token, shape.expert_width);
    let n_tokens = cx.rng.pick(&[1, 5, 40, 130]);
    let (routed, shared) = (cx.format(), cx.format());
    let (gate, gate_values) = stack(cx, n_experts, width, hidden, routed)?;
    let (up, up_values) = stack(cx, n_experts, width, hidden, routed)?;
    let (down, down_values) = stack(cx, n_experts, hidden, width, routed)?;
    let (shared_gate, sg_values) = cx.matrix(shape.shared_expert_width, hidden, shared)?;
    let (shared_up, su_values) = cx.matrix(shape.shared_expert_width, hidden, shared)?;
    let (shared_down, sd_values) = cx.matrix(hidden, shape.shared_expert_width, shared)?;
    let (router, _) = cx.matrix(1, hidden, routed)?;
    let shared_expert_gate = router.clone();
    let w =
        GpuMoe { router, gate, up, down, shared_gate, shared_up, shared_down, shared_expert_gate };
    let [gate_values, up_values, down_values, sg_values, su_values, sd_values] =
        [gate_values, up_values, down_values, sg_values, su_values, sd_values]
            .map(|values| staged(&values, acts));

    let mut h = cx.rng.floats(n_tokens * hidden, 1.0);
    let h_slice = cx.acts(&mut h, acts, "h")?;
    let mut logits = cx.rng.floats(n_tokens * n_experts, 3.0);
    if cx.rng.range(0, 3) == 0 {
        // Everybody to one expert.
        logits.iter_mut().step_by(n_experts).for_each(|logit| *logit = 50.0);
    }
    let shared_logit = cx.rng.floats(n_tokens, 3.0);
    let x = cx.rng.floats(n_tokens * hidden, 1.0);
    let (router_logits, shared_slice) =
        (cx.floats(&logits, "logits")?, cx.floats(&shared_logit, "shared logit")?);
    let x_slice = cx.floats(&x, "x")?;
    let scratch = MoeScratch::new(&cx.device, &shape, n_tokens, acts.size())?;
    let kernels = cx.kernels(&shape, acts);
    let mut commands = Commands::new();
    let step = MoePrefill {
        n_tokens,
        h: &h_slice,
        router_logits: &router_logits,
        shared_logit: &shared_slice,
        x: &x_slice,
    };
    ops::moe_prefill(&kernels, &mut commands, &shape, step, &w, &scratch)?;
    cx.run(&commands)?;

    let mut expected = Vec::new();
    let (mut size_max, mut largest) = (0.0_f64, 0.0_f64);
    for t in 0..n_tokens {
        let wide: Vec<f64> = h[t * hidden..][..hidden].iter().map(|h| f64::from(*h)).collect();
        let (chosen, weights) = choose(&logits[t * n_experts..][..n_experts], top_k);
        let mut y: Vec<f64> = x[t * hidden..][..hidden].iter().map(|x| f64::from(*x)).collect();
        let mut size = 1.0;
        let mut add = |parts: [&[f32]; 3], weight: f64| {
            let (part, part_size) = expert(parts, hidden, &wide, weight);
            for (y, part) in y.iter_mut().zip(&part) {
                *y += part;
                largest = largest.max(part.abs());
            }
            size += part_size;
        };
        for (e, weight) in chosen.iter().zip(&weights) {
            let n = width * hidden;
            let of = |values: &[f32]| values[e * n..(e + 1) * n].to_vec();
            add([&of(&gate_values), &of(&up_values), &of(&down_values)], *weight);
        }
        let weight = 1.0 / (1.0 + f64::from(-shared_logit[t]).exp());
        add([&sg_values, &su_values, &sd_values], weight);
        size_max = size_max.max(size);
        expected.extend(y);
    }
    // Two products after one another with a rounding to activations after each: the inner one's
    // error passes through a row of the outer one, the outer one's is of its own size.
    let rounding = match acts {
        Activations::F32 => 0.0,
        Activations::Bf16 => acts.rounding() * (size_max / width as f64 + 2.0 * largest),
    };
    let tolerance = 0.3 * tile_tolerance(size_max, hidden, acts) + rounding;
    let what = format!(
        "{n_tokens} tokens, {top_k} of {n_experts}, {hidden} -> {width}, {}, {routed:?}, \
         {shared:?}, {acts:?}",
        shape.shared_expert_width
    );
    Ok(Case { what, error: max_error(&cx.read_floats(&x_slice)?, &expected), tolerance })
}
