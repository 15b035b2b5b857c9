//! The GPU forward pass in the simulator against the goldens and the CPU.

#![cfg(unix)]
#![allow(clippy::print_stdout, reason = "figures for whoever reads the log")]

mod support;

use lily_device::sim::{SimDevice, SimOptions};
use lily_device::{Device, TileBody};
use lily_model::gpu::{Activations, GpuModel, GpuOptions};
use lily_model::{Advance, Logits, Model, ModelError, Rows, SeqState, Step, TokenId};
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

fn sim(tile: TileBody) -> Arc<dyn Device> {
    let cache_dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sim-kernels");
    let options = SimOptions { checked: false, seed: 1, tile, ..SimOptions::new(cache_dir) };
    Arc::new(SimDevice::new(options).expect("a C++ compiler is installed"))
}

fn open(name: &str, activations: Activations) -> GpuModel {
    open_with(name, activations, TileBody::Simdgroup)
}

fn open_with(name: &str, activations: Activations, tile: TileBody) -> GpuModel {
    let checkpoint = checkpoint(name);
    let options = GpuOptions { activations, max_batch_tokens: 256 };
    GpuModel::new(sim(tile), checkpoint.shape, &checkpoint.weights, options).expect("a small model")
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
fn goldens_in_chunks() {
    prompts("p64", 7);
    prompts("p170", 64);
    prompts("p170", 170);
}

/// With Metal 4's tensor operations where they are used.
#[test]
fn goldens_by_tensor_operations() {
    for (checkpoint, goldens) in [CASES[0], CASES[3]] {
        let goldens = Goldens::load(goldens);
        let ids = goldens.ids("p64.ids");
        let expected = goldens.f32s("p64.logits");
        let mut model = open_with(checkpoint, Activations::F32, TileBody::Tensor);
        let mut state = model.new_state(ids.len()).expect("small");
        let logits = feed(&mut model, &mut state, &ids, Rows::All);
        let difference = max_difference(&logits[logits.len() - expected.len()..], &expected);
        println!("{checkpoint} p64 by tensor operations: logits differ by {difference:.1e}");
        assert!(difference <= TOLERANCE, "{checkpoint}: differ by {difference:e}");
    }
}

/// The same words as the CPU's: kept tokens count, the others never happened.
#[test]
fn commit_equals_recompute() {
    for (round, checkpoint) in [(0, "tiny-hf"), (1, "tiny-heads-mlx4"), (2, "tiny-mlx4")] {
        let mut model = open(checkpoint, Activations::F32);
        let ids: Vec<TokenId> = (0..40).map(|i| (i * 37 + round) % 512).collect();
        let (prompt, rest) = ids.split_at(11 + round as usize);
        let draft = &rest[..3 + round as usize];
        for n_kept in 0..=draft.len() {
            let mut state = model.new_state(64).expect("small");
            feed(&mut model, &mut state, prompt, Rows::None);
            let mut tentative = Logits::default();
            let step = Step {
                state: &mut state,
                tokens: draft,
                rows: Rows::All,
                advance: Advance::Tentative,
            };
            model.forward(&mut [step], &mut tentative).expect("it fits");
            assert_eq!(state.len(), prompt.len());
            assert!(model.snapshot(&state).is_err(), "a tentative state refuses to be copied");
            model.commit(&mut state, n_kept).expect("within the step");
            assert_eq!(state.len(), prompt.len() + n_kept);
            let after = feed(&mut model, &mut state, &[7, 9], Rows::All);

            let mut plain = model.new_state(64).expect("small");
            feed(&mut model, &mut plain, prompt, Rows::None);
            for (row, token) in draft.iter().enumerate().take(n_kept) {
                let expected = feed(&mut model, &mut plain, &[*token], Rows::Last);
                assert!(max_difference(tentative.row(row), &expected) <= TOLERANCE);
            }
            let expected = feed(&mut model, &mut plain, &[7, 9], Rows::All);
            let difference = max_difference(&after, &expected);
            assert!(difference <= TOLERANCE, "{checkpoint}, kept {n_kept}: {difference:e}");
        }
    }
}

#[test]
fn restore_equals_recompute() {
    let mut model = open("tiny-heads-mlx4", Activations::F32);
    let mut state = model.new_state(40).expect("small");
    feed(&mut model, &mut state, &[1, 2, 3, 4, 5], Rows::None);
    let snapshot = model.snapshot(&state).expect("committed");
    assert_eq!(snapshot.len(), 5);
    let expected = feed(&mut model, &mut state, &[6, 7, 8], Rows::All);
    feed(&mut model, &mut state, &[100, 101], Rows::None);
    model.restore(&mut state, &snapshot).expect("it fits");
    assert_eq!(state.len(), 5);
    assert_eq!(feed(&mut model, &mut state, &[6, 7, 8], Rows::All), expected);
    // Also into a longer sequence, and not into a shorter one.
    let mut other = model.new_state(80).expect("small");
    model.restore(&mut other, &snapshot).expect("it fits");
    assert_eq!(feed(&mut model, &mut other, &[6, 7, 8], Rows::All), expected);
    let mut short = model.new_state(4).expect("small");
    assert!(model.restore(&mut short, &snapshot).is_err());
}

#[test]
fn three_sequences_together_are_each_alone() {
    let mut model = open("tiny-mlx4", Activations::F32);
    let prompts: [&[TokenId]; 3] = [&[5], &[9, 8, 7, 6], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]];
    let mut states: Vec<SeqState> =
        prompts.iter().map(|_| model.new_state(32).expect("small")).collect();
    let mut out = Logits::default();
    let mut batch: Vec<Step<'_>> = states
        .iter_mut()
        .zip(prompts)
        .map(|(state, tokens)| Step { state, tokens, rows: Rows::Last, advance: Advance::Commit })
        .collect();
    model.forward(&mut batch, &mut out).expect("it fits");
    assert_eq!(out.n_rows(), 3);
    for (row, tokens) in prompts.into_iter().enumerate() {
        let mut alone = model.new_state(32).expect("small");
        let expected = feed(&mut model, &mut alone, tokens, Rows::Last);
        assert!(max_difference(out.row(row), &expected) <= TOLERANCE);
    }
}

/// Against the CPU in f32, with activations and KV rows rounded to bf16: a figure to look at.
#[test]
fn bf16_activations_stay_close() {
    for (checkpoint, goldens) in CASES {
        let goldens = Goldens::load(goldens);
        let ids = goldens.ids("p64.ids");
        let expected = goldens.f32s("p64.logits");
        let mut model = open(checkpoint, Activations::Bf16);
        let mut state = model.new_state(ids.len()).expect("small");
        let logits = feed(&mut model, &mut state, &ids, Rows::All);
        let difference = max_difference(&logits[logits.len() - expected.len()..], &expected);
        println!("{checkpoint} with bf16 activations: logits differ by {difference:.1e}");
        // A near-tied router decision may flip, and then an expert is another one.
        assert!(difference <= 0.25, "{checkpoint}: {difference:e}");
    }
}

/// Memory is counted before it is taken, and the error says what would fit; that much then does.
#[test]
fn too_long_a_context_says_what_would_fit() {
    let cache_dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sim-kernels");
    let options =
        SimOptions { checked: false, memory_bytes: Some(160 << 20), ..SimOptions::new(cache_dir) };
    let device = Arc::new(SimDevice::new(options).expect("a C++ compiler is installed"));
    let checkpoint = checkpoint("tiny-hf");
    let options = GpuOptions { activations: Activations::Bf16, max_batch_tokens: 16 };
    let model = GpuModel::new(device, checkpoint.shape, &checkpoint.weights, options)
        .expect("a small model");
    let error = model.new_state(1 << 20).expect_err("a million tokens");
    let ModelError::OutOfMemory { fits: Some(fits), .. } = error else { panic!("{error}") };
    assert!(error.to_string().contains(&format!("about {fits} would fit")), "{error}");
    // The rotary table is kept in steps of 4096 positions.
    let capacity = fits.saturating_sub(4096);
    assert!((1000..1 << 20).contains(&capacity), "{fits}");
    model.new_state(capacity).expect("what was said to fit");
}

#[test]
fn broken_batches_change_nothing() {
    let mut model = open("tiny-mlx4", Activations::F32);
    let mut state = model.new_state(4).expect("small");
    let mut run = |model: &mut GpuModel, tokens: &[TokenId]| {
        let step = Step { state: &mut state, tokens, rows: Rows::Last, advance: Advance::Commit };
        let result = model.forward(&mut [step], &mut Logits::default());
        (result.map_err(|error| error.to_string()), state.len())
    };
    assert!(run(&mut model, &[]).0.expect_err("empty").contains("at least one token"));
    assert!(run(&mut model, &[999]).0.expect_err("no such token").contains("999"));
    let (result, len) = run(&mut model, &[1; 5]);
    assert!(result.expect_err("too long").contains("capacity of 4"));
    assert_eq!(len, 0);
    assert_eq!(run(&mut model, &[1; 4]), (Ok(()), 4));
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

/// Attention reads few rows in one part and many in several; nobody can tell where that changes
/// (at 768).
#[test]
fn short_and_long_attention_meet() {
    let mut model = open("tiny-heads-mlx4", Activations::F32);
    let ids: Vec<TokenId> = (0..780).map(|i| (i * 131 + i * i % 77) % 512).collect();
    let (before, rest) = ids.split_at(763);
    let mut state = model.new_state(800).expect("small");
    for tokens in before.chunks(256) {
        feed(&mut model, &mut state, tokens, Rows::None);
    }
    let snapshot = model.snapshot(&state).expect("committed");
    let together = feed(&mut model, &mut state, rest, Rows::All);
    let vocab_size = model.shape().vocab_size;

    model.restore(&mut state, &snapshot).expect("it fits");
    let singly: Vec<f32> =
        rest.iter().flat_map(|id| feed(&mut model, &mut state, &[*id], Rows::Last)).collect();
    let difference = max_difference(&singly, &together);
    assert!(difference <= TOLERANCE, "one by one: {difference:e}");

    model.restore(&mut state, &snapshot).expect("it fits");
    let few = feed(&mut model, &mut state, &rest[..8], Rows::All);
    let difference = max_difference(&few, &together[..8 * vocab_size]);
    assert!(difference <= TOLERANCE, "eight at once: {difference:e}");

    model.restore(&mut state, &snapshot).expect("it fits");
    let chosen = model.decode_greedy(&mut state, rest[0], 12).expect("it fits");
    model.restore(&mut state, &snapshot).expect("it fits");
    let mut token = rest[0];
    for expected in chosen {
        let logits = feed(&mut model, &mut state, &[token], Rows::Last);
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        assert!(best - logits[expected as usize] <= TOLERANCE, "the host chooses otherwise");
        token = expected;
    }
}
