//! Weight matrices as stored: borrowed views for the kernels, owning handles for the model.

use crate::mapping::Bytes;
use crate::quant::affine;
use half::{bf16, f16};
use std::ops::Range;

/// One weight matrix, row-major `[rows, cols]`, borrowed from the checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// Output width.
    pub rows: usize,
    /// Input width.
    pub cols: usize,
    /// The elements.
    pub storage: Storage<'a>,
}

/// Elements of a matrix.
#[derive(Clone, Copy, Debug)]
pub enum Storage<'a> {
    /// bfloat16.
    Bf16(&'a [bf16]),
    /// IEEE half precision.
    F16(&'a [f16]),
    /// IEEE single precision.
    F32(&'a [f32]),
    /// MLX affine quantisation: `w = scale * code + bias`.
    Affine(Affine<'a>),
}

/// MLX affine codes with a scale and a bias per group of consecutive inputs.
#[derive(Clone, Copy, Debug)]
pub struct Affine<'a> {
    /// Bits of a code: 2, 3, 4, 5, 6 or 8.
    pub bits: u8,
    /// Consecutive inputs that share a scale: 32, 64 or 128.
    pub group: usize,
    /// Packed codes, `[rows, cols * bits / 32]`; each row is a little-endian bit stream.
    pub codes: &'a [u32],
    /// `[rows, cols / group]`; negative scales are legal.
    pub scales: Half<'a>,
    /// `[rows, cols / group]`.
    pub biases: Half<'a>,
}

/// Values of a group, in the dtype of the checkpoint.
#[derive(Clone, Copy, Debug)]
pub enum Half<'a> {
    /// bfloat16.
    Bf16(&'a [bf16]),
    /// IEEE half precision.
    F16(&'a [f16]),
    /// IEEE single precision.
    F32(&'a [f32]),
}

impl Half<'_> {
    /// Element `i` in f32, exactly.
    pub fn get(&self, i: usize) -> f32 {
        match self {
            Self::Bf16(x) => x[i].to_f32(),
            Self::F16(x) => x[i].to_f32(),
            Self::F32(x) => x[i],
        }
    }
}

impl Matrix<'_> {
    /// Row `row` in f32: the reference for every kernel, and the embedding lookup.
    pub fn row_to_f32(&self, row: usize, out: &mut [f32]) {
        assert_eq!(out.len(), self.cols, "a row has as many elements as the matrix has columns");
        let range = row * self.cols..(row + 1) * self.cols;
        match self.storage {
            Storage::Bf16(x) => copy(out, &x[range], bf16::to_f32),
            Storage::F16(x) => copy(out, &x[range], f16::to_f32),
            Storage::F32(x) => out.copy_from_slice(&x[range]),
            Storage::Affine(x) => affine::dequantize_row(&x, row, self.cols, out),
        }
    }

    /// Bytes of the elements, scales and biases included.
    pub fn bytes(&self) -> usize {
        let n = self.rows * self.cols;
        match self.storage {
            Storage::Bf16(_) | Storage::F16(_) => n * 2,
            Storage::F32(_) => n * 4,
            Storage::Affine(x) => {
                let element = if matches!(x.scales, Half::F32(_)) { 4 } else { 2 };
                n * usize::from(x.bits) / 8 + n / x.group * 2 * element
            }
        }
    }
}

fn copy<T: Copy>(out: &mut [f32], row: &[T], to_f32: impl Fn(T) -> f32) {
    for (out, &x) in out.iter_mut().zip(row) {
        *out = to_f32(x);
    }
}

/// Element type of a plain tensor or of scales and biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloatType {
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
    /// IEEE single precision.
    F32,
}

impl FloatType {
    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Data {
    Plain { dtype: FloatType, elements: Bytes },
    Affine { bits: u8, group: usize, codes: Bytes, dtype: FloatType, scales: Bytes, biases: Bytes },
}

impl Data {
    /// The rows `rows` of a stack of rows of `cols` elements.
    fn rows(&self, cols: usize, rows: Range<usize>) -> Self {
        let cut = |bytes: &Bytes, row_bytes: usize| {
            bytes.part(rows.start * row_bytes..rows.end * row_bytes)
        };
        match self {
            Self::Plain { dtype, elements } => {
                Self::Plain { dtype: *dtype, elements: cut(elements, cols * dtype.size()) }
            }
            Self::Affine { bits, group, codes, dtype, scales, biases } => Self::Affine {
                bits: *bits,
                group: *group,
                codes: cut(codes, cols * usize::from(*bits) / 8),
                dtype: *dtype,
                scales: cut(scales, cols / group * dtype.size()),
                biases: cut(biases, cols / group * dtype.size()),
            },
        }
    }

    fn view(&self) -> Storage<'_> {
        match self {
            Self::Plain { dtype, elements } => match half(*dtype, elements) {
                Half::Bf16(x) => Storage::Bf16(x),
                Half::F16(x) => Storage::F16(x),
                Half::F32(x) => Storage::F32(x),
            },
            Self::Affine { bits, group, codes, dtype, scales, biases } => Storage::Affine(Affine {
                bits: *bits,
                group: *group,
                codes: bytemuck::cast_slice(codes.as_slice()),
                scales: half(*dtype, scales),
                biases: half(*dtype, biases),
            }),
        }
    }
}

fn half(dtype: FloatType, bytes: &Bytes) -> Half<'_> {
    // Alignment was checked, or a copy made, when the tensor was opened.
    match dtype {
        FloatType::Bf16 => Half::Bf16(bytemuck::cast_slice(bytes.as_slice())),
        FloatType::F16 => Half::F16(bytemuck::cast_slice(bytes.as_slice())),
        FloatType::F32 => Half::F32(bytemuck::cast_slice(bytes.as_slice())),
    }
}

/// An owning handle of a matrix; clones share the bytes.
#[derive(Clone, Debug)]
pub struct WeightMatrix {
    /// Output width.
    pub rows: usize,
    /// Input width.
    pub cols: usize,
    pub(crate) data: Data,
}

impl WeightMatrix {
    /// The matrix as the kernels see it.
    pub fn view(&self) -> Matrix<'_> {
        Matrix { rows: self.rows, cols: self.cols, storage: self.data.view() }
    }

    /// Bytes as stored.
    pub fn bytes(&self) -> usize {
        self.view().bytes()
    }

    /// The rows in `rows` as a matrix of its own, sharing the bytes.
    pub(crate) fn row_range(&self, rows: Range<usize>) -> Self {
        Self { rows: rows.len(), cols: self.cols, data: self.data.rows(self.cols, rows) }
    }
}

/// The matrices of all experts of a layer, all of one shape.
#[derive(Clone, Debug)]
pub struct WeightExperts {
    /// Output width of each.
    pub rows: usize,
    /// Input width of each.
    pub cols: usize,
    pub(crate) experts: Vec<WeightMatrix>,
}

impl WeightExperts {
    /// Number of experts.
    pub fn n_experts(&self) -> usize {
        self.experts.len()
    }

    /// The matrix of expert `expert`.
    pub fn expert(&self, expert: usize) -> Matrix<'_> {
        self.experts[expert].view()
    }

    /// Bytes as stored.
    pub fn bytes(&self) -> usize {
        self.experts.iter().map(WeightMatrix::bytes).sum()
    }
}
