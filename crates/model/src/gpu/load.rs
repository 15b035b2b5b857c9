//! The weights of a checkpoint on a device, by role.

use super::GpuMatrix;
use super::ops::{DeltaVectors, GpuMoe, HeadNorms};
use super::weights::Uploader;
use lily_device::{Device, DeviceError, Slice};
use lily_weights::{
    AttentionWeights, GatedDeltaNetWeights, LayerWeights, MixerWeights, ModelWeights, MoeWeights,
};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(super) struct GpuWeights {
    pub(super) embed_tokens: GpuMatrix,
    pub(super) layers: Vec<GpuLayer>,
    /// f32 `[hidden]`
    pub(super) norm: Slice,
    pub(super) lm_head: GpuMatrix,
}

#[derive(Clone, Debug)]
pub(super) struct GpuLayer {
    pub(super) input_norm: Slice,
    pub(super) mixer: GpuMixer,
    pub(super) post_attention_norm: Slice,
    pub(super) moe: GpuMoe,
}

#[derive(Clone, Debug)]
pub(super) enum GpuMixer {
    GatedDeltaNet(GpuDelta),
    Attention(GpuAttention),
}

#[derive(Clone, Debug)]
pub(super) struct GpuDelta {
    pub(super) in_proj_qkv: GpuMatrix,
    pub(super) in_proj_z: GpuMatrix,
    pub(super) in_proj_b: GpuMatrix,
    pub(super) in_proj_a: GpuMatrix,
    pub(super) out_proj: GpuMatrix,
    pub(super) vectors: DeltaVectors,
}

#[derive(Clone, Debug)]
pub(super) struct GpuAttention {
    pub(super) q_proj: GpuMatrix,
    pub(super) k_proj: GpuMatrix,
    pub(super) v_proj: GpuMatrix,
    pub(super) o_proj: GpuMatrix,
    pub(super) norms: HeadNorms,
}

impl GpuWeights {
    /// Brings everything but the MTP head to the device. Also says how many bytes that took.
    pub(super) fn upload(
        device: &Arc<dyn Device>,
        weights: &ModelWeights,
    ) -> Result<(Self, u64), DeviceError> {
        let mut up = Uploader::new(Arc::clone(device));
        let this = Self {
            embed_tokens: up.matrix(&weights.embed_tokens, "embed_tokens")?,
            layers: weights
                .layers
                .iter()
                .map(|layer| GpuLayer::upload(&mut up, layer))
                .collect::<Result<_, _>>()?,
            norm: up.floats(&weights.norm, "norm")?,
            lm_head: up.matrix(&weights.lm_head, "lm_head")?,
        };
        Ok((this, up.bytes))
    }
}

impl GpuLayer {
    fn upload(up: &mut Uploader, layer: &LayerWeights) -> Result<Self, DeviceError> {
        Ok(Self {
            input_norm: up.floats(&layer.input_norm, "input_layernorm")?,
            mixer: match &layer.mixer {
                MixerWeights::GatedDeltaNet(w) => GpuMixer::GatedDeltaNet(delta(up, w)?),
                MixerWeights::Attention(w) => GpuMixer::Attention(attention(up, w)?),
            },
            post_attention_norm: up
                .floats(&layer.post_attention_norm, "post_attention_layernorm")?,
            moe: moe(up, &layer.moe)?,
        })
    }
}

fn delta(up: &mut Uploader, w: &GatedDeltaNetWeights) -> Result<GpuDelta, DeviceError> {
    Ok(GpuDelta {
        in_proj_qkv: up.matrix(&w.in_proj_qkv, "in_proj_qkv")?,
        in_proj_z: up.matrix(&w.in_proj_z, "in_proj_z")?,
        in_proj_b: up.matrix(&w.in_proj_b, "in_proj_b")?,
        in_proj_a: up.matrix(&w.in_proj_a, "in_proj_a")?,
        out_proj: up.matrix(&w.out_proj, "out_proj")?,
        vectors: DeltaVectors {
            conv1d: up.floats(&w.conv1d, "conv1d")?,
            decay: up.floats(&w.decay, "A_log")?,
            dt_bias: up.floats(&w.dt_bias, "dt_bias")?,
            norm: up.floats(&w.norm, "linear_attn.norm")?,
        },
    })
}

fn attention(up: &mut Uploader, w: &AttentionWeights) -> Result<GpuAttention, DeviceError> {
    Ok(GpuAttention {
        q_proj: up.matrix(&w.q_proj, "q_proj")?,
        k_proj: up.matrix(&w.k_proj, "k_proj")?,
        v_proj: up.matrix(&w.v_proj, "v_proj")?,
        o_proj: up.matrix(&w.o_proj, "o_proj")?,
        norms: HeadNorms { q: up.floats(&w.q_norm, "q_norm")?, k: up.floats(&w.k_norm, "k_norm")? },
    })
}

fn moe(up: &mut Uploader, w: &MoeWeights) -> Result<GpuMoe, DeviceError> {
    Ok(GpuMoe {
        router: up.matrix(&w.gate, "router")?,
        gate: up.experts(&w.expert_gate, "experts.gate_proj")?,
        up: up.experts(&w.expert_up, "experts.up_proj")?,
        down: up.experts(&w.expert_down, "experts.down_proj")?,
        shared_gate: up.matrix(&w.shared_gate_proj, "shared_expert.gate_proj")?,
        shared_up: up.matrix(&w.shared_up_proj, "shared_expert.up_proj")?,
        shared_down: up.matrix(&w.shared_down_proj, "shared_expert.down_proj")?,
        shared_expert_gate: up.matrix(&w.shared_expert_gate, "shared_expert_gate")?,
    })
}
