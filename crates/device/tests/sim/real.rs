//! Two kernels of the real kind against plain loops, with and without checks.

use crate::support::{
    Random, bf16, count, device_with, kernel, read_f32, relative_error, run, upload,
};
use lily_device::Grid;
use std::time::{Duration, Instant};

/// f32 sums of up to 2048 terms in another order: well below 1e-5 of the whole vector.
const TOLERANCE: f64 = 1e-5;

/// How long a dispatch took.
pub(crate) fn qmv(n: usize, k: usize, checked: bool, seed: u64, threads: usize) -> Duration {
    let mut random = Random(1);
    let codes: Vec<u32> = (0..n * k / 8).map(|_| random.bits()).collect();
    let scales: Vec<u16> = (0..n * k / 64).map(|_| bf16(random.float() * 0.01)).collect();
    let biases: Vec<u16> = (0..n * k / 64).map(|_| bf16(random.float() * 0.05)).collect();
    let x = random.floats(k, 1.0);
    let f = |bits: u16| f64::from(f32::from_bits(u32::from(bits) << 16));
    let expected: Vec<f64> = (0..n)
        .map(|row| {
            (0..k)
                .map(|col| {
                    let code = codes[(row * k + col) / 8] >> (4 * (col % 8)) & 15;
                    let group = (row * k + col) / 64;
                    (f(scales[group]) * f64::from(code) + f(biases[group])) * f64::from(x[col])
                })
                .sum()
        })
        .collect();

    let device = device_with(checked, seed, threads);
    let kernel = kernel(&device, "qmv", "qmv_q4", include_str!("../kernels/qmv.metal"));
    let buffers = [
        upload(&device, "w", &codes),
        upload(&device, "scales", &scales),
        upload(&device, "biases", &biases),
        upload(&device, "x", &x),
        lily_device::Device::alloc(&device, n * 4, "y").expect("memory"),
    ];
    let slices: Vec<_> = buffers.iter().map(lily_device::Buffer::all).collect();
    let grid = Grid::linear(n.div_ceil(8), 64);
    let params = [("n", count(n)), ("k", count(k))];
    // The second run finds stacks and threads that are there already.
    run(&device, &kernel, grid, &slices, &params).expect("a good kernel");
    let start = Instant::now();
    run(&device, &kernel, grid, &slices, &params).expect("a good kernel");
    let elapsed = start.elapsed();
    let error = relative_error(&read_f32(&device, &buffers[4]), &expected);
    assert!(error < TOLERANCE, "{n}x{k}: {error}");
    elapsed
}

#[test]
fn a_quantised_product_agrees_with_plain_loops() {
    for (checked, seed, threads) in [(false, 0, 1), (true, 0, 1), (false, 3, 2), (true, 3, 2)] {
        qmv(61, 128, checked, seed, threads);
        qmv(2048, 2048, checked, seed, threads);
    }
}

fn gdn(tokens: usize, key_heads: usize, value_heads: usize, checked: bool, seed: u64) {
    const D: usize = 128;
    let mut random = Random(2);
    let unit = |random: &mut Random, n: usize| -> Vec<f32> {
        let mut all = random.floats(n * D, 1.0);
        for row in all.chunks_exact_mut(D) {
            let norm = row.iter().map(|x| x * x).sum::<f32>().sqrt();
            for x in row {
                *x /= norm;
            }
        }
        all
    };
    let q = unit(&mut random, tokens * key_heads);
    let k = unit(&mut random, tokens * key_heads);
    let v = random.floats(tokens * value_heads * D, 1.0);
    let g: Vec<f32> = (0..tokens * value_heads).map(|_| -random.float().abs()).collect();
    let beta: Vec<f32> = (0..tokens * value_heads).map(|_| random.float().abs()).collect();
    let state = random.floats(value_heads * D * D, 0.1);

    let mut s: Vec<f64> = state.iter().copied().map(f64::from).collect();
    let mut o = vec![0.0; tokens * value_heads * D];
    for t in 0..tokens {
        for h in 0..value_heads {
            let row = (t * key_heads + h / (value_heads / key_heads)) * D;
            let (k, q) = (&k[row..row + D], &q[row..row + D]);
            let head = t * value_heads + h;
            for c in 0..D {
                let s = &mut s[(h * D + c) * D..][..D];
                for s in s.iter_mut() {
                    *s *= f64::from(g[head]).exp();
                }
                let dot = |s: &[f64], x: &[f32]| -> f64 {
                    s.iter().zip(x).map(|(s, x)| s * f64::from(*x)).sum()
                };
                let d = f64::from(beta[head]) * (f64::from(v[head * D + c]) - dot(s, k));
                for (s, k) in s.iter_mut().zip(k) {
                    *s += d * f64::from(*k);
                }
                o[head * D + c] = dot(s, q);
            }
        }
    }

    let device = device_with(checked, seed, 1);
    let kernel = kernel(&device, "gdn_step", "gdn_step", include_str!("../kernels/gdn_step.metal"));
    let out = lily_device::Device::alloc(&device, o.len() * 4, "o").expect("memory");
    let mut buffers: Vec<_> = [("q", &q), ("k", &k), ("v", &v), ("g", &g), ("beta", &beta)]
        .into_iter()
        .map(|(label, values)| upload(&device, label, values))
        .collect();
    buffers.push(upload(&device, "state", &state));
    buffers.push(out);
    let slices: Vec<_> = buffers.iter().map(lily_device::Buffer::all).collect();
    let params = [
        ("n_tokens", count(tokens)),
        ("n_key_heads", count(key_heads)),
        ("n_value_heads", count(value_heads)),
    ];
    run(&device, &kernel, Grid::new([4, value_heads, 1], 128), &slices, &params).expect("good");
    for (name, buffer, expected) in [("o", &buffers[6], &o), ("state", &buffers[5], &s)] {
        let error = relative_error(&read_f32(&device, buffer), expected);
        assert!(error < TOLERANCE, "{name}: {error}");
    }
}

#[test]
fn a_delta_rule_agrees_with_plain_loops() {
    for (checked, seed) in [(false, 0), (true, 0), (false, 5), (true, 5)] {
        gdn(5, 2, 4, checked, seed);
    }
}
