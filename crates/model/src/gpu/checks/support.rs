//! What the checks share: random values, device buffers, comparison.

use super::super::weights::{Format, GpuMatrix};
use super::super::{Activations, Kernels};
use half::bf16;
use lily_device::{Commands, Device, DeviceError, Slice};
use lily_weights::{FloatType, Shape};
use std::sync::Arc;

/// One row of the table.
#[derive(Clone, Copy)]
pub struct Check {
    /// The kernel, and the variant if there are several.
    pub name: &'static str,
    /// Draws a case, runs it on the device and in plain loops.
    pub run: fn(&mut Cx) -> Result<Case, DeviceError>,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Check").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What one run of a check found.
#[derive(Clone, Debug)]
pub struct Case {
    /// The shape and variant drawn, enough to draw it again with the seed.
    pub what: String,
    /// The largest difference to the reference; infinite if a value is not finite where the
    /// reference is, or was not written.
    pub error: f64,
    /// What rounding allows.
    pub tolerance: f64,
}

impl Case {
    /// Whether the kernel is right.
    pub fn passed(&self) -> bool {
        self.error <= self.tolerance
    }
}

/// A splitmix64 stream: the same values on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A stream of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x1234_5678_9ABC_DEF0)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From `low` to `high`, both included.
    pub fn range(&mut self, low: usize, high: usize) -> usize {
        let n = (high - low + 1) as u64;
        low + usize::try_from(self.bits() % n).expect("smaller than a usize")
    }

    /// One of the items.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.range(0, items.len() - 1)]
    }

    /// Uniform in [-1, 1).
    pub fn float(&mut self) -> f32 {
        let bits = u16::try_from(self.bits() >> 48).expect("16 bits");
        let fine = u16::try_from(self.bits() >> 48).expect("16 bits");
        (f32::from(bits) + f32::from(fine) / 65_536.0) / 32_768.0 - 1.0
    }

    /// `n` values in [-scale, scale), a few of them zero or denormal.
    pub fn floats(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n)
            .map(|_| match self.range(0, 63) {
                0 => 0.0,
                1 => 1e-40,
                _ => self.float() * scale,
            })
            .collect()
    }
}

/// What a check works with.
#[derive(Debug)]
pub struct Cx {
    /// The device under test.
    pub device: Arc<dyn Device>,
    /// Values of this case.
    pub rng: Rng,
}

impl Cx {
    /// A case of its own for each seed.
    pub fn new(device: Arc<dyn Device>, seed: u64) -> Self {
        Self { device, rng: Rng::new(seed) }
    }

    /// Kernels for a shape.
    pub fn kernels(&self, shape: &Shape, activations: Activations) -> Kernels {
        Kernels::new(Arc::clone(&self.device), shape, activations)
    }

    /// A buffer with these bytes, cut from the middle of a larger one so that neighbours show.
    ///
    /// # Errors
    /// Those of the device.
    pub fn bytes(&self, bytes: &[u8], label: &str) -> Result<Slice, DeviceError> {
        let buffer = self.device.alloc(bytes.len().max(4) + 512, label)?;
        let slice = buffer.slice(256..256 + bytes.len().max(4));
        self.device.write(&slice, bytes)?;
        Ok(slice)
    }

    /// A buffer of f32.
    ///
    /// # Errors
    /// Those of the device.
    pub fn floats(&self, values: &[f32], label: &str) -> Result<Slice, DeviceError> {
        self.bytes(bytemuck::cast_slice(values), label)
    }

    /// A buffer of u32.
    ///
    /// # Errors
    /// Those of the device.
    pub fn words(&self, values: &[u32], label: &str) -> Result<Slice, DeviceError> {
        self.bytes(bytemuck::cast_slice(values), label)
    }

    /// A buffer of activations; `values` become what the device then holds.
    ///
    /// # Errors
    /// Those of the device.
    pub fn acts(
        &self,
        values: &mut [f32],
        activations: Activations,
        label: &str,
    ) -> Result<Slice, DeviceError> {
        match activations {
            Activations::F32 => self.floats(values, label),
            Activations::Bf16 => {
                let rounded: Vec<bf16> = values.iter().map(|x| bf16::from_f32(*x)).collect();
                for (value, rounded) in values.iter_mut().zip(&rounded) {
                    *value = rounded.to_f32();
                }
                self.bytes(bytemuck::cast_slice(&rounded), label)
            }
        }
    }

    /// An output that no kernel has written: filled with NaN.
    ///
    /// # Errors
    /// Those of the device.
    pub fn poisoned(&self, len_bytes: usize, label: &str) -> Result<Slice, DeviceError> {
        self.bytes(&vec![0xFF; len_bytes], label)
    }

    /// Runs a command list to its end.
    ///
    /// # Errors
    /// Those of the device.
    pub fn run(&self, commands: &Commands) -> Result<(), DeviceError> {
        let ticket = self.device.submit(commands)?;
        self.device.wait(ticket)?;
        Ok(())
    }

    /// Reads f32.
    ///
    /// # Errors
    /// Those of the device.
    pub fn read_floats(&self, slice: &Slice) -> Result<Vec<f32>, DeviceError> {
        let mut values = vec![0.0_f32; slice.len / 4];
        self.device.read(slice, bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }

    /// Reads u32.
    ///
    /// # Errors
    /// Those of the device.
    pub fn read_words(&self, slice: &Slice) -> Result<Vec<u32>, DeviceError> {
        let mut values = vec![0_u32; slice.len / 4];
        self.device.read(slice, bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }

    /// Reads activations as f32.
    ///
    /// # Errors
    /// Those of the device.
    pub fn read_acts(&self, slice: &Slice, acts: Activations) -> Result<Vec<f32>, DeviceError> {
        match acts {
            Activations::F32 => self.read_floats(slice),
            Activations::Bf16 => {
                let mut values = vec![bf16::ZERO; slice.len / 2];
                self.device.read(slice, bytemuck::cast_slice_mut(&mut values))?;
                Ok(values.iter().map(|x| x.to_f32()).collect())
            }
        }
    }

    /// A format that checkpoints have.
    pub fn format(&mut self) -> Format {
        let dtype =
            self.rng.pick(&[FloatType::Bf16, FloatType::Bf16, FloatType::F16, FloatType::F32]);
        match self.rng.pick(&[4_u8, 4, 8, 8, 2, 3, 5, 6, 16]) {
            16 => {
                let bits = if dtype == FloatType::F32 { 32 } else { 16 };
                Format { bits, group: 32, dtype }
            }
            bits => Format { bits, group: self.rng.pick(&[32, 64, 128]), dtype },
        }
    }

    /// A random matrix `[rows, cols]` on the device, and its exact values, row-major. The standard
    /// deviation of a row is about `1 / sqrt(cols)`.
    ///
    /// # Errors
    /// Those of the device.
    pub fn matrix(
        &mut self,
        rows: usize,
        cols: usize,
        format: Format,
    ) -> Result<(GpuMatrix, Vec<f32>), DeviceError> {
        let deviation = 1.0 / (cols as f32).sqrt();
        if format.bits >= 16 {
            let mut values = self.rng.floats(rows * cols, 1.7 * deviation);
            let codes = self.encoded(&mut values, format.dtype, "elements")?;
            let unused = self.floats(&[0.0; 4], "unused")?;
            let (scales, biases) = (unused.clone(), unused);
            return Ok((GpuMatrix { rows, cols, format, codes, scales, biases }, values));
        }
        let bits = usize::from(format.bits);
        let n_groups = rows * cols / format.group;
        let top = f32::from((1_u16 << bits) - 1);
        let mut scales: Vec<f32> =
            (0..n_groups).map(|_| (0.5 + self.rng.float()) * 3.4 * deviation / top).collect();
        let scales_slice = self.encoded(&mut scales, format.dtype, "scales")?;
        let mut biases: Vec<f32> = scales
            .iter()
            .map(|scale| -scale * top * 0.5 * (1.0 + 0.1 * self.rng.float()))
            .collect();
        let biases_slice = self.encoded(&mut biases, format.dtype, "biases")?;

        let words_per_row = cols * bits / 32;
        let mut words = vec![0_u32; rows * words_per_row];
        let mut values = Vec::with_capacity(rows * cols);
        for row in 0..rows {
            for col in 0..cols {
                let code = u32::try_from(self.rng.bits() & ((1 << bits) - 1)).expect("few bits");
                let bit = col * bits;
                let word = row * words_per_row + bit / 32;
                words[word] |= code << (bit % 32);
                if bit % 32 + bits > 32 {
                    words[word + 1] |= code >> (32 - bit % 32);
                }
                let group = (row * cols + col) / format.group;
                values.push(scales[group] * code as f32 + biases[group]);
            }
        }
        let codes = self.words(&words, "codes")?;
        let (scales, biases) = (scales_slice, biases_slice);
        Ok((GpuMatrix { rows, cols, format, codes, scales, biases }, values))
    }

    fn encoded(
        &self,
        values: &mut [f32],
        dtype: FloatType,
        label: &str,
    ) -> Result<Slice, DeviceError> {
        match dtype {
            FloatType::F32 => self.floats(values, label),
            FloatType::Bf16 => self.acts(values, Activations::Bf16, label),
            FloatType::F16 => {
                let rounded: Vec<half::f16> =
                    values.iter().map(|x| half::f16::from_f32(*x)).collect();
                for (value, rounded) in values.iter_mut().zip(&rounded) {
                    *value = rounded.to_f32();
                }
                self.bytes(bytemuck::cast_slice(&rounded), label)
            }
        }
    }
}

/// The largest difference; infinite if a value is missing.
pub(super) fn max_error(actual: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(actual.len(), expected.len(), "as many values as the reference has");
    actual.iter().zip(expected).fold(0.0, |max, (actual, expected)| {
        let error = (f64::from(*actual) - expected).abs();
        if error.is_nan() { f64::INFINITY } else { error.max(max) }
    })
}
