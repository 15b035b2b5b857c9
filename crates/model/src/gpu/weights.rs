//! Weights in device memory, as stored.

use lily_device::{Buffer, Device, DeviceError, HostBytes, Slice};
use lily_weights::{FloatType, Region, Stored, WeightExperts, WeightMatrix};
use std::collections::HashMap;
use std::sync::Arc;

/// How a matrix is stored: the defines of `kernels/quant.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format {
    /// 2 to 8: affine codes. 16 or 32: plain elements.
    pub bits: u8,
    /// Inputs that share a scale; of plain elements, nothing.
    pub group: usize,
    /// Type of scales and biases, or of the plain elements.
    pub dtype: FloatType,
}

impl Format {
    /// The constants that select this format.
    pub fn defines(self) -> [(&'static str, String); 3] {
        let scale = match self.dtype {
            FloatType::Bf16 => "bfloat",
            FloatType::F16 => "half",
            FloatType::F32 => "float",
        };
        [
            ("W_BITS", self.bits.to_string()),
            ("W_GROUP", self.group.to_string()),
            ("W_SCALE", scale.to_owned()),
        ]
    }

    fn of(stored: &Stored) -> Self {
        match stored {
            Stored::Plain { dtype, .. } => {
                let bits = if *dtype == FloatType::F32 { 32 } else { 16 };
                Self { bits, group: 32, dtype: *dtype }
            }
            Stored::Affine { bits, group, dtype, .. } => {
                Self { bits: *bits, group: *group, dtype: *dtype }
            }
        }
    }
}

/// A matrix `[rows, cols]` in device memory.
#[derive(Clone, Debug)]
pub struct GpuMatrix {
    /// Output width.
    pub rows: usize,
    /// Input width.
    pub cols: usize,
    /// How it is stored.
    pub format: Format,
    /// Codes, or plain elements.
    pub codes: Slice,
    /// `[rows, cols / group]`; of plain elements, a few bytes that nobody reads.
    pub scales: Slice,
    /// As the scales.
    pub biases: Slice,
}

/// The matrices of all experts of a layer; expert e begins at row `e * stride_rows` of the slices.
#[derive(Clone, Debug)]
pub struct GpuExperts {
    /// Number of experts.
    pub n_experts: usize,
    /// Rows between the first rows of neighbouring experts; at least `matrix.rows`.
    pub stride_rows: usize,
    /// The rows and columns of one expert; the slices cover all.
    pub matrix: GpuMatrix,
}

/// Small tensors share allocations of this size.
const ARENA_BYTES: usize = 64 << 20;
/// What kernels may assume of the first element of a tensor.
const ALIGNMENT: usize = 16;

/// Brings weights into device memory: without a copy where memory is unified.
#[derive(Debug)]
pub(crate) struct Uploader {
    device: Arc<dyn Device>,
    /// Imported files, by mapping.
    mappings: HashMap<usize, Buffer>,
    arena: Option<(Buffer, usize)>,
    unused: Option<Slice>,
    /// Bytes that live on the device now.
    pub(crate) bytes: u64,
}

impl Uploader {
    pub(crate) fn new(device: Arc<dyn Device>) -> Self {
        Self { device, mappings: HashMap::new(), arena: None, unused: None, bytes: 0 }
    }

    /// Device memory with a copy of `bytes`.
    pub(crate) fn copy(&mut self, bytes: &[u8], label: &str) -> Result<Slice, DeviceError> {
        let slice = self.reserve(bytes.len(), label)?;
        self.device.write(&slice, bytes)?;
        Ok(slice)
    }

    /// Device memory with a copy of `values`.
    pub(crate) fn floats(&mut self, values: &[f32], label: &str) -> Result<Slice, DeviceError> {
        self.copy(bytemuck::cast_slice(values), label)
    }

    fn reserve(&mut self, len: usize, label: &str) -> Result<Slice, DeviceError> {
        self.bytes += len as u64;
        if len >= ARENA_BYTES / 4 {
            return Ok(self.device.alloc(len, label)?.all());
        }
        let (arena, used) = match self.arena.take() {
            Some((arena, used)) if used + len <= arena.len_bytes() => (arena, used),
            _ => (self.device.alloc(ARENA_BYTES, "weights")?, 0),
        };
        let slice = arena.slice(used..used + len);
        self.arena = Some((arena, (used + len).next_multiple_of(256)));
        Ok(slice)
    }

    fn region(&mut self, region: &Region, label: &str) -> Result<Slice, DeviceError> {
        let info = self.device.info();
        let whole = (*region.mapping).as_ref().len() as u64;
        let shares = info.unified_memory && whole <= info.buffer_bytes_max;
        if !shares || !region.range.start.is_multiple_of(ALIGNMENT) {
            return self.copy(region.bytes(), label);
        }
        if let Some(buffer) = self.mappings.get(&region.mapping_id()) {
            return Ok(buffer.slice(region.range.clone()));
        }
        let buffer = self.device.import(&HostBytes::new(Arc::clone(&region.mapping)), label)?;
        self.bytes += buffer.len_bytes() as u64;
        self.mappings.insert(region.mapping_id(), buffer.clone());
        Ok(buffer.slice(region.range.clone()))
    }

    fn unused(&mut self) -> Result<Slice, DeviceError> {
        if let Some(unused) = &self.unused {
            return Ok(unused.clone());
        }
        let unused = self.copy(&[0; ALIGNMENT], "unused")?;
        self.unused = Some(unused.clone());
        Ok(unused)
    }

    pub(crate) fn matrix(
        &mut self,
        weight: &WeightMatrix,
        label: &str,
    ) -> Result<GpuMatrix, DeviceError> {
        let stored = weight.stored();
        let format = Format::of(&stored);
        let (codes, scales, biases) = match &stored {
            Stored::Plain { elements, .. } => {
                (self.region(elements, label)?, self.unused()?, self.unused()?)
            }
            Stored::Affine { codes, scales, biases, .. } => (
                self.region(codes, label)?,
                self.region(scales, label)?,
                self.region(biases, label)?,
            ),
        };
        Ok(GpuMatrix { rows: weight.rows, cols: weight.cols, format, codes, scales, biases })
    }

    pub(crate) fn experts(
        &mut self,
        experts: &WeightExperts,
        label: &str,
    ) -> Result<GpuExperts, DeviceError> {
        let n_experts = experts.n_experts();
        let stored: Vec<Stored> = (0..n_experts).map(|expert| experts.stored(expert)).collect();
        let format = Format::of(&stored[0]);
        let parts = |part: fn(&Stored) -> Option<&Region>| -> Vec<&Region> {
            stored.iter().filter_map(part).collect()
        };
        let codes = parts(|stored| match stored {
            Stored::Plain { elements, .. } => Some(elements),
            Stored::Affine { codes, .. } => Some(codes),
        });
        let scales = parts(|stored| match stored {
            Stored::Plain { .. } => None,
            Stored::Affine { scales, .. } => Some(scales),
        });
        let biases = parts(|stored| match stored {
            Stored::Plain { .. } => None,
            Stored::Affine { biases, .. } => Some(biases),
        });
        let codes = self.stack(&codes, label)?;
        let (scales, biases) = if scales.is_empty() {
            (self.unused()?, self.unused()?)
        } else {
            (self.stack(&scales, label)?, self.stack(&biases, label)?)
        };
        let matrix =
            GpuMatrix { rows: experts.rows, cols: experts.cols, format, codes, scales, biases };
        Ok(GpuExperts { n_experts, stride_rows: experts.rows, matrix })
    }

    /// The parts one after another: as they lie in the file, or copied together.
    fn stack(&mut self, parts: &[&Region], label: &str) -> Result<Slice, DeviceError> {
        let len = parts[0].range.len();
        let adjacent = parts.windows(2).all(|pair| {
            pair[0].mapping_id() == pair[1].mapping_id() && pair[0].range.end == pair[1].range.start
        });
        if adjacent {
            let whole = Region {
                mapping: Arc::clone(&parts[0].mapping),
                range: parts[0].range.start..parts[0].range.start + len * parts.len(),
            };
            return self.region(&whole, label);
        }
        let stack = self.reserve(len * parts.len(), label)?;
        for (idx, part) in parts.iter().enumerate() {
            let start = stack.offset + idx * len;
            self.device.write(&stack.buffer.slice(start..start + len), part.bytes())?;
        }
        Ok(stack)
    }
}
