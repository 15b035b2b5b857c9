//! Sequence state: commit, snapshot, restore, batches and errors.

mod support;

use lily_model::{
    Advance, CpuModel, CpuOptions, Logits, Model, ModelError, Precision, Rows, SeqState, Step,
    TokenId,
};
use proptest::prelude::*;
use support::{max_difference, open, open_with};

/// Another grouping of the same f32 sums (chunked or stepwise delta rule, tiles of attention).
const TOLERANCE: f32 = 2e-4;

fn run(model: &mut CpuModel, state: &mut SeqState, tokens: &[TokenId]) -> Vec<f32> {
    let mut out = Logits::default();
    let step = Step { state, tokens, rows: Rows::Last, advance: Advance::Commit };
    model.forward(&mut [step], &mut out).expect("it fits");
    out.values
}

fn ids(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<TokenId>> {
    prop::collection::vec(0_u32..512, len)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// `commit(k)` leaves the state as if only the first k tokens had been fed.
    #[test]
    fn commit_equals_recompute(
        prompt in ids(1..40),
        draft in ids(1..9),
        kept in 0_usize..9,
        next in ids(1..3),
        heads in any::<bool>(),
    ) {
        let n_kept = kept.min(draft.len());
        let mut model = open(if heads { "tiny-heads-mlx4" } else { "tiny-hf" });
        let capacity = prompt.len() + draft.len() + next.len();
        let mut state = model.new_state(capacity).expect("small");
        run(&mut model, &mut state, &prompt);
        let mut tentative = Logits::default();
        let step = Step {
            state: &mut state,
            tokens: &draft,
            rows: Rows::All,
            advance: Advance::Tentative,
        };
        model.forward(&mut [step], &mut tentative).expect("it fits");
        prop_assert_eq!(tentative.n_rows(), draft.len());
        model.commit(&mut state, n_kept).expect("within the step");
        prop_assert_eq!(state.len(), prompt.len() + n_kept);
        let after = run(&mut model, &mut state, &next);

        let mut plain = model.new_state(capacity).expect("small");
        run(&mut model, &mut plain, &prompt);
        for (row, token) in draft.iter().enumerate().take(n_kept) {
            let expected = run(&mut model, &mut plain, &[*token]);
            prop_assert!(max_difference(tentative.row(row), &expected) <= TOLERANCE);
        }
        let expected = run(&mut model, &mut plain, &next);
        prop_assert!(max_difference(&after, &expected) <= TOLERANCE);
    }

    /// A restored sequence continues as the original did.
    #[test]
    fn restore_equals_recompute(
        prompt in ids(1..70),
        detour in ids(1..20),
        next in ids(1..4),
    ) {
        let mut model = open("tiny-mlx4");
        let mut state = model.new_state(100).expect("small");
        run(&mut model, &mut state, &prompt);
        let snapshot = model.snapshot(&state).expect("committed");
        let expected = run(&mut model, &mut state, &next);
        run(&mut model, &mut state, &detour);
        model.restore(&mut state, &snapshot).expect("it fits");
        prop_assert_eq!(state.len(), prompt.len());
        prop_assert_eq!(&run(&mut model, &mut state, &next), &expected);
        // Also into a fresh sequence of another capacity, which then grows past the old one's.
        let mut other = model.new_state(120).expect("small");
        model.restore(&mut other, &snapshot).expect("it fits");
        prop_assert_eq!(&run(&mut model, &mut other, &next), &expected);
        let rest = vec![1; 120 - other.len()];
        run(&mut model, &mut other, &rest);
    }

    /// Prompts in one batch get what each gets alone.
    #[test]
    fn batch_equals_singles(prompts in prop::collection::vec(ids(1..30), 1..5)) {
        let mut model = open("tiny-heads-mlx4");
        let mut states: Vec<_> =
            prompts.iter().map(|_| model.new_state(64).expect("small")).collect();
        let out = run_batch(&mut model, &mut states, &prompts);
        for (row, prompt) in prompts.iter().enumerate() {
            let mut alone = model.new_state(64).expect("small");
            let expected = run(&mut model, &mut alone, prompt);
            prop_assert!(max_difference(out.row(row), &expected) <= TOLERANCE);
        }
    }

    /// With 8-bit activations a rounding difference could flip a code, so decoding together is
    /// exactly decoding alone, up to the batch that is multiplied row by row.
    #[test]
    fn decoding_together_is_decoding_alone(
        prompts in prop::collection::vec(ids(1..30), 1..9),
        next in ids(8..9),
        n_threads in 1_usize..4,
    ) {
        let options = CpuOptions { n_threads, precision: Precision::Int8, max_batch_tokens: 256 };
        let mut model = open_with("tiny-heads-mlx4", options);
        let mut states: Vec<_> =
            prompts.iter().map(|_| model.new_state(64).expect("small")).collect();
        let mut expected = Vec::new();
        for ((state, prompt), token) in states.iter_mut().zip(&prompts).zip(&next) {
            run(&mut model, state, prompt);
            let before = model.snapshot(state).expect("committed");
            expected.push(run(&mut model, state, &[*token]));
            model.restore(state, &before).expect("it fits");
        }
        let next: Vec<Vec<TokenId>> =
            next.iter().take(prompts.len()).map(|token| vec![*token]).collect();
        let out = run_batch(&mut model, &mut states, &next);
        for (row, expected) in expected.iter().enumerate() {
            prop_assert_eq!(out.row(row), &expected[..]);
        }
    }
}

fn run_batch(model: &mut CpuModel, states: &mut [SeqState], tokens: &[Vec<TokenId>]) -> Logits {
    let mut out = Logits::default();
    let mut batch: Vec<_> = states
        .iter_mut()
        .zip(tokens)
        .map(|(state, tokens)| Step { state, tokens, rows: Rows::Last, advance: Advance::Commit })
        .collect();
    model.forward(&mut batch, &mut out).expect("it fits");
    out
}

#[test]
fn errors_change_nothing() {
    let mut model = open("tiny-mlx4");
    let mut state = model.new_state(4).expect("small");
    let mut out = Logits::default();
    let mut forward = |model: &mut CpuModel, state: &mut SeqState, tokens: &[TokenId], advance| {
        model.forward(&mut [Step { state, tokens, rows: Rows::Last, advance }], &mut out)
    };
    let commit = Advance::Commit;
    assert!(matches!(forward(&mut model, &mut state, &[], commit), Err(ModelError::EmptyStep)));
    assert!(matches!(
        forward(&mut model, &mut state, &[1, 512], commit),
        Err(ModelError::TokenOutOfRange { id: 512, vocab_size: 512 })
    ));
    assert!(matches!(
        forward(&mut model, &mut state, &[1; 5], commit),
        Err(ModelError::ContextFull { len: 0, added: 5, capacity: 4 })
    ));
    assert!(matches!(
        forward(&mut model, &mut state, &[1; 257], commit),
        Err(ModelError::BatchTooLarge { n_tokens: 257, max: 256 })
    ));
    let mut foreign = open("tiny-heads-mlx4").new_state(4).expect("small");
    assert!(matches!(
        forward(&mut model, &mut foreign, &[1], commit),
        Err(ModelError::ForeignState)
    ));
    assert!(matches!(
        forward(&mut model, &mut SeqState::scripted(0), &[1], commit),
        Err(ModelError::ForeignState)
    ));
    assert_eq!(state.len(), 0);

    forward(&mut model, &mut state, &[1, 2], Advance::Tentative).expect("it fits");
    assert_eq!(state.len(), 0);
    assert!(matches!(
        forward(&mut model, &mut state, &[1], commit),
        Err(ModelError::Uncommitted { n_tentative: 2 })
    ));
    assert!(matches!(model.snapshot(&state), Err(ModelError::Uncommitted { .. })));
    assert!(matches!(
        model.commit(&mut state, 3),
        Err(ModelError::CommitOutOfRange { n_kept: 3, n_tentative: 2 })
    ));
    model.commit(&mut state, 2).expect("within the step");
    assert_eq!(state.len(), 2);
    forward(&mut model, &mut state, &[1, 2], commit).expect("exactly full");
    assert!(matches!(
        forward(&mut model, &mut state, &[1], commit),
        Err(ModelError::ContextFull { len: 4, added: 1, capacity: 4 })
    ));
}

#[test]
fn a_state_of_absurd_capacity_is_refused() {
    let model = open("tiny-hf");
    assert!(matches!(model.new_state(usize::MAX), Err(ModelError::OutOfMemory { .. })));
}
