//! The gated delta rule against a plain f64 recurrence.

mod support;

use lily_cpu::{
    DeltaInputs, DeltaScratch, DeltaShape, DeltaStash, DeltaState, DeltaWeights, Pool, apply,
    gated_delta_net, gated_delta_net_tentative,
};
use proptest::prelude::*;
use support::{Random, assert_close, dot, max_abs, rms_norm, sigmoid, silu, softplus, wide};

const TAPS: usize = 4;

fn shape(n_k_heads: usize, group: usize, k_head_dim: usize, v_head_dim: usize) -> DeltaShape {
    let n_v_heads = n_k_heads * group;
    DeltaShape { n_k_heads, n_v_heads, k_head_dim, v_head_dim, conv_kernel: TAPS, eps: 1e-6 }
}

fn channels(shape: &DeltaShape) -> usize {
    2 * shape.n_k_heads * shape.k_head_dim + shape.n_v_heads * shape.v_head_dim
}

/// A layer and a sequence of tokens.
struct Case {
    shape: DeltaShape,
    n_tokens: usize,
    conv1d: Vec<f32>,
    decay: Vec<f32>,
    dt_bias: Vec<f32>,
    norm: Vec<f32>,
    u: Vec<f32>,
    z: Vec<f32>,
    b: Vec<f32>,
    a: Vec<f32>,
}

impl Case {
    fn new(seed: u64, shape: DeltaShape, n_tokens: usize) -> Self {
        let r = &mut Random::new(seed);
        let (hv, dv) = (shape.n_v_heads, shape.v_head_dim);
        Self {
            shape,
            n_tokens,
            conv1d: r.normals(channels(&shape) * TAPS, 0.5),
            decay: r.uniforms(hv, -4.0, -0.02),
            dt_bias: r.normals(hv, 1.0),
            norm: r.uniforms(dv, 0.5, 1.5),
            u: r.normals(n_tokens * channels(&shape), 1.0),
            z: r.normals(n_tokens * hv * dv, 1.0),
            b: r.normals(n_tokens * hv, 2.0),
            a: r.normals(n_tokens * hv, 2.0),
        }
    }

    fn weights(&self) -> DeltaWeights<'_> {
        let Self { conv1d, decay, dt_bias, norm, .. } = self;
        DeltaWeights { conv1d, decay, dt_bias, norm }
    }

    fn inputs(&self, tokens: std::ops::Range<usize>) -> DeltaInputs<'_> {
        let (hv, dv) = (self.shape.n_v_heads, self.shape.v_head_dim);
        let of = |x: &'_ [f32], width: usize| -> std::ops::Range<usize> {
            assert_eq!(x.len(), self.n_tokens * width);
            tokens.start * width..tokens.end * width
        };
        DeltaInputs {
            u: &self.u[of(&self.u, channels(&self.shape))],
            z: &self.z[of(&self.z, hv * dv)],
            b: &self.b[of(&self.b, hv)],
            a: &self.a[of(&self.a, hv)],
        }
    }

    fn width(&self) -> usize {
        self.shape.n_v_heads * self.shape.v_head_dim
    }

    /// Runs a call and returns its result, whose memory held NaN before.
    fn run(&self, pool: &Pool, tokens: std::ops::Range<usize>, state: &mut DeltaState) -> Vec<f32> {
        let mut out = vec![f32::NAN; tokens.len() * self.width()];
        let mut scratch = DeltaScratch::default();
        let inputs = self.inputs(tokens);
        gated_delta_net(pool, &self.shape, &self.weights(), inputs, state, &mut out, &mut scratch);
        out
    }

    fn run_tentative(
        &self,
        pool: &Pool,
        tokens: std::ops::Range<usize>,
        state: &DeltaState,
    ) -> (Vec<f32>, DeltaStash) {
        let mut out = vec![f32::NAN; tokens.len() * self.width()];
        let mut scratch = DeltaScratch::default();
        let mut stash = DeltaStash::default();
        let (inputs, weights) = (self.inputs(tokens), self.weights());
        let (shape, scratch) = (&self.shape, &mut scratch);
        gated_delta_net_tentative(
            pool, shape, &weights, inputs, state, &mut stash, &mut out, scratch,
        );
        (out, stash)
    }

    /// The paper's recurrence, token by token.
    fn reference(&self) -> Vec<f64> {
        let DeltaShape { n_k_heads, n_v_heads, k_head_dim: dk, v_head_dim: dv, .. } = self.shape;
        let channels = channels(&self.shape);
        let (w, u) = (wide(&self.conv1d), wide(&self.u));
        let norm = wide(&self.norm);
        let mut states = vec![vec![0.0; dk * dv]; n_v_heads];
        let mut out = Vec::new();
        for t in 0..self.n_tokens {
            let y: Vec<f64> = (0..channels)
                .map(|c| {
                    let tap = |j: usize| match (t + j).checked_sub(TAPS - 1) {
                        Some(row) => w[c * TAPS + j] * u[row * channels + c],
                        None => 0.0,
                    };
                    silu((0..TAPS).map(tap).sum())
                })
                .collect();
            let (q, rest) = y.split_at(n_k_heads * dk);
            let (k, v) = rest.split_at(n_k_heads * dk);
            for (head, state) in states.iter_mut().enumerate() {
                let key_head = head / (n_v_heads / n_k_heads);
                let of_head = |x: &[f64], scale: f64| -> Vec<f64> {
                    let x = &x[key_head * dk..(key_head + 1) * dk];
                    let norm = (dot(x, x) + 1e-6).sqrt();
                    x.iter().map(|x| x / norm * scale).collect()
                };
                let (q, k) = (of_head(q, (dk as f64).powf(-0.5)), of_head(k, 1.0));
                let at = t * n_v_heads + head;
                let beta = sigmoid(f64::from(self.b[at]));
                let step = softplus(f64::from(self.a[at]) + f64::from(self.dt_bias[head]));
                let decay = (f64::from(self.decay[head]) * step).exp();
                for s in &mut *state {
                    *s *= decay;
                }
                let seen = |state: &[f64], key: &[f64], j: usize| -> f64 {
                    (0..dk).map(|i| state[i * dv + j] * key[i]).sum()
                };
                for j in 0..dv {
                    let delta = beta * (v[head * dv + j] - seen(state, &k, j));
                    (0..dk).for_each(|i| state[i * dv + j] += k[i] * delta);
                }
                let o: Vec<f64> = (0..dv).map(|j| seen(state, &q, j)).collect();
                let normed = rms_norm(&o, &norm, 1e-6);
                let z = &self.z[at * dv..(at + 1) * dv];
                out.extend(normed.iter().zip(z).map(|(o, &z)| o * silu(f64::from(z))));
            }
        }
        out
    }

    /// How far f32 may be from the reference.
    ///
    /// A sum of n terms is off by at most n 2^-24 of the sum of their magnitudes. The longest chain
    /// behind an output is the sum over `k_head_dim` of a state that is itself a sum over the
    /// tokens, then the correction, again over `k_head_dim`. The norm divides by the size of the
    /// output, which cancellation can make smaller than its terms: 32 covers that for random
    /// inputs, where the outputs are about `1 / sqrt(k_head_dim)` of `|q| |k| |v|`.
    fn tolerance(&self, reference: &[f64]) -> f64 {
        let terms = 2 * self.shape.k_head_dim + self.n_tokens;
        32.0 * terms as f64 * 2_f64.powi(-24) * max_abs(reference)
    }

    fn check(&self, what: &str, first_token: usize, actual: &[f32], reference: &[f64]) {
        let expected = &reference[first_token * self.width()..][..actual.len()];
        assert_close(what, actual, expected, self.tolerance(reference));
    }
}

fn shapes() -> impl Strategy<Value = DeltaShape> {
    let dims = || prop::sample::select(vec![16_usize, 32, 48, 64, 128]);
    (1_usize..4, 1_usize..4, dims(), dims()).prop_map(|(k, group, dk, dv)| shape(k, group, dk, dv))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_split_of_the_tokens_gives_the_recurrence(
        seed in any::<u64>(),
        shape in shapes(),
        calls in prop::collection::vec(1_usize..40, 1..5),
    ) {
        let pool = Pool::new(2);
        let case = Case::new(seed, shape, calls.iter().sum());
        let reference = case.reference();
        let mut state = DeltaState::new(&shape);
        let mut first = 0;
        for n in calls {
            let out = case.run(&pool, first..first + n, &mut state);
            case.check("out", first, &out, &reference);
            first += n;
        }
    }

    #[test]
    fn token_by_token_gives_the_recurrence(
        seed in any::<u64>(),
        shape in shapes(),
        n_tokens in 1_usize..30,
    ) {
        let pool = Pool::new(1);
        let case = Case::new(seed, shape, n_tokens);
        let reference = case.reference();
        let mut state = DeltaState::new(&shape);
        for t in 0..n_tokens {
            let out = case.run(&pool, t..t + 1, &mut state);
            case.check("out", t, &out, &reference);
        }
    }

    #[test]
    fn keeping_a_prefix_of_tentative_tokens_equals_running_it(
        seed in any::<u64>(),
        shape in shapes(),
        n_before in 0_usize..6,
        n_tentative in 1_usize..40,
        kept in 0.0..1.0_f64,
        n_after in 1_usize..6,
    ) {
        let pool = Pool::new(2);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fraction")]
        let n_kept = (kept * (n_tentative + 1) as f64) as usize;
        let case = Case::new(seed, shape, n_before + n_tentative.max(n_kept + n_after));
        let reference = case.reference();
        let mut state = DeltaState::new(&shape);
        if n_before > 0 {
            case.run(&pool, 0..n_before, &mut state);
        }
        let untouched = state.clone();
        let (out, stash) = case.run_tentative(&pool, n_before..n_before + n_tentative, &state);
        case.check("tentative out", n_before, &out, &reference);
        prop_assert!(state == untouched, "tentative tokens change nothing");

        apply(&stash, n_kept, &mut state);
        let first = n_before + n_kept;
        let out = case.run(&pool, first..first + n_after, &mut state);
        case.check("out after the prefix", first, &out, &reference);
    }

    #[test]
    fn threads_do_not_change_a_bit(
        seed in any::<u64>(),
        shape in shapes(),
        n_tokens in 1_usize..40,
    ) {
        let case = Case::new(seed, shape, n_tokens);
        let results = [1, 2, 3].map(|n_threads| {
            let mut state = DeltaState::new(&shape);
            let out = case.run(&Pool::new(n_threads), 0..n_tokens, &mut state);
            (out, state)
        });
        prop_assert!(results[0] == results[1] && results[0] == results[2]);
    }
}

#[test]
fn real_head_dimensions_give_the_recurrence() {
    let pool = Pool::new(2);
    let shape = shape(2, 2, 128, 128);
    let case = Case::new(1, shape, 101);
    let reference = case.reference();
    let mut state = DeltaState::new(&shape);
    case.check("chunks", 0, &case.run(&pool, 0..64, &mut state), &reference);
    case.check("a step", 64, &case.run(&pool, 64..65, &mut state), &reference);
    case.check("the rest", 65, &case.run(&pool, 65..101, &mut state), &reference);
}

#[test]
fn extreme_gates_stay_finite() {
    let pool = Pool::new(1);
    let shape = shape(1, 2, 32, 32);
    let mut case = Case::new(2, shape, 40);
    for (i, (a, b)) in case.a.iter_mut().zip(&mut case.b).enumerate() {
        // Decays of 1 and of exp(-400), betas of 0 and 1, in turn.
        *a = if i % 3 == 0 { -200.0 } else { 100.0 };
        *b = if i % 5 == 0 { -200.0 } else { 200.0 };
    }
    case.decay.fill(-4.0);
    let mut state = DeltaState::new(&shape);
    let out = case.run(&pool, 0..40, &mut state);
    assert!(out.iter().all(|x| x.is_finite()), "{out:?}");
}

#[test]
fn keeping_all_tentative_tokens_is_exact() {
    let pool = Pool::new(1);
    let shape = shape(2, 2, 64, 64);
    let case = Case::new(3, shape, 4);
    let mut run = DeltaState::new(&shape);
    let mut applied = run.clone();
    let expected = case.run(&pool, 0..4, &mut run);
    let (out, stash) = case.run_tentative(&pool, 0..4, &applied);
    apply(&stash, 4, &mut applied);
    assert_eq!(out, expected);
    assert!(applied == run);
}
