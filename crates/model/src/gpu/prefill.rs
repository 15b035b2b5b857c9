//! The forward pass of many tokens: the tokens of all steps are the rows of one matrix; projections
//! and experts see them together, the mixers each sequence by itself.

use super::Kernels;
use super::load::{GpuAttention, GpuDelta, GpuLayer, GpuMixer, GpuWeights};
use super::ops::{
    self, AttentionPrefill, AttentionScratch, DeltaPrefill, DeltaScratch, Input, MoePrefill,
    MoeScratch, OutType, Output, conv_channels,
};
use super::state::{GpuState, LayerState};
use lily_device::{Commands, Device, DeviceError, Slice};
use lily_weights::Shape;
use std::ops::Range;
use std::sync::Arc;

/// Buffers of a step of up to `max_tokens` tokens, named by role; activations unless said.
#[derive(Debug)]
pub(super) struct PrefillScratch {
    /// u32, the tokens to feed.
    pub(super) ids: Slice,
    /// The residual stream, f32 `[n_tokens, hidden]`.
    x: Slice,
    /// Normed input of a mixer or of the experts.
    h: Slice,
    /// What the mixer computed, before its output projection.
    mixed: Slice,
    /// Projections into the mixer, one after another.
    wide: Slice,
    z: Slice,
    k: Slice,
    v: Slice,
    /// f32
    b: Slice,
    /// f32
    a: Slice,
    /// f32
    router_logits: Slice,
    /// f32
    shared_logit: Slice,
    attention: AttentionScratch,
    delta: DeltaScratch,
    moe: MoeScratch,
}

impl PrefillScratch {
    pub(super) fn new(
        device: &Arc<dyn Device>,
        shape: &Shape,
        activations: super::Activations,
        max_tokens: usize,
    ) -> Result<Self, DeviceError> {
        let act = activations.size();
        let values = shape.n_v_heads * shape.v_head_dim;
        let heads = shape.n_heads * shape.head_dim;
        let kv = shape.n_kv_heads * shape.head_dim;
        let alloc = |width: usize, element: usize| -> Result<Slice, DeviceError> {
            Ok(device.alloc(max_tokens * width * element, "prefill scratch")?.all())
        };
        Ok(Self {
            ids: alloc(1, 4)?,
            x: alloc(shape.hidden, 4)?,
            h: alloc(shape.hidden, act)?,
            mixed: alloc(values.max(heads), act)?,
            wide: alloc(conv_channels(shape).max(2 * heads), act)?,
            z: alloc(values, act)?,
            k: alloc(kv, act)?,
            v: alloc(kv, act)?,
            b: alloc(shape.n_v_heads, 4)?,
            a: alloc(shape.n_v_heads, 4)?,
            router_logits: alloc(shape.n_experts, 4)?,
            shared_logit: alloc(1, 4)?,
            attention: AttentionScratch::new(&**device, shape, activations, max_tokens)?,
            delta: DeltaScratch::new(&**device, shape, activations, max_tokens)?,
            moe: MoeScratch::new(device, shape, max_tokens, act)?,
        })
    }
}

/// The tokens of one sequence in a batch.
pub(super) struct Part<'a> {
    pub(super) state: &'a GpuState,
    /// Rows of the batch.
    pub(super) rows: Range<usize>,
}

/// What a step needs.
pub(super) struct Prefill<'a> {
    pub(super) kernels: &'a Kernels,
    pub(super) shape: &'a Shape,
    pub(super) weights: &'a GpuWeights,
    pub(super) s: &'a PrefillScratch,
    pub(super) parts: &'a [Part<'a>],
    pub(super) n_tokens: usize,
}

/// Rows `rows` of a matrix of `width` elements of `element` bytes.
fn rows_of(slice: &Slice, rows: &Range<usize>, width: usize, element: usize) -> Slice {
    let row_bytes = width * element;
    let start = slice.offset + rows.start * row_bytes;
    slice.buffer.slice(start..start + rows.len() * row_bytes)
}

impl Prefill<'_> {
    /// From ids to the residual stream after the last layer and to the new lengths. The logits of
    /// the rows `wanted`, in order, go to `logits`, f32 `[wanted.len(), vocab_size]`; a row of the
    /// stream is copied to `row`, f32 `[hidden]`, on its way.
    pub(super) fn step(
        &self,
        wanted: &[usize],
        row: &Slice,
        logits: &Slice,
    ) -> Result<Commands, DeviceError> {
        let mut commands = Commands::new();
        let c = &mut commands;
        let (s, n_tokens) = (self.s, self.n_tokens);
        c.label("embed");
        ops::embed(self.kernels, c, n_tokens, &s.ids, &self.weights.embed_tokens, &s.x)?;
        for (layer_idx, layer) in self.weights.layers.iter().enumerate() {
            ops::rms_norm(self.kernels, c, n_tokens, &s.x, &layer.input_norm, &s.h)?;
            match &layer.mixer {
                GpuMixer::GatedDeltaNet(w) => {
                    c.label("gated delta net");
                    self.gated_delta_net(c, layer_idx, &layer.input_norm, w)?;
                }
                GpuMixer::Attention(w) => {
                    c.label("attention");
                    self.attention(c, layer_idx, w)?;
                }
            }
            c.label("experts");
            self.experts(c, layer)?;
        }
        self.lm_head(c, wanted, row, logits)?;
        for part in self.parts {
            ops::advance(self.kernels, c, part.rows.len(), &part.state.seq.all())?;
        }
        Ok(commands)
    }

    /// Logits of further rows of the last step.
    pub(super) fn logits(
        &self,
        wanted: &[usize],
        row: &Slice,
        logits: &Slice,
    ) -> Result<Commands, DeviceError> {
        let mut commands = Commands::new();
        self.lm_head(&mut commands, wanted, row, logits)?;
        Ok(commands)
    }

    fn lm_head(
        &self,
        c: &mut Commands,
        wanted: &[usize],
        row: &Slice,
        logits: &Slice,
    ) -> Result<(), DeviceError> {
        let s = self.s;
        c.label("lm_head");
        let (hidden, vocab_size) = (self.shape.hidden, self.shape.vocab_size);
        for (idx, wanted) in wanted.iter().enumerate() {
            let x = rows_of(&s.x, &(*wanted..wanted + 1), hidden, 4);
            c.copy(x, rows_of(row, &(idx..idx + 1), hidden, 4));
        }
        if !wanted.is_empty() {
            let all = 0..wanted.len();
            let input =
                Input::Normed { x: &rows_of(row, &all, hidden, 4), gain: &self.weights.norm };
            let out = rows_of(logits, &all, vocab_size, 4);
            let products = [(&self.weights.lm_head, &out)];
            ops::gemv(self.kernels, c, wanted.len(), input, &products, Output::Store)?;
        }
        Ok(())
    }

    fn gated_delta_net(
        &self,
        c: &mut Commands,
        layer_idx: usize,
        gain: &Slice,
        w: &GpuDelta,
    ) -> Result<(), DeviceError> {
        let (s, n_tokens, shape) = (self.s, self.n_tokens, self.shape);
        let (channels, heads) = (conv_channels(shape), shape.n_v_heads);
        let values = heads * shape.v_head_dim;
        let act = self.kernels.activations().size();
        let store = |y| (y, OutType::Act, Output::Store);
        ops::gemm(self.kernels, c, n_tokens, &s.h, &w.in_proj_qkv, store(&s.wide))?;
        ops::gemm(self.kernels, c, n_tokens, &s.h, &w.in_proj_z, store(&s.z))?;
        // The gates decide how much is forgotten: from the f32 stream, as in a decode step.
        let input = Input::Normed { x: &s.x, gain };
        let products = [(&w.in_proj_b, &s.b), (&w.in_proj_a, &s.a)];
        ops::gemv(self.kernels, c, n_tokens, input, &products, Output::Store)?;
        for part in self.parts {
            let LayerState::GatedDeltaNet(state) = &part.state.layers[layer_idx] else {
                unreachable!("states and weights follow the same layer pattern");
            };
            let step = DeltaPrefill {
                n_tokens: part.rows.len(),
                u: &rows_of(&s.wide, &part.rows, channels, act),
                z: &rows_of(&s.z, &part.rows, values, act),
                b: &rows_of(&s.b, &part.rows, heads, 4),
                a: &rows_of(&s.a, &part.rows, heads, 4),
                seq: &part.state.seq.all(),
                out: &rows_of(&s.mixed, &part.rows, values, act),
                scratch: &s.delta,
            };
            ops::delta_prefill(self.kernels, c, shape, step, &w.vectors, state)?;
        }
        let out = (&s.x, OutType::Float, Output::Add);
        ops::gemm(self.kernels, c, n_tokens, &s.mixed, &w.out_proj, out)
    }

    fn attention(
        &self,
        c: &mut Commands,
        layer_idx: usize,
        w: &GpuAttention,
    ) -> Result<(), DeviceError> {
        let (s, n_tokens, shape) = (self.s, self.n_tokens, self.shape);
        let heads = shape.n_heads * shape.head_dim;
        let kv = shape.n_kv_heads * shape.head_dim;
        let act = self.kernels.activations().size();
        let store = |y| (y, OutType::Act, Output::Store);
        ops::gemm(self.kernels, c, n_tokens, &s.h, &w.q_proj, store(&s.wide))?;
        ops::gemm(self.kernels, c, n_tokens, &s.h, &w.k_proj, store(&s.k))?;
        ops::gemm(self.kernels, c, n_tokens, &s.h, &w.v_proj, store(&s.v))?;
        for part in self.parts {
            let LayerState::Attention(rows) = &part.state.layers[layer_idx] else {
                unreachable!("states and weights follow the same layer pattern");
            };
            let step = AttentionPrefill {
                n_tokens: part.rows.len(),
                qg: &rows_of(&s.wide, &part.rows, 2 * heads, act),
                k: &rows_of(&s.k, &part.rows, kv, act),
                v: &rows_of(&s.v, &part.rows, kv, act),
                rope: &part.state.rope,
                seq: &part.state.seq.all(),
                out: &rows_of(&s.mixed, &part.rows, heads, act),
                scratch: &s.attention,
            };
            ops::attention_prefill(self.kernels, c, shape, step, &w.norms, rows)?;
        }
        let out = (&s.x, OutType::Float, Output::Add);
        ops::gemm(self.kernels, c, n_tokens, &s.mixed, &w.o_proj, out)
    }

    /// `x += moe(norm(x))`
    fn experts(&self, c: &mut Commands, layer: &GpuLayer) -> Result<(), DeviceError> {
        let (s, n_tokens, moe) = (self.s, self.n_tokens, &layer.moe);
        let gain = &layer.post_attention_norm;
        ops::rms_norm(self.kernels, c, n_tokens, &s.x, gain, &s.h)?;
        // Near ties decide which expert runs: from the f32 stream, as in a decode step.
        let input = Input::Normed { x: &s.x, gain };
        let products =
            [(&moe.router, &s.router_logits), (&moe.shared_expert_gate, &s.shared_logit)];
        ops::gemv(self.kernels, c, n_tokens, input, &products, Output::Store)?;
        let step = MoePrefill {
            n_tokens,
            h: &s.h,
            router_logits: &s.router_logits,
            shared_logit: &s.shared_logit,
            x: &s.x,
        };
        ops::moe_prefill(self.kernels, c, self.shape, step, moe, &s.moe)
    }
}
