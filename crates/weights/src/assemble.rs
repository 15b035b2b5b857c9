//! From named tensors to [`ModelWeights`]: every tensor is asked for once, by canonical name, with
//! the shape that `config.json` implies. What nobody asked for does not belong.

use crate::error::{CHECK_DOWNLOAD, DOWNLOAD_AGAIN, MATCHING_FILES};
use crate::formats::NormGain;
use crate::mapping::Bytes;
use crate::matrix::Data;
use crate::quant::affine::words_per_row;
use crate::quantization::Quantization;
use crate::safetensors::{Dtype, StoredTensor};
use crate::weights::{
    AttentionWeights, GatedDeltaNetWeights, LayerWeights, MixerWeights, ModelWeights, MoeWeights,
    MtpWeights,
};
use crate::{FloatType, Shape, WeightExperts, WeightMatrix, WeightsError};
use std::collections::BTreeMap;

/// A tensor with the name it has in its file.
#[derive(Debug)]
pub(crate) struct NamedTensor {
    pub(crate) stored_name: String,
    pub(crate) tensor: StoredTensor,
}

/// The tensors of a checkpoint by canonical name, taken one after another.
#[derive(Debug)]
pub(crate) struct Tensors {
    pub(crate) by_name: BTreeMap<String, NamedTensor>,
    pub(crate) quantization: Option<Quantization>,
    pub(crate) norm_gain: fn(&str, &[f32]) -> NormGain,
    /// Bytes that had to be copied because a file stores them misaligned.
    pub(crate) copied_bytes: usize,
}

pub(crate) fn assemble(
    shape: &Shape,
    mut tensors: Tensors,
) -> Result<(ModelWeights, usize), WeightsError> {
    let weights = tensors.model(shape)?;
    if let Some(extra) = tensors.by_name.values().next() {
        return Err(WeightsError::ExtraTensor {
            tensor: extra.stored_name.clone(),
            remedy: MATCHING_FILES,
        });
    }
    Ok((weights, tensors.copied_bytes))
}

impl Tensors {
    fn model(&mut self, shape: &Shape) -> Result<ModelWeights, WeightsError> {
        let (vocab, hidden) = (shape.vocab_size, shape.hidden);
        Ok(ModelWeights {
            embed_tokens: self.matrix("embed_tokens", vocab, hidden)?,
            layers: (0..shape.n_layers)
                .map(|layer| {
                    self.layer(&format!("layers.{layer}"), shape, shape.is_attention(layer))
                })
                .collect::<Result<_, _>>()?,
            norm: self.norm("norm.weight", hidden)?,
            lm_head: self.matrix("lm_head", vocab, hidden)?,
            mtp: self.mtp(shape)?,
        })
    }

    /// Present or absent as a whole; the config key proves nothing.
    fn mtp(&mut self, shape: &Shape) -> Result<Option<MtpWeights>, WeightsError> {
        if !self.by_name.keys().any(|name| name.starts_with("mtp.")) {
            return Ok(None);
        }
        let hidden = shape.hidden;
        Ok(Some(MtpWeights {
            fc: self.matrix("mtp.fc", hidden, 2 * hidden)?,
            pre_fc_norm_embedding: self.norm("mtp.pre_fc_norm_embedding.weight", hidden)?,
            pre_fc_norm_hidden: self.norm("mtp.pre_fc_norm_hidden.weight", hidden)?,
            norm: self.norm("mtp.norm.weight", hidden)?,
            layer: self.layer("mtp.layers.0", shape, true)?,
        }))
    }

    fn layer(
        &mut self,
        p: &str,
        shape: &Shape,
        is_attention: bool,
    ) -> Result<LayerWeights, WeightsError> {
        let hidden = shape.hidden;
        let mixer = if is_attention {
            MixerWeights::Attention(self.attention(&format!("{p}.self_attn"), shape)?)
        } else {
            MixerWeights::GatedDeltaNet(self.delta_net(&format!("{p}.linear_attn"), shape)?)
        };
        Ok(LayerWeights {
            input_norm: self.norm(&format!("{p}.input_layernorm.weight"), hidden)?,
            mixer,
            post_attention_norm: self
                .norm(&format!("{p}.post_attention_layernorm.weight"), hidden)?,
            moe: self.moe(&format!("{p}.mlp"), shape)?,
        })
    }

    fn attention(&mut self, p: &str, shape: &Shape) -> Result<AttentionWeights, WeightsError> {
        let (hidden, d) = (shape.hidden, shape.head_dim);
        let (q_width, kv_width) = (shape.n_heads * d, shape.n_kv_heads * d);
        Ok(AttentionWeights {
            q_proj: self.matrix(&format!("{p}.q_proj"), 2 * q_width, hidden)?,
            k_proj: self.matrix(&format!("{p}.k_proj"), kv_width, hidden)?,
            v_proj: self.matrix(&format!("{p}.v_proj"), kv_width, hidden)?,
            o_proj: self.matrix(&format!("{p}.o_proj"), hidden, q_width)?,
            q_norm: self.norm(&format!("{p}.q_norm.weight"), d)?,
            k_norm: self.norm(&format!("{p}.k_norm.weight"), d)?,
        })
    }

    fn delta_net(&mut self, p: &str, shape: &Shape) -> Result<GatedDeltaNetWeights, WeightsError> {
        let (hidden, heads, width) = (shape.hidden, shape.n_v_heads, shape.value_width());
        let (channels, taps) = (shape.conv_channels(), shape.conv_kernel);
        let decay = self.decay(&format!("{p}.A_log"), heads)?;
        Ok(GatedDeltaNetWeights {
            in_proj_qkv: self.matrix(&format!("{p}.in_proj_qkv"), channels, hidden)?,
            in_proj_z: self.matrix(&format!("{p}.in_proj_z"), width, hidden)?,
            in_proj_b: self.matrix(&format!("{p}.in_proj_b"), heads, hidden)?,
            in_proj_a: self.matrix(&format!("{p}.in_proj_a"), heads, hidden)?,
            out_proj: self.matrix(&format!("{p}.out_proj"), hidden, width)?,
            // [channels, 1, taps] and MLX's [channels, taps, 1] are the same bytes.
            conv1d: self.vector(
                &format!("{p}.conv1d.weight"),
                &[&[channels, 1, taps], &[channels, taps, 1], &[channels, taps]],
            )?,
            decay,
            dt_bias: self.vector(&format!("{p}.dt_bias"), &[&[heads]])?,
            norm: self.vector(&format!("{p}.norm.weight"), &[&[shape.v_head_dim]])?,
        })
    }

    fn moe(&mut self, p: &str, shape: &Shape) -> Result<MoeWeights, WeightsError> {
        let (hidden, width) = (shape.hidden, shape.shared_expert_width);
        let [expert_gate, expert_up, expert_down] = self.experts(p, shape)?;
        Ok(MoeWeights {
            gate: self.matrix(&format!("{p}.gate"), shape.n_experts, hidden)?,
            expert_gate,
            expert_up,
            expert_down,
            shared_gate_proj: self.matrix(
                &format!("{p}.shared_expert.gate_proj"),
                width,
                hidden,
            )?,
            shared_up_proj: self.matrix(&format!("{p}.shared_expert.up_proj"), width, hidden)?,
            shared_down_proj: self.matrix(
                &format!("{p}.shared_expert.down_proj"),
                hidden,
                width,
            )?,
            shared_expert_gate: self.matrix(&format!("{p}.shared_expert_gate"), 1, hidden)?,
        })
    }

    /// Gate, up and down of all experts, in any of the three ways they are stored.
    fn experts(&mut self, p: &str, shape: &Shape) -> Result<[WeightExperts; 3], WeightsError> {
        let (n, hidden, width) = (shape.n_experts, shape.hidden, shape.expert_width);
        let has = |name: &str| self.by_name.contains_key(&format!("{p}.{name}"));
        if has("switch_mlp.gate_proj.weight") {
            return Ok([
                split(&self.stack(&format!("{p}.switch_mlp.gate_proj"), n, width, hidden)?, n),
                split(&self.stack(&format!("{p}.switch_mlp.up_proj"), n, width, hidden)?, n),
                split(&self.stack(&format!("{p}.switch_mlp.down_proj"), n, hidden, width)?, n),
            ]);
        }
        if has("experts.0.gate_proj.weight") {
            let mut each = |name: &str, rows, cols| -> Result<WeightExperts, WeightsError> {
                let experts = (0..n)
                    .map(|e| self.matrix(&format!("{p}.experts.{e}.{name}"), rows, cols))
                    .collect::<Result<_, _>>()?;
                Ok(WeightExperts { rows, cols, experts })
            };
            return Ok([
                each("gate_proj", width, hidden)?,
                each("up_proj", width, hidden)?,
                each("down_proj", hidden, width)?,
            ]);
        }
        let fused = self.plain_stack(&format!("{p}.experts.gate_up_proj"), n, 2 * width, hidden)?;
        let down = self.plain_stack(&format!("{p}.experts.down_proj"), n, hidden, width)?;
        let half = |first: usize| WeightExperts {
            rows: width,
            cols: hidden,
            experts: (0..n)
                .map(|e| 2 * width * e + first)
                .map(|row| fused.row_range(row..row + width))
                .collect(),
        };
        Ok([half(0), half(width), split(&down, n)])
    }

    fn take(&mut self, name: &str) -> Result<NamedTensor, WeightsError> {
        self.by_name.remove(name).ok_or_else(|| WeightsError::MissingTensor {
            tensor: name.to_owned(),
            remedy: CHECK_DOWNLOAD,
        })
    }

    /// A small float tensor in f32, of one of the given shapes.
    fn vector(&mut self, name: &str, shapes: &[&[usize]]) -> Result<Vec<f32>, WeightsError> {
        let named = self.take(name)?;
        let tensor = &named.tensor;
        let Dtype::Float(dtype) = tensor.dtype else {
            return Err(wrong(&named, format!("a float tensor {:?}", shapes[0])));
        };
        if !shapes.contains(&&tensor.shape[..]) {
            return Err(wrong(&named, format!("{:?}", shapes[0])));
        }
        let values = to_f32(dtype, tensor.bytes.as_slice());
        match values.iter().find(|x| !x.is_finite()) {
            None => Ok(values),
            Some(x) => Err(WeightsError::WrongTensor {
                tensor: named.stored_name,
                expected: "finite values".to_owned(),
                found: format!("with {x} in it"),
                remedy: DOWNLOAD_AGAIN,
            }),
        }
    }

    /// `-exp(A_log)`
    fn decay(&mut self, name: &str, heads: usize) -> Result<Vec<f32>, WeightsError> {
        let a_log = self.vector(name, &[&[heads]])?;
        let decay: Vec<f32> = a_log.iter().map(|a_log| -a_log.exp()).collect();
        match decay.iter().zip(&a_log).find(|(decay, _)| !decay.is_finite()) {
            None => Ok(decay),
            Some((_, a_log)) => Err(WeightsError::WrongTensor {
                tensor: name.to_owned(),
                expected: "values with a finite exponential".to_owned(),
                found: format!("with {a_log} in it"),
                remedy: DOWNLOAD_AGAIN,
            }),
        }
    }

    /// A `(1 + w)` norm as its final gain.
    fn norm(&mut self, name: &str, len: usize) -> Result<Vec<f32>, WeightsError> {
        let mut gain = self.vector(name, &[&[len]])?;
        if (self.norm_gain)(name, &gain) == NormGain::Delta {
            for w in &mut gain {
                *w += 1.0;
            }
        }
        Ok(gain)
    }

    fn matrix(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<WeightMatrix, WeightsError> {
        self.weight(name, &[rows], cols)
    }

    /// A stack of `n` matrices as one matrix of `n * rows` rows.
    fn stack(
        &mut self,
        name: &str,
        n: usize,
        rows: usize,
        cols: usize,
    ) -> Result<WeightMatrix, WeightsError> {
        self.weight(name, &[n, rows], cols)
    }

    /// A stack stored under its bare name, without `.weight`.
    fn plain_stack(
        &mut self,
        name: &str,
        n: usize,
        rows: usize,
        cols: usize,
    ) -> Result<WeightMatrix, WeightsError> {
        let named = self.take(name)?;
        self.plain(&named, &[n, rows], cols)
    }

    fn weight(
        &mut self,
        name: &str,
        lead: &[usize],
        cols: usize,
    ) -> Result<WeightMatrix, WeightsError> {
        let weight = self.take(&format!("{name}.weight"))?;
        if self.by_name.contains_key(&format!("{name}.scales")) {
            let scales = self.take(&format!("{name}.scales"))?;
            let biases = self.take(&format!("{name}.biases"))?;
            return self.affine(name, [&weight, &scales, &biases], lead, cols);
        }
        self.plain(&weight, lead, cols)
    }

    fn plain(
        &mut self,
        named: &NamedTensor,
        lead: &[usize],
        cols: usize,
    ) -> Result<WeightMatrix, WeightsError> {
        let shape = with(lead, cols);
        let Dtype::Float(dtype) = named.tensor.dtype else {
            return Err(wrong(named, format!("BF16, F16 or F32 {shape:?}")));
        };
        if named.tensor.shape != shape {
            return Err(wrong(named, format!("{shape:?}")));
        }
        let elements = self.aligned(named, dtype.size())?;
        let rows = lead.iter().product();
        Ok(WeightMatrix { rows, cols, data: Data::Plain { dtype, elements } })
    }

    fn affine(
        &mut self,
        name: &str,
        [weight, scales, biases]: [&NamedTensor; 3],
        lead: &[usize],
        cols: usize,
    ) -> Result<WeightMatrix, WeightsError> {
        let module = weight.stored_name.trim_end_matches(".weight");
        let quant = self.quantization.as_ref().and_then(|quantization| quantization.of(name));
        let Some(quant) = quant else {
            return Err(WeightsError::UnsupportedQuantisation {
                module: module.to_owned(),
                found: "the tensor has scales, but config.json gives no bits for it".to_owned(),
                remedy: MATCHING_FILES,
            });
        };
        if !cols.is_multiple_of(quant.group) {
            return Err(WeightsError::UnsupportedQuantisation {
                module: module.to_owned(),
                found: format!("groups of {} do not divide {cols} inputs", quant.group),
                remedy: MATCHING_FILES,
            });
        }
        let codes_shape = with(lead, words_per_row(cols, quant.bits));
        if weight.tensor.dtype != Dtype::U32 || weight.tensor.shape != codes_shape {
            let expected = format!("U32 {codes_shape:?} ({} bits)", quant.bits);
            return Err(wrong(weight, expected));
        }
        let group_shape = with(lead, cols / quant.group);
        let Dtype::Float(dtype) = scales.tensor.dtype else {
            return Err(wrong(scales, format!("BF16, F16 or F32 {group_shape:?}")));
        };
        for tensor in [scales, biases] {
            if tensor.tensor.dtype != scales.tensor.dtype || tensor.tensor.shape != group_shape {
                return Err(wrong(
                    tensor,
                    format!("{} {group_shape:?}", scales.tensor.dtype.name()),
                ));
            }
        }
        let data = Data::Affine {
            bits: quant.bits,
            group: quant.group,
            codes: self.aligned(weight, 4)?,
            dtype,
            scales: self.aligned(scales, dtype.size())?,
            biases: self.aligned(biases, dtype.size())?,
        };
        Ok(WeightMatrix { rows: lead.iter().product(), cols, data })
    }

    /// The bytes in place, or a copy if the file stores them at an odd address.
    fn aligned(&mut self, named: &NamedTensor, align: usize) -> Result<Bytes, WeightsError> {
        let bytes = &named.tensor.bytes;
        if bytes.as_slice().as_ptr().addr().is_multiple_of(align) {
            return Ok(bytes.clone());
        }
        self.copied_bytes += bytes.len();
        Bytes::copied(bytes.as_slice()).map_err(|error| WeightsError::Damaged {
            file: named.stored_name.clone(),
            what: "misaligned data".to_owned(),
            expected: format!("an address that is a multiple of {align}"),
            found: format!("another, and no memory for a copy ({error})"),
            remedy: DOWNLOAD_AGAIN,
        })
    }
}

fn with(lead: &[usize], last: usize) -> Vec<usize> {
    lead.iter().copied().chain([last]).collect()
}

fn wrong(named: &NamedTensor, expected: String) -> WeightsError {
    WeightsError::WrongTensor {
        tensor: named.stored_name.clone(),
        expected,
        found: named.tensor.describe(),
        remedy: MATCHING_FILES,
    }
}

fn split(stack: &WeightMatrix, n: usize) -> WeightExperts {
    let rows = stack.rows / n;
    let experts = (0..n).map(|e| stack.row_range(e * rows..(e + 1) * rows)).collect();
    WeightExperts { rows, cols: stack.cols, experts }
}

/// Little-endian floats of any alignment.
fn to_f32(dtype: FloatType, bytes: &[u8]) -> Vec<f32> {
    match dtype {
        FloatType::F32 => {
            bytes.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect()
        }
        FloatType::Bf16 => pairs(bytes).map(|bits| half::bf16::from_bits(bits).to_f32()).collect(),
        FloatType::F16 => pairs(bytes).map(|bits| half::f16::from_bits(bits).to_f32()).collect(),
    }
}

fn pairs(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.as_chunks::<2>().0.iter().map(|chunk| u16::from_le_bytes(*chunk))
}
