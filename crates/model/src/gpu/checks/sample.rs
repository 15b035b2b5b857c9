//! Sampling on the device, against sorting.

use super::support::{Case, Check, Cx};
use crate::DeviceSampling;
use crate::gpu::Activations;
use crate::gpu::ops::{self, Sample};
use lily_device::{Commands, DeviceError};
use lily_weights::Shape;

pub(super) const CHECKS: &[Check] = &[Check { name: "sample", run: sample }];

/// Candidates best first (equal logits: the lower id) with their probabilities relative to the
/// best, after all filters.
fn candidates(logits: &[f32], rules: &DeviceSampling) -> Vec<(u32, f64)> {
    let mut all: Vec<(u32, f32)> = (0..)
        .zip(logits[..rules.vocab_size].iter().copied())
        .filter(|(_, logit)| *logit > f32::NEG_INFINITY)
        .collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all.truncate(rules.top_k);
    let top = all.first().map_or(0.0, |(_, logit)| f64::from(*logit));
    let mut kept: Vec<(u32, f64)> = all
        .iter()
        .map(|(id, logit)| (*id, ((f64::from(*logit) - top) / f64::from(rules.temperature)).exp()))
        .collect();
    let total: f64 = kept.iter().map(|(_, w)| w).sum();
    let mut sum = 0.0;
    let n = kept.iter().take_while(|(_, w)| {
        let more = sum < f64::from(rules.top_p) * total;
        sum += w;
        more
    });
    let n = if rules.top_p < 1.0 { n.count() } else { kept.len() };
    kept.truncate(n);
    kept.retain(|(_, w)| *w >= f64::from(rules.min_p));
    kept
}

fn sample(cx: &mut Cx) -> Result<Case, DeviceError> {
    let vocab_size = cx.rng.pick(&[40, 512, 5000, 40_000]);
    let rules = DeviceSampling {
        temperature: cx.rng.pick(&[0.3, 0.7, 1.0, 2.0]),
        top_k: cx.rng.pick(&[1, 2, 20, 32]),
        top_p: cx.rng.pick(&[1.0, 0.95, 0.5]),
        min_p: cx.rng.pick(&[0.0, 0.05]),
        vocab_size: vocab_size - cx.rng.range(0, 30),
    };
    let mut logits = cx.rng.floats(vocab_size, 8.0);
    let kind = cx.rng.range(0, 4);
    match kind {
        // Ties everywhere; few numbers; padding rows that are the largest; no numbers.
        1 => logits.iter_mut().for_each(|x| *x = x.round()),
        2 => logits.iter_mut().skip(7).for_each(|x| *x = f32::NEG_INFINITY),
        3 => logits[rules.vocab_size..].fill(99.0),
        4 => logits[3] = cx.rng.pick(&[f32::NAN, f32::INFINITY]),
        _ => {}
    }
    let kept = candidates(&logits, &rules);
    let history = 16;
    let len = cx.rng.range(0, 100);
    let at = (len + 1) % history;
    let draw = f32::midpoint(cx.rng.float(), 1.0);
    let mut draws = vec![0.9_f32; history];
    draws[at] = draw;
    let slices = [
        cx.floats(&logits, "logits")?,
        cx.poisoned(ops::sample_bytes(), "scratch")?,
        cx.floats(&draws, "draws")?,
        cx.words(&[77], "ids")?,
        cx.words(&[u32::try_from(len).expect("small"), 0, 0, 0], "seq")?,
        cx.words(&[88; 16], "noted")?,
    ];
    let [logits_slice, scratch, draws, ids, seq, noted] = &slices;
    let shape = Shape { vocab_size, ..Shape::qwen36_35b() };
    let kernels = cx.kernels(&shape, Activations::F32);
    let mut commands = Commands::new();
    let step = Sample { logits: logits_slice, scratch, draws, ids, seq, noted };
    ops::sample(&kernels, &mut commands, &rules, step)?;
    cx.run(&commands)?;
    let token = cx.read_words(noted)?[at];
    let fed = cx.read_words(ids)?[0];
    let what = format!("{rules:?}, kind {kind}, draw {draw}");

    let bad = u32::try_from(vocab_size).expect("small");
    let mut right = cx.read_words(seq)?[0] as usize == len + 1;
    right &= fed == if token == bad { 0 } else { token };
    if kind == 4 {
        right &= token == bad;
        return Ok(Case { what, error: f64::from(u8::from(!right)), tolerance: 0.0 });
    }
    // Where the draw falls into the summed probabilities, and how far it is from the token's part.
    let total: f64 = kept.iter().map(|(_, w)| w).sum();
    let mut before = 0.0;
    let mut distance = f64::INFINITY;
    for (id, weight) in &kept {
        let (low, high) = (before / total, (before + weight) / total);
        before += weight;
        if *id == token {
            let draw = f64::from(draw);
            distance = (low - draw).max(draw - high).max(0.0);
        }
    }
    // 32 sums in f32, and an exponential of a few roundings.
    let error = if right { distance } else { f64::INFINITY };
    Ok(Case { what, error, tolerance: 64.0 * 2.0_f64.powi(-24) })
}
