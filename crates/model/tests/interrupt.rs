//! Passes that are given up in the middle.

mod support;

use lily_model::{Advance, CpuModel, Logits, Model, ModelError, Rows, SeqState, Step, TokenId};
use std::cell::Cell;
use support::open;

fn step<'a>(state: &'a mut SeqState, tokens: &'a [TokenId], advance: Advance) -> Step<'a> {
    Step { state, tokens, rows: Rows::Last, advance }
}

fn run(model: &mut CpuModel, state: &mut SeqState, tokens: &[TokenId]) -> Vec<f32> {
    let mut out = Logits::default();
    model.forward(&mut [step(state, tokens, Advance::Commit)], &mut out).expect("it fits");
    out.values
}

/// Wherever it is given up, the pass can be repeated as if it had never begun: with other tokens,
/// alone, tentatively.
#[test]
fn nothing_is_changed_by_a_pass_that_is_given_up() {
    for name in ["tiny-hf", "tiny-mlx4", "tiny-heads-mlx4"] {
        let mut model = open(name);
        let n_checks = 2 * model.shape().n_layers;
        let (first, chunk, other): (Vec<_>, Vec<_>, Vec<_>) =
            ((1..20).collect(), (30..70).collect(), vec![7, 8, 9]);
        let fresh = |model: &mut CpuModel| {
            let mut state = model.new_state(200).expect("small");
            run(model, &mut state, &first);
            state
        };
        let mut plain = fresh(&mut model);
        let expected = run(&mut model, &mut plain, &other);
        let expected_after = run(&mut model, &mut plain, &chunk);
        for give_up_at in 0..=n_checks {
            let (mut one, mut two) = (fresh(&mut model), fresh(&mut model));
            let n_asked = Cell::new(0);
            let interrupt = || n_asked.replace(n_asked.get() + 1) == give_up_at;
            let mut out = Logits::default();
            let mut batch = [
                step(&mut one, &chunk, Advance::Commit),
                step(&mut two, &[3, 4], Advance::Tentative),
            ];
            let result = model.forward_interruptible(&mut batch, &mut out, &interrupt);
            if give_up_at == n_checks {
                assert!(result.is_ok(), "{name}: it is asked for twice a layer");
                assert_eq!(one.len(), first.len() + chunk.len());
                continue;
            }
            assert!(matches!(result, Err(ModelError::Interrupted)), "{name}: {result:?}");
            for state in [&mut one, &mut two] {
                assert_eq!(state.len(), first.len());
                assert_eq!(run(&mut model, state, &other), expected, "{name}, at {give_up_at}");
                assert_eq!(run(&mut model, state, &chunk), expected_after);
            }
        }
    }
}
