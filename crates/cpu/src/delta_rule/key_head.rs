//! The delta rule for one key head and its value heads.
//!
//! For a chunk of tokens with keys `k`, queries `q`, values `v` and log decays summed to `G`:
//!
//! ```text
//! r_i = S^T k_i          p_i = S^T q_i                           one product with S
//! n_i = beta_i (v_i - e^(G_i) r_i - sum_(j<i) e^(G_i - G_j) (k_i . k_j) n_j)
//! o_i = e^(G_i) p_i + sum_(j<=i) e^(G_i - G_j) (q_i . k_j) n_j
//! S   = e^(G_c) S + sum_j e^(G_c - G_j) k_j n_j^T                another
//! ```
//!
//! The corrections `n` come from forward substitution on their right-hand side, without the inverse
//! of the triangular matrix: a CPU has no use for the larger products which that would give.

use super::state::StashParts;
use super::{DeltaInputs, DeltaShape, DeltaWeights};
use crate::conv::{ConvRows, TAPS, conv_silu};
use crate::math::{exp, sigmoid_scalar, silu, softplus, sum_of_squares};
use crate::norm::rms_scale;
use crate::simd::{Lanes, dispatched};
use crate::split::Split;
use crate::tile::{Extent, Lhs, Old, Rhs, multiply};
use std::ops::Range;

/// Tokens of a chunk. Each costs a pass over S, which larger chunks share, and a term for every
/// earlier token of the chunk.
pub(super) const CHUNK: usize = 16;

/// Chunks shorter than this are not padded for products of whole vectors.
const SHORT: usize = 8;

/// Added to the sum of squares of a query or key.
const L2_EPS: f32 = 1e-6;

/// The state that the tokens meet.
pub(super) enum Recurrent<'a> {
    /// It takes them in.
    Advance { conv: Split<'a, f32>, s: Split<'a, f32> },
    /// It stays; what would change it is recorded.
    Keep { conv: &'a [f32], s: &'a [f32], stash: StashParts<'a> },
}

/// One task: a key head and its value heads, for all tokens. Nothing else writes to their part of
/// the state, the stash and the result.
#[derive(Clone, Copy)]
pub(super) struct KeyHead<'a> {
    pub(super) head: usize,
    pub(super) shape: &'a DeltaShape,
    pub(super) weights: &'a DeltaWeights<'a>,
    pub(super) inputs: DeltaInputs<'a>,
    pub(super) recurrent: &'a Recurrent<'a>,
    pub(super) out: &'a Split<'a, f32>,
}

/// Memory of a task. A row holds the channels of the task: its query, its key, its values.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    /// `[TAPS - 1, row]`
    before: Vec<f32>,
    /// Copies of the states, `[group, k_head_dim, v_head_dim]`, where the originals must stay.
    states: Vec<f32>,
    chunk: Chunk,
}

/// Everything about the tokens of a chunk.
#[derive(Debug, Default)]
struct Chunk {
    /// `[CHUNK, row]`
    y: Vec<f32>,
    /// Keys and queries transposed, `[k_head_dim, 2, pitch]`.
    kq: Vec<f32>,
    /// Tokens that `kq` has room for: those of a short chunk, or CHUNK with zeros after the last.
    pitch: usize,
    /// `k_i . k_j`, then `q_i . k_j`, `[2, CHUNK, CHUNK]`.
    dots: Vec<f32>,
    /// The same times the decay from `j` to `i`.
    decayed: Vec<f32>,
    /// `S^T k_i`, then `S^T q_i`, `[2, pitch, v_head_dim]`. The outputs replace the latter.
    seen: Vec<f32>,
    /// Corrections, `[CHUNK, v_head_dim]`.
    n: Vec<f32>,
    /// Keys times the decay to the end of the chunk, `[CHUNK, k_head_dim]`.
    scaled: Vec<f32>,
}

/// Channels of the task: where they are in `u`, and where in a row.
#[derive(Clone, Copy)]
struct Segment {
    channel: usize,
    at: usize,
    len: usize,
}

impl KeyHead<'_> {
    fn segments(&self) -> [Segment; 3] {
        let DeltaShape { k_head_dim: dk, v_head_dim: dv, .. } = *self.shape;
        let (width, group) = (self.shape.key_width(), self.shape.group());
        [
            Segment { channel: self.head * dk, at: 0, len: dk },
            Segment { channel: width + self.head * dk, at: dk, len: dk },
            Segment { channel: 2 * width + self.head * group * dv, at: 2 * dk, len: group * dv },
        ]
    }

    fn row(&self) -> usize {
        2 * self.shape.k_head_dim + self.shape.group() * self.shape.v_head_dim
    }

    fn n_tokens(&self) -> usize {
        self.inputs.u.len() / self.shape.channels()
    }

    /// Copies the task's part of the convolution state.
    fn load_before(&self, before: &mut [f32]) {
        for (t, row) in before.chunks_exact_mut(self.row()).enumerate() {
            for Segment { channel, at, len } in self.segments() {
                let start = t * self.shape.channels() + channel;
                row[at..at + len].copy_from_slice(match self.recurrent {
                    // SAFETY: no other task has these channels.
                    Recurrent::Advance { conv, .. } => unsafe { conv.part(start..start + len) },
                    Recurrent::Keep { conv, .. } => &conv[start..start + len],
                });
            }
        }
    }

    /// Replaces the task's part of the convolution state by the last rows of `u`.
    fn store_conv(&self, before: &[f32]) {
        let Recurrent::Advance { conv, .. } = self.recurrent else { return };
        let channels = self.shape.channels();
        for t in 0..TAPS - 1 {
            // Counted from the first row of `before`.
            let from = self.n_tokens() + t;
            for Segment { channel, at, len } in self.segments() {
                let start = t * channels + channel;
                // SAFETY: no other task has these channels.
                let to = unsafe { conv.part(start..start + len) };
                to.copy_from_slice(match from.checked_sub(TAPS - 1) {
                    Some(token) => &self.inputs.u[token * channels + channel..][..len],
                    None => &before[from * self.row() + at..][..len],
                });
            }
        }
    }
}

dispatched! {
    /// Runs one task.
    pub(super) fn run_key_head(task: &KeyHead<'_>, workspace: &mut Workspace) = run_key_head_body
}

#[inline(always)]
fn run_key_head_body<S: Lanes>(s: S, task: &KeyHead<'_>, workspace: &mut Workspace) {
    let shape = task.shape;
    let (dk, dv, group) = (shape.k_head_dim, shape.v_head_dim, shape.group());
    let n_tokens = task.n_tokens();
    let Workspace { before, states: copies, chunk } = workspace;
    before.resize((TAPS - 1) * task.row(), 0.0);
    task.load_before(before);
    chunk.resize(task);
    // A state that stays is only copied if a second chunk has to see the first.
    if let Recurrent::Keep { s: states, .. } = task.recurrent
        && n_tokens > CHUNK
    {
        let len = group * shape.head_state();
        copies.clear();
        copies.extend_from_slice(&states[task.head * len..(task.head + 1) * len]);
    }

    for first in (0..n_tokens).step_by(CHUNK) {
        let tokens = first..(first + CHUNK).min(n_tokens);
        chunk.project(s, task, before, &tokens);
        for i in 0..group {
            let head = task.head * group + i;
            let gates = Gates::new(task, head, &tokens);
            let original = head * shape.head_state()..(head + 1) * shape.head_state();
            let copy = i * shape.head_state()..(i + 1) * shape.head_state();
            match task.recurrent {
                Recurrent::Advance { s: states, .. } => {
                    // SAFETY: no other task has this value head.
                    let state = unsafe { states.part(original) };
                    chunk.read(s, task, i, &gates, state);
                    let k = Rows { values: &chunk.y[dk..], stride: task.row(), len: dk };
                    write(s, k, &gates, &chunk.n, dv, state, &mut chunk.scaled);
                }
                Recurrent::Keep { s: states, stash, .. } => {
                    let copied = n_tokens > CHUNK;
                    let state = if copied { &copies[copy.clone()] } else { &states[original] };
                    chunk.read(s, task, i, &gates, state);
                    let k = Rows { values: &chunk.y[dk..], stride: task.row(), len: dk };
                    if tokens.end < n_tokens {
                        let state = &mut copies[copy];
                        write(s, k, &gates, &chunk.n, dv, state, &mut chunk.scaled);
                    }
                    record(task, head, &tokens, k, &gates, &chunk.n, stash);
                }
            }
            chunk.finish(s, task, head, &tokens);
        }
    }
    task.store_conv(before);
}

/// Gates of one value head for a chunk.
struct Gates {
    n_tokens: usize,
    beta: [f32; CHUNK],
    /// Log decays.
    g: [f32; CHUNK],
    /// Log decays summed from the start of the chunk. Padded with the last.
    sums: [f32; CHUNK],
}

impl Gates {
    fn new(task: &KeyHead<'_>, head: usize, tokens: &Range<usize>) -> Self {
        let mut beta = [0.0; CHUNK];
        let mut g = [0.0; CHUNK];
        for (i, token) in tokens.clone().enumerate() {
            let at = token * task.shape.n_v_heads + head;
            beta[i] = sigmoid_scalar(task.inputs.b[at]);
            let step = softplus(task.inputs.a[at] + task.weights.dt_bias[head]);
            g[i] = task.weights.decay[head] * step;
        }
        Self { n_tokens: tokens.len(), beta, g, sums: running_sums(&g) }
    }

    fn of_log_decays(log_decays: &[f32]) -> Self {
        let mut g = [0.0; CHUNK];
        g[..log_decays.len()].copy_from_slice(log_decays);
        Self { n_tokens: log_decays.len(), beta: [0.0; CHUNK], g, sums: running_sums(&g) }
    }
}

fn running_sums(g: &[f32; CHUNK]) -> [f32; CHUNK] {
    let mut sum = 0.0;
    g.map(|g| {
        sum += g;
        sum
    })
}

/// Rows inside wider ones.
#[derive(Clone, Copy)]
struct Rows<'a> {
    values: &'a [f32],
    stride: usize,
    len: usize,
}

impl<'a> Rows<'a> {
    #[inline(always)]
    fn row(self, i: usize) -> &'a [f32] {
        &self.values[i * self.stride..][..self.len]
    }
}

impl Chunk {
    fn resize(&mut self, task: &KeyHead<'_>) {
        let DeltaShape { k_head_dim: dk, v_head_dim: dv, .. } = *task.shape;
        self.y.resize(CHUNK * task.row(), 0.0);
        self.kq.resize(2 * CHUNK * dk, 0.0);
        self.dots.resize(2 * CHUNK * CHUNK, 0.0);
        self.decayed.resize(2 * CHUNK * CHUNK, 0.0);
        self.seen.resize(2 * CHUNK * dv, 0.0);
        self.n.resize(CHUNK * dv, 0.0);
        self.scaled.resize(CHUNK * dk, 0.0);
    }

    /// Convolution, SiLU, L2 norms, and the products of keys and queries with keys.
    #[inline(always)]
    fn project<S: Lanes>(
        &mut self,
        s: S,
        task: &KeyHead<'_>,
        before: &[f32],
        tokens: &Range<usize>,
    ) {
        let (row, n, dk) = (task.row(), tokens.len(), task.shape.k_head_dim);
        let channels = task.shape.channels();
        for Segment { channel, at, len } in task.segments() {
            let rows = ConvRows {
                before: &before[at..],
                before_stride: row,
                u: &task.inputs.u[channel..],
                u_stride: channels,
            };
            let filter = &task.weights.conv1d[channel * TAPS..(channel + len) * TAPS];
            conv_silu(s, rows, filter, (tokens.start, n), &mut self.y[at..], row);
        }

        self.pitch = if n < SHORT { n } else { CHUNK };
        let pitch = self.pitch;
        let kq = &mut self.kq[..2 * pitch * dk];
        if n < pitch {
            kq.fill(0.0);
        }
        for (i, y) in self.y.chunks_exact_mut(row).take(n).enumerate() {
            let (q, k) = y[..2 * dk].split_at_mut(dk);
            l2_norm(s, q, 1.0 / (dk as f32).sqrt());
            l2_norm(s, k, 1.0);
            for ((kq, k), q) in kq.chunks_exact_mut(2 * pitch).zip(&*k).zip(&*q) {
                kq[i] = *k;
                kq[pitch + i] = *q;
            }
        }

        if pitch < CHUNK {
            for i in 0..n {
                let (q, k) = self.y[i * row..][..2 * dk].split_at(dk);
                for j in 0..=i {
                    let earlier = &self.y[j * row + dk..][..dk];
                    self.dots[i * CHUNK + j] = dot(s, k, earlier);
                    self.dots[(CHUNK + i) * CHUNK + j] = dot(s, q, earlier);
                }
            }
            return;
        }
        let (k_dots, q_dots) = self.dots.split_at_mut(CHUNK * CHUNK);
        for (from, dots) in [(0, k_dots), (pitch, q_dots)] {
            multiply(
                s,
                Extent { rows: n, k: dk, columns: CHUNK },
                Lhs { values: &self.kq[from..], row_stride: 1, k_stride: 2 * pitch },
                Rhs { values: &self.kq, stride: 2 * pitch },
                Old::Drop,
                dots,
                CHUNK,
            );
        }
    }

    /// Corrections and outputs of value head `i` of the task, from the state before the chunk.
    #[inline(always)]
    fn read<S: Lanes>(&mut self, s: S, task: &KeyHead<'_>, i: usize, gates: &Gates, state: &[f32]) {
        let DeltaShape { k_head_dim: dk, v_head_dim: dv, .. } = *task.shape;
        let n = gates.n_tokens;
        let (pitch, rhs) = (self.pitch, Rhs { values: state, stride: dv });
        if n == pitch {
            // Keys and queries in one pass over the state.
            let extent = Extent { rows: 2 * n, k: dk, columns: dv };
            let lhs = Lhs { values: &self.kq, row_stride: 1, k_stride: 2 * pitch };
            multiply(s, extent, lhs, rhs, Old::Drop, &mut self.seen, dv);
        } else {
            let (by_k, by_q) = self.seen.split_at_mut(pitch * dv);
            for (from, seen) in [(0, by_k), (pitch, by_q)] {
                let extent = Extent { rows: n, k: dk, columns: dv };
                let lhs = Lhs { values: &self.kq[from..], row_stride: 1, k_stride: 2 * pitch };
                multiply(s, extent, lhs, rhs, Old::Drop, seen, dv);
            }
        }

        let (k_dots, q_dots) = self.dots.split_at(CHUNK * CHUNK);
        let (k_decayed, q_decayed) = self.decayed.split_at_mut(CHUNK * CHUNK);
        for t in 0..n {
            let row = t * CHUNK..(t + 1) * CHUNK;
            let (k_row, q_row) = (&mut k_decayed[row.clone()], &mut q_decayed[row.clone()]);
            for c in (0..CHUNK).step_by(S::N) {
                // Later tokens have a positive difference, which must not overflow; they are not
                // read.
                let ages = s.sub(s.splat(gates.sums[t]), s.load(&gates.sums[c..]));
                let decay = exp(s, s.min(s.splat(0.0), ages));
                let dots = row.start + c;
                s.store(s.mul(decay, s.load(&k_dots[dots..])), &mut k_row[c..]);
                s.store(s.mul(decay, s.load(&q_dots[dots..])), &mut q_row[c..]);
            }
        }

        let v_at = 2 * dk + i * dv;
        let mut c = 0;
        while c < dv {
            let v = Rows { values: &self.y[v_at + c..], stride: task.row(), len: dv - c };
            let (n, seen) = (&mut self.n[c..], &mut self.seen[c..]);
            let (by_k, by_q) = seen.split_at_mut(pitch * dv);
            let seen = (&*by_k, by_q);
            c += if dv - c >= 8 * S::N {
                substitute::<S, 8>(s, gates, v, &self.decayed, n, seen, dv)
            } else if dv - c >= 4 * S::N {
                substitute::<S, 4>(s, gates, v, &self.decayed, n, seen, dv)
            } else {
                substitute::<S, 1>(s, gates, v, &self.decayed, n, seen, dv)
            };
        }
    }

    /// Gated norm of the outputs.
    #[inline(always)]
    fn finish<S: Lanes>(&self, s: S, task: &KeyHead<'_>, head: usize, tokens: &Range<usize>) {
        let dv = task.shape.v_head_dim;
        for (i, token) in tokens.clone().enumerate() {
            let o = &self.seen[(self.pitch + i) * dv..][..dv];
            let at = (token * task.shape.n_v_heads + head) * dv;
            // SAFETY: no other task has this value head.
            let out = unsafe { task.out.part(at..at + dv) };
            let scale = rms_scale(sum_of_squares(s, o), dv, task.shape.eps);
            let z = &task.inputs.z[at..at + dv];
            for c in (0..dv).step_by(S::N) {
                let normed = s.mul(s.load(&o[c..]), s.splat(scale));
                let normed = s.mul(normed, s.load(&task.weights.norm[c..]));
                s.store(s.mul(normed, silu(s, s.load(&z[c..]))), &mut out[c..]);
            }
        }
    }
}

/// `x = x / sqrt(x . x + eps) * scale`
#[inline(always)]
fn l2_norm<S: Lanes>(s: S, x: &mut [f32], scale: f32) {
    let factor = scale / (sum_of_squares(s, x) + L2_EPS).sqrt();
    for x in x {
        *x *= factor;
    }
}

#[inline(always)]
fn dot<S: Lanes>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let mut sum = s.splat(0.0);
    for (a, b) in a.chunks_exact(S::N).zip(b.chunks_exact(S::N)) {
        sum = s.mul_add(s.load(a), s.load(b), sum);
    }
    s.sum(sum)
}

/// Forward substitution for `C` vectors of columns: corrections into `n`, outputs over the
/// products with the queries in `seen`. Returns the number of columns.
#[inline(always)]
fn substitute<S: Lanes, const C: usize>(
    s: S,
    gates: &Gates,
    v: Rows<'_>,
    decayed: &[f32],
    n: &mut [f32],
    (by_k_seen, by_q_seen): (&[f32], &mut [f32]),
    stride: usize,
) -> usize {
    let (k_decayed, q_decayed) = decayed.split_at(CHUNK * CHUNK);
    for t in 0..gates.n_tokens {
        let k_row = &k_decayed[t * CHUNK..][..CHUNK];
        let q_row = &q_decayed[t * CHUNK..][..CHUNK];
        let mut by_k = [s.splat(0.0); C];
        let mut by_q = [s.splat(0.0); C];
        for j in 0..t {
            let (k, q) = (s.splat(k_row[j]), s.splat(q_row[j]));
            let n = &n[j * stride..][..C * S::N];
            for c in 0..C {
                let n = s.load(&n[c * S::N..]);
                by_k[c] = s.mul_add(k, n, by_k[c]);
                by_q[c] = s.mul_add(q, n, by_q[c]);
            }
        }
        let decay = s.splat(gates.sums[t].exp());
        let beta = s.splat(gates.beta[t]);
        let last = s.splat(q_row[t]);
        let v = v.row(t);
        for c in 0..C {
            let at = t * stride + c * S::N;
            let predicted = s.mul_add(decay, s.load(&by_k_seen[at..]), by_k[c]);
            let corrected = s.mul(beta, s.sub(s.load(&v[c * S::N..]), predicted));
            s.store(corrected, &mut n[at..]);
            let earlier = s.mul_add(decay, s.load(&by_q_seen[at..]), by_q[c]);
            s.store(s.mul_add(last, corrected, earlier), &mut by_q_seen[at..]);
        }
    }
    C * S::N
}

/// Adds the chunk to a state.
#[inline(always)]
fn write<S: Lanes>(
    s: S,
    k: Rows<'_>,
    gates: &Gates,
    n: &[f32],
    dv: usize,
    state: &mut [f32],
    scaled: &mut [f32],
) {
    let dk = k.len;
    let n_tokens = gates.n_tokens;
    let total = gates.sums[n_tokens - 1];
    for (t, scaled) in scaled.chunks_exact_mut(dk).take(n_tokens).enumerate() {
        let decay = (total - gates.sums[t]).exp();
        for (scaled, k) in scaled.iter_mut().zip(k.row(t)) {
            *scaled = decay * k;
        }
    }
    multiply(
        s,
        Extent { rows: dk, k: n_tokens, columns: dv },
        Lhs { values: scaled, row_stride: 1, k_stride: dk },
        Rhs { values: n, stride: dv },
        Old::Scale(total.exp()),
        state,
        dv,
    );
}

/// Keeps what [`replay`] needs of a value head.
fn record(
    task: &KeyHead<'_>,
    head: usize,
    tokens: &Range<usize>,
    k: Rows<'_>,
    gates: &Gates,
    n: &[f32],
    stash: &StashParts<'_>,
) {
    let n_tokens = task.n_tokens();
    let DeltaShape { k_head_dim: dk, v_head_dim: dv, .. } = *task.shape;
    let part = |head: usize, width: usize| {
        (head * n_tokens + tokens.start) * width..(head * n_tokens + tokens.end) * width
    };
    // SAFETY: no other task has this value head.
    unsafe { stash.delta.part(part(head, dv)) }.copy_from_slice(&n[..tokens.len() * dv]);
    // SAFETY: as above.
    unsafe { stash.g.part(part(head, 1)) }.copy_from_slice(&gates.g[..tokens.len()]);
    // SAFETY: no other task has this key head. Its value heads write the same keys in turn.
    let keys = unsafe { stash.k.part(part(task.head, dk)) };
    for (i, key) in keys.chunks_exact_mut(dk).enumerate() {
        key.copy_from_slice(k.row(i));
    }
}

dispatched! {
    /// Adds a chunk of recorded tokens to the state of a value head. `scaled` is memory for
    /// `[CHUNK, k_head_dim]`.
    pub(super) fn replay(
        k: &[f32],
        n: &[f32],
        g: &[f32],
        dv: usize,
        state: &mut [f32],
        scaled: &mut [f32],
    ) = replay_body
}

#[inline(always)]
fn replay_body<S: Lanes>(
    s: S,
    k: &[f32],
    n: &[f32],
    g: &[f32],
    dv: usize,
    state: &mut [f32],
    scaled: &mut [f32],
) {
    let dk = k.len() / g.len();
    let k = Rows { values: k, stride: dk, len: dk };
    write(s, k, &Gates::of_log_decays(g), n, dv, state, scaled);
}
