//! Speed of attention and of the delta rule at the dimensions of the 35B.
//!
//! `cargo run --release -p lily-cpu --example mixer_bench [FILTER]`
//!
//! Every line is one layer. Decoding goes through as many layers as the model has, so that their
//! state does not stay in a cache; the best of several rounds counts.

#![allow(clippy::print_stdout, reason = "it prints its results")]

use lily_cpu::{
    AttentionArgs, AttentionScratch, AttentionShape, DeltaInputs, DeltaScratch, DeltaShape,
    DeltaState, DeltaWeights, KvCache, KvDtype, Pool, RopeTable, attention, gated_delta_net,
};
use std::time::{Duration, Instant};

const DELTA: DeltaShape = DeltaShape {
    n_k_heads: 16,
    n_v_heads: 32,
    k_head_dim: 128,
    v_head_dim: 128,
    conv_kernel: 4,
    eps: 1e-6,
};
const ATTENTION: AttentionShape =
    AttentionShape { n_heads: 16, n_kv_heads: 2, head_dim: 256, rotary_dim: 64, eps: 1e-6 };
const CHANNELS: usize = 8192;
const N_DELTA_LAYERS: usize = 30;
const N_ATTENTION_LAYERS: usize = 10;
const PREFILL: usize = 512;

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    for n_threads in [1, 2] {
        let pool = Pool::new(n_threads);
        println!("{n_threads} threads");
        let wanted = |name: &str| name.contains(&filter);
        if wanted("delta decode") {
            delta("delta decode", &pool, 1, N_DELTA_LAYERS);
        }
        if wanted("delta verify 4") {
            delta("delta verify 4", &pool, 4, N_DELTA_LAYERS);
        }
        if wanted("delta prefill") {
            delta("delta prefill 512", &pool, PREFILL, 1);
        }
        for past in [2048, 8192, 32768] {
            let name = format!("attention decode at {past}");
            if wanted(&name) {
                // One less, or every round would begin a page.
                attend(&name, &pool, past - 1, 1, N_ATTENTION_LAYERS);
            }
        }
        if wanted("attention prefill") {
            attend("attention prefill 512", &pool, 0, PREFILL, 1);
            attend("attention prefill 512 at 8192", &pool, 8192, PREFILL, 1);
        }
    }
}

/// Cheap values around 0 that are never denormal.
fn values(n: usize) -> Vec<f32> {
    let mut x = 1_u32;
    (0..n)
        .map(|_| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

fn best(mut round: impl FnMut()) -> Duration {
    let mut best = Duration::MAX;
    let start = Instant::now();
    let mut n_rounds = 0;
    while n_rounds < 5 || (start.elapsed().as_secs_f64() < 2.0 && n_rounds < 200) {
        let start = Instant::now();
        round();
        best = best.min(start.elapsed());
        n_rounds += 1;
    }
    best
}

fn report(name: &str, layer: f64, bytes: f64, flops: f64) {
    println!(
        "  {name:<32} {:>9.1} us a layer {:>7.1} GB/s {:>7.1} GFLOP/s",
        layer * 1e6,
        bytes / layer / 1e9,
        flops / layer / 1e9
    );
}

fn delta(name: &str, pool: &Pool, n_tokens: usize, n_layers: usize) {
    let (conv1d, u) = (values(CHANNELS * 4), values(n_tokens * CHANNELS));
    let (decay, dt_bias) = (vec![-0.5; DELTA.n_v_heads], vec![0.1; DELTA.n_v_heads]);
    let norm = vec![1.0; DELTA.v_head_dim];
    let z = values(n_tokens * DELTA.n_v_heads * DELTA.v_head_dim);
    let (b, a) = (values(n_tokens * DELTA.n_v_heads), values(n_tokens * DELTA.n_v_heads));
    let weights = DeltaWeights { conv1d: &conv1d, decay: &decay, dt_bias: &dt_bias, norm: &norm };
    let mut states = vec![DeltaState::new(&DELTA); n_layers];
    let mut scratch = DeltaScratch::default();
    let mut out = vec![0.0; z.len()];
    let time = best(|| {
        for state in &mut states {
            let inputs = DeltaInputs { u: &u, z: &z, b: &b, a: &a };
            gated_delta_net(pool, &DELTA, &weights, inputs, state, &mut out, &mut scratch);
        }
    });
    let state_values = DELTA.n_v_heads * DELTA.k_head_dim * DELTA.v_head_dim;
    let bytes = 2.0 * states[0].bytes() as f64;
    // The recurrence: decay folded in, a product each for prediction, update and output.
    let flops = (6 * n_tokens * state_values) as f64;
    report(name, time.as_secs_f64() / n_layers as f64, bytes, flops);
}

fn attend(name: &str, pool: &Pool, past: usize, n_tokens: usize, n_layers: usize) {
    let AttentionShape { n_heads, n_kv_heads, head_dim, rotary_dim, .. } = ATTENTION;
    let rope = RopeTable::new(rotary_dim, 1e7);
    let gain = vec![1.0; head_dim];
    let mut scratch = AttentionScratch::default();
    let mut caches: Vec<KvCache> = (0..n_layers)
        .map(|_| KvCache::new(KvDtype::Bf16, n_kv_heads, head_dim, past + n_tokens))
        .collect();
    let mut run =
        |cache: &mut KvCache, n_tokens: usize, qg: &[f32], kv: &[f32], out: &mut [f32]| {
            let args = AttentionArgs {
                shape: &ATTENTION,
                rope: &rope,
                q_gain: &gain,
                k_gain: &gain,
                qg: &qg[..n_tokens * n_heads * head_dim * 2],
                k: &mut kv[..n_tokens * n_kv_heads * head_dim].to_vec(),
                v: &kv[..n_tokens * n_kv_heads * head_dim],
                first_position: cache.len(),
                cache,
                out: &mut out[..n_tokens * n_heads * head_dim],
                scratch: &mut scratch,
            };
            attention(pool, args);
        };
    let rows = PREFILL.max(n_tokens);
    let qg = values(rows * n_heads * head_dim * 2);
    let kv = values(rows * n_kv_heads * head_dim);
    let mut out = vec![0.0; rows * n_heads * head_dim];
    for cache in &mut caches {
        while cache.len() < past {
            let n = rows.min(past - cache.len()) * n_kv_heads * head_dim;
            cache.append(&kv[..n], &kv[..n]);
        }
    }
    let time = best(|| {
        for cache in &mut caches {
            run(cache, n_tokens, &qg, &kv, &mut out);
            cache.truncate(past);
        }
    });
    let seen = past + n_tokens;
    let bytes = (seen * n_kv_heads * head_dim * 2 * 2) as f64;
    let pairs = (past + 1..=seen).sum::<usize>();
    let flops = (4 * pairs * n_heads * head_dim) as f64;
    report(name, time.as_secs_f64() / n_layers as f64, bytes, flops);
}
