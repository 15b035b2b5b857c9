use lily_device::sim::{SimDevice, SimOptions};
use lily_device::{Buffer, Commands, Device, DeviceError, Grid, Kernel, Slice, source};

/// A device that keeps its modules beside the test binaries.
pub(crate) fn device_with(checked: bool, seed: u64, threads: usize) -> SimDevice {
    let mut options = SimOptions::new(concat!(env!("CARGO_TARGET_TMPDIR"), "/sim"));
    // To try another compiler than the usual one.
    options.compiler = std::env::var_os("LILY_SIM_CXX").map(Into::into);
    options.checked = checked;
    options.seed = seed;
    options.threads = threads;
    SimDevice::new(options).expect("a C++ compiler")
}

/// Kernels of a test, with lily.h before them.
pub(crate) fn kernel(device: &SimDevice, file: &str, entry: &'static str, text: &str) -> Kernel {
    let lily = source::file("lily.h").expect("it is embedded");
    let text = text.replace("#include \"lily.h\"\n", "\n");
    let text = format!("#line 1 \"lily.h\"\n{lily}\n#line 1 \"{file}.metal\"\n{text}");
    device.kernel_from_text(file, entry, &text).expect("a kernel")
}

pub(crate) fn upload<T: Copy>(device: &SimDevice, label: &str, values: &[T]) -> Buffer {
    // SAFETY: the tests upload numbers, which have no padding.
    let bytes = unsafe {
        std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), std::mem::size_of_val(values))
    };
    let buffer = device.alloc(bytes.len(), label).expect("memory");
    device.write(&buffer.all(), bytes).expect("a write");
    buffer
}

pub(crate) fn read_u32(device: &SimDevice, slice: &Slice) -> Vec<u32> {
    let mut bytes = vec![0; slice.len];
    device.read(slice, &mut bytes).expect("a read");
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

pub(crate) fn read_f32(device: &SimDevice, buffer: &Buffer) -> Vec<f32> {
    read_u32(device, &buffer.all()).into_iter().map(f32::from_bits).collect()
}

pub(crate) fn run(
    device: &SimDevice,
    kernel: &Kernel,
    grid: Grid,
    buffers: &[Slice],
    params: &[(&str, u32)],
) -> Result<(), DeviceError> {
    let mut commands = Commands::new();
    commands.dispatch(kernel, grid, buffers, params);
    device.submit(&commands).map(drop)
}

/// Small, fast and always the same.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    /// In -1..1.
    pub(crate) fn float(&mut self) -> f32 {
        (self.bits() >> 8) as f32 / 8_388_608.0 - 1.0
    }

    pub(crate) fn floats(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.float() * scale).collect()
    }
}

pub(crate) fn count(n: usize) -> u32 {
    u32::try_from(n).expect("small")
}

pub(crate) fn bf16(x: f32) -> u16 {
    let u = x.to_bits();
    ((u + 0x7fff + ((u >> 16) & 1)) >> 16) as u16
}

pub(crate) fn relative_error(found: &[f32], expected: &[f64]) -> f64 {
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>();
    let error = squares(&mut found.iter().zip(expected).map(|(f, e)| f64::from(*f) - e));
    (error / squares(&mut expected.iter().copied())).sqrt()
}
