//! The next token on the device.

use super::support::{Case, Check, Cx};
use crate::gpu::Activations;
use crate::gpu::ops::{self, NextToken};
use lily_device::{Commands, DeviceError};
use lily_weights::Shape;

pub(super) const CHECKS: &[Check] = &[Check { name: "next_token", run: next_token }];

fn next_token(cx: &mut Cx) -> Result<Case, DeviceError> {
    let vocab_size = cx.rng.pick(&[1, 31, 512, 5000, 40_000]);
    let mut logits = cx.rng.floats(vocab_size, 10.0);
    let kind = cx.rng.range(0, 3);
    match kind {
        // Ties everywhere.
        1 => logits.iter_mut().for_each(|x| *x = x.round()),
        2 => logits.fill(f32::NAN),
        3 => logits.iter_mut().step_by(3).for_each(|x| *x = f32::NEG_INFINITY),
        _ => {}
    }
    let mut expected = 0;
    let mut top = f32::NEG_INFINITY;
    for (id, &logit) in (0..).zip(&logits) {
        if logit > top {
            (expected, top) = (id, logit);
        }
    }
    let len = u32::try_from(cx.rng.range(0, 100)).expect("small");
    let history = 16;
    let logits_slice = cx.floats(&logits, "logits")?;
    let scratch = cx.poisoned(ops::scratch_bytes(), "scratch")?;
    let ids = cx.words(&[77], "ids")?;
    let seq = cx.words(&[len, 0, 0, 0], "seq")?;
    let noted = cx.words(&[88; 16], "noted")?;
    let shape = Shape { vocab_size, ..Shape::qwen36_35b() };
    let kernels = cx.kernels(&shape, Activations::F32);
    let mut commands = Commands::new();
    let step =
        NextToken { logits: &logits_slice, scratch: &scratch, ids: &ids, seq: &seq, noted: &noted };
    ops::next_token(&kernels, &mut commands, step)?;
    ops::advance(&kernels, &mut commands, 5, &seq)?;
    cx.run(&commands)?;
    let mut expected_noted = [88; 16];
    expected_noted[((len + 1) % history) as usize] = expected;
    let right = cx.read_words(&ids)? == [expected]
        && cx.read_words(&seq)? == [len + 6, 0, 0, 0]
        && cx.read_words(&noted)? == expected_noted;
    let what = format!("{vocab_size} logits of kind {kind}");
    Ok(Case { what, error: f64::from(u8::from(!right)), tolerance: 0.0 })
}
