//! Every word of the dialect against plain loops, with and without checks, in several orders.

use crate::support::{Random, device_with, kernel, read_f32, read_u32, run, upload};
use lily_device::sim::SimDevice;
use lily_device::{Buffer, Device, Grid, Kernel};

const TEXT: &str = include_str!("../kernels/dialect.metal");

fn each(test: impl Fn(&SimDevice, &dyn Fn(&'static str) -> Kernel)) {
    for (checked, seed, threads) in [(false, 0, 1), (true, 0, 1), (false, 1, 2), (true, 1, 2)] {
        let device = device_with(checked, seed, threads);
        test(&device, &|entry| kernel(&device, "dialect", entry, TEXT));
    }
}

fn alloc(device: &SimDevice, words: usize) -> Buffer {
    device.alloc(words * 4, "output").expect("memory")
}

#[test]
fn arguments_are_bound() {
    each(|device, kernel| {
        let x = Random(3).floats(1000, 1.0);
        let (input, output) = (upload(device, "x", &x), alloc(device, 1000));
        let params =
            [("n", 1000), ("factor", 2.5f32.to_bits()), ("shift", (-3i32).cast_unsigned())];
        let slices = [input.all(), output.all()];
        run(device, &kernel("scale"), Grid::linear(16, 64), &slices, &params).unwrap();
        for (i, (x, y)) in x.iter().zip(read_f32(device, &output)).enumerate() {
            let table = [1.0, 2.0, 4.0, 8.0][i % 4];
            assert_eq!(x.mul_add(2.5, -3.0) + table, y, "{i}");
        }
    });
}

#[test]
fn positions_are_those_of_the_grid() {
    each(|device, kernel| {
        let output = alloc(device, 2 * 3 * 4 * 96 * 6);
        let slices = [output.all()];
        run(device, &kernel("where"), Grid::new([2, 3, 4], 96), &slices, &[]).unwrap();
        for (thread, found) in read_u32(device, &output.all()).chunks(6).enumerate() {
            let (group, tid) = (thread / 96, thread % 96);
            let expected = [group % 2, group / 2 % 3, group / 6, tid, tid / 32, tid % 32];
            assert!(expected.iter().zip(found).all(|(a, b)| *a == *b as usize), "{thread}");
        }
    });
}

#[test]
fn threadgroup_memory_is_shared() {
    each(|device, kernel| {
        let x = Random(4).floats(256, 1.0);
        let (input, output) = (upload(device, "x", &x), alloc(device, 256));
        let slices = [input.all(), output.all()];
        run(device, &kernel("reverse"), Grid::linear(1, 256), &slices, &[]).unwrap();
        let expected: Vec<f32> = x.iter().map(|x| x + 1.0).collect();
        assert_eq!(read_f32(device, &output), expected);
    });
}

#[test]
fn lanes_exchange_values() {
    each(|device, kernel| {
        let mut random = Random(5);
        let x = random.floats(64, 1.0);
        let n: Vec<u32> = (0..64).map(|_| random.bits()).collect();
        let (fx, nx) = (upload(device, "x", &x), upload(device, "n", &n));
        let (fy, uy) = (alloc(device, 512), alloc(device, 512));
        let slices = [fx.all(), nx.all(), fy.all(), uy.all()];
        run(device, &kernel("lanes"), Grid::linear(1, 64), &slices, &[]).unwrap();
        let (fy, uy) = (read_f32(device, &fy), read_u32(device, &uy.all()));
        for tid in 0..64 {
            let (lane, base) = (tid % 32, tid / 32 * 32);
            let (x, n) = (&x[base..base + 32], &n[base..base + 32]);
            let mut sums = x.to_vec();
            for distance in [16, 8, 4, 2, 1] {
                for i in 0..distance {
                    sums[i] += sums[i + distance];
                }
            }
            let rounded = f32::from_bits(
                (x[31 - lane].to_bits() + 0x7fff + (x[31 - lane].to_bits() >> 16 & 1))
                    & 0xffff_0000,
            );
            let expected = [
                sums[0],
                x.iter().copied().fold(f32::MIN, f32::max),
                x.iter().copied().fold(f32::MAX, f32::min),
                x[(lane * 5 + 3) % 32],
                x[lane ^ 9],
                x[17],
                rounded,
                x[lane],
            ];
            assert_eq!(fy[tid * 8..][..8], expected, "{tid}");
            let expected = [
                n.iter().fold(0, |a: u32, b| a.wrapping_add(*b)),
                *n.iter().max().unwrap(),
                *n.iter().min().unwrap(),
                n[(lane * 5 + 3) % 32],
                n[lane ^ 9],
                n[17],
                n[..lane].iter().fold(0, |a: u32, b| a.wrapping_add(*b)),
                n[lane],
            ];
            assert_eq!(uy[tid * 8..][..8], expected, "{tid}");
        }
    });
}
