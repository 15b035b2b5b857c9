//! The delta rule for a few tokens, against the recurrence as the paper writes it.

use super::support::{Case, Check, Cx, Rng, max_error};
use crate::gpu::Activations;
use crate::gpu::ops::{self, CONV_RING, DeltaStash, DeltaState, DeltaStep, DeltaVectors};
use lily_device::{Commands, DeviceError};
use lily_weights::Shape;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "delta_step", run: committed },
    Check { name: "delta_step, tentative, and delta_commit", run: tentative },
];

/// Random inputs of one layer, and what the recurrence makes of them.
pub(super) struct Problem {
    pub(super) shape: Shape,
    pub(super) position: usize,
    pub(super) u: Vec<f32>,
    /// Rows of `u` before the step, oldest first.
    pub(super) before: Vec<f32>,
    pub(super) a: Vec<f32>,
    pub(super) b: Vec<f32>,
    pub(super) conv1d: Vec<f32>,
    pub(super) decay: Vec<f32>,
    pub(super) dt_bias: Vec<f32>,
    pub(super) state: Vec<f32>,
}

impl Problem {
    pub(super) fn draw(rng: &mut Rng, n_tokens: usize) -> Self {
        let n_k_heads = rng.range(1, 3);
        let shape = Shape {
            n_k_heads,
            n_v_heads: n_k_heads * rng.pick(&[1, 2, 4]),
            k_head_dim: rng.pick(&[32, 64, 128]),
            v_head_dim: rng.pick(&[32, 64, 128]),
            ..Shape::qwen36_35b()
        };
        let channels = ops::conv_channels(&shape);
        let heads = shape.n_v_heads;
        Self {
            position: rng.pick(&[0, 1, 2, 3, 17, 31, 32, 1000]),
            u: rng.floats(n_tokens * channels, 1.5),
            before: rng.floats((shape.conv_kernel - 1) * channels, 1.5),
            a: rng.floats(n_tokens * heads, 4.0),
            b: rng.floats(n_tokens * heads, 4.0),
            conv1d: rng.floats(channels * shape.conv_kernel, 1.0),
            // From nearly no forgetting to forgetting at once.
            decay: (0..heads).map(|_| -(rng.float() * 3.0).exp2()).collect(),
            dt_bias: rng.floats(heads, 2.0),
            state: rng.floats(heads * shape.v_head_dim * shape.k_head_dim, 0.3),
            shape,
        }
    }

    /// The first `n_tokens` tokens: outputs `[n_tokens, n_v_heads, v_head_dim]` and the state.
    pub(super) fn expected(&self, n_tokens: usize) -> (Vec<f64>, Vec<f64>) {
        let shape = &self.shape;
        let channels = ops::conv_channels(shape);
        let taps = shape.conv_kernel;
        let (dk, dv) = (shape.k_head_dim, shape.v_head_dim);
        let row_of = |t: isize, c: usize| -> f64 {
            if t >= 0 {
                return f64::from(self.u[t.unsigned_abs() * channels + c]);
            }
            let back = t.unsigned_abs();
            if back > self.position {
                0.0
            } else {
                f64::from(self.before[(taps - 1 - back) * channels + c])
            }
        };
        let y = |t: usize, c: usize| -> f64 {
            let sum: f64 = (0..taps)
                .map(|j| {
                    let row = isize::try_from(t + j).expect("small")
                        - isize::try_from(taps - 1).expect("small");
                    f64::from(self.conv1d[c * taps + j]) * row_of(row, c)
                })
                .sum();
            sum / (1.0 + (-sum).exp())
        };
        let unit = |x: Vec<f64>, factor: f64| -> Vec<f64> {
            let norm = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
            x.into_iter().map(|x| x / norm * factor).collect()
        };
        let mut state: Vec<f64> = self.state.iter().map(|s| f64::from(*s)).collect();
        let mut out = Vec::new();
        for t in 0..n_tokens {
            for hv in 0..shape.n_v_heads {
                let hk = hv / (shape.n_v_heads / shape.n_k_heads);
                let head = |first: usize, n: usize| (first..first + n).map(|c| y(t, c)).collect();
                let q = unit(head(hk * dk, dk), (dk as f64).sqrt().recip());
                let k = unit(head((shape.n_k_heads + hk) * dk, dk), 1.0);
                let v: Vec<f64> = head(2 * shape.n_k_heads * dk + hv * dv, dv);
                let at = t * shape.n_v_heads + hv;
                let beta = 1.0 / (1.0 + (-f64::from(self.b[at])).exp());
                let x = f64::from(self.a[at]) + f64::from(self.dt_bias[hv]);
                let g = f64::from(self.decay[hv]) * (x.max(0.0) + (-x.abs()).exp().ln_1p());
                for (column, v) in v.iter().enumerate() {
                    let s = &mut state[(hv * dv + column) * dk..][..dk];
                    for s in s.iter_mut() {
                        *s *= g.exp();
                    }
                    let predicted: f64 = s.iter().zip(&k).map(|(s, k)| s * k).sum();
                    let d = beta * (v - predicted);
                    s.iter_mut().zip(&k).for_each(|(s, k)| *s += k * d);
                    out.push(s.iter().zip(&q).map(|(s, q)| s * q).sum());
                }
            }
        }
        (out, state)
    }
}

/// States and outputs are of order one. A token adds a few roundings to each element, none of which
/// grows, for |S k| <= |S| with a unit k; the sums over 128 keys have pairwise parts of 4 and add some
/// more.
fn tolerance(n_tokens: usize) -> f64 {
    (n_tokens as f64 * 4.0 + 16.0) * 2.0_f64.powi(-24)
}

fn committed(cx: &mut Cx) -> Result<Case, DeviceError> {
    let n_tokens = cx.rng.range(1, 8);
    run(cx, n_tokens, None)
}

fn tentative(cx: &mut Cx) -> Result<Case, DeviceError> {
    let n_tokens = cx.rng.range(1, 9);
    let n_kept = cx.rng.range(0, n_tokens);
    run(cx, n_tokens, Some(n_kept))
}

fn run(cx: &mut Cx, n_tokens: usize, n_kept: Option<usize>) -> Result<Case, DeviceError> {
    let mut problem = Problem::draw(&mut cx.rng, n_tokens);
    let acts = cx.rng.pick(&[Activations::F32, Activations::Bf16]);
    let shape = problem.shape.clone();
    let channels = ops::conv_channels(&shape);
    let taps = shape.conv_kernel;

    // Other rows of the ring are left over from long ago.
    let mut ring = vec![7.0_f32; CONV_RING * channels];
    for back in 1..taps.min(problem.position + 1) {
        let row = (problem.position - back) % CONV_RING;
        ring[row * channels..][..channels]
            .copy_from_slice(&problem.before[(taps - 1 - back) * channels..][..channels]);
    }
    let ring_slice = cx.acts(&mut ring, acts, "ring")?;
    // What the device holds is the problem.
    for back in 1..taps.min(problem.position + 1) {
        let row = (problem.position - back) % CONV_RING;
        problem.before[(taps - 1 - back) * channels..][..channels]
            .copy_from_slice(&ring[row * channels..][..channels]);
    }
    let heads = shape.n_v_heads;
    let vectors = DeltaVectors {
        conv1d: cx.floats(&problem.conv1d, "conv1d")?,
        decay: cx.floats(&problem.decay, "decay")?,
        dt_bias: cx.floats(&problem.dt_bias, "dt_bias")?,
        norm: cx.floats(&[1.0], "norm")?,
    };
    let (u, a, b) =
        (cx.floats(&problem.u, "u")?, cx.floats(&problem.a, "a")?, cx.floats(&problem.b, "b")?);
    let position = u32::try_from(problem.position).expect("small");
    let seq = cx.words(&[position, 0, 0, 0], "seq")?;
    let state_slice = cx.floats(&problem.state, "state")?;
    let o = cx.poisoned(n_tokens * heads * shape.v_head_dim * 4, "o")?;
    let part = cx.poisoned(n_tokens * heads * ops::n_slices(&shape) * 4, "part")?;
    let stash = DeltaStash {
        k: cx.poisoned(n_tokens * heads * shape.k_head_dim * 4, "stash k")?,
        d: cx.poisoned(n_tokens * heads * shape.v_head_dim * 4, "stash d")?,
        g: cx.poisoned(n_tokens * heads * 4, "stash g")?,
    };
    let state = DeltaState { ring: ring_slice.clone(), state: state_slice.clone() };

    let kernels = cx.kernels(&shape, acts);
    let mut commands = Commands::new();
    let step = DeltaStep { n_tokens, u: &u, b: &b, a: &a, seq: &seq, o: &o, part: &part };
    let stash = n_kept.map(|_| &stash);
    ops::delta_step(&kernels, &mut commands, &shape, step, &vectors, &state, stash)?;
    if let (Some(n_kept), Some(stash)) = (n_kept, stash) {
        ops::delta_commit(&kernels, &mut commands, &shape, n_kept, stash, &state)?;
    }
    cx.run(&commands)?;

    let (expected_o, mut expected_state) = problem.expected(n_tokens);
    if let Some(n_kept) = n_kept {
        expected_state = problem.expected(n_kept).1;
    }
    let mut error = max_error(&cx.read_floats(&o)?, &expected_o);
    error = error.max(max_error(&cx.read_floats(&state_slice)?, &expected_state));
    let expected_part: Vec<f64> =
        expected_o.chunks_exact(32).map(|part| part.iter().map(|o| o * o).sum()).collect();
    error = error.max(max_error(&cx.read_floats(&part)?, &expected_part));
    // The ring now has the rows of the step, rounded as activations are.
    let ring = cx.read_acts(&ring_slice, acts)?;
    for t in 0..n_tokens {
        let row = &ring[(problem.position + t) % CONV_RING * channels..][..channels];
        let mut expected = problem.u[t * channels..][..channels].to_vec();
        cx.acts(&mut expected, acts, "rounding")?;
        if row != expected {
            error = f64::INFINITY;
        }
    }
    let what = format!(
        "{n_tokens} tokens at {position}, kept {n_kept:?}, heads {}x{} -> {heads}x{}, {acts:?}",
        shape.n_k_heads, shape.k_head_dim, shape.v_head_dim
    );
    Ok(Case { what, error, tolerance: tolerance(n_tokens) })
}
