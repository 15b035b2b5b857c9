//! Products with one vector, and the embedding lookup.

use super::support::{Case, Check, Cx, max_error};
use crate::gpu::ops::{self, Input, Output};
use crate::gpu::{Activations, GpuMatrix};
use lily_device::{Commands, DeviceError, Slice};
use lily_weights::Shape;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "embed", run: embed },
    Check { name: "gemv", run: plain },
    Check { name: "gemv, add", run: add },
    Check { name: "gemv, normed", run: normed },
    Check { name: "gemv, gated norm", run: gated_norm },
];

/// f32 rounding of a dot product whose terms' sizes sum to `size`. Each lane sums at most some
/// tens of terms before the lanes are added pairwise; sums of signed terms stay far below the sum
/// of sizes, so half a unit of that sum is generous.
pub(super) fn dot_tolerance(size: f64) -> f64 {
    size * 0.5 * 2.0_f64.powi(-24) + 1e-30
}

/// `W x` in f64, and the sum of the sizes of the terms of the largest row.
pub(super) fn product(values: &[f32], cols: usize, x: &[f64]) -> (Vec<f64>, f64) {
    let mut size_max = 0.0_f64;
    let rows = values.chunks_exact(cols).map(|row| {
        let terms = || row.iter().zip(x).map(|(w, x)| f64::from(*w) * x);
        // Codes and bias are summed apart, and each is up to a few times what remains.
        size_max = size_max.max(terms().map(f64::abs).sum::<f64>() * 4.0);
        terms().sum()
    });
    (rows.collect(), size_max)
}

/// [`product`] with every row of `x`, one after another.
fn products(values: &[f32], cols: usize, x: &[f64]) -> (Vec<f64>, f64) {
    let mut size_max = 0.0_f64;
    let y = x
        .chunks_exact(cols)
        .flat_map(|x| {
            let (y, size) = product(values, cols, x);
            size_max = size_max.max(size);
            y
        })
        .collect();
    (y, size_max)
}

/// RMS norm of a row in f64.
pub(super) fn normed_row(x: &[f32], gain: &[f32], eps: f32) -> Vec<f64> {
    let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64;
    let factor = (mean + f64::from(eps)).sqrt().recip();
    x.iter().zip(gain).map(|(x, gain)| f64::from(*x) * factor * f64::from(*gain)).collect()
}

fn embed(cx: &mut Cx) -> Result<Case, DeviceError> {
    let format = cx.format();
    let hidden = 128 * cx.rng.range(1, 9);
    let (vocab, n_tokens) = (cx.rng.range(1, 40), cx.rng.range(1, 9));
    let shape = Shape { hidden, vocab_size: vocab, ..Shape::qwen36_35b() };
    let (table, values) = cx.matrix(vocab, hidden, format)?;
    let ids: Vec<u32> = (0..n_tokens)
        .map(|_| u32::try_from(cx.rng.range(0, vocab - 1)).expect("a small vocabulary"))
        .collect();
    let ids_slice = cx.words(&ids, "ids")?;
    let x = cx.poisoned(n_tokens * hidden * 4, "x")?;
    let kernels = cx.kernels(&shape, Activations::F32);
    let mut commands = Commands::new();
    ops::embed(&kernels, &mut commands, n_tokens, &ids_slice, &table, &x)?;
    cx.run(&commands)?;
    let expected: Vec<f64> = ids
        .iter()
        .flat_map(|id| values[*id as usize * hidden..][..hidden].iter().map(|w| f64::from(*w)))
        .collect();
    let what = format!("{n_tokens} of {vocab} x {hidden}, {format:?}");
    // A device may fuse the product and the sum: one rounding of the product.
    let tolerance = 3.0 * 2.0_f64.powi(-24);
    Ok(Case { what, error: max_error(&cx.read_floats(&x)?, &expected), tolerance })
}

fn plain(cx: &mut Cx) -> Result<Case, DeviceError> {
    let n = cx.rng.range(1, 5);
    multiply(cx, n, Output::Store)
}

fn add(cx: &mut Cx) -> Result<Case, DeviceError> {
    multiply(cx, 1, Output::Add)
}

fn multiply(cx: &mut Cx, n_matrices: usize, output: Output) -> Result<Case, DeviceError> {
    let cols = 128 * cx.rng.range(1, 12);
    let first = cx.format();
    let n_tokens = cx.rng.range(1, 3);
    let x = cx.rng.floats(n_tokens * cols, 1.0);
    let x_slice = cx.floats(&x, "x")?;
    let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    let mut parts: Vec<(GpuMatrix, Slice, Vec<f64>)> = Vec::new();
    let mut tolerance = 0.0_f64;
    for _ in 0..n_matrices {
        let rows = cx.rng.pick(&[1, 2, 7, 31, 64, 65, 700]);
        let format = if cx.rng.range(0, 3) == 0 { cx.format() } else { first };
        let (matrix, values) = cx.matrix(rows, cols, format)?;
        let (mut expected, size) = products(&values, cols, &wide);
        let y = if output == Output::Add {
            let before = cx.rng.floats(n_tokens * rows, 1.0);
            for (expected, before) in expected.iter_mut().zip(&before) {
                *expected += f64::from(*before);
            }
            cx.floats(&before, "y")?
        } else {
            cx.poisoned(n_tokens * rows * 4, "y")?
        };
        tolerance = tolerance.max(dot_tolerance(size) + 4.0 * 2.0_f64.powi(-24));
        parts.push((matrix, y, expected));
    }
    let kernels = cx.kernels(&Shape::qwen36_35b(), Activations::F32);
    let mut commands = Commands::new();
    let products: Vec<_> = parts.iter().map(|(matrix, y, _)| (matrix, y)).collect();
    ops::gemv(&kernels, &mut commands, n_tokens, Input::Plain(&x_slice), &products, output)?;
    cx.run(&commands)?;
    let mut error = 0.0_f64;
    for (_, y, expected) in &parts {
        error = error.max(max_error(&cx.read_floats(y)?, expected));
    }
    let rows: Vec<usize> = parts.iter().map(|(matrix, _, _)| matrix.rows).collect();
    let what = format!("{n_tokens} x {cols} -> {rows:?}, {first:?}");
    Ok(Case { what, error, tolerance })
}

fn normed(cx: &mut Cx) -> Result<Case, DeviceError> {
    let cols = 128 * cx.rng.range(1, 17);
    let rows = cx.rng.range(1, 70);
    let format = cx.format();
    let scale = cx.rng.pick(&[1e-4, 1.0, 300.0]);
    let n_tokens = cx.rng.range(1, 3);
    let x = cx.rng.floats(n_tokens * cols, scale);
    let gain = cx.rng.floats(cols, 2.0);
    let (matrix, values) = cx.matrix(rows, cols, format)?;
    let y = cx.poisoned(n_tokens * rows * 4, "y")?;
    let (x_slice, gain_slice) = (cx.floats(&x, "x")?, cx.floats(&gain, "gain")?);
    let shape = Shape::qwen36_35b();
    let kernels = cx.kernels(&shape, Activations::F32);
    let mut commands = Commands::new();
    let input = Input::Normed { x: &x_slice, gain: &gain_slice };
    ops::gemv(&kernels, &mut commands, n_tokens, input, &[(&matrix, &y)], Output::Store)?;
    cx.run(&commands)?;

    let h: Vec<f64> =
        x.chunks_exact(cols).flat_map(|x| normed_row(x, &gain, shape.rms_eps)).collect();
    let (expected, size) = products(&values, cols, &h);
    let tolerance = dot_tolerance(size);
    let what = format!("{n_tokens} x {cols} -> {rows}, {format:?}, scale {scale:e}");
    Ok(Case { what, error: max_error(&cx.read_floats(&y)?, &expected), tolerance })
}

fn gated_norm(cx: &mut Cx) -> Result<Case, DeviceError> {
    let v_head_dim = cx.rng.pick(&[32, 64, 128]);
    let n_v_heads = 128 / v_head_dim * cx.rng.range(1, 4);
    let cols = n_v_heads * v_head_dim;
    let rows = cx.rng.range(1, 40);
    let format = cx.format();
    let shape = Shape { n_v_heads, v_head_dim, ..Shape::qwen36_35b() };
    let n_tokens = cx.rng.range(1, 3);
    let o = cx.rng.floats(n_tokens * cols, 0.3);
    let z = cx.rng.floats(n_tokens * cols, 3.0);
    let gain = cx.rng.floats(v_head_dim, 1.5);
    let n_slices = ops::n_slices(&shape);
    let squares: Vec<f32> =
        o.chunks_exact(32).map(|part| part.iter().map(|o| o * o).sum()).collect();
    let (matrix, values) = cx.matrix(rows, cols, format)?;
    let slices = [
        cx.floats(&o, "o")?,
        cx.floats(&squares, "part")?,
        cx.floats(&gain, "gain")?,
        cx.floats(&z, "z")?,
    ];
    let y = cx.poisoned(n_tokens * rows * 4, "y")?;
    let kernels = cx.kernels(&shape, Activations::F32);
    let mut commands = Commands::new();
    let [o_slice, part, gain_slice, z_slice] = &slices;
    let input = Input::GatedNorm { o: o_slice, part, gain: gain_slice, z: z_slice, n_slices };
    ops::gemv(&kernels, &mut commands, n_tokens, input, &[(&matrix, &y)], Output::Store)?;
    cx.run(&commands)?;

    let h: Vec<f64> = gated(&o, &z, &gain, shape.rms_eps);
    let (expected, size) = products(&values, cols, &h);
    let tolerance = dot_tolerance(size) * 2.0;
    let what = format!("{n_tokens} tokens, {rows} x {n_v_heads} heads of {v_head_dim}, {format:?}");
    Ok(Case { what, error: max_error(&cx.read_floats(&y)?, &expected), tolerance })
}

/// The delta rule's output norm and gate, in f64.
pub(super) fn gated(o: &[f32], z: &[f32], gain: &[f32], eps: f32) -> Vec<f64> {
    let heads = o.chunks_exact(gain.len()).zip(z.chunks_exact(gain.len()));
    heads
        .flat_map(|(o, z)| {
            let mean = o.iter().map(|o| f64::from(*o).powi(2)).sum::<f64>() / gain.len() as f64;
            let factor = (mean + f64::from(eps)).sqrt().recip();
            o.iter().zip(z).zip(gain).map(move |((o, z), gain)| {
                let z = f64::from(*z);
                f64::from(*o) * factor * f64::from(*gain) * z / (1.0 + (-z).exp())
            })
        })
        .collect()
}
