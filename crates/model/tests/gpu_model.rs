//! The GPU forward pass in the simulator against the goldens and the CPU.

#![cfg(unix)]

mod support;

use lily_device::Device;
use lily_device::sim::{SimDevice, SimOptions};
use lily_model::gpu::{Activations, GpuModel, GpuOptions};
use lily_model::{Advance, Logits, Model, Rows, SeqState, Step, TokenId};
use std::path::Path;
use std::sync::Arc;
use support::{Goldens, checkpoint, max_difference};

/// What the issue of a GPU is allowed against the CPU with f32 activations: other orders of f32
/// sums in every product, over 8 layers. The largest difference seen is a hundredth of it.
const TOLERANCE: f32 = 1e-3;

const CASES: [(&str, &str); 4] = [
    ("tiny-hf", "goldens-small"),
    ("tiny-heads-hf", "goldens-heads"),
    ("tiny-mlx4", "goldens-small-mlx4"),
    ("tiny-heads-mlx4", "goldens-heads-mlx4"),
];

fn sim() -> Arc<dyn Device> {
    let cache_dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sim-kernels");
    let options = SimOptions { checked: false, seed: 1, ..SimOptions::new(cache_dir) };
    Arc::new(SimDevice::new(options).expect("a C++ compiler is installed"))
}

fn open(name: &str, activations: Activations) -> GpuModel {
    let checkpoint = checkpoint(name);
    let options = GpuOptions { activations, max_batch_tokens: 256 };
    GpuModel::new(sim(), checkpoint.shape, &checkpoint.weights, options).expect("a small model")
}

fn feed(model: &mut GpuModel, state: &mut SeqState, tokens: &[TokenId], rows: Rows) -> Vec<f32> {
    let mut out = Logits { values: vec![f32::NAN; 7], vocab_size: 3 };
    let step = Step { state, tokens, rows, advance: Advance::Commit };
    model.forward(&mut [step], &mut out).expect("it fits");
    out.values
}

fn prompts(prompt: &str, chunk: usize) {
    for (checkpoint, goldens) in CASES {
        let goldens = Goldens::load(goldens);
        let ids = goldens.ids(&format!("{prompt}.ids"));
        let expected = goldens.f32s(&format!("{prompt}.logits"));
        let mut model = open(checkpoint, Activations::F32);
        let mut state = model.new_state(ids.len()).expect("small");
        let mut logits = Vec::new();
        for tokens in ids.chunks(chunk) {
            logits.extend(feed(&mut model, &mut state, tokens, Rows::All));
        }
        assert_eq!(state.len(), ids.len());
        let difference = max_difference(&logits[logits.len() - expected.len()..], &expected);
        println!("{checkpoint} {prompt} in chunks of {chunk}: logits differ by {difference:.1e}");
        assert!(difference <= TOLERANCE, "{checkpoint} {prompt}: differ by {difference:e}");
    }
}

#[test]
fn goldens_token_by_token() {
    prompts("p7", 1);
    prompts("p64", 1);
}

#[test]
fn greedy_on_the_device() {
    for (checkpoint, goldens) in CASES {
        let goldens = Goldens::load(goldens);
        let ids = goldens.ids("p7.ids");
        let expected = goldens.ids("p7.greedy");
        let mut model = open(checkpoint, Activations::F32);
        let mut state = model.new_state(ids.len() + expected.len()).expect("small");
        let (last, before) = ids.split_last().expect("seven tokens");
        feed(&mut model, &mut state, before, Rows::None);
        let chosen = model.decode_greedy(&mut state, *last, expected.len()).expect("it fits");
        assert_eq!(chosen, expected, "{checkpoint}");
        assert_eq!(state.len(), before.len() + expected.len());
    }
}
