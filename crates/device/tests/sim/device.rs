//! The simulator as a device: memory, programs, and what it needs from the machine.

use crate::support::{device_with, kernel, read_f32, read_u32, upload};
use lily_device::sim::{SimDevice, SimOptions};
use lily_device::{
    Commands, Device, DeviceError, DeviceKind, Grid, HostBytes, KernelSource, TileBody, source,
};
use std::sync::Arc;

fn options() -> SimOptions {
    SimOptions::new(concat!(env!("CARGO_TARGET_TMPDIR"), "/sim"))
}

#[test]
fn it_introduces_itself() {
    let mut options = options();
    options.tile = TileBody::Tensor;
    let device = SimDevice::new(options).expect("a C++ compiler");
    let info = device.info();
    assert_eq!(info.kind, DeviceKind::Sim);
    assert_eq!(info.name, "simulator");
    assert_eq!(info.tile, TileBody::Tensor);
    assert!(info.memory_bytes > 1 << 28);
}

#[test]
fn memory_is_counted() {
    let mut options = options();
    options.memory_bytes = Some(1000);
    let device = SimDevice::new(options).expect("a C++ compiler");
    let first = device.alloc(600, "first").expect("it fits");
    match device.alloc(401, "second").expect_err("only 400 are left") {
        DeviceError::OutOfMemory { label, bytes, available, total } => {
            assert_eq!((&*label, bytes, available, total), ("second", 401, 400, 1000));
        }
        other => panic!("{other}"),
    }
    drop(first);
    device.alloc(1000, "all").expect("the first is free again");
}

#[test]
fn undefined_memory_is_not_a_number() {
    let device = device_with(true, 0, 1);
    let buffer = device.alloc(64, "fresh").expect("memory");
    assert!(read_f32(&device, &buffer).iter().all(|x| x.is_nan()));
}

#[test]
fn imported_memory_is_read_only() {
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    impl AsRef<[u8]> for Page {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let device = device_with(true, 0, 1);
    let page = Arc::new(Page([7; 4096]));
    let imported = device.import(&HostBytes::new(page), "weights").expect("memory");
    assert_eq!(read_u32(&device, &imported.slice(4000..4004)), [0x0707_0707]);
    device.write(&imported.slice(0..4), &[0; 4]).expect_err("it is read-only");
    let text = "kernel void set(device uint* y [[buffer(0)]], \
                uint tid [[thread_index_in_threadgroup]]) { y[tid] = 1; }\n";
    let kernel = kernel(&device, "set", "set", text);
    let mut commands = Commands::new();
    commands.dispatch(&kernel, Grid::linear(1, 32), &[imported.all()], &[]);
    let error = device.submit(&commands).expect_err("it is read-only").to_string();
    assert!(error.contains("weights is imported"), "{error}");

    // Without alignment it is a copy.
    let bytes: Arc<Vec<u8>> = Arc::new(vec![9; 100]);
    let copied = device.import(&HostBytes::new(bytes), "small").expect("memory");
    assert_eq!(read_u32(&device, &copied.slice(96..100)), [0x0909_0909]);
}

#[test]
fn programs_run_as_often_as_they_are_replayed() {
    let text = "kernel void add(device float* y [[buffer(0)]], \
                uint tid [[thread_index_in_threadgroup]]) { y[tid] += 1.0f; }\n";
    for checked in [false, true] {
        let device = device_with(checked, 0, 2);
        let kernel = kernel(&device, "add", "add", text);
        let y = upload(&device, "y", &[0.0f32; 64]);
        let mut commands = Commands::new();
        commands.dispatch(&kernel, Grid::linear(1, 64), &[y.all()], &[]);
        commands.dispatch(&kernel, Grid::linear(1, 64), &[y.all()], &[]);
        let program = device.prepare(commands).expect("a program");
        let first = device.replay(&program).expect("a run");
        let second = device.replay(&program).expect("a run");
        assert!(first < second);
        device.wait(second).expect("it is done");
        device.wait(first).expect("it is done");
        assert_eq!(read_f32(&device, &y), [4.0; 64]);
    }
}

#[test]
fn devices_do_not_share_memory() {
    let (one, other) = (device_with(true, 0, 1), device_with(true, 0, 1));
    let buffer = one.alloc(4, "mine").expect("memory");
    let error = other.write(&buffer.all(), &[0; 4]).expect_err("not its own").to_string();
    assert!(error.contains("mine is memory of another device"), "{error}");
}

#[test]
fn a_missing_compiler_has_a_remedy() {
    let mut options = options();
    options.compiler = Some("/nonexistent/c++".into());
    match SimDevice::new(options).expect_err("there is none") {
        DeviceError::Unavailable { device, remedy, .. } => {
            assert_eq!(device, "sim");
            assert!(remedy.contains("install"));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn errors_of_the_compiler_name_the_line_of_the_file() {
    let device = device_with(true, 0, 1);
    let text = "\n\nkernel void wrong(device float* y [[buffer(0)]]) { y[0] = nothing; }\n";
    match device.kernel_from_text("wrong", "wrong", text).expect_err("it does not compile") {
        DeviceError::Compile { log, .. } => assert!(log.contains("wrong.metal:3"), "{log}"),
        other => panic!("{other}"),
    }
    let error = device.kernel_from_text("empty", "absent", "").expect_err("no kernel");
    assert!(error.to_string().contains("there is no kernel absent"), "{error}");
}

#[test]
fn embedded_files_compile() {
    let norm =
        KernelSource::new("norm", "rms_norm").define("HIDDEN", 64).define("RMS_EPS", "1e-6f");
    assert!(source::kernel_files().any(|file| file == "norm"));
    for checked in [false, true] {
        let device = device_with(checked, 0, 1);
        let kernel = device.kernel(&norm).expect("it compiles");
        let x = upload(&device, "x", &[2.0f32; 64]);
        let gain = upload(&device, "gain", &[1.0f32; 64]);
        let y = device.alloc(256, "y").expect("memory");
        let mut commands = Commands::new();
        let slices = [x.all(), gain.all(), y.all()];
        commands.dispatch(&kernel, Grid::linear(1, 256), &slices, &[]);
        device.submit(&commands).expect("a good kernel");
        assert!(read_f32(&device, &y).iter().all(|y| (y - 1.0).abs() < 1e-6));
    }
}
