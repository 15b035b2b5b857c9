//! `simdgroup_matrix` against plain loops, and its mistakes.

use crate::support::{Random, device_with, kernel, read_f32, run, upload};
use lily_device::sim::SimDevice;
use lily_device::{Buffer, Device, Grid, Kernel};

const CASES: [(bool, u64); 4] = [(false, 0), (true, 0), (false, 9), (true, 9)];

fn matrix_kernel(device: &SimDevice, ty: &str, entry: &'static str) -> Kernel {
    let text = include_str!("../kernels/matrix.metal");
    let text = format!("#define T {ty}\n#line 1 \"matrix.metal\"\n{text}");
    kernel(device, "matrix", entry, &text)
}

fn alloc(device: &SimDevice, n: usize) -> Buffer {
    device.alloc(n * 4, "output").expect("memory")
}

#[test]
fn products_are_those_of_plain_loops() {
    for (checked, seed) in CASES {
        let device = device_with(checked, seed, 1);
        let mut random = Random(7);
        let [a, b, c] = [0; 3].map(|_| random.floats(128, 1.0));
        let mut buffers: Vec<Buffer> = [&a, &b, &c].map(|x| upload(&device, "input", x)).into();
        buffers.extend([0; 3].map(|_| alloc(&device, 128)));
        let slices: Vec<_> = buffers.iter().map(Buffer::all).collect();
        let kernel = matrix_kernel(&device, "float", "multiply");
        run(&device, &kernel, Grid::linear(1, 64), &slices, &[]).expect("a good kernel");
        let [d, transposed, e] = [3, 4, 5].map(|n| read_f32(&device, &buffers[n]));
        let mut expected = [(); 3].map(|()| vec![0.0f32; 128]);
        for i in 0..128 {
            let (base, row, column) = (i / 64 * 64, i % 64 / 8, i % 8);
            let product = |start: f32| {
                let term = |k: usize| a[base + row * 8 + k] * b[base + k * 8 + column];
                (0..8).fold(start, |sum, k| sum + term(k))
            };
            expected[0][i] = product(c[i]);
            expected[1][base + column * 8 + row] = product(c[i]);
            expected[2][i] = product(0.0);
        }
        assert_eq!([d, transposed, e], expected);
    }
}

#[test]
fn tiles_pass_through_threadgroup_memory() {
    for ty in ["float", "half", "bfloat"] {
        for (checked, seed) in CASES {
            let device = device_with(checked, seed, 1);
            let mut random = Random(8);
            // Small integers are exact in all three types, and so are their sums.
            let whole = |random: &mut Random, n| -> Vec<f32> {
                (0..n).map(|_| (random.float() * 100.0).round()).collect()
            };
            let (x, w) = (whole(&mut random, 32 * 24), whole(&mut random, 16 * 24));
            let y = alloc(&device, 32 * 16);
            let slices = [upload(&device, "x", &x).all(), upload(&device, "w", &w).all(), y.all()];
            let kernel = matrix_kernel(&device, ty, "tiles");
            run(&device, &kernel, Grid::linear(1, 128), &slices, &[]).expect("a good kernel");
            let element = |i: usize| -> f32 {
                let (row, column) = (i / 16, i % 16);
                (0..24).map(|k| x[row * 24 + k] * w[column * 24 + k]).sum()
            };
            let expected: Vec<f32> = (0..32 * 16).map(element).collect();
            assert_eq!(read_f32(&device, &y), expected, "{ty}");
        }
    }
}

#[test]
fn elements_lie_where_metal_has_them() {
    let device = device_with(true, 0, 1);
    let (y, one) = (alloc(&device, 64), alloc(&device, 64));
    let kernel = matrix_kernel(&device, "float", "layout");
    run(&device, &kernel, Grid::linear(1, 32), &[y.all(), one.all()], &[]).expect("good");
    let (y, one) = (read_f32(&device, &y), read_f32(&device, &one));
    // The first two rows as MLX documents them: lanes 0, 1, 8, 9, then 2, 3, 10, 11.
    let lanes: Vec<f32> = y[..16].iter().map(|x| (x / 2.0).floor()).collect();
    let expected = [0, 0, 1, 1, 8, 8, 9, 9, 2, 2, 3, 3, 10, 10, 11, 11].map(|lane| lane as f32);
    assert_eq!(lanes, expected);
    let mut sorted = y.clone();
    sorted.sort_by(f32::total_cmp);
    assert_eq!(sorted, (0..64u8).map(f32::from).collect::<Vec<_>>());
    let diagonal = |i: usize| if i / 8 == i % 8 { 3.0f32 } else { 0.0 };
    assert_eq!(one, (0..64).map(diagonal).collect::<Vec<_>>());
}

#[test]
fn lanes_are_checked_one_by_one() {
    for (entry, expected) in [
        ("diverged", "lane 9"),
        ("outside", "out of bounds: thread"),
        ("incomplete", "that nobody has written"),
    ] {
        for seed in 0..8 {
            let device = device_with(true, seed, 1);
            let x = upload(&device, "x", &[1.0f32; 64]);
            let slices = [x.all(), alloc(&device, 64).all()];
            let kernel = matrix_kernel(&device, "float", entry);
            let error = run(&device, &kernel, Grid::linear(1, 32), &slices, &[]).expect_err(entry);
            assert!(error.to_string().contains(expected), "{entry}: {error}");
        }
    }
}
