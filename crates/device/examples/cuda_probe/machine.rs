//! What the machine does around the kernels: compiling, launching, copying, and failing.

use crate::support::{Outcome, Random, download, ensure, kernel, open, slices, time_us, upload};
use lily_device::cuda::{CudaDevice, CudaOptions};
use lily_device::{Commands, Device, DeviceError, Grid, HostBytes, KernelSource};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PROBE: &str = include_str!("../../tests/kernels/cuda_probe.metal");

/// Launches of a decode step.
const LAUNCHES: usize = 250;

/// Compiling on several threads, and the cache on disk.
pub(crate) fn compile() -> Outcome {
    let dir = std::env::temp_dir().join(format!("lily-cuda-probe-{}", std::process::id()));
    let options =
        CudaOptions { ordinal: 0, cache_dir: Some(dir.clone()), check_each_launch: false };
    for pass in ["compiled", "from the cache"] {
        let device = CudaDevice::open(&options)?;
        let start = Instant::now();
        let failed = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|idx| {
                    let device = &device;
                    // Eight variants, each wanted by two threads.
                    let source = KernelSource::new("norm", "rms_norm")
                        .define("HIDDEN", 512 * (1 + idx % 8))
                        .define("RMS_EPS", "1e-6f");
                    scope.spawn(move || device.kernel(&source).err())
                })
                .collect();
            threads.into_iter().find_map(|thread| thread.join().expect("no panic"))
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        println!("8 variants of rms_norm {pass}: {:.0} ms", ms(start.elapsed()));
    }
    let files = std::fs::read_dir(&dir)?.count();
    std::fs::remove_dir_all(&dir)?;
    ensure(files == 8, format!("{files} files in the cache"))
}

/// The cost of launches, one by one and as a graph.
pub(crate) fn launches(device: &CudaDevice) -> Outcome {
    let empty = kernel(device, "cuda_probe", "empty", PROBE)?;
    let out = device.alloc(4, "out")?;
    let mut commands = Commands::new();
    for _ in 0..LAUNCHES {
        commands.dispatch(&empty, Grid::linear(1, 32), &slices(&[&out]), &[]);
    }
    let submit = time_us(device, &commands, 20)?;
    let mut host = Duration::ZERO;
    for _ in 0..20 {
        let start = Instant::now();
        let ticket = device.submit(&commands)?;
        host += start.elapsed();
        device.wait(ticket)?;
    }
    let host = ms(host) * 1e3 / 20.0;
    let start = Instant::now();
    let program = device.prepare(commands)?;
    let prepare = ms(start.elapsed());
    // The first replay moves the graph to the device.
    let ticket = device.replay(&program)?;
    device.wait(ticket)?;
    let (mut on_device, mut wall) = (0.0, 0.0);
    for _ in 0..20 {
        let start = Instant::now();
        let ticket = device.replay(&program)?;
        on_device += device.wait(ticket)?.as_secs_f64() * 1e6 / 20.0;
        wall += ms(start.elapsed()) * 1e3 / 20.0;
    }
    println!(
        "{LAUNCHES} empty kernels: submitted {submit:.0} us on the device ({host:.0} us of the \
         host), as a graph {on_device:.0} us ({wall:.0} us until the host knows); graph made in \
         {prepare:.1} ms"
    );
    Ok(())
}

/// Round trips of awkward lengths, and the speed of the bus.
pub(crate) fn copies(device: &CudaDevice) -> Outcome {
    let mut random = Random(5);
    for words in [1, 63, 16_384, 16_385, 300_000, 40_000_001] {
        let values: Vec<u32> = (0..words).map(|_| random.bits()).collect();
        let a = upload(device, &values, "a")?;
        let b = device.alloc(values.len() * 4, "b")?;
        let mut commands = Commands::new();
        commands.zero(b.all());
        commands.copy(a.all(), b.all());
        let counts = commands.counts();
        ensure(counts.barriers == 1, "a copy after a fill needs a barrier")?;
        device.submit(&commands)?;
        ensure(download::<u32>(device, &b)? == values, format!("a round trip of {words} words"))?;
    }
    // Small writes come between launches in order.
    let word = device.alloc(4, "word")?;
    let log = device.alloc(400 * 4, "log")?;
    for idx in 0..400_u32 {
        device.write(&word.all(), &idx.to_le_bytes())?;
        let mut commands = Commands::new();
        let at = idx as usize * 4;
        commands.copy(word.all(), log.slice(at..at + 4));
        device.submit(&commands)?;
    }
    ensure(download::<u32>(device, &log)?.iter().copied().eq(0..400), "writes in order")?;

    let bytes: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new(vec![1u8; 2 << 30]);
    let host = HostBytes::new(bytes);
    for pass in 1..=2 {
        let start = Instant::now();
        let buffer = device.import(&host, "weights")?;
        let mut last = [0];
        let end = buffer.len_bytes();
        device.read(&buffer.slice(end - 1..end), &mut last)?;
        let seconds = start.elapsed().as_secs_f64();
        println!("import {pass}: {:.1} GB/s", end as f64 / seconds / 1e9);
        if pass == 2 {
            let mut out = vec![0u8; 1 << 30];
            let start = Instant::now();
            device.read(&buffer.slice(0..out.len()), &mut out)?;
            let seconds = start.elapsed().as_secs_f64();
            println!("read: {:.1} GB/s", out.len() as f64 / seconds / 1e9);
            ensure(last == [1] && out.iter().all(|byte| *byte == 1), "what was imported")?;
        }
    }
    Ok(())
}

/// Running out, and giving back.
pub(crate) fn memory(device: &CudaDevice) -> Outcome {
    let Err(error) = device.alloc(1 << 50, "far too much") else {
        return Err("2^50 bytes were allocated".into());
    };
    println!("{error}");
    let DeviceError::OutOfMemory { available, total, .. } = error else {
        return Err(error.into());
    };
    ensure(available > 0 && available < total, "what is left")?;
    // Nearly everything, twice: what was dropped is there again.
    for _ in 0..2 {
        let size = usize::try_from(available)? / (2 << 20) * (2 << 20) - (2 << 20);
        let most = device.alloc(size, "most")?;
        ensure(device.alloc(1 << 30, "one more GiB").is_err(), "more than there is")?;
        drop(most);
    }
    let start = Instant::now();
    let small: Vec<_> =
        (0..5000).map(|n| device.alloc(1 + n * 7, "small")).collect::<Result<_, _>>()?;
    println!("5000 small buffers: {:.1} ms", ms(start.elapsed()));
    drop(small);
    Ok(())
}

/// Each kind of fault in a process of its own.
pub(crate) fn faults() -> Outcome {
    for mode in ["fault", "fault-checked"] {
        let status = Command::new(std::env::current_exe()?).arg(mode).status()?;
        ensure(status.success(), mode)?;
    }
    Ok(())
}

/// A kernel that writes outside its memory: an error that names it.
pub(crate) fn fault(check_each_launch: bool) -> Outcome {
    let device = open(check_each_launch)?;
    let empty = kernel(&device, "cuda_probe", "empty", PROBE)?;
    let outside = kernel(&device, "cuda_probe", "outside", PROBE)?;
    let out = device.alloc(128, "out")?;
    let mut commands = Commands::new();
    commands.label("a step");
    commands.dispatch(&empty, Grid::linear(1, 32), &slices(&[&out]), &[]);
    let params = [("far", u32::MAX)];
    commands.dispatch(&outside, Grid::linear(1, 32), &slices(&[&out]), &params);
    let result = device.submit(&commands).and_then(|ticket| device.wait(ticket));
    let error = result.err().ok_or("a write outside of all memory succeeded")?;
    println!("{}: {error}", if check_each_launch { "checked" } else { "unchecked" });
    let expected = if check_each_launch { "outside" } else { "a step" };
    let is_named = matches!(&error, DeviceError::Fault { kernel, .. } if kernel == expected);
    ensure(is_named, format!("it should name `{expected}`"))?;
    // The next call fails as well, and does not hang.
    let next = device.read(&out.all(), &mut [0; 4]);
    println!("and then: {}", next.err().ok_or("a read after a fault succeeded")?);
    Ok(())
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
