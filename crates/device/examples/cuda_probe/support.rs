//! Opening, filling and reading.

use lily_device::cuda::{CudaDevice, CudaOptions};
use lily_device::{Buffer, Commands, Device, Kernel, Slice, source};
use std::error::Error;

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error>>;

pub(crate) fn open(check_each_launch: bool) -> Outcome<CudaDevice> {
    let options = CudaOptions { ordinal: 0, cache_dir: None, check_each_launch };
    let device = CudaDevice::open(&options)?;
    if !check_each_launch {
        println!("{:?}", device.info());
    }
    Ok(device)
}

/// A kernel of a test file, with lily.h where it is included.
pub(crate) fn kernel(
    device: &CudaDevice,
    file: &str,
    entry: &'static str,
    text: &str,
) -> Outcome<Kernel> {
    let lily = source::file("lily.h")?;
    let lily = format!("#line 1 \"lily.h\"\n{lily}");
    let text = format!("#line 1 \"{file}.metal\"\n{text}");
    Ok(device.kernel_from_text(file, entry, &text.replace("#include \"lily.h\"", &lily))?)
}

/// Numbers from -1 to 1, the same on every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 32) as u32
    }

    pub(crate) fn float(&mut self) -> f32 {
        (f64::from(self.bits()) / f64::from(u32::MAX) * 2.0 - 1.0) as f32
    }

    pub(crate) fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }
}

/// A value as bytes.
pub(crate) trait Plain: Copy {
    const SIZE: usize;
    fn put(self, out: &mut Vec<u8>);
    fn take(bytes: &[u8]) -> Self;
}

macro_rules! plain {
    ($($ty:ty),*) => {
        $(impl Plain for $ty {
            const SIZE: usize = size_of::<$ty>();
            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("a chunk of that size"))
            }
        })*
    };
}
plain!(f32, u32, u16);

pub(crate) fn upload<T: Plain>(device: &CudaDevice, values: &[T], label: &str) -> Outcome<Buffer> {
    let mut bytes = Vec::with_capacity(values.len() * T::SIZE);
    for value in values {
        value.put(&mut bytes);
    }
    let buffer = device.alloc(bytes.len(), label)?;
    device.write(&buffer.all(), &bytes)?;
    Ok(buffer)
}

pub(crate) fn download<T: Plain>(device: &CudaDevice, buffer: &Buffer) -> Outcome<Vec<T>> {
    let mut bytes = vec![0; buffer.len_bytes()];
    device.read(&buffer.all(), &mut bytes)?;
    Ok(bytes.chunks_exact(T::SIZE).map(T::take).collect())
}

/// All of each buffer.
pub(crate) fn slices(buffers: &[&Buffer]) -> Vec<Slice> {
    buffers.iter().map(|buffer| buffer.all()).collect()
}

/// Microseconds on the device of one of `n` runs of `commands`.
pub(crate) fn time_us(device: &CudaDevice, commands: &Commands, n: u32) -> Outcome<f64> {
    let mut total = 0.0;
    for _ in 0..n {
        let ticket = device.submit(commands)?;
        total += device.wait(ticket)?.as_secs_f64();
    }
    Ok(total * 1e6 / f64::from(n))
}

pub(crate) fn ensure(condition: bool, message: impl Into<String>) -> Outcome {
    if condition { Ok(()) } else { Err(message.into().into()) }
}

/// |a - b| / |b| in the Euclidean norm.
pub(crate) fn distance(a: &[f32], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "as many results as expected values");
    let square = |x: f64| x * x;
    let off: f64 = a.iter().zip(b).map(|(a, b)| square(f64::from(*a) - b)).sum();
    let norm: f64 = b.iter().map(|b| square(*b)).sum();
    (off / norm).sqrt()
}

/// bfloat16 to f32 is exact.
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Rounds to nearest, ties to even; for finite values.
pub(crate) fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

/// The value of a half; for finite values.
pub(crate) fn f16_to_f64(bits: u16) -> f64 {
    let exponent = i32::from((bits >> 10) & 31);
    let fraction = f64::from(bits & 1023);
    let size = if exponent == 0 {
        fraction * 2.0_f64.powi(-24)
    } else {
        (1024.0 + fraction) * 2.0_f64.powi(exponent - 25)
    };
    if bits >> 15 == 1 { -size } else { size }
}
