//! The experts against a plain sum over experts in f64.

use lily_cpu::{Activations, MoeScratch, Pool, Precision, Routes, moe};
use lily_weights::{Checkpoint, Matrix, MoeWeights, RandomQuant, Shape};

fn weights() -> (Shape, MoeWeights) {
    let shape = Shape {
        hidden: 128,
        n_layers: 1,
        vocab_size: 64,
        n_heads: 2,
        n_kv_heads: 1,
        head_dim: 32,
        rotary_dim: 8,
        mrope_section: [2, 1, 1],
        n_k_heads: 2,
        n_v_heads: 4,
        k_head_dim: 32,
        v_head_dim: 32,
        n_experts: 12,
        n_experts_per_token: 3,
        expert_width: 64,
        shared_expert_width: 192,
        ..Shape::qwen36_35b()
    };
    let checkpoint = Checkpoint::random(&shape, RandomQuant { bits: 4, group: 64 }, false, 9);
    let layer = checkpoint.weights.layers.into_iter().next().expect("one layer");
    (shape, layer.moe)
}

fn draw(n: usize, seed: u32) -> Vec<f32> {
    let hash =
        |i: u32| (i ^ seed).wrapping_mul(2_654_435_761).rotate_left(13).wrapping_mul(0x9E37_79B9);
    (0..u32::try_from(n).expect("small"))
        .map(|i| (hash(i) >> 8) as f32 / 8_388_608.0 - 1.0)
        .collect()
}

/// Distinct experts per token, some experts unused, one with every token.
fn routes(n_tokens: usize) -> Routes {
    let mut experts = Vec::new();
    for t in 0..u32::try_from(n_tokens).expect("small") {
        experts.extend([7, t % 5, 8 + t % 4]);
    }
    let weights = draw(experts.len(), 77).iter().map(|x| x.abs()).collect();
    Routes { n_tokens, top_k: 3, experts, weights }
}

fn apply(matrix: &Matrix<'_>, x: &[f64]) -> Vec<f64> {
    let mut row = vec![0.0; matrix.cols];
    (0..matrix.rows)
        .map(|i| {
            matrix.row_to_f32(i, &mut row);
            row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum()
        })
        .collect()
}

fn swiglu(gate: &Matrix<'_>, up: &Matrix<'_>, down: &Matrix<'_>, x: &[f64]) -> Vec<f64> {
    let h: Vec<f64> = apply(gate, x)
        .iter()
        .zip(apply(up, x))
        .map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up)
        .collect();
    apply(down, &h)
}

fn reference(
    w: &MoeWeights,
    x: &[f32],
    routes: &Routes,
    shared_weight: &[f32],
    hidden: usize,
) -> Vec<f64> {
    let mut y = Vec::new();
    for t in 0..routes.n_tokens {
        let x: Vec<f64> = x[t * hidden..(t + 1) * hidden].iter().map(|&x| f64::from(x)).collect();
        let shared = swiglu(
            &w.shared_gate_proj.view(),
            &w.shared_up_proj.view(),
            &w.shared_down_proj.view(),
            &x,
        );
        let mut sum: Vec<f64> = shared.iter().map(|y| y * f64::from(shared_weight[t])).collect();
        for k in 0..routes.top_k {
            let slot = t * routes.top_k + k;
            let e = routes.experts[slot] as usize;
            let (gate, up, down) =
                (w.expert_gate.expert(e), w.expert_up.expert(e), w.expert_down.expert(e));
            let weight = f64::from(routes.weights[slot]);
            sum.iter_mut().zip(swiglu(&gate, &up, &down, &x)).for_each(|(s, y)| *s += weight * y);
        }
        y.extend(sum);
    }
    y
}

fn run(
    w: &MoeWeights,
    x: &[f32],
    routes: &Routes,
    shared: &[f32],
    precision: Precision,
    n_threads: usize,
) -> Vec<f32> {
    let pool = Pool::new(n_threads);
    let mut activations = Activations::new(precision);
    let hidden = w.expert_down.rows;
    activations.set(&pool, x, routes.n_tokens, hidden);
    let mut y = vec![1.0; routes.n_tokens * hidden];
    let mut scratch = MoeScratch::new(precision);
    // Twice with the same buffers: what an earlier call left behind must not matter.
    moe(&pool, w, &activations, routes, shared, &mut y, &mut scratch);
    y.fill(1.0);
    moe(&pool, w, &activations, routes, shared, &mut y, &mut scratch);
    y
}

#[test]
fn experts_are_weighted_and_added() {
    let (shape, w) = weights();
    for n_tokens in [1, 2, 8, 9, 30] {
        let x = draw(n_tokens * shape.hidden, 5);
        let routes = routes(n_tokens);
        let shared = draw(n_tokens, 3);
        let expected = reference(&w, &x, &routes, &shared, shape.hidden);
        for n_threads in [1, 3] {
            let exact = run(&w, &x, &routes, &shared, Precision::F32, n_threads);
            for (got, expected) in exact.iter().zip(&expected) {
                // Values are of order one; three nested sums of at most 192 terms in f32.
                assert!((f64::from(*got) - 1.0 - expected).abs() <= 2e-5, "{got} {expected}");
            }
            // Rounding x and then h to 8 bits: each element is off by at most 1/254 of its block's
            // largest, independently, so a sum of n terms by about sqrt(n) / 254 of a term. Two
            // per cent of the root mean square covers both stages fivefold.
            let fast = run(&w, &x, &routes, &shared, Precision::Int8, n_threads);
            let square = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
            let error =
                square(&mut fast.iter().zip(&expected).map(|(a, b)| f64::from(*a) - 1.0 - b));
            let size = square(&mut expected.iter().copied());
            assert!((error / size).sqrt() <= 0.02, "{}", (error / size).sqrt());
        }
    }
}

#[test]
fn a_token_gets_the_same_in_any_batch_of_its_kind() {
    let (shape, w) = weights();
    let n = 24;
    let x = draw(n * shape.hidden, 6);
    let all_routes = routes(n);
    let shared = draw(n, 4);
    let part = |first: usize, n: usize| {
        let routes = Routes {
            n_tokens: n,
            top_k: 3,
            experts: all_routes.experts[first * 3..(first + n) * 3].to_vec(),
            weights: all_routes.weights[first * 3..(first + n) * 3].to_vec(),
        };
        let x = &x[first * shape.hidden..(first + n) * shape.hidden];
        run(&w, x, &routes, &shared[first..first + n], Precision::Int8, 2)
    };
    let all = part(0, n);
    for (first, n) in [(0, 9), (9, 15)] {
        assert_eq!(part(first, n), all[first * shape.hidden..(first + n) * shape.hidden]);
    }
    let few = part(0, 8);
    for (first, n) in [(0, 1), (1, 2), (3, 5)] {
        assert_eq!(part(first, n), few[first * shape.hidden..(first + n) * shape.hidden]);
    }
}
