//! Gated attention and its cache against a plain f64 implementation.

mod support;

use lily_cpu::{
    AttentionArgs, AttentionScratch, AttentionShape, KvCache, KvDtype, Pool, RopeTable, attention,
};
use proptest::prelude::*;
use std::ops::Range;
use support::{Random, assert_close, dot, max_abs, rms_norm, sigmoid, wide};

const THETA: f64 = 1e7;

fn shape(n_kv_heads: usize, group: usize, head_dim: usize) -> AttentionShape {
    let n_heads = n_kv_heads * group;
    AttentionShape { n_heads, n_kv_heads, head_dim, rotary_dim: head_dim / 4, eps: 1e-6 }
}

/// A layer and a sequence of tokens. Token `i` is at position `first_position + i`.
struct Case {
    shape: AttentionShape,
    rope: RopeTable,
    first_position: usize,
    n_tokens: usize,
    q_gain: Vec<f32>,
    k_gain: Vec<f32>,
    qg: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

impl Case {
    fn new(seed: u64, shape: AttentionShape, n_tokens: usize) -> Self {
        let r = &mut Random::new(seed);
        let d = shape.head_dim;
        Self {
            shape,
            rope: RopeTable::new(shape.rotary_dim, THETA),
            first_position: 0,
            n_tokens,
            q_gain: r.uniforms(d, 0.5, 2.0),
            k_gain: r.uniforms(d, 0.5, 2.0),
            qg: r.normals(n_tokens * shape.n_heads * 2 * d, 1.0),
            k: r.normals(n_tokens * shape.n_kv_heads * d, 1.0),
            v: r.normals(n_tokens * shape.n_kv_heads * d, 1.0),
        }
    }

    fn cache(&self, dtype: KvDtype) -> KvCache {
        KvCache::new(dtype, self.shape.n_kv_heads, self.shape.head_dim, 4096)
    }

    fn width(&self) -> usize {
        self.shape.n_heads * self.shape.head_dim
    }

    /// Runs a call and returns its result, whose memory held NaN before.
    fn run(&self, pool: &Pool, tokens: Range<usize>, cache: &mut KvCache) -> Vec<f32> {
        let mut out = vec![f32::NAN; tokens.len() * self.width()];
        let kv_width = self.shape.n_kv_heads * self.shape.head_dim;
        let of = |width: usize| tokens.start * width..tokens.end * width;
        let args = AttentionArgs {
            shape: &self.shape,
            rope: &self.rope,
            q_gain: &self.q_gain,
            k_gain: &self.k_gain,
            qg: &self.qg[of(2 * self.width())],
            k: &mut self.k[of(kv_width)].to_vec(),
            v: &self.v[of(kv_width)],
            first_position: self.first_position + tokens.start,
            cache,
            out: &mut out,
            scratch: &mut AttentionScratch::default(),
        };
        attention(pool, args);
        out
    }

    fn rotate(&self, token: usize, head: &mut [f64]) {
        let half = self.shape.rotary_dim / 2;
        for j in 0..half {
            let exponent = -2.0 * j as f64 / self.shape.rotary_dim as f64;
            let angle = (self.first_position + token) as f64 * THETA.powf(exponent);
            let (a, b) = (head[j], head[j + half]);
            head[j] = a * angle.cos() - b * angle.sin();
            head[j + half] = b * angle.cos() + a * angle.sin();
        }
    }

    /// The result for all tokens, each seeing itself and those before.
    fn reference(&self, dtype: KvDtype) -> Vec<f64> {
        let AttentionShape { n_heads, n_kv_heads, head_dim: d, .. } = self.shape;
        let stored = |x: f64| match dtype {
            KvDtype::F32 => x,
            KvDtype::Bf16 => half::bf16::from_f64(x).to_f64(),
        };
        let heads = |x: &[f32], gain: &[f32]| -> Vec<Vec<f64>> {
            x.chunks(d).map(|head| rms_norm(&wide(head), &wide(gain), 1e-6)).collect()
        };
        let mut keys = heads(&self.k, &self.k_gain);
        for (i, key) in keys.iter_mut().enumerate() {
            self.rotate(i / n_kv_heads, key);
            for k in key {
                *k = stored(*k);
            }
        }
        let values: Vec<Vec<f64>> = self
            .v
            .chunks(d)
            .map(|head| head.iter().map(|&v| stored(f64::from(v))).collect())
            .collect();
        let mut out = Vec::new();
        for token in 0..self.n_tokens {
            for head in 0..n_heads {
                let qg = &self.qg[(token * n_heads + head) * 2 * d..][..2 * d];
                let mut q = rms_norm(&wide(&qg[..d]), &wide(&self.q_gain), 1e-6);
                self.rotate(token, &mut q);
                let kv_head = head / (n_heads / n_kv_heads);
                let row = |t: usize| t * n_kv_heads + kv_head;
                let scores: Vec<f64> =
                    (0..=token).map(|t| dot(&q, &keys[row(t)]) / (d as f64).sqrt()).collect();
                let max = scores.iter().fold(f64::NEG_INFINITY, |max, s| s.max(max));
                let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
                let sum: f64 = weights.iter().sum();
                out.extend((0..d).map(|j| {
                    let mean: f64 = (0..=token).map(|t| weights[t] / sum * values[row(t)][j]).sum();
                    mean * sigmoid(f64::from(qg[d + j]))
                }));
            }
        }
        out
    }

    /// How far f32 may be from the reference.
    ///
    /// A score is a sum of `head_dim` products whose magnitudes sum to at most |q| |k| / sqrt(d),
    /// which is gains^2 sqrt(d) = 4 sqrt(d) here: it is off by (d + 8) 2^-24 times that, where 8
    /// is for norm, rotation and scaling. A weight is off by twice as much of itself, as its sum
    /// is off too, and a mean of values by that much of the largest value, plus the rounding of
    /// its own sum over the tokens.
    ///
    /// The reference rounds what a bf16 cache holds. Native bf16 products also round queries and
    /// weights to 2^-9 of themselves. The d errors of a score are independent, evenly spread, and
    /// scaled by products of about gains^2 / sqrt(d): six standard deviations of their sum are
    /// 6 * 2^-9 / sqrt(3) * 4, and the mean is off by twice that and 2^-9. What the rounding of a
    /// key may do on the other side of a tie is much less.
    fn tolerance(&self, dtype: KvDtype) -> f64 {
        let d = self.shape.head_dim as f64;
        let u = 2_f64.powi(-24);
        let score = (d + 8.0) * u * 4.0 * d.sqrt();
        let mean = 2.0 * score + (self.n_tokens as f64 + 8.0) * u;
        let products = match dtype {
            KvDtype::F32 => 0.0,
            KvDtype::Bf16 => (2.0 * 6.0 * 4.0 / 3_f64.sqrt() + 1.0) / 512.0,
        };
        (mean + products) * max_abs(&wide(&self.v))
    }

    fn check(&self, dtype: KvDtype, first_token: usize, actual: &[f32], reference: &[f64]) {
        let expected = &reference[first_token * self.width()..][..actual.len()];
        assert_close("out", actual, expected, self.tolerance(dtype));
    }
}

fn shapes() -> impl Strategy<Value = AttentionShape> {
    let head_dims = prop::sample::select(vec![16_usize, 32, 48, 64, 256]);
    (1_usize..4, 1_usize..9, head_dims).prop_map(|(n_kv, group, d)| shape(n_kv, group, d))
}

fn dtypes() -> impl Strategy<Value = KvDtype> {
    prop::sample::select(vec![KvDtype::F32, KvDtype::Bf16])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_split_of_the_tokens_gives_the_reference(
        seed in any::<u64>(),
        shape in shapes(),
        dtype in dtypes(),
        calls in prop::collection::vec(1_usize..60, 1..5),
    ) {
        let pool = Pool::new(2);
        let case = Case::new(seed, shape, calls.iter().sum());
        let reference = case.reference(dtype);
        let mut cache = case.cache(dtype);
        let mut first = 0;
        for n in calls {
            let out = case.run(&pool, first..first + n, &mut cache);
            case.check(dtype, first, &out, &reference);
            first += n;
            prop_assert_eq!(cache.len(), first);
        }
    }

    #[test]
    fn token_by_token_gives_the_reference(
        seed in any::<u64>(),
        shape in shapes(),
        dtype in dtypes(),
        n_tokens in 1_usize..40,
    ) {
        let pool = Pool::new(1);
        let case = Case::new(seed, shape, n_tokens);
        let reference = case.reference(dtype);
        let mut cache = case.cache(dtype);
        for t in 0..n_tokens {
            let out = case.run(&pool, t..t + 1, &mut cache);
            case.check(dtype, t, &out, &reference);
        }
    }

    #[test]
    fn forgotten_tokens_leave_no_trace(
        seed in any::<u64>(),
        shape in shapes(),
        dtype in dtypes(),
        n_kept in 0_usize..20,
        n_forgotten in 1_usize..20,
        n_after in 1_usize..20,
    ) {
        let pool = Pool::new(2);
        let case = Case::new(seed, shape, n_kept + n_after);
        let mut forgotten = Case::new(seed + 1, shape, n_kept + n_forgotten);
        forgotten.v.fill(f32::INFINITY);
        let mut plain = case.cache(dtype);
        if n_kept > 0 {
            case.run(&pool, 0..n_kept, &mut plain);
        }
        let mut cut = plain.clone();
        forgotten.run(&pool, n_kept..n_kept + n_forgotten, &mut cut);
        cut.truncate(n_kept);
        let tokens = n_kept..n_kept + n_after;
        let expected = case.run(&pool, tokens.clone(), &mut plain);
        prop_assert_eq!(case.run(&pool, tokens, &mut cut), expected);
    }

    #[test]
    fn threads_do_not_change_a_bit(
        seed in any::<u64>(),
        shape in shapes(),
        dtype in dtypes(),
        n_past in 1_usize..700,
        n_tokens in 1_usize..12,
    ) {
        let case = Case::new(seed, shape, n_past + n_tokens);
        let results = [1, 2, 3].map(|n_threads| {
            let pool = Pool::new(n_threads);
            let mut cache = case.cache(dtype);
            let past = case.run(&pool, 0..n_past, &mut cache);
            (past, case.run(&pool, n_past..n_past + n_tokens, &mut cache))
        });
        prop_assert!(results[0] == results[1] && results[0] == results[2]);
    }
}

/// Long enough that the keys are cut into spans of pages, with queries that see only some.
#[test]
fn spans_of_a_long_cache_are_merged() {
    let pool = Pool::new(2);
    for dtype in [KvDtype::F32, KvDtype::Bf16] {
        for (group, n_last) in [(8, 1), (8, 3), (1, 300)] {
            let case = Case::new(7, shape(1, group, 32), 1027);
            let reference = case.reference(dtype);
            let mut cache = case.cache(dtype);
            let first = case.n_tokens - n_last;
            case.check(dtype, 0, &case.run(&pool, 0..first, &mut cache), &reference);
            let last = case.run(&pool, first..case.n_tokens, &mut cache);
            case.check(dtype, first, &last, &reference);
        }
    }
}

#[test]
fn a_copy_of_a_cache_goes_its_own_way() {
    let pool = Pool::new(1);
    let case = Case::new(11, shape(2, 2, 32), 300);
    let mut cache = case.cache(KvDtype::Bf16);
    case.run(&pool, 0..290, &mut cache);
    let mut copy = cache.clone();
    let expected = case.run(&pool, 290..300, &mut cache);
    assert_eq!((copy.len(), cache.len()), (290, 300));
    assert_eq!(case.run(&pool, 290..300, &mut copy), expected);
}

#[test]
fn only_differences_of_positions_matter() {
    let pool = Pool::new(1);
    let mut case = Case::new(13, shape(1, 4, 64), 20);
    let near = case.run(&pool, 0..20, &mut case.cache(KvDtype::F32));
    case.first_position = 1_000_000;
    let far = case.run(&pool, 0..20, &mut case.cache(KvDtype::F32));
    // Cosine and sine are rounded once, so a rotation is off by 2^-24 wherever it is.
    assert_close("far out", &far, &wide(&near), case.tolerance(KvDtype::F32));
}

#[test]
fn memory_grows_with_the_tokens() {
    let pool = Pool::new(1);
    let case = Case::new(17, shape(2, 8, 256), 257);
    let mut cache = KvCache::new(KvDtype::Bf16, 2, 256, 1 << 20);
    assert_eq!(cache.bytes(), 0);
    case.run(&pool, 0..1, &mut cache);
    // A page is 256 tokens of 2 x 2 x 256 values of 2 bytes.
    assert_eq!(cache.bytes(), 256 * 2048);
    case.run(&pool, 1..257, &mut cache);
    assert_eq!(cache.bytes(), 2 * 256 * 2048);
    cache.truncate(256);
    assert_eq!(cache.bytes(), 256 * 2048);
}
