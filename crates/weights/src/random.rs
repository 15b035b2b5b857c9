//! Random weights of any shape, made in memory in seconds: speed does not depend on values.
//!
//! Codes are drawn directly; scales are set so that every matrix has a standard deviation of about
//! `1 / sqrt(cols)`, which keeps activations of order one and the routing spread.

use crate::mapping::{Bytes, Mapping};
use crate::matrix::Data;
use crate::quant::affine::words_per_row;
use crate::summary::Summary;
use crate::weights::{
    AttentionWeights, GatedDeltaNetWeights, LayerWeights, MixerWeights, ModelWeights, MoeWeights,
    MtpWeights,
};
use crate::{Checkpoint, FloatType, Format, GenerationConfig, Shape, WeightExperts, WeightMatrix};
use half::bf16;
use std::sync::Arc;

/// Quantisation of random weights; router gates are always 8-bit groups of 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomQuant {
    /// 2, 3, 4, 5, 6 or 8.
    pub bits: u8,
    /// 32, 64 or 128; must divide every input width of the shape.
    pub group: usize,
}

impl Checkpoint {
    /// A checkpoint of random weights, without tokenizer. `with_mtp` adds an MTP head.
    ///
    /// # Panics
    /// If the group does not divide an input width of `shape`: shapes come from the program here.
    pub fn random(shape: &Shape, quant: RandomQuant, with_mtp: bool, seed: u64) -> Self {
        let mut maker = Maker { quant, stream: seed };
        let weights = maker.model(shape, with_mtp);
        let summary = Summary::new(&weights, &[], 0).with_bytes_per_token(&weights, shape);
        Self {
            shape: shape.clone(),
            format: Format::Random,
            weights,
            tokenizer: None,
            chat_template: None,
            tokenizer_config: None,
            generation: GenerationConfig::default(),
            summary,
        }
    }
}

struct Maker {
    quant: RandomQuant,
    stream: u64,
}

impl Maker {
    fn model(&mut self, shape: &Shape, with_mtp: bool) -> ModelWeights {
        let (vocab, hidden) = (shape.vocab_size, shape.hidden);
        ModelWeights {
            embed_tokens: self.matrix(vocab, hidden),
            layers: (0..shape.n_layers)
                .map(|layer| self.layer(shape, shape.is_attention(layer)))
                .collect(),
            norm: self.gain(hidden),
            lm_head: self.matrix(vocab, hidden),
            mtp: with_mtp.then(|| MtpWeights {
                fc: self.matrix(hidden, 2 * hidden),
                pre_fc_norm_embedding: self.gain(hidden),
                pre_fc_norm_hidden: self.gain(hidden),
                norm: self.gain(hidden),
                layer: self.layer(shape, true),
            }),
        }
    }

    fn layer(&mut self, shape: &Shape, is_attention: bool) -> LayerWeights {
        let hidden = shape.hidden;
        let mixer = if is_attention {
            let (q, kv) = (shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim);
            MixerWeights::Attention(AttentionWeights {
                q_proj: self.matrix(2 * q, hidden),
                k_proj: self.matrix(kv, hidden),
                v_proj: self.matrix(kv, hidden),
                o_proj: self.matrix(hidden, q),
                q_norm: self.gain(shape.head_dim),
                k_norm: self.gain(shape.head_dim),
            })
        } else {
            let heads = shape.n_v_heads;
            MixerWeights::GatedDeltaNet(GatedDeltaNetWeights {
                in_proj_qkv: self.matrix(shape.conv_channels(), hidden),
                in_proj_z: self.matrix(shape.value_width(), hidden),
                in_proj_b: self.matrix(heads, hidden),
                in_proj_a: self.matrix(heads, hidden),
                out_proj: self.matrix(hidden, shape.value_width()),
                conv1d: self.uniform(shape.conv_channels() * shape.conv_kernel, -0.9, 0.9),
                decay: self.uniform(heads, -1.5, 1.5).into_iter().map(|x| -x.exp()).collect(),
                dt_bias: self.uniform(heads, -4.5, 0.5),
                norm: self.uniform(shape.v_head_dim, 0.7, 1.3),
            })
        };
        LayerWeights {
            input_norm: self.gain(hidden),
            mixer,
            post_attention_norm: self.gain(hidden),
            moe: self.moe(shape),
        }
    }

    fn moe(&mut self, shape: &Shape) -> MoeWeights {
        let (hidden, width, shared) = (shape.hidden, shape.expert_width, shape.shared_expert_width);
        let router = RandomQuant { bits: 8, group: 64 };
        MoeWeights {
            gate: self.filled(shape.n_experts, hidden, router),
            expert_gate: self.experts(shape.n_experts, width, hidden),
            expert_up: self.experts(shape.n_experts, width, hidden),
            expert_down: self.experts(shape.n_experts, hidden, width),
            shared_gate_proj: self.matrix(shared, hidden),
            shared_up_proj: self.matrix(shared, hidden),
            shared_down_proj: self.matrix(hidden, shared),
            shared_expert_gate: self.filled(1, hidden, router),
        }
    }

    fn experts(&mut self, n: usize, rows: usize, cols: usize) -> WeightExperts {
        let stack = self.matrix(n * rows, cols);
        let experts = (0..n).map(|e| stack.row_range(e * rows..(e + 1) * rows)).collect();
        WeightExperts { rows, cols, experts }
    }

    fn matrix(&mut self, rows: usize, cols: usize) -> WeightMatrix {
        self.filled(rows, cols, self.quant)
    }

    /// One matrix in memory of its own: codes, then scales, then biases.
    fn filled(&mut self, rows: usize, cols: usize, quant: RandomQuant) -> WeightMatrix {
        let RandomQuant { bits, group } = quant;
        assert!(cols.is_multiple_of(group), "groups of {group} divide {cols} inputs");
        let code_bytes = rows * words_per_row(cols, bits) * 4;
        let n_groups = rows * (cols / group);
        let len = code_bytes + 4 * n_groups;
        let mut map = Mapping::zeroed(len).expect("memory for random weights");
        let (codes, rest) = map[..len].split_at_mut(code_bytes);
        self.stream = mix(self.stream);
        fill(codes, self.stream);

        let groups = scale_table(bits, cols);
        let (scales, biases) = rest.split_at_mut(2 * n_groups);
        fill_groups(scales, biases, &groups, mix(self.stream));

        let whole = Bytes::new(Arc::new(Mapping::Owned(map)), 0..len);
        let data = Data::Affine {
            bits,
            group,
            codes: whole.part(0..code_bytes),
            dtype: FloatType::Bf16,
            scales: whole.part(code_bytes..code_bytes + 2 * n_groups),
            biases: whole.part(code_bytes + 2 * n_groups..len),
        };
        WeightMatrix { rows, cols, data }
    }

    fn gain(&mut self, len: usize) -> Vec<f32> {
        self.uniform(len, 0.7, 1.3)
    }

    fn uniform(&mut self, len: usize, low: f32, high: f32) -> Vec<f32> {
        self.stream = mix(self.stream);
        (0..len as u64).map(|i| low + (high - low) * unit(mix(self.stream ^ (i + 1)))).collect()
    }
}

/// Scales and biases to draw from, as stored, for matrices of `cols` inputs: 0.8 to 1.2 times what
/// gives a standard deviation of `1 / sqrt(cols)`, of either sign, as MLX writes them.
fn scale_table(bits: u8, cols: usize) -> [([u8; 2], [u8; 2]); 256] {
    // Codes are uniform on 0..=top: their variance is (4^bits - 1) / 12.
    let top = f32::from((1_u16 << bits) - 1);
    let deviation = ((4_f32.powi(bits.into()) - 1.0) / 12.0).sqrt();
    let scale = 1.0 / (deviation * (cols as f32).sqrt());
    std::array::from_fn(|i| {
        let sign = if i.is_multiple_of(2) { 1.0 } else { -1.0 };
        let factor = 0.8 + 0.4 * i as f32 / 255.0;
        let stored = bf16::from_f32(sign * factor * scale);
        (stored.to_le_bytes(), bf16::from_f32(-stored.to_f32() * top / 2.0).to_le_bytes())
    })
}

/// The state of a `SplitMix64`.
struct Stream(u64);

impl Stream {
    fn next(&mut self) -> [u8; 8] {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        scramble(self.0).to_le_bytes()
    }
}

/// Fills codes. Two threads: drawing gigabytes is bound by the pages that the system hands out.
fn fill(bytes: &mut [u8], stream: u64) {
    let half = bytes.len() / 2 / 8 * 8;
    let (a, b) = bytes.split_at_mut(half);
    let draw = |part: &mut [u8], stream: u64| {
        let mut stream = Stream(stream);
        for word in part.chunks_mut(8) {
            word.copy_from_slice(&stream.next()[..word.len()]);
        }
    };
    in_two(half, || draw(a, mix(stream)), || draw(b, mix(!stream)));
}

/// Draws scales and biases of the groups from `table`.
fn fill_groups(
    scales: &mut [u8],
    biases: &mut [u8],
    table: &[([u8; 2], [u8; 2]); 256],
    stream: u64,
) {
    let half = scales.len() / 4 * 2;
    let (scales_a, scales_b) = scales.split_at_mut(half);
    let (biases_a, biases_b) = biases.split_at_mut(half);
    let draw = |scales: &mut [u8], biases: &mut [u8], stream: u64| {
        let mut stream = Stream(stream);
        for (scales, biases) in scales.chunks_mut(16).zip(biases.chunks_mut(16)) {
            let pairs = scales.as_chunks_mut().0.iter_mut().zip(biases.as_chunks_mut().0);
            for ((scale, bias), i) in pairs.zip(stream.next()) {
                (*scale, *bias) = table[usize::from(i)];
            }
        }
    };
    in_two(
        half,
        || draw(scales_a, biases_a, mix(stream)),
        || draw(scales_b, biases_b, mix(!stream)),
    );
}

/// Runs both, the first on a thread of its own if there are enough bytes to pay for it.
fn in_two(n_bytes: usize, first: impl FnOnce() + Send, second: impl FnOnce()) {
    if n_bytes < 1 << 20 {
        first();
        second();
    } else {
        std::thread::scope(|scope| {
            scope.spawn(first);
            second();
        });
    }
}

/// The output function of `SplitMix64`.
fn scramble(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn mix(x: u64) -> u64 {
    scramble(x.wrapping_add(0x9E37_79B9_7F4A_7C15))
}

/// The upper 24 bits as a number in [0, 1).
fn unit(x: u64) -> f32 {
    (x >> 40) as f32 / (1_u32 << 24) as f32
}
