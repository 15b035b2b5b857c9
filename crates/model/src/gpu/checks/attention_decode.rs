//! Attention of one token, against plain softmax attention.

use super::support::{Case, Check, Cx, max_error};
use crate::gpu::Activations;
use crate::gpu::ops::{self, AttentionDecode, HeadNorms, KvRows};
use lily_device::{Commands, DeviceError};
use lily_weights::Shape;

pub(super) const CHECKS: &[Check] = &[Check { name: "attention_decode", run: attention }];

/// q or k of one head: norm, then rotation, in f64.
pub(super) fn norm_rope(shape: &Shape, x: &[f32], gain: &[f32], turn: &[f32]) -> Vec<f64> {
    let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64;
    let factor = (mean + f64::from(shape.rms_eps)).sqrt().recip();
    let mut y: Vec<f64> =
        x.iter().zip(gain).map(|(x, gain)| f64::from(*x) * factor * f64::from(*gain)).collect();
    let half = shape.rotary_dim / 2;
    for j in 0..half {
        let (cos, sin) = (f64::from(turn[j]), f64::from(turn[half + j]));
        let (first, second) = (y[j], y[half + j]);
        y[j] = first * cos - second * sin;
        y[half + j] = second * cos + first * sin;
    }
    y
}

/// What one case is made of.
struct Problem {
    shape: Shape,
    acts: Activations,
    position: usize,
    /// Tokens of the step before this one.
    offset: usize,
    capacity: usize,
    scale: f32,
    qg: Vec<f32>,
    k: Vec<f32>,
    /// As the cache will hold it.
    v: Vec<f32>,
    q_gain: Vec<f32>,
    k_gain: Vec<f32>,
    turns: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl Problem {
    fn draw(cx: &mut Cx) -> Self {
        let n_kv_heads = cx.rng.range(1, 3);
        let head_dim = cx.rng.pick(&[32, 64, 256]);
        let shape = Shape {
            n_kv_heads,
            n_heads: n_kv_heads * cx.rng.pick(&[1, 2, 3, 4, 8]),
            head_dim,
            rotary_dim: cx.rng.pick(&[8, head_dim / 4, head_dim / 2]),
            ..Shape::qwen36_35b()
        };
        let position = cx.rng.pick(&[0, 1, 3, 15, 16, 17, 63, 64, 200, 1100]);
        let capacity = position + cx.rng.range(1, 5);
        // Scores of up to 300 overflow without the running maximum.
        let scale = cx.rng.pick(&[1.0, 1.0, 20.0]);
        let kv_width = n_kv_heads * head_dim;
        let mut turns: Vec<f32> = Vec::new();
        for _ in 0..=position {
            let angles: Vec<f32> = cx.rng.floats(shape.rotary_dim / 2, 3.0);
            turns.extend(angles.iter().map(|a| a.cos()).chain(angles.iter().map(|a| a.sin())));
        }
        Self {
            acts: cx.rng.pick(&[Activations::F32, Activations::Bf16]),
            qg: cx.rng.floats(shape.n_heads * 2 * head_dim, 1.0),
            k: cx.rng.floats(kv_width, 1.0),
            v: cx.rng.floats(kv_width, 1.0),
            q_gain: cx.rng.floats(head_dim, scale),
            k_gain: cx.rng.floats(head_dim, 1.0),
            turns,
            keys: cx.rng.floats(capacity * kv_width, 1.0),
            values: cx.rng.floats(capacity * kv_width, 1.0),
            shape,
            offset: cx.rng.range(0, position.min(7)),
            position,
            capacity,
            scale,
        }
    }

    fn turn(&self) -> &[f32] {
        &self.turns[self.position * self.shape.rotary_dim..]
    }

    /// The new key row of one KV head, as the cache holds it.
    fn new_k(&self, cx: &Cx, kv: usize) -> Result<Vec<f32>, DeviceError> {
        let dim = self.shape.head_dim;
        let k = norm_rope(&self.shape, &self.k[kv * dim..][..dim], &self.k_gain, self.turn());
        #[expect(clippy::cast_possible_truncation, reason = "the cache holds f32 at most")]
        let mut k: Vec<f32> = k.iter().map(|k| *k as f32).collect();
        cx.acts(&mut k, self.acts, "rounding")?;
        Ok(k)
    }

    /// `[n_heads, head_dim]`
    fn expected(&self, cx: &Cx) -> Result<Vec<f64>, DeviceError> {
        let (shape, position) = (&self.shape, self.position);
        let dim = shape.head_dim;
        let mut expected = Vec::new();
        for head in 0..shape.n_heads {
            let kv = head / (shape.n_heads / shape.n_kv_heads);
            let new_k = self.new_k(cx, kv)?;
            let q = norm_rope(shape, &self.qg[head * 2 * dim..][..dim], &self.q_gain, self.turn());
            let row = |rows: &[f32], new: &[f32], i: usize| -> Vec<f64> {
                let old = &rows[(kv * self.capacity + i) * dim..][..dim];
                let row = if i < position { old } else { new };
                row.iter().map(|x| f64::from(*x)).collect()
            };
            let scores: Vec<f64> = (0..=position)
                .map(|i| {
                    let k = row(&self.keys, &new_k, i);
                    q.iter().zip(&k).map(|(q, k)| q * k).sum::<f64>() / (dim as f64).sqrt()
                })
                .collect();
            let top = scores.iter().fold(f64::NEG_INFINITY, |top, s| top.max(*s));
            let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let mut o = vec![0.0; dim];
            for (i, weight) in weights.iter().enumerate() {
                let v = row(&self.values, &self.v[kv * dim..][..dim], i);
                for (o, v) in o.iter_mut().zip(&v) {
                    *o += weight / sum * v;
                }
            }
            let gates = &self.qg[(head * 2 + 1) * dim..][..dim];
            expected.extend(o.iter().zip(gates).map(|(o, g)| o / (1.0 + f64::from(-g).exp())));
        }
        Ok(expected)
    }

    /// A score is off by a few roundings of its size (up to 16 * scale); a weight is off by that
    /// factor, and so is the output, which is of order one and a sum of its own. A key that rounds the other way moves
    /// one score by half an activation.
    fn tolerance(&self) -> f64 {
        let scale = f64::from(self.scale);
        let score_error = 16.0 * scale * 4.0 * 2.0_f64.powi(-24);
        let flip = match self.acts {
            Activations::F32 => 0.0,
            Activations::Bf16 => scale * self.acts.rounding() * 0.5,
        };
        2.0 * (score_error + flip) + 1e-6
    }
}

fn attention(cx: &mut Cx) -> Result<Case, DeviceError> {
    let mut p = Problem::draw(cx);
    let (shape, acts, capacity) = (p.shape.clone(), p.acts, p.capacity);
    let dim = shape.head_dim;
    let cache = KvRows {
        k: cx.acts(&mut p.keys, acts, "keys")?,
        v: cx.acts(&mut p.values, acts, "values")?,
        capacity,
    };
    let norms =
        HeadNorms { q: cx.floats(&p.q_gain, "q gain")?, k: cx.floats(&p.k_gain, "k gain")? };
    let slices = [
        cx.floats(&p.qg, "qg")?,
        cx.floats(&p.k, "k")?,
        cx.floats(&p.v, "v")?,
        cx.floats(&p.turns, "rope")?,
        cx.words(&[u32::try_from(p.position - p.offset).expect("small"), 0, 0, 0], "seq")?,
        cx.poisoned(ops::parts_floats(&shape) * 4, "parts")?,
        cx.poisoned(shape.n_heads * dim * 4, "out")?,
    ];
    let [qg, k, v, rope, seq, parts, out] = &slices;
    let kernels = cx.kernels(&shape, acts);
    let mut commands = Commands::new();
    // Both are right at any position.
    let cut = ops::AttentionCut::of(cx.rng.pick(&[0, usize::MAX]));
    let step = AttentionDecode { qg, k, v, rope, seq, offset: p.offset, cut, parts, out };
    ops::attention_decode(&kernels, &mut commands, &shape, step, &norms, &cache)?;
    cx.run(&commands)?;

    cx.acts(&mut p.v, acts, "rounding")?;
    let mut error = max_error(&cx.read_floats(out)?, &p.expected(cx)?);
    // The new rows are in the cache and no other row has changed.
    let (keys_now, values_now) = (cx.read_acts(&cache.k, acts)?, cx.read_acts(&cache.v, acts)?);
    let mut expected_values = p.values.clone();
    let mut expected_keys = p.keys.clone();
    for kv in 0..shape.n_kv_heads {
        let at = (kv * capacity + p.position) * dim;
        expected_values[at..at + dim].copy_from_slice(&p.v[kv * dim..][..dim]);
        let new_k = p.new_k(cx, kv)?;
        let wide: Vec<f64> = new_k.iter().map(|k| f64::from(*k)).collect();
        // Norm and rotation in f32 may round to a neighbouring value, and gains reach 1.
        let size = wide.iter().fold(1.0_f64, |max, k| max.max(k.abs()));
        let new_error = max_error(&keys_now[at..at + dim], &wide);
        if new_error > size * (2.0 * acts.rounding() + 1e-6) {
            error = f64::INFINITY;
        }
        expected_keys[at..at + dim].copy_from_slice(&keys_now[at..at + dim]);
    }
    if keys_now != expected_keys || values_now != expected_values {
        error = f64::INFINITY;
    }
    let what = format!(
        "position {}, {} heads on {} of {dim}, {acts:?}, scale {}, {cut:?}",
        p.position, shape.n_heads, shape.n_kv_heads, p.scale
    );
    Ok(Case { what, error, tolerance: p.tolerance() })
}
