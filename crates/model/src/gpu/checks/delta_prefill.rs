//! The delta rule in chunks, against the recurrence token by token.

use super::delta_step::Problem;
use super::support::{Case, Check, Cx, Rng};
use crate::gpu::Activations;
use crate::gpu::ops::{self, CONV_RING, DeltaPrefill, DeltaScratch, DeltaState, DeltaVectors};
use lily_device::{Commands, DeviceError};

pub(super) const CHECKS: &[Check] = &[Check { name: "delta_prefill", run: prefill }];

/// Gates that are easy to get wrong, for every head and token.
fn gates(rng: &mut Rng, p: &mut Problem) -> &'static str {
    let kind =
        rng.pick(&["usual", "usual", "forgets at once", "keeps all", "beta 0 or 1", "mixed"]);
    let at_once = |a: &mut f32| *a = 40.0;
    match kind {
        "forgets at once" => p.a.iter_mut().for_each(at_once),
        "keeps all" => {
            p.a.iter_mut().for_each(|a| *a = -30.0);
            p.b.iter_mut().for_each(|b| *b = 8.0);
        }
        "beta 0 or 1" => p.b.iter_mut().for_each(|b| *b = 60.0_f32.copysign(*b)),
        // Decays near 1 after one near 0, in one chunk.
        "mixed" => {
            p.a.iter_mut().for_each(|a| *a = if rng.range(0, 9) == 0 { 200.0 } else { -9.0 });
        }
        _ => {}
    }
    kind
}

fn prefill(cx: &mut Cx) -> Result<Case, DeviceError> {
    let n_tokens = cx.rng.pick(&[1, 2, 3, 16, 63, 64, 65, 100, 128, 150]);
    let mut p = Problem::draw(&mut cx.rng, n_tokens);
    while p.shape.n_v_heads * p.shape.k_head_dim * p.shape.v_head_dim * n_tokens > 12_000_000 {
        p = Problem::draw(&mut cx.rng, n_tokens);
    }
    let kind = gates(&mut cx.rng, &mut p);
    let acts = cx.rng.pick(&[Activations::F32, Activations::Bf16]);
    let shape = p.shape.clone();
    let (channels, taps, heads) = (ops::conv_channels(&shape), shape.conv_kernel, shape.n_v_heads);
    let values = n_tokens * heads * shape.v_head_dim;

    // Other rows of the ring are left over from long ago.
    let mut ring = vec![7.0_f32; CONV_RING * channels];
    let old_rows = |back: usize| (p.position - back) % CONV_RING * channels;
    let n_before = (taps - 1).min(p.position);
    for back in 1..=n_before {
        ring[old_rows(back)..][..channels]
            .copy_from_slice(&p.before[(taps - 1 - back) * channels..][..channels]);
    }
    let ring_slice = cx.acts(&mut ring, acts, "ring")?;
    for back in 1..=n_before {
        p.before[(taps - 1 - back) * channels..][..channels]
            .copy_from_slice(&ring[old_rows(back)..][..channels]);
    }
    let gain = cx.rng.floats(shape.v_head_dim, 1.5);
    let mut z = cx.rng.floats(values, 3.0);
    let vectors = DeltaVectors {
        conv1d: cx.floats(&p.conv1d, "conv1d")?,
        decay: cx.floats(&p.decay, "decay")?,
        dt_bias: cx.floats(&p.dt_bias, "dt_bias")?,
        norm: cx.floats(&gain, "norm")?,
    };
    let state_slice = cx.floats(&p.state, "state")?;
    let state = DeltaState { ring: ring_slice.clone(), state: state_slice.clone() };
    let (u, z_slice) = (cx.acts(&mut p.u, acts, "u")?, cx.acts(&mut z, acts, "z")?);
    let (a, b) = (cx.floats(&p.a, "a")?, cx.floats(&p.b, "b")?);
    let seq = cx.words(&[u32::try_from(p.position).expect("small"), 0, 0, 0], "seq")?;
    let out = cx.poisoned(values * acts.size(), "out")?;
    let scratch = DeltaScratch::new(&*cx.device, &shape, acts, n_tokens + cx.rng.pick(&[0, 70]))?;

    let kernels = cx.kernels(&shape, acts);
    let mut commands = Commands::new();
    let step = DeltaPrefill {
        n_tokens,
        u: &u,
        z: &z_slice,
        b: &b,
        a: &a,
        seq: &seq,
        out: &out,
        scratch: &scratch,
    };
    ops::delta_prefill(&kernels, &mut commands, &shape, step, &vectors, &state)?;
    cx.run(&commands)?;

    let (o, expected_state) = p.expected(n_tokens);
    let tolerance = tolerance(n_tokens, acts);
    let actual = cx.read_acts(&out, acts)?;
    let actual_state = cx.read_floats(&state_slice)?;
    // In units of what is allowed: an error of `o` counts as much more as the norm makes of it.
    let mut error = 0.0_f64;
    let mut worst = |error_of: f64, allowed: f64| {
        let ratio = error_of / allowed;
        error = if ratio.is_nan() { f64::INFINITY } else { error.max(ratio) };
    };
    for (actual, expected) in actual_state.iter().zip(&expected_state) {
        worst((f64::from(*actual) - expected).abs(), tolerance);
    }
    let dv = shape.v_head_dim;
    for (row, o) in o.chunks_exact(dv).enumerate() {
        let mean = o.iter().map(|o| o * o).sum::<f64>() / dv as f64;
        let scale = (mean + f64::from(shape.rms_eps)).sqrt().recip();
        for (i, (o, gain)) in o.iter().zip(&gain).enumerate() {
            let z = f64::from(z[row * dv + i]);
            let factor = f64::from(*gain) * z / (1.0 + (-z).exp());
            let expected = o * scale * factor;
            // The scale itself is off by no more than its largest value, which errors share.
            let from_o = tolerance * scale * factor.abs() * (1.0 + o.abs() * scale);
            let allowed = from_o + expected.abs() * acts.rounding() + 1e-7;
            worst((f64::from(actual[row * dv + i]) - expected).abs(), allowed);
        }
    }
    // The ring has the last rows of the step, rounded as activations are.
    let ring = cx.read_acts(&ring_slice, acts)?;
    for t in n_tokens.saturating_sub(taps - 1)..n_tokens {
        let row = &ring[(p.position + t) % CONV_RING * channels..][..channels];
        if row != &p.u[t * channels..][..channels] {
            error = f64::INFINITY;
        }
    }
    let what = format!(
        "{n_tokens} tokens at {}, heads {}x{} -> {heads}x{dv}, {kind}, {acts:?}",
        p.position, shape.n_k_heads, shape.k_head_dim
    );
    Ok(Case { what, error, tolerance: 1.0 })
}

/// States and outputs are of order one. f32: each token adds some tens of roundings to them, none
/// of which grows: |S k| <= |S| for unit k. As bf16 the products round both operands: of a chunk
/// the keys or queries, the state, its corrections R and N and the matrix between them, each of
/// order one; and what earlier tokens' corrections lost, times a component of their keys, is still
/// in the state, n terms of either sign.
fn tolerance(n_tokens: usize, acts: Activations) -> f64 {
    let exact = (n_tokens as f64 * 40.0 + 100.0) * 2.0_f64.powi(-24);
    match acts {
        Activations::F32 => exact,
        Activations::Bf16 => exact + acts.rounding() * (5.0 + 0.5 * (n_tokens as f64).sqrt()),
    }
}
