//! Every instruction set of this machine against plain f64, and against each other.

use super::{Bf16Line, F32Line, Lanes, Line, dispatched};
use crate::tile::{Extent, Lhs, LineRhs, Old, Rhs, multiply, multiply_lines};
use crate::{
    AttentionArgs, AttentionScratch, AttentionShape, DeltaInputs, DeltaScratch, DeltaShape,
    DeltaState, DeltaWeights, KvCache, KvDtype, Pool, RopeTable, attention, gated_delta_net, math,
};
use std::cell::Cell;

/// The best instruction set that may be used.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) enum Limit {
    Portable,
    Avx2,
    Avx512,
    None,
}

thread_local! {
    static LIMIT: Cell<Limit> = const { Cell::new(Limit::None) };
}

/// The limit of this thread.
pub(super) fn limit() -> Limit {
    LIMIT.get()
}

/// What `f` gives with each instruction set, one thread computing.
fn with_each<T>(f: impl Fn(&Pool) -> T) -> Vec<(Limit, T)> {
    let pool = Pool::new(1);
    let each = [Limit::Portable, Limit::Avx2, Limit::Avx512, Limit::None].map(|limit| {
        LIMIT.set(limit);
        (limit, f(&pool))
    });
    LIMIT.set(Limit::None);
    each.into()
}

fn values(seed: u32, n: usize) -> Vec<f32> {
    let mut x = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    (0..n)
        .map(|_| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

fn assert_close(what: &str, actual: &[f32], expected: &[f64], relative: f64, absolute: f64) {
    assert_eq!(actual.len(), expected.len());
    for (i, (&a, &e)) in actual.iter().zip(expected).enumerate() {
        let error = (f64::from(a) - e).abs();
        assert!(error <= relative * e.abs() + absolute, "{what}: value {i} is {a} instead of {e}");
    }
}

dispatched! { fn exp_of(x: &mut [f32]) = exp_body }

#[inline(always)]
fn exp_body<S: Lanes>(s: S, x: &mut [f32]) {
    math::map_in_place(s, x, |v| math::exp(s, v));
}

#[test]
fn exp_is_good_to_two_units_in_the_last_place() {
    let x: Vec<f32> = (-8700..8830_i16).map(|i| f32::from(i) * 0.01 + 0.001).collect();
    let expected: Vec<f64> = x.iter().map(|&x| f64::from(x).exp()).collect();
    for (limit, out) in with_each(|_| {
        let mut x = x.clone();
        exp_of(&mut x);
        x
    }) {
        assert_close(&format!("{limit:?}"), &out, &expected, 2.0 * 2_f64.powi(-23), 1e-37);
    }
}

#[test]
fn exp_of_what_is_not_finite() {
    for (limit, out) in with_each(|_| {
        let mut x = [f32::NEG_INFINITY, -1e30, f32::NAN, 0.0, f32::INFINITY, -88.5];
        exp_of(&mut x);
        x
    }) {
        assert_eq!((out[0], out[1], out[3], out[5]), (0.0, 0.0, 1.0, 0.0), "{limit:?}");
        assert!(out[2].is_nan() && out[4] > 1e38, "{limit:?}: {out:?}");
    }
}

dispatched! {
    fn product(extent: Extent, lhs: Lhs<'_>, rhs: Rhs<'_>, old: Old, out: &mut [f32], stride: usize)
        = multiply
}

#[test]
fn products_are_sums() {
    for rows in 1..19 {
        for (k, columns) in [(1, 16), (2, 32), (5, 48), (33, 128), (16, 144)] {
            let (lhs, rhs) = (values(1, rows * k), values(2, k * columns));
            let stride = columns + 16;
            let old = values(3, rows * stride);
            for scale in [None, Some(0.5_f32)] {
                let mut expected: Vec<f64> = old.iter().map(|&x| f64::from(x)).collect();
                for r in 0..rows {
                    for c in 0..columns {
                        let term = |i: usize| {
                            f64::from(lhs[i * rows + r]) * f64::from(rhs[i * columns + c])
                        };
                        let old = scale.map_or(0.0, |s| f64::from(s) * expected[r * stride + c]);
                        expected[r * stride + c] = old + (0..k).map(term).sum::<f64>();
                    }
                }
                for (limit, out) in with_each(|_| {
                    let mut out = old.clone();
                    if scale.is_none() {
                        for row in out.chunks_mut(stride) {
                            row[..columns].fill(f32::NAN);
                        }
                    }
                    product(
                        Extent { rows, k, columns },
                        Lhs { values: &lhs, row_stride: 1, k_stride: rows },
                        Rhs { values: &rhs, stride: columns },
                        scale.map_or(Old::Drop, Old::Scale),
                        &mut out,
                        stride,
                    );
                    out
                }) {
                    // Sums of k + 1 terms of magnitude at most 1.
                    let bound = ((k + 1) * (k + 1)) as f64 * 2_f64.powi(-24);
                    assert_close(&format!("{limit:?} {rows} {k}"), &out, &expected, 0.0, bound);
                }
            }
        }
    }
}

dispatched! {
    fn line_product<L: Line>(extent: Extent, lhs: Lhs<'_>, rhs: LineRhs<'_, L>, out: &mut [f32])
        = line_product_body
}

#[inline(always)]
fn line_product_body<S: Lanes, L: Line>(
    s: S,
    extent: Extent,
    lhs: Lhs<'_>,
    rhs: LineRhs<'_, L>,
    out: &mut [f32],
) {
    multiply_lines(s, extent, lhs, rhs, out, extent.columns);
}

fn check_lines<L: Line>(what: &str, rounded: impl Fn(f32) -> f32) {
    for rows in [1, 2, 3, 4, 7, 8, 9, 16, 21] {
        for (k, columns) in [(2, 16), (6, 32), (64, 48)] {
            let (lhs, rhs) = (values(4, rows * k), values(5, k * columns));
            let n_pairs = k / 2;
            let mut lines = vec![L::ZERO; columns / 16 * n_pairs];
            for c in 0..columns {
                for j in 0..n_pairs {
                    let (even, odd) = (rhs[2 * j * columns + c], rhs[(2 * j + 1) * columns + c]);
                    let line = &mut lines[c / 16 * n_pairs + j];
                    line.set(c % 16, even, 0.0);
                    line.set_odd(c % 16, odd);
                }
            }
            let expected: Vec<f64> = (0..rows * columns)
                .map(|at| {
                    let (r, c) = (at / columns, at % columns);
                    let term = |i: usize| {
                        f64::from(lhs[r * k + i]) * f64::from(rounded(rhs[i * columns + c]))
                    };
                    1.0 + (0..k).map(term).sum::<f64>()
                })
                .collect();
            for (limit, out) in with_each(|_| {
                let mut out = vec![1.0; rows * columns];
                line_product(
                    Extent { rows, k, columns },
                    Lhs { values: &lhs, row_stride: k, k_stride: 1 },
                    LineRhs { lines: &lines, ahead: &[], k_stride: 1, column_stride: n_pairs },
                    &mut out,
                );
                out
            }) {
                let bound = ((k + 1) * (k + 1)) as f64 * 2_f64.powi(-24);
                assert_close(&format!("{what} {limit:?} {rows} {k}"), &out, &expected, 0.0, bound);
            }
        }
    }
}

#[test]
fn products_with_lines_are_sums() {
    check_lines::<F32Line>("f32", |x| x);
    check_lines::<Bf16Line>("bf16", |x| half::bf16::from_f32(x).to_f32());
}

#[test]
fn bf16_rounds_like_the_library() {
    for bits in (0..=u32::MAX).step_by(65_521) {
        let x = f32::from_bits(bits);
        let expected = half::bf16::from_f32(x);
        let actual = half::bf16::from_bits(u16::try_from(super::bf16_bits(x)).unwrap());
        assert!(actual == expected || (actual.is_nan() && expected.is_nan()), "{x:e}");
    }
}

/// The tests of the crate's interface check the best instruction set against f64 references; here
/// the others are checked against it.
#[test]
fn instruction_sets_agree_on_the_delta_rule() {
    for (dk, dv) in [(16, 32), (128, 128), (48, 16)] {
        let shape = DeltaShape {
            n_k_heads: 2,
            n_v_heads: 4,
            k_head_dim: dk,
            v_head_dim: dv,
            conv_kernel: 4,
            eps: 1e-6,
        };
        let n_tokens = 37;
        let (channels, width) = (shape.channels(), shape.value_width());
        let (conv1d, u) = (values(1, channels * 4), values(2, n_tokens * channels));
        let (z, b, a) =
            (values(3, n_tokens * width), values(4, n_tokens * 4), values(5, n_tokens * 4));
        let (decay, dt_bias, norm) = (vec![-0.5; 4], vec![0.1; 4], vec![1.0; dv]);
        let weights =
            DeltaWeights { conv1d: &conv1d, decay: &decay, dt_bias: &dt_bias, norm: &norm };
        let results = with_each(|pool| {
            let mut state = DeltaState::new(&shape);
            let mut out = vec![f32::NAN; n_tokens * width];
            let mut first = 0;
            for n in [1, 3, 33] {
                let of = |width: usize| first * width..(first + n) * width;
                let inputs = DeltaInputs {
                    u: &u[of(channels)],
                    z: &z[of(width)],
                    b: &b[of(4)],
                    a: &a[of(4)],
                };
                let (out, scratch) = (&mut out[of(width)], &mut DeltaScratch::default());
                gated_delta_net(pool, &shape, &weights, inputs, &mut state, out, scratch);
                first += n;
            }
            out
        });
        assert_agree(&results, 1e-4);
    }
}

#[test]
fn instruction_sets_agree_on_attention() {
    for dtype in [KvDtype::F32, KvDtype::Bf16] {
        for (group, head_dim) in [(8, 32), (3, 48), (1, 256)] {
            let shape = AttentionShape {
                n_heads: 2 * group,
                n_kv_heads: 2,
                head_dim,
                rotary_dim: 8,
                eps: 1e-6,
            };
            let n_tokens = 300;
            let rope = RopeTable::new(8, 1e7);
            let gain = vec![1.0; head_dim];
            let qg = values(6, n_tokens * shape.n_heads * 2 * head_dim);
            let kv = values(7, n_tokens * 2 * head_dim);
            let results = with_each(|pool| {
                let mut cache = KvCache::new(dtype, 2, head_dim, n_tokens);
                let mut out = vec![f32::NAN; n_tokens * shape.n_heads * head_dim];
                attention(
                    pool,
                    AttentionArgs {
                        shape: &shape,
                        rope: &rope,
                        q_gain: &gain,
                        k_gain: &gain,
                        qg: &qg,
                        k: &mut kv.clone(),
                        v: &kv,
                        first_position: 0,
                        cache: &mut cache,
                        out: &mut out,
                        scratch: &mut AttentionScratch::default(),
                    },
                );
                out
            });
            // Products in bf16 round queries and weights to 2^-9 of themselves: a score of at
            // most sqrt(head_dim) moves by 2^-9 of that and a weight by twice as much, a mean of
            // values below 1 by as much again and 2^-9.
            let bf16 = (2.0 * (head_dim as f32).sqrt() + 1.0) / 512.0;
            assert_agree(&results, if dtype == KvDtype::Bf16 { bf16 } else { 1e-5 });
        }
    }
}

/// Values are of the order of 1.
fn assert_agree(results: &[(Limit, Vec<f32>)], tolerance: f32) {
    let (_, best) = results.last().expect("some results");
    for (limit, result) in results {
        for (i, (a, b)) in result.iter().zip(best).enumerate() {
            assert!((a - b).abs() <= tolerance, "{limit:?}: value {i} is {a}, the best gives {b}");
        }
    }
}
