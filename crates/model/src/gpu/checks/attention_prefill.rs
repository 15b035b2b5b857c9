//! Attention of many tokens, against plain softmax attention.

use super::attention_decode::norm_rope;
use super::support::{Case, Check, Cx, max_error};
use crate::gpu::Activations;
use crate::gpu::ops::{self, AttentionPrefill, AttentionScratch, HeadNorms, KvRows};
use lily_device::{Commands, DeviceError};
use lily_weights::Shape;

pub(super) const CHECKS: &[Check] = &[Check { name: "attention_prefill", run: attention }];

/// What one case is made of.
struct Problem {
    shape: Shape,
    acts: Activations,
    n_tokens: usize,
    position: usize,
    capacity: usize,
    scale: f32,
    qg: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    q_gain: Vec<f32>,
    k_gain: Vec<f32>,
    turns: Vec<f32>,
    /// Not a number from the first new row on.
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl Problem {
    fn draw(cx: &mut Cx) -> Self {
        let n_kv_heads = cx.rng.range(1, 2);
        let head_dim = cx.rng.pick(&[32, 64, 128, 256]);
        let shape = Shape {
            n_kv_heads,
            n_heads: n_kv_heads * cx.rng.pick(&[1, 2, 3, 4, 8]),
            head_dim,
            rotary_dim: cx.rng.pick(&[8, head_dim / 4, head_dim / 2]),
            ..Shape::qwen36_35b()
        };
        // Whole tiles, parts of one and a few rows more, but no more than takes a second.
        let most = (100_000 / (shape.n_heads * head_dim)).clamp(24, 150);
        let n_tokens = cx.rng.pick(&[1, 2, 7, 33, 64, 65, 150]).min(most);
        let position = cx.rng.pick(&[0, 0, 1, 15, 16, 31, 32, 33, 64, 200]);
        let capacity = position + n_tokens + cx.rng.pick(&[0, 1, 17]);
        let kv_width = n_kv_heads * head_dim;
        let mut turns: Vec<f32> = Vec::new();
        for _ in 0..position + n_tokens {
            let angles: Vec<f32> = cx.rng.floats(shape.rotary_dim / 2, 3.0);
            turns.extend(angles.iter().map(|a| a.cos()).chain(angles.iter().map(|a| a.sin())));
        }
        // Scores of up to 300 overflow without the running maximum.
        let scale = cx.rng.pick(&[1.0, 1.0, 20.0]);
        let cache = |cx: &mut Cx| -> Vec<f32> {
            let mut rows = cx.rng.floats(capacity * kv_width, 1.0);
            for head in rows.chunks_exact_mut(capacity * head_dim) {
                head[position * head_dim..].fill(f32::NAN);
            }
            rows
        };
        let (keys, values) = (cache(cx), cache(cx));
        Self {
            acts: cx.rng.pick(&[Activations::F32, Activations::Bf16]),
            qg: cx.rng.floats(n_tokens * shape.n_heads * 2 * head_dim, 1.0),
            k: cx.rng.floats(n_tokens * kv_width, 1.0),
            v: cx.rng.floats(n_tokens * kv_width, 1.0),
            q_gain: cx.rng.floats(head_dim, scale),
            k_gain: cx.rng.floats(head_dim, 1.0),
            turns,
            keys,
            values,
            shape,
            n_tokens,
            position,
            capacity,
            scale,
        }
    }

    fn turn(&self, t: usize) -> &[f32] {
        &self.turns[(self.position + t) * self.shape.rotary_dim..]
    }

    /// `[n_tokens, n_heads, head_dim]` over these rows of the cache.
    fn expected(&self, cx: &Cx, keys: &[f32], values: &[f32]) -> Result<Vec<f64>, DeviceError> {
        let shape = &self.shape;
        let dim = shape.head_dim;
        let wide = |rows: &[f32]| -> Vec<f64> { rows.iter().map(|x| f64::from(*x)).collect() };
        let (keys, values) = (wide(keys), wide(values));
        let mut expected = Vec::new();
        for (head, qg) in self.qg.chunks_exact(2 * dim).enumerate() {
            let (t, h) = (head / shape.n_heads, head % shape.n_heads);
            let first_row = h / (shape.n_heads / shape.n_kv_heads) * self.capacity;
            let q = norm_rope(shape, &qg[..dim], &self.q_gain, self.turn(t));
            // Queries are activations, and have their factor by then.
            #[expect(clippy::cast_possible_truncation, reason = "queries are f32 at most")]
            let mut q: Vec<f32> = q.iter().map(|q| (q / (dim as f64).sqrt()) as f32).collect();
            cx.acts(&mut q, self.acts, "rounding")?;
            let q = wide(&q);
            let rows = first_row..=first_row + self.position + t;
            let scores: Vec<f64> = rows
                .clone()
                .map(|row| q.iter().zip(&keys[row * dim..]).map(|(q, k)| q * k).sum())
                .collect();
            let top = scores.iter().fold(f64::NEG_INFINITY, |top, s| top.max(*s));
            let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let mut o = vec![0.0; dim];
            for (row, weight) in rows.zip(&weights) {
                for (o, v) in o.iter_mut().zip(&values[row * dim..]) {
                    *o += weight / sum * v;
                }
            }
            expected.extend(o.iter().zip(&qg[dim..]).map(|(o, g)| o / (1.0 + f64::from(-g).exp())));
        }
        Ok(expected)
    }

    /// A score, up to 16 * scale in size, is off by 30 roundings; a weight is off by that factor,
    /// and so is the output, a mean of values below 1. As bf16, a query that rounds the other way
    /// moves one score by half an activation, and weights and output are rounded.
    fn tolerance(&self) -> f64 {
        let scale = f64::from(self.scale);
        let score_error = 16.0 * scale * 30.0 * 2.0_f64.powi(-24);
        match self.acts {
            Activations::F32 => 2.0 * score_error + 1e-5,
            Activations::Bf16 => {
                let rounding = self.acts.rounding();
                2.0 * (score_error + scale * rounding * 0.5) + 2.0 * rounding
            }
        }
    }
}

fn attention(cx: &mut Cx) -> Result<Case, DeviceError> {
    let mut p = Problem::draw(cx);
    let (shape, acts, capacity, n_tokens) = (p.shape.clone(), p.acts, p.capacity, p.n_tokens);
    let dim = shape.head_dim;
    let cache = KvRows {
        k: cx.acts(&mut p.keys, acts, "keys")?,
        v: cx.acts(&mut p.values, acts, "values")?,
        capacity,
    };
    let norms =
        HeadNorms { q: cx.floats(&p.q_gain, "q gain")?, k: cx.floats(&p.k_gain, "k gain")? };
    let slices = [
        cx.acts(&mut p.qg, acts, "qg")?,
        cx.acts(&mut p.k, acts, "k")?,
        cx.acts(&mut p.v, acts, "v")?,
        cx.floats(&p.turns, "rope")?,
        cx.words(&[u32::try_from(p.position).expect("small"), 0, 0, 0], "seq")?,
        cx.poisoned(n_tokens * shape.n_heads * dim * acts.size(), "out")?,
    ];
    let [qg, k, v, rope, seq, out] = &slices;
    // A step is rarely the largest possible.
    let max_tokens = n_tokens + cx.rng.pick(&[0, 3]);
    let scratch = AttentionScratch::new(&*cx.device, &shape, acts, max_tokens)?;
    let kernels = cx.kernels(&shape, acts);
    let mut commands = Commands::new();
    let step = AttentionPrefill { n_tokens, qg, k, v, rope, seq, out, scratch: &scratch };
    ops::attention_prefill(&kernels, &mut commands, &shape, step, &norms, &cache)?;
    cx.run(&commands)?;

    let (keys, values) = (cx.read_acts(&cache.k, acts)?, cx.read_acts(&cache.v, acts)?);
    let mut error = 0.0_f64;
    // The new rows are in the cache and no other row has changed.
    for (row, (keys, values)) in keys.chunks_exact(dim).zip(values.chunks_exact(dim)).enumerate() {
        let (kv, position) = (row / capacity, row % capacity);
        let new = position.checked_sub(p.position).filter(|t| *t < n_tokens);
        let at = new.map(|t| (t * shape.n_kv_heads + kv) * dim);
        let old_values = at.map_or(&p.values[row * dim..], |at| &p.v[at..]);
        let unchanged = same(values, old_values)
            && match new.zip(at) {
                None => same(keys, &p.keys[row * dim..]),
                Some((t, at)) => {
                    let expected = norm_rope(&shape, &p.k[at..at + dim], &p.k_gain, p.turn(t));
                    // Norm and rotation in f32 may round to a neighbouring value.
                    keys.iter().zip(&expected).all(|(k, expected)| {
                        let size = expected.abs().max(1.0);
                        (f64::from(*k) - expected).abs() <= size * (2.0 * acts.rounding() + 1e-6)
                    })
                }
            };
        if !unchanged {
            error = f64::INFINITY;
        }
    }
    let expected = p.expected(cx, &keys, &values)?;
    error = error.max(max_error(&cx.read_acts(out, acts)?, &expected));
    let what = format!(
        "{n_tokens} tokens at {} of {capacity}, {} heads on {} of {dim}, {acts:?}, scale {}",
        p.position, shape.n_heads, shape.n_kv_heads, p.scale
    );
    Ok(Case { what, error, tolerance: p.tolerance() })
}

/// Whether these are the first of those, NaN for NaN.
fn same(actual: &[f32], expected: &[f32]) -> bool {
    actual.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits())
}
