//! Products of many tokens with a matrix.

use super::gemv::{Output, param};
use crate::gpu::{Activations, GpuMatrix, Kernels};
use lily_device::{Commands, DeviceError, Grid, Slice};

/// Tile of a threadgroup: tokens, rows of the matrix, columns of a slab, and SIMD groups along the
/// first two.
#[derive(Clone, Copy, Debug)]
pub(super) struct TileShape {
    pub(super) m: usize,
    pub(super) n: usize,
    k: usize,
    simdgroups_m: usize,
    simdgroups_n: usize,
}

impl TileShape {
    /// For about `n_tokens` rows a tile. Fewer tokens than a tile has would be multiplied in vain.
    pub(super) fn new(n_tokens: usize, cols: usize, activations: Activations) -> Self {
        // Exact operands are twice as wide, and both slabs share 32 KiB.
        let wide = activations == Activations::Bf16 && cols.is_multiple_of(64);
        let k = if wide { 64 } else { 32 };
        if n_tokens <= 16 {
            Self { m: 16, n: 64, k, simdgroups_m: 1, simdgroups_n: 2 }
        } else if n_tokens <= 32 {
            Self { m: 32, n: 64, k, simdgroups_m: 2, simdgroups_n: 2 }
        } else {
            Self { m: 64, n: 64, k, simdgroups_m: 2, simdgroups_n: 2 }
        }
    }

    pub(super) fn threads(&self) -> u32 {
        param(self.simdgroups_m * self.simdgroups_n * 32)
    }

    pub(super) fn defines(&self, cols: usize) -> Vec<(&'static str, String)> {
        vec![
            ("COLS", cols.to_string()),
            ("BM", self.m.to_string()),
            ("BN", self.n.to_string()),
            ("BK", self.k.to_string()),
            ("WM", self.simdgroups_m.to_string()),
            ("WN", self.simdgroups_n.to_string()),
        ]
    }
}

/// Type of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutType {
    /// f32.
    Float,
    /// Activations.
    Act,
}

impl OutType {
    pub(super) fn define(self) -> (&'static str, String) {
        ("OUT_T", if self == Self::Float { "float" } else { "act" }.to_owned())
    }
}

/// `y[t] (+)= W x[t]`: `x` activations `[n_tokens, cols]`, `y` `[n_tokens, rows]`.
pub(crate) fn gemm(
    kernels: &Kernels,
    commands: &mut Commands,
    n_tokens: usize,
    x: &Slice,
    matrix: &GpuMatrix,
    (y, out_type, output): (&Slice, OutType, Output),
) -> Result<(), DeviceError> {
    let tile = TileShape::new(n_tokens, matrix.cols, kernels.activations());
    let mut defines = tile.defines(matrix.cols);
    defines.extend(matrix.format.defines());
    defines.push(out_type.define());
    defines.push(("ACCUMULATE", u8::from(output == Output::Add).to_string()));
    // What only the other kernels of the file need.
    defines.push(("ROUTED", "0".to_owned()));
    let kernel = kernels.get("gemm", "gemm", &defines)?;
    let buffers = [x, &matrix.codes, &matrix.scales, &matrix.biases, y].map(Clone::clone);
    let grid = [matrix.rows.div_ceil(tile.n), n_tokens.div_ceil(tile.m), 1];
    let params = [("n_tokens", param(n_tokens)), ("rows", param(matrix.rows))];
    commands.dispatch(&kernel, Grid::new(grid, tile.threads()), &buffers, &params);
    Ok(())
}
