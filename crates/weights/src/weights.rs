//! The weights of the model, by role.

use crate::{WeightExperts, WeightMatrix};

/// All weights of the text model. Norm gains are the final factors, `1 + w` folded in.
#[derive(Clone, Debug)]
pub struct ModelWeights {
    /// `[vocab_size, hidden]`
    pub embed_tokens: WeightMatrix,
    /// Decoder layers.
    pub layers: Vec<LayerWeights>,
    /// Final norm, `[hidden]`.
    pub norm: Vec<f32>,
    /// `[vocab_size, hidden]`
    pub lm_head: WeightMatrix,
    /// The multi-token-prediction head, if the checkpoint has it.
    pub mtp: Option<MtpWeights>,
}

/// One decoder layer.
#[derive(Clone, Debug)]
pub struct LayerWeights {
    /// `[hidden]`
    pub input_norm: Vec<f32>,
    /// Gated delta net or gated attention.
    pub mixer: MixerWeights,
    /// `[hidden]`
    pub post_attention_norm: Vec<f32>,
    /// Router and experts.
    pub moe: MoeWeights,
}

/// The mixer of a layer.
#[derive(Clone, Debug)]
pub enum MixerWeights {
    /// Three of four layers.
    GatedDeltaNet(GatedDeltaNetWeights),
    /// Every fourth layer.
    Attention(AttentionWeights),
}

/// Gated attention.
#[derive(Clone, Debug)]
pub struct AttentionWeights {
    /// `[n_heads * 2 * head_dim, hidden]`: per head the query rows, then the gate rows.
    pub q_proj: WeightMatrix,
    /// `[n_kv_heads * head_dim, hidden]`
    pub k_proj: WeightMatrix,
    /// `[n_kv_heads * head_dim, hidden]`
    pub v_proj: WeightMatrix,
    /// `[hidden, n_heads * head_dim]`
    pub o_proj: WeightMatrix,
    /// `[head_dim]`
    pub q_norm: Vec<f32>,
    /// `[head_dim]`
    pub k_norm: Vec<f32>,
}

/// Gated delta net.
#[derive(Clone, Debug)]
pub struct GatedDeltaNetWeights {
    /// `[conv_channels, hidden]`: q, k, v rows.
    pub in_proj_qkv: WeightMatrix,
    /// `[value_width, hidden]`
    pub in_proj_z: WeightMatrix,
    /// `[n_v_heads, hidden]`
    pub in_proj_b: WeightMatrix,
    /// `[n_v_heads, hidden]`
    pub in_proj_a: WeightMatrix,
    /// `[hidden, value_width]`
    pub out_proj: WeightMatrix,
    /// `[conv_channels, conv_kernel]`; the last tap is the current token.
    pub conv1d: Vec<f32>,
    /// `-exp(A_log)`, `[n_v_heads]`
    pub decay: Vec<f32>,
    /// `[n_v_heads]`
    pub dt_bias: Vec<f32>,
    /// Plain gain, `[v_head_dim]`
    pub norm: Vec<f32>,
}

/// Router, routed experts and the shared expert.
#[derive(Clone, Debug)]
pub struct MoeWeights {
    /// Router, `[n_experts, hidden]`
    pub gate: WeightMatrix,
    /// Each `[expert_width, hidden]`
    pub expert_gate: WeightExperts,
    /// Each `[expert_width, hidden]`
    pub expert_up: WeightExperts,
    /// Each `[hidden, expert_width]`
    pub expert_down: WeightExperts,
    /// `[shared_expert_width, hidden]`
    pub shared_gate_proj: WeightMatrix,
    /// `[shared_expert_width, hidden]`
    pub shared_up_proj: WeightMatrix,
    /// `[hidden, shared_expert_width]`
    pub shared_down_proj: WeightMatrix,
    /// `[1, hidden]`
    pub shared_expert_gate: WeightMatrix,
}

/// The multi-token-prediction head.
#[derive(Clone, Debug)]
pub struct MtpWeights {
    /// `[hidden, 2 * hidden]`: the embedding half first.
    pub fc: WeightMatrix,
    /// `[hidden]`
    pub pre_fc_norm_embedding: Vec<f32>,
    /// `[hidden]`
    pub pre_fc_norm_hidden: Vec<f32>,
    /// `[hidden]`
    pub norm: Vec<f32>,
    /// One attention layer.
    pub layer: LayerWeights,
}
