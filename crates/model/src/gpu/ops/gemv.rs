//! Products with few vectors, and the embedding lookup.

use crate::gpu::{GpuMatrix, Kernels};
use lily_device::{Commands, DeviceError, Grid, Slice};

/// SIMD groups of a threadgroup, as in `kernels/gemv.metal`.
const SIMDGROUPS: usize = 8;
/// Matrices that one dispatch takes.
const MATRICES_MAX: usize = 4;

/// What the vectors are made of; see `kernels/gemv.metal`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Input<'a> {
    /// f32, as it is.
    Plain(&'a Slice),
    /// f32, under an RMS norm.
    Normed {
        /// The residual stream.
        x: &'a Slice,
        /// f32 gain.
        gain: &'a Slice,
    },
    /// Output of the delta rule, under its gated norm.
    GatedNorm {
        /// f32.
        o: &'a Slice,
        /// Sums of squares from `delta_step`.
        part: &'a Slice,
        /// f32 gain of a head.
        gain: &'a Slice,
        /// f32 gate.
        z: &'a Slice,
        /// Parts of a head in `part`.
        n_slices: usize,
    },
}

/// Whether a product replaces what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// It does.
    Store,
    /// It is added.
    Add,
}

/// `y[t] = W f(x[t])` for each matrix and its output, f32; at least one, all of one input width.
/// Every vector reads the weights anew: for a few of them.
pub(crate) fn gemv(
    kernels: &Kernels,
    commands: &mut Commands,
    n_tokens: usize,
    input: Input<'_>,
    products: &[(&GpuMatrix, &Slice)],
    output: Output,
) -> Result<(), DeviceError> {
    let mut rest: Vec<(&GpuMatrix, &Slice)> = products.to_vec();
    while let Some((first, _)) = rest.first() {
        let format = first.format;
        let (mut same, mut other): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|(matrix, _)| matrix.format == format);
        if same.len() > MATRICES_MAX {
            other.splice(0..0, same.drain(MATRICES_MAX..));
        }
        side_by_side(kernels, commands, n_tokens, input, &same, output)?;
        rest = other;
    }
    Ok(())
}

/// One dispatch for up to four matrices of one format.
fn side_by_side(
    kernels: &Kernels,
    commands: &mut Commands,
    n_tokens: usize,
    input: Input<'_>,
    products: &[(&GpuMatrix, &Slice)],
    output: Output,
) -> Result<(), DeviceError> {
    let (first, first_y) = products[0];
    let cols = first.cols;
    assert!(products.iter().all(|(matrix, _)| matrix.cols == cols), "one vector, one input width");
    assert!(output == Output::Store || products.len() == 1, "only one product is accumulated");
    let n_rows: usize = products.iter().map(|(matrix, _)| matrix.rows).sum();
    // Few rows need many SIMD groups to keep the memory busy; many rows share the staged vector.
    let rows_each = match n_rows {
        0..=2048 => 1,
        2049..=6144 => 2,
        _ => 4,
    };
    let (kind, n_slices, vectors) = match input {
        Input::Plain(x) => (0, 1, [x, x, x, x]),
        Input::Normed { x, gain } => (1, 1, [x, gain, x, x]),
        Input::GatedNorm { o, part, gain, z, n_slices } => (2, n_slices, [o, gain, z, part]),
    };
    let mut defines = vec![
        ("COLS", cols.to_string()),
        ("INPUT", kind.to_string()),
        ("ROWS", rows_each.to_string()),
        ("SLICES", n_slices.to_string()),
        ("ACCUMULATE", u8::from(output == Output::Add).to_string()),
    ];
    defines.extend(first.format.defines());
    let kernel = kernels.get("gemv", "gemv", &defines)?;

    let mut buffers: Vec<Slice> = vectors.into_iter().cloned().collect();
    let mut rows = [0; MATRICES_MAX];
    for (idx, n_rows) in rows.iter_mut().enumerate() {
        // What is not there is bound to the first and has no rows.
        let (matrix, _) = products.get(idx).unwrap_or(&products[0]);
        buffers.extend([matrix.codes.clone(), matrix.scales.clone(), matrix.biases.clone()]);
        *n_rows = products.get(idx).map_or(0, |(matrix, _)| param(matrix.rows));
    }
    for idx in 0..MATRICES_MAX {
        buffers.push(products.get(idx).map_or(first_y, |(_, y)| y).clone());
    }
    let params = [("rows0", rows[0]), ("rows1", rows[1]), ("rows2", rows[2]), ("rows3", rows[3])];
    let tasks: usize = products.iter().map(|(matrix, _)| matrix.rows.div_ceil(rows_each)).sum();
    let grid = Grid::new([tasks.div_ceil(SIMDGROUPS), n_tokens, 1], 256);
    commands.dispatch(&kernel, grid, &buffers, &params);
    Ok(())
}

/// Rows `ids` of the embedding table, f32: `x[t] = table[ids[t]]`.
pub(crate) fn embed(
    kernels: &Kernels,
    commands: &mut Commands,
    n_tokens: usize,
    ids: &Slice,
    table: &GpuMatrix,
    x: &Slice,
) -> Result<(), DeviceError> {
    let kernel = kernels.get("embed", "embed", &table.format.defines())?;
    let (codes, scales, biases) = (&table.codes, &table.scales, &table.biases);
    let buffers = [ids, codes, scales, biases, x].map(Clone::clone);
    commands.dispatch(&kernel, Grid::linear(n_tokens, 128), &buffers, &[]);
    Ok(())
}

/// A size as a kernel parameter.
pub(crate) fn param(n: usize) -> u32 {
    u32::try_from(n).expect("sizes of a model fit 32 bits")
}
