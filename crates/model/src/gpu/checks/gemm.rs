//! Products of many tokens with a matrix.

use super::gemv::{dot_tolerance, product};
use super::support::{Case, Check, Cx, max_error};
use crate::gpu::Activations;
use crate::gpu::ops::{self, OutType, Output};
use half::bf16;
use lily_device::{Commands, DeviceError};
use lily_weights::Shape;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "gemm", run: store },
    Check { name: "gemm, activations out", run: narrow },
    Check { name: "gemm, add", run: add },
];

/// Weights as the tiles see them: rounded to the activations' type.
pub(super) fn staged(values: &[f32], acts: Activations) -> Vec<f32> {
    match acts {
        Activations::F32 => values.to_vec(),
        Activations::Bf16 => values.iter().map(|w| bf16::from_f32(*w).to_f32()).collect(),
    }
}

/// How far products of staged weights may be off: the sum's rounding, and weights that round the
/// other way because a device may or may not fuse scale and bias (rare, half a unit each).
pub(super) fn tile_tolerance(size: f64, cols: usize, acts: Activations) -> f64 {
    let flips = match acts {
        Activations::F32 => 0.0,
        Activations::Bf16 => 2.0 * acts.rounding() * size / cols as f64,
    };
    2.0 * dot_tolerance(size) + flips
}

fn store(cx: &mut Cx) -> Result<Case, DeviceError> {
    run(cx, OutType::Float, Output::Store)
}

fn narrow(cx: &mut Cx) -> Result<Case, DeviceError> {
    run(cx, OutType::Act, Output::Store)
}

fn add(cx: &mut Cx) -> Result<Case, DeviceError> {
    run(cx, OutType::Float, Output::Add)
}

fn run(cx: &mut Cx, out_type: OutType, output: Output) -> Result<Case, DeviceError> {
    let acts = cx.rng.pick(&[Activations::F32, Activations::Bf16]);
    let format = cx.format();
    let cols = cx.rng.pick(&[128, 256, 384, 640]);
    let rows = cx.rng.pick(&[1, 17, 63, 64, 65, 130]);
    let n_tokens = cx.rng.pick(&[1, 2, 15, 16, 17, 31, 33, 64, 65, 100]);
    let mut x = cx.rng.floats(n_tokens * cols, 1.0);
    let x_slice = cx.acts(&mut x, acts, "x")?;
    let (matrix, values) = cx.matrix(rows, cols, format)?;
    let values = staged(&values, acts);
    let mut size_max = 0.0_f64;
    let mut expected: Vec<f64> = Vec::new();
    for x in x.chunks_exact(cols) {
        let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let (y, size) = product(&values, cols, &wide);
        size_max = size_max.max(size);
        expected.extend(y);
    }
    let out_acts = if out_type == OutType::Act { acts } else { Activations::F32 };
    let y = if output == Output::Add {
        let before = cx.rng.floats(n_tokens * rows, 1.0);
        for (expected, before) in expected.iter_mut().zip(&before) {
            *expected += f64::from(*before);
        }
        cx.floats(&before, "y")?
    } else {
        cx.poisoned(n_tokens * rows * out_acts.size(), "y")?
    };
    let kernels = cx.kernels(&Shape::qwen36_35b(), acts);
    let mut commands = Commands::new();
    let out = (&y, out_type, output);
    ops::gemm(&kernels, &mut commands, n_tokens, &x_slice, &matrix, out)?;
    cx.run(&commands)?;
    let actual = cx.read_acts(&y, out_acts)?;
    let actual = &actual[..expected.len()];
    let largest = expected.iter().fold(0.0_f64, |max, y| max.max(y.abs()));
    let stored = if out_type == OutType::Act { largest * acts.rounding() } else { 2e-7 };
    let tolerance = tile_tolerance(size_max, cols, acts) + stored;
    let what = format!("{n_tokens} x {cols} -> {rows}, {format:?}, {acts:?}");
    Ok(Case { what, error: max_error(actual, &expected), tolerance })
}
