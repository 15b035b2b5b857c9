//! How fast single kernels are at the sizes of the 35B, for `lily doctor`.

use super::ops::{
    self, AttentionCut, AttentionDecode, DeltaState, DeltaStep, DeltaVectors, HeadNorms, Input,
    KvRows, OutType, Output,
};
use super::{Activations, Format, GpuMatrix, Kernels};
use lily_device::{Buffer, Commands, Device, DeviceError, Slice};
use lily_weights::{FloatType, Shape};
use std::sync::Arc;

/// One kernel, timed in a chain of itself as a decode step or a prefill has it.
#[derive(Clone, Debug)]
pub struct Speed {
    /// Kernel and size.
    pub what: String,
    /// Microseconds of one dispatch.
    pub us: f64,
    /// Bytes that it has to move, per second, if it is bound by them.
    pub gb_per_s: Option<f64>,
    /// Operations per second in units of 10^12, if it is bound by them.
    pub tflops: Option<f64>,
}

/// Weights that all dispatches together read, so that no cache holds them.
const WEIGHT_BYTES: u64 = 4 << 30;
/// Links of a chain.
const REPEATS: usize = 24;
/// Tokens of the prefill products.
const TOKENS: usize = 2048;
/// Rows of the KV cache in front of the decoded token.
const CONTEXTS: [usize; 3] = [256, 1000, 8192];

/// Times the kernels that most of the time goes to. Memory for some GB has to be free.
///
/// # Errors
/// Those of the device.
pub fn measure(device: &Arc<dyn Device>) -> Result<Vec<Speed>, DeviceError> {
    let bytes = (device.info().memory_bytes / 4).min(WEIGHT_BYTES);
    let bytes = usize::try_from(bytes.min(device.info().buffer_bytes_max)).expect("a few GB");
    let shape = Shape::qwen36_35b();
    let mut bench = Bench {
        kernels: Kernels::new(Arc::clone(device), &shape, Activations::Bf16),
        weights: device.alloc(bytes, "weights")?,
        used: 0,
        work: device.alloc(1 << 29, "activations")?,
        worked: 0,
        shape,
    };
    let mut commands = Commands::new();
    commands.zero(bench.weights.all());
    commands.zero(bench.work.all());
    device.wait(device.submit(&commands)?)?;
    let mut speeds = Vec::new();
    for (name, rows, cols) in
        [("in-projections", 12_352, 2048), ("out", 2048, 4096), ("lm_head", 248_320, 2048)]
    {
        speeds.push(bench.gemv(name, rows, cols)?);
    }
    speeds.push(bench.delta_step()?);
    for context in CONTEXTS {
        speeds.push(bench.attention_decode(context)?);
    }
    for (name, rows, cols) in [("in-projections", 12_288, 2048), ("out", 2048, 4096)] {
        speeds.push(bench.gemm(name, rows, cols)?);
    }
    Ok(speeds)
}

struct Bench {
    kernels: Kernels,
    shape: Shape,
    weights: Buffer,
    used: usize,
    work: Buffer,
    worked: usize,
}

impl Bench {
    /// The next part of the weights, from the front again when they are used up.
    fn weight(&mut self, len: usize) -> Slice {
        if self.used + len > self.weights.len_bytes() {
            self.used = 0;
        }
        let slice = self.weights.slice(self.used..self.used + len);
        self.used = (self.used + len).next_multiple_of(256);
        slice
    }

    /// A buffer of its own for this measurement.
    fn scratch(&mut self, len: usize) -> Slice {
        let slice = self.work.slice(self.worked..self.worked + len);
        self.worked = (self.worked + len).next_multiple_of(256);
        slice
    }

    fn matrix(&mut self, rows: usize, cols: usize) -> GpuMatrix {
        let format = Format { bits: 4, group: 64, dtype: FloatType::Bf16 };
        let codes = self.weight(rows * cols / 2);
        let scales = self.weight(rows * cols / 64 * 2);
        let biases = self.weight(rows * cols / 64 * 2);
        GpuMatrix { rows, cols, format, codes, scales, biases }
    }

    /// Microseconds of one of the `REPEATS` dispatches.
    fn time(&mut self, commands: &Commands) -> Result<f64, DeviceError> {
        let device = self.kernels.device();
        let mut best = f64::INFINITY;
        for _ in 0..4 {
            let elapsed = device.wait(device.submit(commands)?)?;
            best = best.min(elapsed.as_secs_f64() * 1e6 / REPEATS as f64);
        }
        self.worked = 0;
        Ok(best)
    }

    fn gemv(&mut self, name: &str, rows: usize, cols: usize) -> Result<Speed, DeviceError> {
        let (x, gain, y) = (self.scratch(cols * 4), self.scratch(cols * 4), self.scratch(rows * 4));
        let mut commands = Commands::new();
        for _ in 0..REPEATS {
            let matrix = self.matrix(rows, cols);
            let input = Input::Normed { x: &x, gain: &gain };
            let products = [(&matrix, &y)];
            ops::gemv(&self.kernels, &mut commands, 1, input, &products, Output::Store)?;
        }
        let us = self.time(&commands)?;
        let bytes = (rows * cols) as f64 * 4.5 / 8.0;
        let what = format!("gemv {name} {rows} x {cols}, 4-bit");
        Ok(Speed { what, us, gb_per_s: Some(bytes / us / 1e3), tflops: None })
    }

    fn gemm(&mut self, name: &str, rows: usize, cols: usize) -> Result<Speed, DeviceError> {
        let (x, y) = (self.scratch(TOKENS * cols * 2), self.scratch(TOKENS * rows * 2));
        let mut commands = Commands::new();
        for _ in 0..REPEATS {
            let matrix = self.matrix(rows, cols);
            let out = (&y, OutType::Act, Output::Store);
            ops::gemm(&self.kernels, &mut commands, TOKENS, &x, &matrix, out)?;
        }
        let us = self.time(&commands)?;
        let flop = 2.0 * (rows * cols * TOKENS) as f64;
        let what = format!("gemm {name} {TOKENS} tokens, {rows} x {cols}, 4-bit");
        Ok(Speed { what, us, gb_per_s: None, tflops: Some(flop / us / 1e6) })
    }

    fn delta_step(&mut self) -> Result<Speed, DeviceError> {
        let shape = self.shape.clone();
        let channels = ops::conv_channels(&shape);
        let heads = shape.n_v_heads;
        let state_bytes = heads * shape.v_head_dim * shape.k_head_dim * 4;
        let seq = self.scratch(16);
        let (u, b, a) =
            (self.scratch(channels * 4), self.scratch(heads * 4), self.scratch(heads * 4));
        let (o, part) = (
            self.scratch(heads * shape.v_head_dim * 4),
            self.scratch(heads * ops::n_slices(&shape) * 4),
        );
        let vectors = DeltaVectors {
            conv1d: self.scratch(channels * shape.conv_kernel * 4),
            decay: self.scratch(heads * 4),
            dt_bias: self.scratch(heads * 4),
            norm: self.scratch(shape.v_head_dim * 4),
        };
        let mut commands = Commands::new();
        for _ in 0..REPEATS {
            let state = DeltaState {
                ring: self.weight(ops::CONV_RING * channels * 2),
                state: self.weight(state_bytes),
            };
            let step =
                DeltaStep { n_tokens: 1, u: &u, b: &b, a: &a, seq: &seq, o: &o, part: &part };
            ops::delta_step(&self.kernels, &mut commands, &shape, step, &vectors, &state, None)?;
        }
        let us = self.time(&commands)?;
        let rate = 2.0 * state_bytes as f64 / us / 1e3;
        let what = "delta_step, 32 heads".to_owned();
        Ok(Speed { what, us, gb_per_s: Some(rate), tflops: None })
    }

    fn attention_decode(&mut self, context: usize) -> Result<Speed, DeviceError> {
        let shape = self.shape.clone();
        let (dim, heads, kv) = (shape.head_dim, shape.n_heads, shape.n_kv_heads);
        let rows_bytes = kv * (context + 1) * dim * 2;
        let seq = self.scratch(16);
        let position = u32::try_from(context).expect("small");
        self.kernels.device().write(&seq, bytemuck::bytes_of(&position))?;
        let rope = self.scratch((context + 1) * shape.rotary_dim * 4);
        let (qg, k, v) = (
            self.scratch(heads * 2 * dim * 4),
            self.scratch(kv * dim * 4),
            self.scratch(kv * dim * 4),
        );
        let (parts, out) =
            (self.scratch(ops::parts_floats(&shape) * 4), self.scratch(heads * dim * 4));
        let norms = HeadNorms { q: self.scratch(dim * 4), k: self.scratch(dim * 4) };
        let mut commands = Commands::new();
        for _ in 0..REPEATS {
            let cache = KvRows {
                k: self.weight(rows_bytes),
                v: self.weight(rows_bytes),
                capacity: context + 1,
            };
            let step = AttentionDecode {
                qg: &qg,
                k: &k,
                v: &v,
                rope: &rope,
                seq: &seq,
                offset: 0,
                cut: AttentionCut::of(context),
                parts: &parts,
                out: &out,
            };
            ops::attention_decode(&self.kernels, &mut commands, &shape, step, &norms, &cache)?;
        }
        let us = self.time(&commands)?;
        self.kernels.device().write(&seq, bytemuck::bytes_of(&0_u32))?;
        let rate = 2.0 * rows_bytes as f64 / us / 1e3;
        let what = format!("attention_decode, {context} rows");
        Ok(Speed { what, us, gb_per_s: Some(rate), tflops: None })
    }
}

#[cfg(test)]
mod tests {
    use lily_device::{Device, DeviceInfo, DeviceKind, ListingDevice, TileBody};
    use std::sync::Arc;

    /// Every recorded dispatch fits its kernel's signature and the memory it was given.
    #[test]
    fn measurements_can_be_recorded() {
        let info = DeviceInfo {
            kind: DeviceKind::Cuda,
            name: "described".to_owned(),
            version: String::new(),
            memory_bytes: 64 << 30,
            buffer_bytes_max: 64 << 30,
            unified_memory: false,
            n_cores: 1,
            tile: TileBody::Mma,
        };
        let device: Arc<dyn Device> = Arc::new(ListingDevice::new(info));
        let speeds = super::measure(&device).expect("a device without limits");
        assert_eq!(speeds.len(), 6 + super::CONTEXTS.len());
    }
}
