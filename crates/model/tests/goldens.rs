//! The forward pass against vectors of independent implementations: transformers in f32 for the
//! bf16 checkpoints, a float64 oracle on the dequantised weights for the MLX ones.

mod support;

use lily_model::{Advance, CpuModel, Logits, Model, Rows, SeqState, Step, Tap, TokenId};
use support::{Goldens, argmax, max_difference, open};

/// f32 rounding over 8 layers: the reference engines themselves differ by up to 8e-6 from float64
/// on these checkpoints; 2e-4 leaves room for another summation order and for nothing else. A
/// wrong formula moves logits by 1e-2 and more.
const TOLERANCE_F32: f32 = 2e-4;
/// The quantised weights are exact in f32 only up to the rounding of `scale * code + bias`.
const TOLERANCE_MLX: f32 = 5e-4;

const CASES: [(&str, &str, f32); 4] = [
    ("tiny-hf", "goldens-small", TOLERANCE_F32),
    ("tiny-heads-hf", "goldens-heads", TOLERANCE_F32),
    ("tiny-mlx4", "goldens-small-mlx4", TOLERANCE_MLX),
    ("tiny-heads-mlx4", "goldens-heads-mlx4", TOLERANCE_MLX),
];

/// Feeds `ids` in chunks and returns the logits of every position.
fn prefill(model: &mut CpuModel, state: &mut SeqState, ids: &[TokenId], chunk: usize) -> Vec<f32> {
    let mut all = Vec::new();
    for tokens in ids.chunks(chunk) {
        let mut out = Logits { values: vec![f32::NAN; 7], vocab_size: 3 };
        let step = Step { state: &mut *state, tokens, rows: Rows::All, advance: Advance::Commit };
        model.forward(&mut [step], &mut out).expect("the prompt fits");
        all.extend_from_slice(&out.values);
    }
    all
}

fn check_prompts(chunk_len: impl Fn(usize) -> usize) {
    for (checkpoint, goldens, tolerance) in CASES {
        let goldens = Goldens::load(goldens);
        let mut model = open(checkpoint);
        let vocab_size = model.shape().vocab_size;
        for prompt in ["p7", "p64", "p170"] {
            let ids = goldens.ids(&format!("{prompt}.ids"));
            let expected = goldens.f32s(&format!("{prompt}.logits"));
            let mut state = model.new_state(ids.len()).expect("a small state");
            let logits = prefill(&mut model, &mut state, &ids, chunk_len(ids.len()));
            assert_eq!(state.len(), ids.len());
            assert_eq!(logits.len(), ids.len() * vocab_size);
            let difference = max_difference(&logits[logits.len() - expected.len()..], &expected);
            assert!(
                difference <= tolerance,
                "{checkpoint} {prompt}: logits differ by {difference:e}, more than {tolerance:e}"
            );
        }
    }
}

#[test]
fn prompts_in_one_piece() {
    check_prompts(|len| len);
}

#[test]
fn prompts_token_by_token() {
    check_prompts(|_| 1);
}

#[test]
fn prompts_in_chunks_of_7() {
    check_prompts(|_| 7);
}

#[test]
fn prompts_in_chunks_of_64() {
    check_prompts(|_| 64);
}

#[test]
fn greedy_continuations() {
    for (checkpoint, goldens, _) in CASES {
        let goldens = Goldens::load(goldens);
        let mut model = open(checkpoint);
        for prompt in ["p7", "p170"] {
            let mut tokens = goldens.ids(&format!("{prompt}.ids"));
            let expected = goldens.ids(&format!("{prompt}.greedy"));
            let mut state = model.new_state(tokens.len() + expected.len()).expect("a small state");
            let mut generated = Vec::new();
            let mut out = Logits::default();
            for _ in 0..expected.len() {
                let step = Step {
                    state: &mut state,
                    tokens: &tokens,
                    rows: Rows::Last,
                    advance: Advance::Commit,
                };
                model.forward(&mut [step], &mut out).expect("the answer fits");
                assert_eq!(out.n_rows(), 1);
                generated.push(argmax(out.row(0)));
                tokens = vec![*generated.last().expect("one token")];
            }
            assert_eq!(generated, expected, "{checkpoint} {prompt}");
        }
    }
}

#[test]
fn layer_inputs() {
    for (checkpoint, goldens, tolerance) in &CASES[..2] {
        let goldens = Goldens::load(goldens);
        let ids = goldens.ids("p64.ids");
        let expected = goldens.f32s("p64.layers");
        let mut model = open(checkpoint);
        let (n_layers, hidden) = (model.shape().n_layers, model.shape().hidden);
        let mut state = model.new_state(ids.len()).expect("a small state");
        let step =
            Step { state: &mut state, tokens: &ids, rows: Rows::None, advance: Advance::Commit };
        let mut checked = 0;
        let mut tap = |tap: Tap, x: &[f32]| {
            // The goldens hold every layer's input and, last, the final-normed hidden state.
            let idx = match tap {
                Tap::LayerInput(idx) if idx == n_layers => return,
                Tap::LayerInput(idx) => idx,
                Tap::FinalNorm => n_layers,
            };
            let size = ids.len() * hidden;
            let difference = max_difference(x, &expected[idx * size..(idx + 1) * size]);
            assert!(difference <= *tolerance, "{checkpoint} {tap:?}: differs by {difference:e}");
            checked += 1;
        };
        model.forward_tapped(&mut [step], &mut Logits::default(), &mut tap).expect("it fits");
        assert_eq!(checked, n_layers + 1);
    }
}

#[test]
fn mtp_head() {
    for (checkpoint, goldens, tolerance) in CASES {
        let goldens = Goldens::load(goldens);
        let mut model = open(checkpoint);
        let hidden_width = model.shape().hidden;
        for prompt in ["p7", "p170"] {
            let ids = goldens.ids(&format!("{prompt}.ids"));
            let expected = goldens.f32s(&format!("{prompt}.mtp_logits"));
            let mut state = model.new_state(ids.len()).expect("a small state");
            let mut hidden = Vec::new();
            let mut out = Logits::default();
            let step = Step {
                state: &mut state,
                tokens: &ids,
                rows: Rows::Last,
                advance: Advance::Commit,
            };
            let mut tap = |tap: Tap, x: &[f32]| {
                if tap == Tap::FinalNorm {
                    hidden = x.to_vec();
                }
            };
            model.forward_tapped(&mut [step], &mut out, &mut tap).expect("it fits");
            let first = argmax(out.row(0));
            assert_eq!(vec![first], goldens.ids(&format!("{prompt}.mtp_first")));

            let mut next_ids = ids[1..].to_vec();
            next_ids.push(first);
            let mut mtp_state = model.new_mtp_state(ids.len() + 8);
            let mut feedback = Vec::new();
            let mut drafts = Vec::new();
            for depth in 0..4 {
                model
                    .mtp(&hidden, &next_ids, &mut mtp_state, &mut out, &mut feedback)
                    .expect("the checkpoint has an MTP head");
                if depth == 0 {
                    let logits = &out.values[out.values.len() - expected.len()..];
                    let difference = max_difference(logits, &expected);
                    assert!(
                        difference <= tolerance,
                        "{checkpoint} {prompt}: MTP logits differ by {difference:e}"
                    );
                }
                drafts.push(argmax(out.row(out.n_rows() - 1)));
                hidden = feedback[feedback.len() - hidden_width..].to_vec();
                next_ids = vec![*drafts.last().expect("one draft")];
            }
            assert_eq!(drafts, goldens.ids(&format!("{prompt}.mtp_draft")), "{checkpoint}");
        }
    }
}
