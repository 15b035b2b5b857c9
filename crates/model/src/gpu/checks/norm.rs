//! RMS norm.

use super::support::{Case, Check, Cx, max_error};
use crate::gpu::{Activations, ops};
use lily_device::{Commands, DeviceError};
use lily_weights::Shape;

pub(super) const CHECKS: &[Check] = &[Check { name: "rms_norm", run: rms_norm }];

fn rms_norm(cx: &mut Cx) -> Result<Case, DeviceError> {
    let hidden = 32 * cx.rng.range(1, 70);
    let n_tokens = cx.rng.range(1, 9);
    let acts = cx.rng.pick(&[Activations::F32, Activations::Bf16]);
    // From far below the epsilon to far above it.
    let scale = cx.rng.pick(&[1e-6, 1e-3, 1.0, 300.0]);
    let shape = Shape { hidden, ..Shape::qwen36_35b() };
    let x = cx.rng.floats(n_tokens * hidden, scale);
    let gain = cx.rng.floats(hidden, 2.0);

    let kernels = cx.kernels(&shape, acts);
    let (x_slice, gain_slice) = (cx.floats(&x, "x")?, cx.floats(&gain, "gain")?);
    let out = cx.poisoned(n_tokens * hidden * acts.size(), "out")?;
    let mut commands = Commands::new();
    ops::rms_norm(&kernels, &mut commands, n_tokens, &x_slice, &gain_slice, &out)?;
    cx.run(&commands)?;
    let actual = cx.read_acts(&out, acts)?;

    let mut expected = Vec::with_capacity(actual.len());
    for row in x.chunks_exact(hidden) {
        let mean = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / hidden as f64;
        let scale = (mean + f64::from(shape.rms_eps)).sqrt().recip();
        expected.extend(row.iter().zip(&gain).map(|(x, g)| f64::from(*x) * scale * f64::from(*g)));
    }
    // An output is at most sqrt(hidden) * 2 in size. f32: 20 roundings of sums and factors, each
    // 2^-24 relative; bf16: half a unit of 8 bits.
    let largest = expected.iter().fold(0.0_f64, |max, x| max.max(x.abs()));
    let tolerance = largest * acts.rounding() + largest * 20.0 * 2.0_f64.powi(-24) + 1e-30;
    let what = format!("{n_tokens} x {hidden}, {acts:?}, scale {scale:e}");
    Ok(Case { what, error: max_error(&actual, &expected), tolerance })
}
