//! `config.json`: read once, to verify that it is this architecture and to learn the sizes.

use crate::WeightsError;
use crate::quantization::Quantization;
use serde_json::{Map, Value};

const NOT_THIS_MODEL: &str = "Lily runs Qwen3.6-35B-A3B (model_type qwen3_5_moe) and nothing else";
const SIZE_REMEDY: &str = "use a checkpoint of Qwen3.6-35B-A3B or one of its small siblings";

/// Everything that varies between the 35B and its small siblings.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Shape {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Decoder layers.
    pub n_layers: usize,
    /// Rows of the embedding and of `lm_head`, padding included.
    pub vocab_size: usize,
    /// Query heads of attention.
    pub n_heads: usize,
    /// Key and value heads of attention.
    pub n_kv_heads: usize,
    /// Width of an attention head.
    pub head_dim: usize,
    /// Leading dimensions of a head that are rotated.
    pub rotary_dim: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Frequencies driven by time, height and width.
    pub mrope_section: [usize; 3],
    /// Layer `i` is attention iff `(i + 1)` is a multiple of this.
    pub full_attention_interval: usize,
    /// Key heads of the delta rule.
    pub n_k_heads: usize,
    /// Value heads of the delta rule, a multiple of `n_k_heads`.
    pub n_v_heads: usize,
    /// Width of a delta-rule key head.
    pub k_head_dim: usize,
    /// Width of a delta-rule value head.
    pub v_head_dim: usize,
    /// Taps of the causal convolution.
    pub conv_kernel: usize,
    /// Routed experts of a layer.
    pub n_experts: usize,
    /// Experts chosen for a token.
    pub n_experts_per_token: usize,
    /// Width of a routed expert.
    pub expert_width: usize,
    /// Width of the shared expert.
    pub shared_expert_width: usize,
    /// Longest context the checkpoint was made for.
    pub max_positions: usize,
    /// Epsilon of the norms.
    pub rms_eps: f32,
    /// MTP layers that the config mentions; only tensors prove their presence.
    pub n_mtp_layers: usize,
}

impl Shape {
    /// Qwen3.6-35B-A3B.
    pub fn qwen36_35b() -> Self {
        Self {
            hidden: 2048,
            n_layers: 40,
            vocab_size: 248_320,
            n_heads: 16,
            n_kv_heads: 2,
            head_dim: 256,
            rotary_dim: 64,
            rope_theta: 1e7,
            mrope_section: [11, 11, 10],
            full_attention_interval: 4,
            n_k_heads: 16,
            n_v_heads: 32,
            k_head_dim: 128,
            v_head_dim: 128,
            conv_kernel: 4,
            n_experts: 256,
            n_experts_per_token: 8,
            expert_width: 512,
            shared_expert_width: 512,
            max_positions: 262_144,
            rms_eps: 1e-6,
            n_mtp_layers: 1,
        }
    }

    /// Whether layer `layer` is attention; the others are gated delta nets.
    pub fn is_attention(&self, layer: usize) -> bool {
        (layer + 1).is_multiple_of(self.full_attention_interval)
    }

    /// Channels of the causal convolution: q, k and v of the delta rule.
    pub fn conv_channels(&self) -> usize {
        2 * self.n_k_heads * self.k_head_dim + self.n_v_heads * self.v_head_dim
    }

    /// Width of the delta rule's values and of its gate z.
    pub fn value_width(&self) -> usize {
        self.n_v_heads * self.v_head_dim
    }
}

/// A verified `config.json`.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) shape: Shape,
    pub(crate) quantization: Option<Quantization>,
    pub(crate) eos_token_ids: Vec<u32>,
}

/// Reads keys of one JSON object under its path.
struct Keys<'a> {
    path: &'static str,
    map: &'a Map<String, Value>,
}

impl Keys<'_> {
    fn error(&self, key: &str, expected: impl Into<String>, remedy: &'static str) -> WeightsError {
        let found = self.map.get(key).map_or_else(|| "missing".to_owned(), shown);
        let key = format!("{}{key}", self.path);
        WeightsError::Config { key, expected: expected.into(), found, remedy }
    }

    /// A positive integer up to `max`.
    fn size(&self, key: &str, max: usize) -> Result<usize, WeightsError> {
        self.map
            .get(key)
            .and_then(Value::as_u64)
            .and_then(|value| usize::try_from(value).ok())
            .filter(|value| (1..=max).contains(value))
            .ok_or_else(|| self.error(key, format!("an integer from 1 to {max}"), SIZE_REMEDY))
    }

    /// A size that kernels walk in whole vectors.
    fn size_of_vectors(&self, key: &str, max: usize, vector: usize) -> Result<usize, WeightsError> {
        let size = self.size(key, max)?;
        if size.is_multiple_of(vector) {
            return Ok(size);
        }
        Err(self.error(key, format!("a multiple of {vector}"), SIZE_REMEDY))
    }

    /// If the key is there, it must have this value.
    fn must_be(&self, key: &str, expected: &Value) -> Result<(), WeightsError> {
        match self.map.get(key) {
            Some(found) if found != expected => {
                Err(self.error(key, expected.to_string(), NOT_THIS_MODEL))
            }
            _ => Ok(()),
        }
    }

    fn token_ids(&self, key: &str) -> Result<Vec<u32>, WeightsError> {
        token_ids(self.map.get(key)).ok_or_else(|| {
            self.error(key, "a token id or a list of token ids", "repair or remove the entry")
        })
    }
}

/// A value in an error message, cut so that a hostile file cannot flood the terminal.
pub(crate) fn shown(value: &Value) -> String {
    let mut text = value.to_string();
    if text.chars().count() > 80 {
        text = text.chars().take(80).collect::<String>() + "…";
    }
    text
}

impl Config {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, WeightsError> {
        let root: Value = serde_json::from_slice(bytes).map_err(|error| WeightsError::Damaged {
            file: "config.json".to_owned(),
            what: "JSON".to_owned(),
            expected: "an object".to_owned(),
            found: error.to_string(),
            remedy: crate::error::DOWNLOAD_AGAIN,
        })?;
        let empty = Map::new();
        let root = Keys { path: "", map: root.as_object().unwrap_or(&empty) };
        let text = match root.map.get("text_config") {
            Some(Value::Object(map)) => Keys { path: "text_config.", map },
            Some(_) => return Err(root.error("text_config", "an object", NOT_THIS_MODEL)),
            None => Keys { path: "", map: root.map },
        };
        verify_architecture(&root, &text)?;
        verify_assumptions(&text)?;
        let quantization = Quantization::parse(root.map, text.map)?;
        let shape = read_shape(&text)?;
        verify_layer_types(&text, &shape)?;
        let mut eos_token_ids = root.token_ids("eos_token_id")?;
        eos_token_ids.extend(text.token_ids("eos_token_id")?);
        Ok(Self { shape, quantization, eos_token_ids })
    }
}

/// One id or a list of ids; `None` if it is neither. A missing or null key has no ids.
pub(crate) fn token_ids(value: Option<&Value>) -> Option<Vec<u32>> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(ids)) => ids.iter().map(id).collect(),
        Some(one) => id(one).map(|id| vec![id]),
    }
}

fn verify_architecture(root: &Keys<'_>, text: &Keys<'_>) -> Result<(), WeightsError> {
    const MODEL_TYPES: [&str; 2] = ["qwen3_5_moe", "qwen3_5_moe_text"];
    let is_ours = |keys: &Keys<'_>| {
        let model_type = keys.map.get("model_type").and_then(Value::as_str);
        model_type.is_some_and(|name| MODEL_TYPES.contains(&name))
    };
    if !is_ours(root) {
        return Err(root.error("model_type", "\"qwen3_5_moe\"", NOT_THIS_MODEL));
    }
    if text.map.contains_key("model_type") && !is_ours(text) {
        return Err(text.error("model_type", "\"qwen3_5_moe_text\"", NOT_THIS_MODEL));
    }
    Ok(())
}

fn verify_assumptions(text: &Keys<'_>) -> Result<(), WeightsError> {
    text.must_be("hidden_act", &"silu".into())?;
    text.must_be("attention_bias", &false.into())?;
    text.must_be("attn_output_gate", &true.into())?;
    text.must_be("tie_word_embeddings", &false.into())?;
    text.must_be("mtp_use_dedicated_embeddings", &false.into())?;
    text.must_be("linear_conv_kernel_dim", &4.into())?;
    text.must_be("mamba_ssm_dtype", &"float32".into())
}

fn read_shape(text: &Keys<'_>) -> Result<Shape, WeightsError> {
    // Generous against the 35B, small against memory: no product of two of them overflows.
    let wide = 1 << 20;
    let rope = rope_keys(text)?;
    let head_dim = text.size_of_vectors("head_dim", 1024, 16)?;
    let shape = Shape {
        hidden: text.size_of_vectors("hidden_size", wide, 32)?,
        n_layers: text.size("num_hidden_layers", 1024)?,
        vocab_size: text.size("vocab_size", 1 << 24)?,
        n_heads: text.size("num_attention_heads", 1024)?,
        n_kv_heads: text.size("num_key_value_heads", 1024)?,
        head_dim,
        rotary_dim: rotary_dim(text, &rope, head_dim)?,
        rope_theta: rope_theta(text, &rope)?,
        mrope_section: mrope_section(&rope)?,
        full_attention_interval: match text.map.get("full_attention_interval") {
            Some(_) => text.size("full_attention_interval", 1024)?,
            None => 4,
        },
        n_k_heads: text.size("linear_num_key_heads", 1024)?,
        n_v_heads: text.size("linear_num_value_heads", 1024)?,
        k_head_dim: text.size_of_vectors("linear_key_head_dim", 1024, 16)?,
        v_head_dim: text.size_of_vectors("linear_value_head_dim", 1024, 16)?,
        conv_kernel: 4,
        n_experts: text.size("num_experts", 1 << 16)?,
        n_experts_per_token: text.size("num_experts_per_tok", 1 << 10)?,
        expert_width: text.size_of_vectors("moe_intermediate_size", wide, 32)?,
        shared_expert_width: text.size_of_vectors("shared_expert_intermediate_size", wide, 32)?,
        max_positions: match text.map.get("max_position_embeddings") {
            Some(_) => text.size("max_position_embeddings", 1 << 30)?,
            None => 262_144,
        },
        rms_eps: rms_eps(text)?,
        n_mtp_layers: match text.map.get("mtp_num_hidden_layers") {
            Some(Value::Number(n)) if n.as_u64() == Some(0) => 0,
            Some(_) => text.size("mtp_num_hidden_layers", 1)?,
            None => 0,
        },
    };
    if !shape.n_heads.is_multiple_of(shape.n_kv_heads) {
        let expected = format!("a multiple of num_key_value_heads ({})", shape.n_kv_heads);
        return Err(text.error("num_attention_heads", expected, SIZE_REMEDY));
    }
    if !shape.n_v_heads.is_multiple_of(shape.n_k_heads) {
        let expected = format!("a multiple of linear_num_key_heads ({})", shape.n_k_heads);
        return Err(text.error("linear_num_value_heads", expected, SIZE_REMEDY));
    }
    if shape.n_experts_per_token > shape.n_experts {
        let expected = format!("at most num_experts ({})", shape.n_experts);
        return Err(text.error("num_experts_per_tok", expected, SIZE_REMEDY));
    }
    let half = shape.rotary_dim / 2;
    if shape.mrope_section.iter().sum::<usize>() != half {
        let expected = format!("three sizes that sum to {half}");
        return Err(rope.error("mrope_section", expected, SIZE_REMEDY));
    }
    Ok(shape)
}

fn rms_eps(text: &Keys<'_>) -> Result<f32, WeightsError> {
    let value = text.map.get("rms_norm_eps").map_or(Some(1e-6), Value::as_f64);
    match value {
        #[expect(clippy::cast_possible_truncation, reason = "an epsilon needs no more than f32")]
        Some(eps) if eps > 1e-30 && eps < 1e-2 => Ok(eps as f32),
        _ => Err(text.error("rms_norm_eps", "a number between 0 and 0.01", SIZE_REMEDY)),
    }
}

fn rope_keys<'a>(text: &Keys<'a>) -> Result<Keys<'a>, WeightsError> {
    let object = |key: &str, path: &'static str| {
        text.map.get(key).and_then(Value::as_object).map(|map| Keys { path, map })
    };
    let parameters = object("rope_parameters", "text_config.rope_parameters.");
    // The older name; some files carry both, and either may ask for a scaling.
    let scaling = object("rope_scaling", "text_config.rope_scaling.");
    for rope in [&parameters, &scaling].into_iter().flatten() {
        for key in ["rope_type", "type"] {
            let kind = rope.map.get(key).and_then(Value::as_str);
            if kind.is_some_and(|kind| !["default", "mrope"].contains(&kind)) {
                let remedy = "other rotary scalings (YaRN) are not supported yet; remove them to \
                              use the native context";
                return Err(rope.error(key, "\"default\"", remedy));
            }
        }
        rope.must_be("mrope_interleaved", &true.into())?;
    }
    parameters.or(scaling).ok_or_else(|| text.error("rope_parameters", "an object", NOT_THIS_MODEL))
}

fn rotary_dim(text: &Keys<'_>, rope: &Keys<'_>, head_dim: usize) -> Result<usize, WeightsError> {
    let factor = [rope, text]
        .iter()
        .find_map(|keys| keys.map.get("partial_rotary_factor"))
        .and_then(Value::as_f64)
        .filter(|factor| *factor > 0.0 && *factor <= 1.0);
    let error = || rope.error("partial_rotary_factor", "a fraction of the head", SIZE_REMEDY);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 1024")]
    let dim = (head_dim as f64 * factor.ok_or_else(error)?) as usize;
    if dim == 0 || !dim.is_multiple_of(2) {
        return Err(error());
    }
    Ok(dim)
}

fn rope_theta(text: &Keys<'_>, rope: &Keys<'_>) -> Result<f64, WeightsError> {
    [rope, text]
        .iter()
        .find_map(|keys| keys.map.get("rope_theta"))
        .and_then(Value::as_f64)
        .filter(|theta| theta.is_finite() && *theta > 1.0)
        .ok_or_else(|| rope.error("rope_theta", "a number above 1", SIZE_REMEDY))
}

fn mrope_section(rope: &Keys<'_>) -> Result<[usize; 3], WeightsError> {
    let size =
        |size: &Value| size.as_u64().and_then(|size| u16::try_from(size).ok()).map(usize::from);
    let sizes: Option<Vec<usize>> = rope
        .map
        .get("mrope_section")
        .and_then(Value::as_array)
        .filter(|sizes| sizes.len() == 3)
        .and_then(|sizes| sizes.iter().map(size).collect());
    sizes
        .and_then(|sizes| sizes.try_into().ok())
        .ok_or_else(|| rope.error("mrope_section", "a list of three sizes", SIZE_REMEDY))
}

fn verify_layer_types(text: &Keys<'_>, shape: &Shape) -> Result<(), WeightsError> {
    let Some(types) = text.map.get("layer_types") else { return Ok(()) };
    let expected = (0..shape.n_layers)
        .map(|layer| if shape.is_attention(layer) { "full_attention" } else { "linear_attention" });
    let found = types.as_array().map(|types| types.iter().map(Value::as_str));
    if found.is_some_and(|found| found.eq(expected.map(Some))) {
        return Ok(());
    }
    let pattern = format!(
        "{} entries, full_attention at every {}th and linear_attention elsewhere",
        shape.n_layers, shape.full_attention_interval
    );
    Err(text.error("layer_types", pattern, NOT_THIS_MODEL))
}
