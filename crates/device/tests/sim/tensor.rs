//! Metal 4's tensor operations as the simulator has them, and how they are misused.

use crate::support::{Random, device_with, read_f32, run, upload};
use lily_device::{Device, DeviceError, Grid, source};

/// Whether the product is right, or the fault.
fn product(seed: u64, act: &str, bad: u32) -> Result<bool, String> {
    let device = device_with(true, seed, 1);
    // The simulator has no headers of Apple's.
    let header = |name: &str| -> String {
        let mut text = String::new();
        for line in source::file(name).expect("it is embedded").lines() {
            text.push_str(if line.starts_with("#include") { "" } else { line });
            text.push('\n');
        }
        text
    };
    let text = format!(
        "#define LILY_TILE 2\n#define LILY_ACT {act}\n#define BAD {bad}\n{}{}#line 1 \"tensor.metal\"\n{}",
        header("lily.h"),
        header("tile.h"),
        include_str!("../kernels/tensor.metal")
    );
    let kernel = device.kernel_from_text("tensor", "product", &text).expect("a kernel");
    // Small whole numbers: every sum is exact, in any order and as bf16.
    let mut random = Random(seed + 1);
    let mut numbers =
        |n: usize| -> Vec<f32> { random.floats(n, 8.0).iter().map(|x| x.trunc()).collect() };
    let (a, b) = (numbers(512), numbers(1024));
    let y = device.alloc(512 * 4, "y").expect("memory");
    let slices = [upload(&device, "a", &a).all(), upload(&device, "b", &b).all(), y.all()];
    match run(&device, &kernel, Grid::linear(1, 32), &slices, &[]) {
        Ok(()) => {}
        Err(DeviceError::Fault { fault, .. }) => return Err(fault),
        Err(other) => panic!("{other}"),
    }
    let dot = |i: usize| -> f32 { (0..32).map(|k| a[i / 32 * 32 + k] * b[i % 32 * 32 + k]).sum() };
    // NaN is not below.
    Ok(read_f32(&device, &y).iter().enumerate().all(|(i, y)| (*y - dot(i)).abs() < 0.5))
}

#[test]
fn a_product_is_right() {
    for seed in 0..6 {
        for act in ["float", "bfloat"] {
            assert_eq!(product(seed, act, 0), Ok(true), "seed {seed}, {act}");
        }
    }
}

#[test]
fn misuse_is_found() {
    for seed in 0..6 {
        let fault = |bad: u32| product(seed, "bfloat", bad).expect_err("a fault");
        let race = fault(1);
        assert!(race.contains("race") || race.contains("nobody has written"), "{race}");
        assert_eq!(product(seed, "bfloat", 2), Ok(false), "sums that were not zeroed");
        let beyond = fault(3);
        assert!(
            beyond.contains("nobody has written") || beyond.contains("out of bounds"),
            "{beyond}"
        );
        assert!(fault(4).contains("diverge"), "{}", fault(4));
        let places = product(seed, "bfloat", 5);
        assert_ne!(places, Ok(true), "nobody knows the places");
    }
}
