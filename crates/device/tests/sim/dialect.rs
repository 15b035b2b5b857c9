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
        let table = [1.0, 2.0, 4.0, 8.0].iter().cycle();
        let expected: Vec<f32> =
            x.iter().zip(table).map(|(x, t)| x.mul_add(2.5, -3.0) + t).collect();
        assert_eq!(read_f32(device, &output), expected);
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

/// IEEE rounding to `bits` of significand with the given exponent range, by exact arithmetic.
fn round_to(x: f32, significand: i32, min_exponent: i32, max: f64) -> f64 {
    let x = f64::from(x);
    if x == 0.0 || x.is_infinite() || x.is_nan() {
        return x;
    }
    // Of f32 subnormals too, because f64 holds them as normal numbers.
    let biased = i32::try_from(x.to_bits() >> 52 & 0x7ff).expect("11 bits");
    let exponent = (biased - 1023).max(min_exponent);
    let unit = 2f64.powi(exponent - significand + 1);
    let rounded = (x / unit).round_ties_even() * unit;
    if rounded.abs() > max { f64::INFINITY.copysign(x) } else { rounded }
}

fn half_value(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    }
}

#[test]
fn short_floats_round_to_the_nearest_even() {
    // Special values, ties, neighbours of ties, subnormals of every format, and random bits; the
    // low halves run through all 16-bit patterns.
    let mut bits: Vec<u32> = vec![
        0,
        0x8000_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0x7f80_0001,
        0xffff_ffff,
        0x3f80_8000,
        0x3f81_8000,
        0x3f80_8001,
        0x3f80_7fff,
        0x7f7f_ffff,
        0x7f7f_7fff,
        1,
        0x8000,
        0x1_8000,
        0x007f_ffff,
        0x477f_efff,
        0x477f_f000,
        0x477f_e000,
        0x3880_0000,
        0x387f_ffff,
        0x387f_e000,
        0x387f_f000,
        0x3300_0000,
        0x3300_0001,
        0x32ff_ffff,
        0x33c0_0000,
        0x3340_0000,
        0x3f80_1000,
        0x3f80_3000,
        0x3f80_0fff,
        0x3f80_1001,
    ];
    let mut random = Random(6);
    bits.extend((0..0x1_0000u32).map(|low| random.bits() << 16 | low));
    // Values of half's size.
    bits.extend((0..20_000).map(|_| 0x3200_0000 + random.bits() % 0x1600_0000));
    bits.resize(bits.len().next_multiple_of(64), 0);
    each(|device, kernel| {
        let input = upload(device, "x", &bits);
        let n = bits.len();
        let (b, h) = (alloc(device, n / 2), alloc(device, n / 2));
        let back = alloc(device, 2 * n);
        let slices = [input.all(), b.all(), h.all(), back.all()];
        run(device, &kernel("convert"), Grid::linear(n / 64, 64), &slices, &[]).unwrap();
        let halves = |buffer: &Buffer| -> Vec<u16> {
            let words = read_u32(device, &buffer.all());
            words
                .iter()
                .flat_map(|w| w.to_le_bytes().as_chunks().0.to_vec())
                .map(u16::from_le_bytes)
                .collect()
        };
        let (b, h, back) = (halves(&b), halves(&h), read_f32(device, &back));
        for (i, bits) in bits.iter().enumerate() {
            let x = f32::from_bits(*bits);
            let found = [f32::from_bits(u32::from(b[i]) << 16).into(), half_value(h[i])];
            let expected =
                [round_to(x, 8, -126, 3.389_531_389_251_535_5e38), round_to(x, 11, -14, 65504.0)];
            for (found, expected) in found.iter().zip(expected) {
                if x.is_nan() {
                    assert!(found.is_nan(), "{bits:08x}");
                } else {
                    let same = found.to_bits() == expected.to_bits();
                    assert!(same, "{bits:08x}: {found:e} for {expected:e}");
                }
            }
            let low = u16::try_from(bits & 0xffff).expect("16 bits");
            assert_eq!(back[2 * i].to_bits(), u32::from(low) << 16);
            let value = half_value(low);
            let same = f64::from(back[2 * i + 1]).to_bits() == value.to_bits();
            assert!(same || value.is_nan() && back[2 * i + 1].is_nan(), "{low:04x}");
        }
    });
}

#[test]
fn functions_are_those_of_f32() {
    each(|device, kernel| {
        let v = [0.5f32, 1.25, 3.0, 7.0];
        let (input, output) = (upload(device, "x", &v), alloc(device, 16));
        let slices = [input.all(), output.all()];
        run(device, &kernel("maths"), Grid::linear(1, 32), &slices, &[]).unwrap();
        let [x, y, z, w] = v.map(f64::from);
        let expected = [
            x.exp(),
            y.ln(),
            z.sqrt(),
            1.0 / w.sqrt(),
            x.cos(),
            y.sin(),
            z,
            x * y + z,
            x,
            y,
            3.0,
            1.0,
            1.0 / (1.0 + (-x).exp()),
            y / (1.0 + (-y).exp()),
            z.exp().ln_1p(),
            2f64.powi(40),
        ];
        for (found, expected) in read_f32(device, &output).iter().zip(expected) {
            // A few roundings of f32.
            assert!((f64::from(*found) / expected - 1.0).abs() < 4e-7, "{found} for {expected}");
        }
    });
}

#[test]
fn atomics_count_across_threadgroups() {
    each(|device, kernel| {
        let (total, first) = (upload(device, "total", &[5u32]), alloc(device, 64));
        let slices = [total.all(), first.all()];
        run(device, &kernel("count"), Grid::linear(64, 128), &slices, &[]).unwrap();
        let sum = 127 * 128 / 2;
        assert_eq!(read_u32(device, &total.all()), [5 + 64 * sum]);
        assert_eq!(read_u32(device, &first.all()), [sum; 64]);
    });
}

#[test]
fn constants_are_read_through_pointers() {
    each(|device, kernel| {
        let output = alloc(device, 64);
        run(device, &kernel("constants"), Grid::linear(1, 64), &[output.all()], &[]).unwrap();
        let primes = [2, 3, 5, 7, 11, 13, 17, 19];
        let expected: Vec<u32> = (0..64).map(|i| primes[i % 8] + primes[4 + i % 4]).collect();
        assert_eq!(read_u32(device, &output.all()), expected);
    });
}
