//! The forward pass, in the order of the model's description.
//!
//! The tokens of all steps are the rows of one matrix: projections and experts see them together,
//! the mixers see each sequence by itself.

use super::state::{LayerState, delta_shape};
use super::{CpuModel, Tap, cpu_state_mut};
use crate::{Advance, Logits, ModelError, Rows, Step};
use lily_cpu::{
    Activations, AttentionArgs, AttentionScratch, AttentionShape, DeltaInputs, DeltaScratch,
    DeltaShape, DeltaStash, DeltaWeights, KvCache, MatmulJob, MoeScratch, Pool, Precision,
    RopeTable, Routes, attention, gated_delta_net, gated_delta_net_tentative, matmul, moe,
    rms_norm, route, sigmoid_in_place,
};
use lily_weights::{
    AttentionWeights, GatedDeltaNetWeights, LayerWeights, MixerWeights, MoeWeights, Shape,
};
use std::ops::Range;

/// Buffers of a forward pass, named by role. They grow to the largest batch seen.
#[derive(Debug)]
pub(super) struct Scratch {
    /// The residual stream, `[n_tokens, hidden]`.
    pub(super) x: Vec<f32>,
    /// Normed input of a mixer or of the experts, `[n_tokens, hidden]`.
    pub(super) h: Vec<f32>,
    /// What the mixer computed, before its output projection.
    pub(super) mixed: Vec<f32>,
    /// Projections into the mixer, one after another.
    projected: [Vec<f32>; 4],
    router_logits: Vec<f32>,
    shared_weight: Vec<f32>,
    routes: Routes,
    pub(super) input: Activations,
    pub(super) output: Activations,
    attention: AttentionScratch,
    delta: DeltaScratch,
    moe: MoeScratch,
    attention_shape: AttentionShape,
    delta_shape: DeltaShape,
}

impl Scratch {
    pub(super) fn new(shape: &Shape, precision: Precision) -> Self {
        Self {
            x: Vec::new(),
            h: Vec::new(),
            mixed: Vec::new(),
            projected: Default::default(),
            router_logits: Vec::new(),
            shared_weight: Vec::new(),
            routes: Routes::default(),
            input: Activations::new(precision),
            output: Activations::new(precision),
            attention: AttentionScratch::default(),
            delta: DeltaScratch::default(),
            moe: MoeScratch::new(precision),
            attention_shape: AttentionShape {
                n_heads: shape.n_heads,
                n_kv_heads: shape.n_kv_heads,
                head_dim: shape.head_dim,
                rotary_dim: shape.rotary_dim,
                eps: shape.rms_eps,
            },
            delta_shape: delta_shape(shape),
        }
    }
}

/// What a layer needs besides its weights.
pub(super) struct Context<'a> {
    pub(super) shape: &'a Shape,
    pub(super) pool: &'a Pool,
    pub(super) rope: &'a RopeTable,
    pub(super) s: &'a mut Scratch,
    pub(super) n_tokens: usize,
}

impl CpuModel {
    /// Runs a batch that was checked before.
    ///
    /// # Errors
    /// [`ModelError::Interrupted`]: some layers have taken the batch, the others have not.
    pub(super) fn run(
        &mut self,
        batch: &mut [Step<'_>],
        out: &mut Logits,
        tap: &mut dyn FnMut(Tap, &[f32]),
        interrupt: &dyn Fn() -> bool,
    ) -> Result<(), ModelError> {
        let n_tokens = batch.iter().map(|step| step.tokens.len()).sum();
        let shape = &*self.shape;
        let s = &mut self.scratch;

        s.x.resize(n_tokens * shape.hidden, 0.0);
        s.h.resize(n_tokens * shape.hidden, 0.0);
        let embed_tokens = self.weights.embed_tokens.view();
        let ids = batch.iter().flat_map(|step| step.tokens);
        for (row, &id) in s.x.chunks_exact_mut(shape.hidden).zip(ids) {
            embed_tokens.row_to_f32(id as usize, row);
        }

        let mut stashes: Vec<Vec<DeltaStash>> = batch.iter().map(|_| Vec::new()).collect();
        let mut cx = Context { shape, pool: &self.pool, rope: &self.rope, s, n_tokens };
        for (layer_idx, layer) in self.weights.layers.iter().enumerate() {
            tap(Tap::LayerInput(layer_idx), &cx.s.x);
            cx.layer(layer_idx, layer, batch, &mut stashes, interrupt)?;
        }
        tap(Tap::LayerInput(shape.n_layers), &cx.s.x);

        rms_norm(cx.pool, &cx.s.x, &self.weights.norm, shape.rms_eps, &mut cx.s.h);
        tap(Tap::FinalNorm, &cx.s.h);
        let n_rows = gather_rows(batch, shape.hidden, &cx.s.h, &mut cx.s.mixed);
        out.vocab_size = shape.vocab_size;
        out.values.resize(n_rows * shape.vocab_size, 0.0);
        if n_rows > 0 {
            cx.s.output.set(cx.pool, &cx.s.mixed[..n_rows * shape.hidden], n_rows, shape.hidden);
            let lm_head = self.weights.lm_head.view();
            let mut jobs = [MatmulJob { weight: lm_head, out: &mut out.values, accumulate: false }];
            matmul(cx.pool, &cx.s.output, &mut jobs);
        }

        for (step, stashes) in batch.iter_mut().zip(stashes) {
            let n_tokens = step.tokens.len();
            let state = cpu_state_mut(step.state, shape).expect("the batch was checked");
            match step.advance {
                Advance::Commit => state.advance(n_tokens),
                Advance::Tentative => state.hold(n_tokens, stashes),
            }
        }
        Ok(())
    }
}

/// Copies the rows whose logits are wanted to the front of `to`; returns how many.
fn gather_rows(batch: &[Step<'_>], hidden: usize, from: &[f32], to: &mut Vec<f32>) -> usize {
    to.clear();
    let mut end = 0;
    for step in batch {
        let start = end;
        end += step.tokens.len();
        let first = match step.rows {
            Rows::None => end,
            Rows::Last => end - 1,
            Rows::All => start,
        };
        to.extend_from_slice(&from[first * hidden..end * hidden]);
    }
    to.len() / hidden
}

impl Context<'_> {
    /// `x += mixer(norm(x)); x += moe(norm(x))`
    fn layer(
        &mut self,
        layer_idx: usize,
        layer: &LayerWeights,
        batch: &mut [Step<'_>],
        stashes: &mut [Vec<DeltaStash>],
        interrupt: &dyn Fn() -> bool,
    ) -> Result<(), ModelError> {
        let check = || if interrupt() { Err(ModelError::Interrupted) } else { Ok(()) };
        check()?;
        self.norm(&layer.input_norm);
        match &layer.mixer {
            MixerWeights::GatedDeltaNet(w) => {
                self.gated_delta_net(layer_idx, w, batch, stashes);
            }
            MixerWeights::Attention(w) => self.gated_attention(layer_idx, w, batch),
        }
        check()?;
        self.norm(&layer.post_attention_norm);
        self.moe(&layer.moe);
        Ok(())
    }

    /// `h = norm(x)`, ready for the projections that follow.
    pub(super) fn norm(&mut self, gain: &[f32]) {
        let s = &mut *self.s;
        rms_norm(self.pool, &s.x, gain, self.shape.rms_eps, &mut s.h);
        s.input.set(self.pool, &s.h, self.n_tokens, self.shape.hidden);
    }

    /// Gated `DeltaNet`: in-projections, causal convolution, delta rule, gated norm, out-projection.
    fn gated_delta_net(
        &mut self,
        layer_idx: usize,
        w: &GatedDeltaNetWeights,
        batch: &mut [Step<'_>],
        stashes: &mut [Vec<DeltaStash>],
    ) {
        let s = &mut *self.s;
        let value_width = self.shape.n_v_heads * self.shape.v_head_dim;
        let [u, z, b, a] = &mut s.projected;
        let widths = [w.in_proj_qkv.rows, value_width, self.shape.n_v_heads, self.shape.n_v_heads];
        for (buffer, width) in [&mut *u, &mut *z, &mut *b, &mut *a].into_iter().zip(widths) {
            buffer.resize(self.n_tokens * width, 0.0);
        }
        let mut jobs = [
            MatmulJob { weight: w.in_proj_qkv.view(), out: u, accumulate: false },
            MatmulJob { weight: w.in_proj_z.view(), out: z, accumulate: false },
            MatmulJob { weight: w.in_proj_b.view(), out: b, accumulate: false },
            MatmulJob { weight: w.in_proj_a.view(), out: a, accumulate: false },
        ];
        matmul(self.pool, &s.input, &mut jobs);

        s.mixed.resize(self.n_tokens * value_width, 0.0);
        let weights =
            DeltaWeights { conv1d: &w.conv1d, decay: &w.decay, dt_bias: &w.dt_bias, norm: &w.norm };
        let mut first = 0;
        for (step, stashes) in batch.iter_mut().zip(stashes) {
            let end = first + step.tokens.len();
            let of = |width: usize| first * width..end * width;
            let inputs = DeltaInputs {
                u: &u[of(widths[0])],
                z: &z[of(widths[1])],
                b: &b[of(widths[2])],
                a: &a[of(widths[3])],
            };
            let out = &mut s.mixed[first * value_width..end * value_width];
            let state = cpu_state_mut(step.state, self.shape).expect("the batch was checked");
            let LayerState::GatedDeltaNet(state) = &mut state.layers[layer_idx] else {
                unreachable!("states and weights follow the same layer pattern");
            };
            let (pool, shape) = (self.pool, &s.delta_shape);
            match step.advance {
                Advance::Commit => {
                    gated_delta_net(pool, shape, &weights, inputs, state, out, &mut s.delta);
                }
                Advance::Tentative => {
                    let mut stash = DeltaStash::default();
                    let scratch = &mut s.delta;
                    gated_delta_net_tentative(
                        pool, shape, &weights, inputs, state, &mut stash, out, scratch,
                    );
                    stashes.push(stash);
                }
            }
            first = end;
        }
        self.project_out(w.out_proj.view(), value_width);
    }

    /// Gated attention: q with its gate, k, v; norm, rotate, attend, gate, out-projection.
    fn gated_attention(&mut self, layer_idx: usize, w: &AttentionWeights, batch: &mut [Step<'_>]) {
        self.project_qkv(w);
        let mut first = 0;
        for step in batch {
            let state = cpu_state_mut(step.state, self.shape).expect("the batch was checked");
            let first_position = state.len();
            let LayerState::Attention(cache) = &mut state.layers[layer_idx] else {
                unreachable!("states and weights follow the same layer pattern");
            };
            let rows = first..first + step.tokens.len();
            first = rows.end;
            self.attend(w, rows, first_position, cache);
        }
        self.project_out(w.o_proj.view(), self.shape.n_heads * self.shape.head_dim);
    }

    pub(super) fn project_qkv(&mut self, w: &AttentionWeights) {
        let s = &mut *self.s;
        let [qg, k, v, _] = &mut s.projected;
        qg.resize(self.n_tokens * w.q_proj.rows, 0.0);
        k.resize(self.n_tokens * w.k_proj.rows, 0.0);
        v.resize(self.n_tokens * w.v_proj.rows, 0.0);
        s.mixed.resize(self.n_tokens * self.shape.n_heads * self.shape.head_dim, 0.0);
        let mut jobs = [
            MatmulJob { weight: w.q_proj.view(), out: qg, accumulate: false },
            MatmulJob { weight: w.k_proj.view(), out: k, accumulate: false },
            MatmulJob { weight: w.v_proj.view(), out: v, accumulate: false },
        ];
        matmul(self.pool, &s.input, &mut jobs);
    }

    /// Attention of one sequence, whose tokens are `rows` of the batch.
    pub(super) fn attend(
        &mut self,
        w: &AttentionWeights,
        rows: Range<usize>,
        first_position: usize,
        cache: &mut KvCache,
    ) {
        let s = &mut *self.s;
        let q_width = self.shape.n_heads * self.shape.head_dim;
        let kv_width = self.shape.n_kv_heads * self.shape.head_dim;
        let of = |width: usize| rows.start * width..rows.end * width;
        let [qg, k, v, _] = &mut s.projected;
        attention(
            self.pool,
            AttentionArgs {
                shape: &s.attention_shape,
                rope: self.rope,
                q_gain: &w.q_norm,
                k_gain: &w.k_norm,
                qg: &qg[of(2 * q_width)],
                k: &mut k[of(kv_width)],
                v: &v[of(kv_width)],
                first_position,
                cache,
                out: &mut s.mixed[of(q_width)],
                scratch: &mut s.attention,
            },
        );
    }

    /// `x += mixed W^T`
    pub(super) fn project_out(&mut self, weight: lily_weights::Matrix<'_>, width: usize) {
        let s = &mut *self.s;
        s.output.set(self.pool, &s.mixed, self.n_tokens, width);
        let mut jobs = [MatmulJob { weight, out: &mut s.x, accumulate: true }];
        matmul(self.pool, &s.output, &mut jobs);
    }

    /// Mixture of experts: route, run the chosen experts and the shared one, add to the stream.
    pub(super) fn moe(&mut self, w: &MoeWeights) {
        let s = &mut *self.s;
        let (n_tokens, n_experts) = (self.n_tokens, self.shape.n_experts);
        s.router_logits.resize(n_tokens * n_experts, 0.0);
        s.shared_weight.resize(n_tokens, 0.0);
        let mut jobs = [
            MatmulJob { weight: w.gate.view(), out: &mut s.router_logits, accumulate: false },
            MatmulJob {
                weight: w.shared_expert_gate.view(),
                out: &mut s.shared_weight,
                accumulate: false,
            },
        ];
        matmul(self.pool, &s.input, &mut jobs);
        route(
            self.pool,
            &s.router_logits,
            n_experts,
            self.shape.n_experts_per_token,
            &mut s.routes,
        );
        sigmoid_in_place(&mut s.shared_weight);
        moe(self.pool, w, &s.input, &s.routes, &s.shared_weight, &mut s.x, &mut s.moe);
    }
}
