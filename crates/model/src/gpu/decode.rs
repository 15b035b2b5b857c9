//! The forward pass of one token, or of a few of one sequence: six dispatches a layer, seven where
//! there is attention to many rows.

use super::Kernels;
use super::load::{GpuAttention, GpuDelta, GpuLayer, GpuMixer, GpuWeights};
use super::ops::{
    self, AttentionCut, AttentionDecode, DeltaStash, DeltaStep, Input, MoeDecode, NextToken,
    Output, Sample, conv_channels,
};
use super::state::{GpuState, LayerState};
use crate::DeviceSampling;
use lily_device::{Buffer, Commands, Device, DeviceError, Slice};
use lily_weights::Shape;
use std::sync::Arc;

/// The most tokens of such a step. More are cheaper as matrices.
pub(super) const FEW_TOKENS: usize = 8;
/// Choices of the device that the host has not read yet.
const HISTORY: usize = 4096;

/// Buffers of a decode step, named by role; f32 unless said.
#[derive(Debug)]
pub(super) struct DecodeScratch {
    /// u32, the token to feed.
    pub(super) ids: Slice,
    /// The residual stream, `[hidden]`.
    pub(super) x: Slice,
    u: Slice,
    z: Slice,
    b: Slice,
    a: Slice,
    o: Slice,
    part: Slice,
    qg: Slice,
    k: Slice,
    v: Slice,
    attended: Slice,
    parts: Slice,
    router_logits: Slice,
    shared_logit: Slice,
    expert_a: Slice,
    /// u32
    experts: Slice,
    pub(super) logits: Slice,
    argmax: Slice,
    sample: Slice,
    /// f32, draws for the tokens to come.
    pub(super) draws: Slice,
    /// u32, the tokens chosen on the device.
    pub(super) noted: Slice,
}

impl DecodeScratch {
    pub(super) fn new(device: &Arc<dyn Device>, shape: &Shape) -> Result<Self, DeviceError> {
        let value_width = shape.n_v_heads * shape.v_head_dim;
        let per_token = [
            1,
            shape.hidden,
            conv_channels(shape),
            value_width,
            shape.n_v_heads,
            shape.n_v_heads,
            value_width,
            shape.n_v_heads * ops::n_slices(shape),
            2 * shape.n_heads * shape.head_dim,
            shape.n_kv_heads * shape.head_dim,
            shape.n_kv_heads * shape.head_dim,
            shape.n_heads * shape.head_dim,
            shape.n_experts,
            1,
            ops::a_floats(shape),
            shape.n_experts_per_token,
            shape.vocab_size,
        ];
        let once = [
            ops::parts_floats(shape),
            ops::scratch_bytes() / 4,
            ops::sample_bytes() / 4,
            HISTORY,
            HISTORY,
        ];
        let sizes = per_token.iter().map(|n| n * FEW_TOKENS).chain(once);
        let total = sizes.map(|n| (n * 4).next_multiple_of(256)).sum();
        let mut cut = Cut { buffer: device.alloc(total, "decode scratch")?, at: 0 };
        let [
            ids,
            x,
            u,
            z,
            b,
            a,
            o,
            part,
            qg,
            k,
            v,
            attended,
            router_logits,
            shared_logit,
            expert_a,
            experts,
            logits,
        ] = per_token.map(|n| cut.floats(n * FEW_TOKENS));
        let [parts, argmax, sample, draws, noted] = once.map(|n| cut.floats(n));
        Ok(Self {
            ids,
            x,
            u,
            z,
            b,
            a,
            o,
            part,
            qg,
            k,
            v,
            attended,
            parts,
            router_logits,
            shared_logit,
            expert_a,
            experts,
            logits,
            argmax,
            sample,
            draws,
            noted,
        })
    }
}

/// Cuts a buffer into aligned parts.
struct Cut {
    buffer: Buffer,
    at: usize,
}

impl Cut {
    fn floats(&mut self, n: usize) -> Slice {
        let slice = self.buffer.slice(self.at..self.at + n * 4);
        self.at += (n * 4).next_multiple_of(256);
        slice
    }
}

/// What a decode step needs.
pub(super) struct Decode<'a> {
    pub(super) kernels: &'a Kernels,
    pub(super) shape: &'a Shape,
    pub(super) weights: &'a GpuWeights,
    pub(super) s: &'a DecodeScratch,
    /// At most [`FEW_TOKENS`].
    pub(super) n_tokens: usize,
    pub(super) cut: AttentionCut,
}

/// What happens after the logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Next {
    /// The host reads them.
    Host,
    /// The largest one is the token of the next step, without the host.
    Greedy,
    /// One drawn by these rules is.
    Sampled(DeviceSampling),
    /// The host reads them and may take the tokens back: the sequence stays as long as it was.
    Tentative,
}

impl Decode<'_> {
    /// Some tokens of one sequence, from their ids to logits and the new length. A tentative step
    /// stashes what its commit needs, one stash per delta-rule layer.
    pub(super) fn step(
        &self,
        state: &GpuState,
        next: Next,
        stashes: &[DeltaStash],
    ) -> Result<Commands, DeviceError> {
        let mut commands = Commands::new();
        let c = &mut commands;
        let (s, n_tokens) = (self.s, self.n_tokens);
        let seq = state.seq.all();
        c.label("embed");
        ops::embed(self.kernels, c, n_tokens, &s.ids, &self.weights.embed_tokens, &s.x)?;
        let mut stashes = stashes.iter();
        for (layer, layer_state) in self.weights.layers.iter().zip(&state.layers) {
            match (&layer.mixer, layer_state) {
                (GpuMixer::GatedDeltaNet(w), LayerState::GatedDeltaNet(layer_state)) => {
                    c.label("gated delta net");
                    let stash = stashes.next();
                    assert_eq!(stash.is_some(), next == Next::Tentative, "a stash per layer");
                    self.gated_delta_net(c, &layer.input_norm, w, layer_state, state, stash)?;
                }
                (GpuMixer::Attention(w), LayerState::Attention(rows)) => {
                    c.label("attention");
                    self.attention(c, &layer.input_norm, w, rows, state)?;
                }
                _ => unreachable!("states and weights follow the same layer pattern"),
            }
            c.label("experts");
            self.experts(c, layer)?;
        }
        c.label("lm_head");
        let input = Input::Normed { x: &s.x, gain: &self.weights.norm };
        let products = [(&self.weights.lm_head, &s.logits)];
        ops::gemv(self.kernels, c, n_tokens, input, &products, Output::Store)?;
        match next {
            Next::Host => ops::advance(self.kernels, c, n_tokens, &seq)?,
            Next::Greedy => {
                let step = NextToken {
                    logits: &s.logits,
                    scratch: &s.argmax,
                    ids: &s.ids,
                    seq: &seq,
                    noted: &s.noted,
                };
                ops::next_token(self.kernels, c, step)?;
            }
            Next::Sampled(rules) => {
                let step = Sample {
                    logits: &s.logits,
                    scratch: &s.sample,
                    draws: &s.draws,
                    ids: &s.ids,
                    seq: &seq,
                    noted: &s.noted,
                };
                ops::sample(self.kernels, c, &rules, step)?;
            }
            Next::Tentative => {}
        }
        Ok(commands)
    }

    /// `x += moe(norm(x))`
    fn experts(&self, c: &mut Commands, layer: &GpuLayer) -> Result<(), DeviceError> {
        let (s, gain, moe) = (self.s, &layer.post_attention_norm, &layer.moe);
        let products =
            [(&moe.router, &s.router_logits), (&moe.shared_expert_gate, &s.shared_logit)];
        let input = Input::Normed { x: &s.x, gain };
        ops::gemv(self.kernels, c, self.n_tokens, input, &products, Output::Store)?;
        let step = MoeDecode {
            n_tokens: self.n_tokens,
            x: &s.x,
            gain,
            router_logits: &s.router_logits,
            shared_logit: &s.shared_logit,
            a: &s.expert_a,
            experts: &s.experts,
        };
        ops::moe_decode(self.kernels, c, self.shape, step, moe)
    }

    fn gated_delta_net(
        &self,
        c: &mut Commands,
        gain: &Slice,
        w: &GpuDelta,
        layer_state: &ops::DeltaState,
        state: &GpuState,
        stash: Option<&DeltaStash>,
    ) -> Result<(), DeviceError> {
        let (s, n_tokens) = (self.s, self.n_tokens);
        let products = [
            (&w.in_proj_qkv, &s.u),
            (&w.in_proj_z, &s.z),
            (&w.in_proj_b, &s.b),
            (&w.in_proj_a, &s.a),
        ];
        let input = Input::Normed { x: &s.x, gain };
        ops::gemv(self.kernels, c, n_tokens, input, &products, Output::Store)?;
        let seq = state.seq.all();
        let step =
            DeltaStep { n_tokens, u: &s.u, b: &s.b, a: &s.a, seq: &seq, o: &s.o, part: &s.part };
        ops::delta_step(self.kernels, c, self.shape, step, &w.vectors, layer_state, stash)?;
        let input = Input::GatedNorm {
            o: &s.o,
            part: &s.part,
            gain: &w.vectors.norm,
            z: &s.z,
            n_slices: ops::n_slices(self.shape),
        };
        ops::gemv(self.kernels, c, n_tokens, input, &[(&w.out_proj, &s.x)], Output::Add)
    }

    fn attention(
        &self,
        c: &mut Commands,
        gain: &Slice,
        w: &GpuAttention,
        rows: &ops::KvRows,
        state: &GpuState,
    ) -> Result<(), DeviceError> {
        let (s, n_tokens) = (self.s, self.n_tokens);
        let products = [(&w.q_proj, &s.qg), (&w.k_proj, &s.k), (&w.v_proj, &s.v)];
        let input = Input::Normed { x: &s.x, gain };
        ops::gemv(self.kernels, c, n_tokens, input, &products, Output::Store)?;
        let seq = state.seq.all();
        for t in 0..n_tokens {
            // One after another: each sees the rows of those before it.
            let row = |slice: &Slice| {
                let len = slice.len / FEW_TOKENS;
                let start = slice.offset + t * len;
                slice.buffer.slice(start..start + len)
            };
            let step = AttentionDecode {
                qg: &row(&s.qg),
                k: &row(&s.k),
                v: &row(&s.v),
                rope: &state.rope,
                seq: &seq,
                offset: t,
                cut: self.cut,
                parts: &s.parts,
                out: &row(&s.attended),
            };
            ops::attention_decode(self.kernels, c, self.shape, step, &w.norms, rows)?;
        }
        let input = Input::Plain(&s.attended);
        ops::gemv(self.kernels, c, n_tokens, input, &[(&w.o_proj, &s.x)], Output::Add)
    }
}
