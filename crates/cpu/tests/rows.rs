//! Norms, gates and routing against plain implementations.

mod support;

use lily_cpu::{Pool, Routes, rms_norm, route, sigmoid_in_place};
use proptest::prelude::*;
use support::{Random, assert_close, max_abs, sigmoid, wide};

proptest! {
    #[test]
    fn rms_norm_is_the_formula(
        seed in any::<u64>(),
        n_rows in 0_usize..40,
        width in 1_usize..3000,
        scale in prop::sample::select(vec![1e-6_f32, 1.0, 1e6]),
    ) {
        let r = &mut Random::new(seed);
        let x = r.normals(n_rows * width, scale);
        let gain = r.uniforms(width, 0.0, 2.0);
        let expected: Vec<f64> = x
            .chunks(width)
            .flat_map(|row| support::rms_norm(&wide(row), &wide(&gain), f64::from(1e-6_f32)))
            .collect();
        let mut out = vec![f32::NAN; x.len()];
        rms_norm(&Pool::new(2), &x, &gain, 1e-6, &mut out);
        // A sum of positive terms has a relative error of n 2^-24, halved by the root.
        let relative = (width as f64 / 2.0 + 8.0) * 2_f64.powi(-24);
        assert_close("out", &out, &expected, relative * max_abs(&expected));
    }

    #[test]
    fn routes_are_the_largest_logits_in_order(
        seed in any::<u64>(),
        n_tokens in 0_usize..5,
        n_experts in 1_usize..300,
        top_k in 1_usize..12,
        coarse in any::<bool>(),
    ) {
        let top_k = top_k.min(n_experts);
        let mut logits = Random::new(seed).normals(n_tokens * n_experts, 3.0);
        if coarse {
            // Many ties.
            for x in &mut logits {
                *x = x.round();
            }
        }
        let mut routes = Routes { n_tokens: 9, top_k: 9, experts: vec![9; 9], weights: vec![9.; 9] };
        route(&Pool::new(2), &logits, n_experts, top_k, &mut routes);
        prop_assert_eq!((routes.n_tokens, routes.top_k), (n_tokens, top_k));
        prop_assert_eq!(routes.experts.len(), n_tokens * top_k);
        for (t, row) in logits.chunks(n_experts).enumerate() {
            let mut order: Vec<u32> = (0..u32::try_from(n_experts).unwrap()).collect();
            order.sort_by(|&a, &b| row[b as usize].partial_cmp(&row[a as usize]).unwrap().then(a.cmp(&b)));
            let chosen = &routes.experts[t * top_k..(t + 1) * top_k];
            prop_assert_eq!(chosen, &order[..top_k]);
            let of = |e: &u32| f64::from(row[*e as usize]).exp();
            let sum: f64 = chosen.iter().map(of).sum();
            let expected: Vec<f64> = chosen.iter().map(|e| of(e) / sum).collect();
            let weights = &routes.weights[t * top_k..(t + 1) * top_k];
            // The exponents are below 64, where f32 has a spacing of 2^-18.
            assert_close("weights", weights, &expected, 2_f64.powi(-18));
        }
    }

    #[test]
    fn sigmoid_is_the_formula(x in prop::collection::vec(-100.0..100.0_f32, 0..70)) {
        let expected: Vec<f64> = x.iter().map(|&x| sigmoid(f64::from(x))).collect();
        let mut out = x;
        sigmoid_in_place(&mut out);
        assert_close("sigmoid", &out, &expected, 4.0 * 2_f64.powi(-24));
    }
}

#[test]
fn broken_logits_still_name_valid_experts() {
    let mut logits = vec![f32::NAN; 8];
    logits.extend([f32::NAN, 1.0, f32::NAN, 2.0, f32::INFINITY, f32::NEG_INFINITY, 0.0, f32::NAN]);
    let mut routes = Routes::default();
    route(&Pool::new(1), &logits, 8, 3, &mut routes);
    assert_eq!(routes.experts, [0, 1, 2, 4, 3, 1]);
    assert!(routes.weights.iter().all(|w| w.is_finite()), "{:?}", routes.weights);
}
