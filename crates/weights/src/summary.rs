//! What a checkpoint holds, by class of tensor, and what running it needs.

use crate::safetensors::StoredTensor;
use crate::weights::{LayerWeights, MixerWeights, ModelWeights};
use crate::{Matrix, Shape, Storage, WeightExperts, WeightMatrix};
use std::collections::BTreeMap;

/// Contents of a checkpoint.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Summary {
    /// One entry per class of tensor, in the order of the forward pass.
    pub classes: Vec<ClassSummary>,
    /// Parameters of the text model, MTP head excluded.
    pub text_parameters: u64,
    /// Bytes of everything that is kept in memory, vision excluded.
    pub weight_bytes: u64,
    /// Bytes read for one decoded token.
    pub bytes_per_token: u64,
    /// Bytes that had to be copied because a file stores them misaligned.
    pub copied_bytes: u64,
}

/// One class of tensors.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ClassSummary {
    /// `embedding`, `attention`, `delta net`, `router`, `routed experts`, …
    pub class: &'static str,
    /// Matrices and vectors; an expert counts as one matrix each.
    pub tensors: u64,
    /// Weights.
    pub parameters: u64,
    /// Bytes as stored.
    pub bytes: u64,
    /// Storage types, e.g. `4-bit g64`, with the parameters of each.
    pub storage: BTreeMap<String, u64>,
}

/// Memory that running needs, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MemoryNeeded {
    /// Weights as stored.
    pub weights: u64,
    /// KV rows of the attention layers, bf16.
    pub kv_cache: u64,
    /// Recurrent and convolution state, f32; independent of the context.
    pub recurrent_state: u64,
}

impl MemoryNeeded {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.weights.saturating_add(self.kv_cache).saturating_add(self.recurrent_state)
    }
}

/// What one sequence of `context_tokens` needs beside `weight_bytes` of weights.
pub fn memory_needed(shape: &Shape, weight_bytes: u64, context_tokens: u64) -> MemoryNeeded {
    let n_attention = (0..shape.n_layers).filter(|&layer| shape.is_attention(layer)).count() as u64;
    let n_delta = shape.n_layers as u64 - n_attention;
    let kv_row = (2 * shape.n_kv_heads * shape.head_dim * 2) as u64;
    let state = shape.n_v_heads * shape.k_head_dim * shape.v_head_dim;
    let conv = (shape.conv_kernel - 1) * shape.conv_channels();
    MemoryNeeded {
        weights: weight_bytes,
        kv_cache: (n_attention * kv_row).saturating_mul(context_tokens),
        recurrent_state: n_delta * ((state + conv) * size_of::<f32>()) as u64,
    }
}

/// "BF16", "4-bit g64"
pub fn storage_name(matrix: &Matrix<'_>) -> String {
    match matrix.storage {
        Storage::Bf16(_) => "bf16".to_owned(),
        Storage::F16(_) => "f16".to_owned(),
        Storage::F32(_) => "f32".to_owned(),
        Storage::Affine(x) => format!("{}-bit g{}", x.bits, x.group),
    }
}

#[derive(Default)]
struct Classes {
    order: Vec<&'static str>,
    by_class: BTreeMap<&'static str, ClassSummary>,
}

impl Classes {
    fn add(&mut self, class: &'static str, parameters: usize, bytes: usize, storage: String) {
        let entry = self.by_class.entry(class).or_insert_with(|| {
            self.order.push(class);
            ClassSummary { class, tensors: 0, parameters: 0, bytes: 0, storage: BTreeMap::new() }
        });
        entry.tensors += 1;
        entry.parameters += parameters as u64;
        entry.bytes += bytes as u64;
        *entry.storage.entry(storage).or_default() += parameters as u64;
    }

    fn view(&mut self, class: &'static str, matrix: &Matrix<'_>) {
        let n = matrix.rows * matrix.cols;
        self.add(class, n, matrix.bytes(), storage_name(matrix));
    }

    fn matrix(&mut self, class: &'static str, matrix: &WeightMatrix) {
        self.view(class, &matrix.view());
    }

    fn experts(&mut self, class: &'static str, experts: &WeightExperts) {
        for expert in 0..experts.n_experts() {
            self.view(class, &experts.expert(expert));
        }
    }

    /// Vectors are held in f32.
    fn vector(&mut self, class: &'static str, vector: &[f32]) {
        self.add(class, vector.len(), size_of_val(vector), "f32".to_owned());
    }

    fn layer(&mut self, layer: &LayerWeights, mtp: bool) {
        let class = |name| if mtp { "mtp head" } else { name };
        match &layer.mixer {
            MixerWeights::Attention(w) => {
                for matrix in [&w.q_proj, &w.k_proj, &w.v_proj, &w.o_proj] {
                    self.matrix(class("attention"), matrix);
                }
                self.vector(class("norms and small vectors"), &w.q_norm);
                self.vector(class("norms and small vectors"), &w.k_norm);
            }
            MixerWeights::GatedDeltaNet(w) => {
                for matrix in
                    [&w.in_proj_qkv, &w.in_proj_z, &w.in_proj_b, &w.in_proj_a, &w.out_proj]
                {
                    self.matrix(class("delta net"), matrix);
                }
                for vector in [&w.conv1d, &w.decay, &w.dt_bias, &w.norm] {
                    self.vector(class("norms and small vectors"), vector);
                }
            }
        }
        self.matrix(class("router"), &layer.moe.gate);
        self.matrix(class("router"), &layer.moe.shared_expert_gate);
        for experts in [&layer.moe.expert_gate, &layer.moe.expert_up, &layer.moe.expert_down] {
            self.experts(class("routed experts"), experts);
        }
        let shared =
            [&layer.moe.shared_gate_proj, &layer.moe.shared_up_proj, &layer.moe.shared_down_proj];
        for matrix in shared {
            self.matrix(class("shared expert"), matrix);
        }
        self.vector(class("norms and small vectors"), &layer.input_norm);
        self.vector(class("norms and small vectors"), &layer.post_attention_norm);
    }
}

impl Summary {
    pub(crate) fn new(
        weights: &ModelWeights,
        vision: &[StoredTensor],
        copied_bytes: usize,
    ) -> Self {
        let mut classes = Classes::default();
        classes.matrix("embedding", &weights.embed_tokens);
        for layer in &weights.layers {
            classes.layer(layer, false);
        }
        classes.vector("norms and small vectors", &weights.norm);
        classes.matrix("lm_head", &weights.lm_head);
        let text_parameters = classes.by_class.values().map(|class| class.parameters).sum();
        if let Some(mtp) = &weights.mtp {
            classes.matrix("mtp head", &mtp.fc);
            for vector in [&mtp.pre_fc_norm_embedding, &mtp.pre_fc_norm_hidden, &mtp.norm] {
                classes.vector("mtp head", vector);
            }
            classes.layer(&mtp.layer, true);
        }
        let weight_bytes = classes.by_class.values().map(|class| class.bytes).sum();
        for tensor in vision {
            let parameters = tensor.shape.iter().product();
            let name = format!("{} (not used yet)", tensor.dtype.name().to_lowercase());
            classes.add("vision tower", parameters, tensor.bytes.len(), name);
        }
        let Classes { order, mut by_class } = classes;
        Self {
            classes: order.iter().filter_map(|class| by_class.remove(class)).collect(),
            text_parameters,
            weight_bytes,
            bytes_per_token: 0,
            copied_bytes: copied_bytes as u64,
        }
    }

    /// Sets the bytes that decoding one token reads, given how many experts it uses.
    pub(crate) fn with_bytes_per_token(mut self, weights: &ModelWeights, shape: &Shape) -> Self {
        let row = weights.embed_tokens.bytes() / weights.embed_tokens.rows;
        let mut bytes = row + weights.lm_head.bytes();
        for layer in &weights.layers {
            let moe = &layer.moe;
            for experts in [&moe.expert_gate, &moe.expert_up, &moe.expert_down] {
                bytes += experts.bytes() / experts.n_experts() * shape.n_experts_per_token;
            }
            bytes += [
                &moe.gate,
                &moe.shared_expert_gate,
                &moe.shared_gate_proj,
                &moe.shared_up_proj,
                &moe.shared_down_proj,
            ]
            .into_iter()
            .map(WeightMatrix::bytes)
            .sum::<usize>();
            bytes += match &layer.mixer {
                MixerWeights::Attention(w) => [&w.q_proj, &w.k_proj, &w.v_proj, &w.o_proj]
                    .into_iter()
                    .map(WeightMatrix::bytes)
                    .sum::<usize>(),
                MixerWeights::GatedDeltaNet(w) => {
                    [&w.in_proj_qkv, &w.in_proj_z, &w.in_proj_b, &w.in_proj_a, &w.out_proj]
                        .into_iter()
                        .map(WeightMatrix::bytes)
                        .sum::<usize>()
                }
            };
        }
        self.bytes_per_token = bytes as u64;
        self
    }
}
