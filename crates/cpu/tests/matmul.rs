//! Products of every layout against plain sums in f64.

use half::{bf16, f16};
use lily_cpu::{Activations, MatmulJob, Pool, Precision, matmul};
use lily_weights::quant::affine::{BITS, GROUPS, dequantize_row, encode_group, pack_codes};
use lily_weights::{Affine, Half, Matrix, Storage};

/// A stream of numbers in [-1, 1), different for every seed.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z >> 40) as f32) / 8_388_608.0 - 1.0
    }

    fn many(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.next()).collect()
    }
}

/// Quantised weights with their owners, and what they decode to.
struct Quantised {
    codes: Vec<u32>,
    scales: Vec<bf16>,
    biases: Vec<bf16>,
    decoded: Vec<f32>,
    bits: u8,
    group: usize,
}

impl Quantised {
    /// The encoder picks scales of both signs.
    fn new(draw: &mut Draw, rows: usize, cols: usize, bits: u8, group: usize) -> Self {
        let (mut codes, mut scales, mut biases) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rows {
            let mut row = Vec::new();
            for _ in 0..cols / group {
                let offset = 0.4 * draw.next();
                let values: Vec<f32> = draw.many(group).iter().map(|x| 0.1 * x + offset).collect();
                let encoded = encode_group(&values, bits);
                scales.push(bf16::from_f32(encoded.scale));
                biases.push(bf16::from_f32(encoded.bias));
                row.extend(encoded.codes);
            }
            codes.extend(pack_codes(&row, bits));
        }
        let mut weights = Self { codes, scales, biases, decoded: Vec::new(), bits, group };
        let mut decoded = vec![0.0; rows * cols];
        for (row, out) in decoded.chunks_exact_mut(cols).enumerate() {
            dequantize_row(&weights.affine(), row, cols, out);
        }
        weights.decoded = decoded;
        weights
    }

    fn affine(&self) -> Affine<'_> {
        Affine {
            bits: self.bits,
            group: self.group,
            codes: &self.codes,
            scales: Half::Bf16(&self.scales),
            biases: Half::Bf16(&self.biases),
        }
    }
}

/// The values that 8-bit activations stand for: the same rounding, written plainly.
fn rounded(x: &[f32]) -> Vec<f32> {
    x.chunks(64)
        .flat_map(|block| {
            let largest = block.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
            let (scale, inverse) =
                if largest > 0.0 { (largest / 127.0, 127.0 / largest) } else { (0.0, 0.0) };
            block.iter().map(move |x| (x * inverse).round_ties_even() * scale).collect::<Vec<_>>()
        })
        .collect()
}

/// Compares with sums in f64. f32 sums of n terms in any order are within n * 2^-24 of the sum of
/// magnitudes; with blocks of exact integers and lanes in parallel it is far less, and 2e-6 of the
/// magnitudes covers every path here (at most 512 columns).
fn check(weight: Matrix<'_>, decoded: &[f32], x: &[f32], seen: &[f32], precision: Precision) {
    let (rows, cols) = (weight.rows, weight.cols);
    let n_tokens = x.len() / cols;
    for n_threads in [1, 2] {
        let pool = Pool::new(n_threads);
        let mut activations = Activations::new(precision);
        activations.set(&pool, x, n_tokens, cols);
        for accumulate in [false, true] {
            let before = if accumulate { 0.5 } else { f32::NAN };
            let mut out = vec![before; n_tokens * rows];
            matmul(&pool, &activations, &mut [MatmulJob { weight, out: &mut out, accumulate }]);
            for t in 0..n_tokens {
                let x = &seen[t * cols..(t + 1) * cols];
                for row in 0..rows {
                    let w = &decoded[row * cols..(row + 1) * cols];
                    let terms = w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
                    let magnitude: f64 = terms.clone().map(f64::abs).sum::<f64>() + 0.5;
                    let expected = terms.sum::<f64>() + if accumulate { 0.5 } else { 0.0 };
                    let got = f64::from(out[t * rows + row]);
                    let error = (got - expected).abs();
                    // NaN fails the comparison.
                    assert!(
                        error <= 2e-6 * magnitude,
                        "{rows} x {cols}, {n_tokens} tokens, token {t}, row {row}: {got} is not \
                         {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_width_and_group_in_both_arithmetics() {
    let mut draw = Draw(1);
    for bits in BITS {
        for group in GROUPS {
            for (rows, cols) in [(1, 128), (33, 384), (16, 512), (5, 64), (7, 96)] {
                if cols % group != 0 {
                    continue;
                }
                let weights = Quantised::new(&mut draw, rows, cols, bits, group);
                let matrix = Matrix { rows, cols, storage: Storage::Affine(weights.affine()) };
                for n_tokens in [1, 3, 8, 9, 21] {
                    let x = draw.many(n_tokens * cols);
                    check(matrix, &weights.decoded, &x, &x, Precision::F32);
                    // Widths without whole blocks stay in f32.
                    let seen = if cols % 64 == 0 { rounded(&x) } else { x.clone() };
                    check(matrix, &weights.decoded, &x, &seen, Precision::Int8);
                }
            }
        }
    }
}

#[test]
fn extreme_activations() {
    let mut draw = Draw(2);
    let (rows, cols) = (17, 256);
    let weights = Quantised::new(&mut draw, rows, cols, 4, 64);
    let matrix = Matrix { rows, cols, storage: Storage::Affine(weights.affine()) };
    for n_tokens in [1, 12] {
        for scale in [0.0, 1e-30, 1e-6, 1e6, 1e20] {
            let mut x: Vec<f32> = draw.many(n_tokens * cols).iter().map(|x| x * scale).collect();
            // A block of zeros and one outlier.
            x[64..128].fill(0.0);
            x[130] = 100.0 * scale;
            let seen = rounded(&x);
            let largest = x.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
            // `check` allows an absolute error for sums near 0.5: keep the values near 1.
            if largest <= 1e6 {
                check(matrix, &weights.decoded, &x, &seen, Precision::Int8);
            }
            let pool = Pool::new(2);
            let mut activations = Activations::new(Precision::Int8);
            activations.set(&pool, &x, n_tokens, cols);
            let mut out = vec![f32::NAN; n_tokens * rows];
            matmul(
                &pool,
                &activations,
                &mut [MatmulJob { weight: matrix, out: &mut out, accumulate: false }],
            );
            assert!(out.iter().all(|x| x.is_finite()), "scale {scale}");
        }
    }
}

#[test]
fn a_nan_reaches_every_output_of_its_token_and_no_other() {
    let mut draw = Draw(3);
    let (rows, cols) = (20, 128);
    let weights = Quantised::new(&mut draw, rows, cols, 4, 64);
    let matrix = Matrix { rows, cols, storage: Storage::Affine(weights.affine()) };
    for (n_tokens, bad) in [(2, 1), (11, 4)] {
        let mut x = draw.many(n_tokens * cols);
        x[bad * cols + 77] = f32::NAN;
        let pool = Pool::new(2);
        let mut activations = Activations::new(Precision::Int8);
        activations.set(&pool, &x, n_tokens, cols);
        let mut out = vec![0.0; n_tokens * rows];
        matmul(
            &pool,
            &activations,
            &mut [MatmulJob { weight: matrix, out: &mut out, accumulate: false }],
        );
        for (t, out) in out.chunks_exact(rows).enumerate() {
            assert!(out.iter().all(|x| x.is_nan() == (t == bad)), "token {t}");
        }
    }
}

#[test]
fn unquantised_weights() {
    let mut draw = Draw(4);
    for (rows, cols) in [(1, 64), (35, 100), (16, 512)] {
        let values = draw.many(rows * cols);
        let bf: Vec<bf16> = values.iter().map(|&x| bf16::from_f32(x)).collect();
        let half: Vec<f16> = values.iter().map(|&x| f16::from_f32(x)).collect();
        let bf_decoded: Vec<f32> = bf.iter().map(|x| x.to_f32()).collect();
        let half_decoded: Vec<f32> = half.iter().map(|x| x.to_f32()).collect();
        for (storage, decoded) in [
            (Storage::F32(&values), &values),
            (Storage::Bf16(&bf), &bf_decoded),
            (Storage::F16(&half), &half_decoded),
        ] {
            let matrix = Matrix { rows, cols, storage };
            for n_tokens in [1, 10] {
                let x = draw.many(n_tokens * cols);
                for precision in [Precision::F32, Precision::Int8] {
                    check(matrix, decoded, &x, &x, precision);
                }
            }
        }
    }
}

/// What a token gets depends on nothing but itself, within each way of multiplying.
#[test]
fn tokens_do_not_see_each_other() {
    let mut draw = Draw(5);
    let (rows, cols) = (50, 256);
    for bits in [3, 4, 8] {
        let weights = Quantised::new(&mut draw, rows, cols, bits, 64);
        let matrix = Matrix { rows, cols, storage: Storage::Affine(weights.affine()) };
        let x = draw.many(40 * cols);
        let run = |tokens: std::ops::Range<usize>, n_threads: usize| {
            let pool = Pool::new(n_threads);
            let mut activations = Activations::new(Precision::Int8);
            let n = tokens.len();
            activations.set(&pool, &x[tokens.start * cols..tokens.end * cols], n, cols);
            let mut out = vec![f32::NAN; n * rows];
            matmul(
                &pool,
                &activations,
                &mut [MatmulJob { weight: matrix, out: &mut out, accumulate: false }],
            );
            out
        };
        let all = run(0..40, 1);
        for (first, n) in [(0, 9), (9, 13), (22, 18)] {
            assert_eq!(run(first..first + n, 3), all[first * rows..(first + n) * rows]);
        }
        let few = run(0..8, 1);
        for (first, n) in [(0, 1), (1, 3), (4, 4)] {
            assert_eq!(run(first..first + n, 2), few[first * rows..(first + n) * rows]);
        }
    }
}
