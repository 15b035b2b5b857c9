//! Speed of products and of the experts at the dimensions of the 35B.
//!
//! `cargo run --release -p lily-cpu --example matmul_bench [FILTER]`
//!
//! Decoding reads weights once per token, so its rate is in GB/s of stored weights; a prompt is
//! bound by arithmetic, so its rate is in GOP/s, two operations per weight and token. Weights come
//! from a set larger than the last cache, in turn; the best of several rounds counts.

#![allow(clippy::print_stdout, reason = "it prints its results")]

use half::{bf16, f16};
use lily_cpu::{Activations, MatmulJob, MoeScratch, Pool, Precision, Routes, matmul, moe};
use lily_weights::{Affine, Checkpoint, Half, Matrix, MoeWeights, RandomQuant, Shape, Storage};
use std::time::{Duration, Instant};

/// A set of matrices has at least this many bytes: the last cache of the machines at hand has 32 MB.
const SET_BYTES: usize = 200 << 20;
const PREFILL: usize = 512;
const HIDDEN: usize = 2048;

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let wanted = |name: &str| name.contains(&filter);
    let pools = [Pool::new(1), Pool::new(2)];
    println!("{:44} {:>20} {:>20}", "", "1 thread", "2 threads");

    let mlx = Layout::Affine { bits: 4, group: 64, scales: Scales::Bf16 };
    for (name, rows, cols) in [
        ("decode in-projection", 12352, HIDDEN),
        ("decode out-projection", 2048, 4096),
        ("decode lm_head", 248_320, HIDDEN),
    ] {
        product(name, wanted, &pools, mlx, (rows, cols), 1, Precision::Int8);
    }
    for n_tokens in [2, 4, 8] {
        let name = format!("verify {n_tokens} in-projection");
        product(&name, wanted, &pools, mlx, (12352, HIDDEN), n_tokens, Precision::Int8);
    }
    for n_tokens in [9, 16, 64, PREFILL] {
        let name = format!("prefill {n_tokens} in-projection");
        product(&name, wanted, &pools, mlx, (8192, HIDDEN), n_tokens, Precision::Int8);
    }
    for layout in Layout::all() {
        for (n_tokens, stage) in [(1, "decode"), (PREFILL, "prefill 512")] {
            let name = format!("{stage} {}", layout.name());
            product(&name, wanted, &pools, layout, (4096, HIDDEN), n_tokens, Precision::Int8);
        }
    }
    for (n_tokens, stage) in [(1, "decode"), (PREFILL, "prefill 512")] {
        let name = format!("{stage} {} exact", mlx.name());
        product(&name, wanted, &pools, mlx, (4096, HIDDEN), n_tokens, Precision::F32);
    }
    if wanted("experts") {
        let weights = expert_weights();
        for n_tokens in [1, 4, 16, 64, PREFILL] {
            experts(&pools, &weights, n_tokens);
        }
    }
}

#[derive(Clone, Copy)]
enum Scales {
    Bf16,
    F16,
    F32,
}

#[derive(Clone, Copy)]
enum Layout {
    Affine { bits: u8, group: usize, scales: Scales },
    Bf16,
    F16,
    F32,
}

impl Layout {
    fn all() -> Vec<Self> {
        let affine = |bits, group, scales| Self::Affine { bits, group, scales };
        let mut all = vec![
            affine(4, 64, Scales::F16),
            affine(4, 64, Scales::F32),
            affine(4, 32, Scales::Bf16),
            affine(4, 128, Scales::Bf16),
        ];
        all.extend([2, 3, 5, 6, 8].map(|bits| affine(bits, 64, Scales::Bf16)));
        all.extend([Self::Bf16, Self::F16, Self::F32]);
        all
    }

    fn name(self) -> String {
        match self {
            Self::Affine { bits, group, scales } => {
                let scales = match scales {
                    Scales::Bf16 => "bf16",
                    Scales::F16 => "f16",
                    Scales::F32 => "f32",
                };
                format!("{bits}-bit group {group} {scales} scales")
            }
            Self::Bf16 => "bf16 weights".into(),
            Self::F16 => "f16 weights".into(),
            Self::F32 => "f32 weights".into(),
        }
    }
}

/// Pseudo-random words, the same in every run.
fn words(n: usize) -> Vec<u32> {
    let mut x = 1_u32;
    (0..n)
        .map(|_| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            x ^ x >> 15
        })
        .collect()
}

/// Cheap values in -1..1.
fn values(n: usize) -> Vec<f32> {
    words(n).iter().map(|x| (x >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

/// The numbers of one matrix in all the forms a layout may ask for; only one is filled.
#[derive(Default)]
struct Numbers {
    codes: Vec<u32>,
    bf16: Vec<bf16>,
    f16: Vec<f16>,
    f32: Vec<f32>,
}

impl Numbers {
    fn new(layout: Layout, n: usize) -> Self {
        let mut numbers = Self::default();
        match layout {
            Layout::Affine { bits, group, scales } => {
                numbers.codes = words(n * usize::from(bits) / 32);
                numbers.fill(scales, n / group);
            }
            Layout::Bf16 => numbers.fill(Scales::Bf16, n),
            Layout::F16 => numbers.fill(Scales::F16, n),
            Layout::F32 => numbers.fill(Scales::F32, n),
        }
        numbers
    }

    fn fill(&mut self, kind: Scales, n: usize) {
        let values = values(n);
        match kind {
            Scales::Bf16 => self.bf16 = values.iter().map(|&x| bf16::from_f32(x)).collect(),
            Scales::F16 => self.f16 = values.iter().map(|&x| f16::from_f32(x)).collect(),
            Scales::F32 => self.f32 = values,
        }
    }

    fn matrix(&self, layout: Layout, rows: usize, cols: usize) -> Matrix<'_> {
        let storage = match layout {
            Layout::Affine { bits, group, scales } => {
                let half = match scales {
                    Scales::Bf16 => Half::Bf16(&self.bf16),
                    Scales::F16 => Half::F16(&self.f16),
                    Scales::F32 => Half::F32(&self.f32),
                };
                Storage::Affine(Affine {
                    bits,
                    group,
                    codes: &self.codes,
                    scales: half,
                    biases: half,
                })
            }
            Layout::Bf16 => Storage::Bf16(&self.bf16),
            Layout::F16 => Storage::F16(&self.f16),
            Layout::F32 => Storage::F32(&self.f32),
        };
        Matrix { rows, cols, storage }
    }
}

/// The best of several rounds of `n` calls, per call.
fn best(n: usize, mut call: impl FnMut(usize)) -> Duration {
    let mut best = Duration::MAX;
    let start = Instant::now();
    let mut n_rounds = 0;
    while n_rounds < 3 || (start.elapsed().as_secs_f64() < 1.0 && n_rounds < 100) {
        let start = Instant::now();
        (0..n).for_each(&mut call);
        best = best.min(start.elapsed());
        n_rounds += 1;
    }
    best / u32::try_from(n).expect("a few matrices")
}

fn rate(n_tokens: usize, bytes: usize, weights: usize, time: Duration) -> String {
    if n_tokens <= 8 {
        format!("{:.1} GB/s", bytes as f64 / time.as_secs_f64() / 1e9)
    } else {
        let operations = 2.0 * weights as f64 * n_tokens as f64;
        format!("{:.0} GOP/s", operations / time.as_secs_f64() / 1e9)
    }
}

fn print(name: &str, rates: &[String]) {
    println!("{name:44} {:>20} {:>20}", rates[0], rates[1]);
}

fn product(
    name: &str,
    wanted: impl Fn(&str) -> bool,
    pools: &[Pool],
    layout: Layout,
    (rows, cols): (usize, usize),
    n_tokens: usize,
    precision: Precision,
) {
    if !wanted(name) {
        return;
    }
    let first = Numbers::new(layout, rows * cols);
    let bytes = first.matrix(layout, rows, cols).bytes();
    let mut set = vec![first];
    // Arithmetic hides where the weights come from.
    let n_matrices = if n_tokens > 64 { 1 } else { SET_BYTES.div_ceil(bytes) };
    while set.len() < n_matrices {
        set.push(Numbers::new(layout, rows * cols));
    }
    let mut x = Activations::new(precision);
    x.set(&pools[1], &values(n_tokens * cols), n_tokens, cols);
    let mut out = vec![0.0; n_tokens * rows];
    let rates: Vec<String> = pools
        .iter()
        .map(|pool| {
            let time = best(set.len(), |i| {
                let weight = set[i].matrix(layout, rows, cols);
                matmul(pool, &x, &mut [MatmulJob { weight, out: &mut out, accumulate: false }]);
            });
            rate(n_tokens, bytes, rows * cols, time)
        })
        .collect();
    print(name, &rates);
}

/// One layer of the true model: 450 MB.
fn expert_weights() -> MoeWeights {
    let shape = Shape { n_layers: 1, vocab_size: 64, ..Shape::qwen36_35b() };
    let checkpoint = Checkpoint::random(&shape, RandomQuant { bits: 4, group: 64 }, false, 1);
    checkpoint.weights.layers.into_iter().next().expect("one layer").moe
}

fn experts(pools: &[Pool], weights: &MoeWeights, n_tokens: usize) {
    const TOP_K: usize = 8;
    let n_experts = weights.expert_gate.n_experts();
    // Every token takes eight experts that differ, spread evenly; every call other ones.
    let n_calls = if n_tokens == 1 { n_experts / TOP_K } else { 2 };
    let routes: Vec<Routes> = (0..n_calls)
        .map(|call| {
            let start = words(n_tokens * n_calls);
            let experts = (0..n_tokens).flat_map(|t| {
                let first = if n_tokens == 1 { call } else { start[call * n_tokens + t] as usize };
                (0..TOP_K).map(move |k| (first + k * n_experts / TOP_K) % n_experts)
            });
            Routes {
                n_tokens,
                top_k: TOP_K,
                experts: experts.map(|e| u32::try_from(e).expect("few experts")).collect(),
                weights: vec![0.125; n_tokens * TOP_K],
            }
        })
        .collect();
    let expert = weights.expert_gate.expert(0).bytes()
        + weights.expert_up.expert(0).bytes()
        + weights.expert_down.expert(0).bytes();
    let expert_weights = 3 * weights.expert_gate.rows * HIDDEN;
    let mut x = Activations::new(Precision::Int8);
    x.set(&pools[1], &values(n_tokens * HIDDEN), n_tokens, HIDDEN);
    let mut y = vec![0.0; n_tokens * HIDDEN];
    let shared = vec![0.5; n_tokens];
    let mut scratch = MoeScratch::new(Precision::Int8);
    let rates: Vec<String> = pools
        .iter()
        .map(|pool| {
            let time = best(n_calls, |i| {
                y.fill(0.0);
                moe(pool, weights, &x, &routes[i], &shared, &mut y, &mut scratch);
            });
            let mut used = routes[0].experts.clone();
            used.sort_unstable();
            used.dedup();
            let milliseconds = time.as_secs_f64() * 1e3;
            let bytes = (used.len() + 1) * expert;
            let rate = rate(n_tokens, bytes, (TOP_K + 1) * expert_weights, time);
            format!("{milliseconds:.2} ms {rate}")
        })
        .collect();
    print(&format!("experts, {n_tokens} tokens"), &rates);
}
