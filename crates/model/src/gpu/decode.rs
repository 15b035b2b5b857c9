//! The forward pass of one token: six dispatches a layer, seven where there is attention.

use super::Kernels;
use super::load::{GpuAttention, GpuDelta, GpuLayer, GpuMixer, GpuWeights};
use super::ops::{
    self, AttentionDecode, DeltaStep, Input, MoeDecode, NextToken, Output, conv_channels,
};
use super::state::{GpuState, LayerState};
use lily_device::{Buffer, Commands, Device, DeviceError, Slice};
use lily_weights::Shape;
use std::sync::Arc;

/// Choices of the device that the host has not read yet.
const HISTORY: usize = 4096;

/// Buffers of a decode step, named by role; f32 unless said.
#[derive(Debug)]
pub(super) struct DecodeScratch {
    /// u32, the token to feed.
    pub(super) ids: Slice,
    /// The residual stream, `[hidden]`.
    x: Slice,
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
    /// u32, the tokens chosen on the device.
    pub(super) noted: Slice,
}

impl DecodeScratch {
    pub(super) fn new(device: &Arc<dyn Device>, shape: &Shape) -> Result<Self, DeviceError> {
        let value_width = shape.n_v_heads * shape.v_head_dim;
        let sizes = [
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
            ops::parts_floats(shape),
            shape.n_experts,
            1,
            ops::a_floats(shape),
            shape.n_experts_per_token,
            shape.vocab_size,
            ops::scratch_bytes() / 4,
            HISTORY,
        ];
        let total: usize = sizes.iter().map(|n| (n * 4).next_multiple_of(256)).sum();
        let buffer = device.alloc(total, "decode scratch")?;
        let mut cut = Cut { buffer, at: 0 };
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
            parts,
            router_logits,
            shared_logit,
            expert_a,
            experts,
            logits,
            argmax,
            noted,
        ] = sizes.map(|n| cut.floats(n));
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
}

/// Where the token of the next step comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// From the host, which reads the logits.
    Host,
    /// The largest logit.
    Greedy,
}

impl Decode<'_> {
    /// One token of one sequence, from its id to logits and the new length.
    pub(super) fn token(&self, state: &GpuState, next: Next) -> Result<Commands, DeviceError> {
        let mut commands = Commands::new();
        let c = &mut commands;
        let s = self.s;
        let seq = state.seq.all();
        c.label("embed");
        ops::embed(self.kernels, c, 1, &s.ids, &self.weights.embed_tokens, &s.x)?;
        for (layer, layer_state) in self.weights.layers.iter().zip(&state.layers) {
            self.layer(c, layer, layer_state, state)?;
        }
        c.label("lm_head");
        let input = Input::Normed { x: &s.x, gain: &self.weights.norm };
        let products = [(&self.weights.lm_head, &s.logits)];
        ops::gemv(self.kernels, c, input, &products, Output::Store)?;
        match next {
            Next::Host => ops::advance(self.kernels, c, 1, &seq)?,
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
        }
        Ok(commands)
    }

    /// `x += mixer(norm(x)); x += moe(norm(x))`
    fn layer(
        &self,
        c: &mut Commands,
        layer: &GpuLayer,
        layer_state: &LayerState,
        state: &GpuState,
    ) -> Result<(), DeviceError> {
        match (&layer.mixer, layer_state) {
            (GpuMixer::GatedDeltaNet(w), LayerState::GatedDeltaNet(layer_state)) => {
                c.label("gated delta net");
                self.gated_delta_net(c, &layer.input_norm, w, layer_state, state)?;
            }
            (GpuMixer::Attention(w), LayerState::Attention(rows)) => {
                c.label("attention");
                self.attention(c, &layer.input_norm, w, rows, state)?;
            }
            _ => unreachable!("states and weights follow the same layer pattern"),
        }
        c.label("experts");
        let (s, gain, moe) = (self.s, &layer.post_attention_norm, &layer.moe);
        let products =
            [(&moe.router, &s.router_logits), (&moe.shared_expert_gate, &s.shared_logit)];
        ops::gemv(self.kernels, c, Input::Normed { x: &s.x, gain }, &products, Output::Store)?;
        let step = MoeDecode {
            n_tokens: 1,
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
    ) -> Result<(), DeviceError> {
        let s = self.s;
        let products = [
            (&w.in_proj_qkv, &s.u),
            (&w.in_proj_z, &s.z),
            (&w.in_proj_b, &s.b),
            (&w.in_proj_a, &s.a),
        ];
        ops::gemv(self.kernels, c, Input::Normed { x: &s.x, gain }, &products, Output::Store)?;
        let seq = state.seq.all();
        let step =
            DeltaStep { n_tokens: 1, u: &s.u, b: &s.b, a: &s.a, seq: &seq, o: &s.o, part: &s.part };
        ops::delta_step(self.kernels, c, self.shape, step, &w.vectors, layer_state, None)?;
        let input = Input::GatedNorm {
            o: &s.o,
            part: &s.part,
            gain: &w.vectors.norm,
            z: &s.z,
            n_slices: ops::n_slices(self.shape),
        };
        ops::gemv(self.kernels, c, input, &[(&w.out_proj, &s.x)], Output::Add)
    }

    fn attention(
        &self,
        c: &mut Commands,
        gain: &Slice,
        w: &GpuAttention,
        rows: &ops::KvRows,
        state: &GpuState,
    ) -> Result<(), DeviceError> {
        let s = self.s;
        let products = [(&w.q_proj, &s.qg), (&w.k_proj, &s.k), (&w.v_proj, &s.v)];
        ops::gemv(self.kernels, c, Input::Normed { x: &s.x, gain }, &products, Output::Store)?;
        let seq = state.seq.all();
        let step = AttentionDecode {
            qg: &s.qg,
            k: &s.k,
            v: &s.v,
            rope: &state.rope,
            seq: &seq,
            parts: &s.parts,
            out: &s.attended,
        };
        ops::attention_decode(self.kernels, c, self.shape, step, &w.norms, rows)?;
        let input = Input::Plain(&s.attended);
        ops::gemv(self.kernels, c, input, &[(&w.o_proj, &s.x)], Output::Add)
    }
}
