//! Every tensor of a checkpoint, against a decode that shares no code with the crate.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use lily_fixtures::{Tensor, Variant};
use lily_weights::quant::affine;
use lily_weights::{LayerWeights, Matrix, MixerWeights, WeightExperts, WeightMatrix};
use std::collections::BTreeSet;
use std::path::Path;
use support::{Files, floats, read_safetensors};

/// Checks one checkpoint, noting which stored tensors were seen.
struct Checker<'a> {
    files: &'a Files,
    is_mlx: bool,
    seen: BTreeSet<String>,
}

impl Checker<'_> {
    /// Bit `k` of a row is bit `k % 8` of byte `k / 8`: one rule for every width.
    fn dequantized(&self, base: &str) -> Vec<f32> {
        let tensors = &self.files.tensors;
        let quantization = &self.files.config["quantization"];
        let entry = quantization.get(base).unwrap_or(quantization);
        let number = |key: &str| usize::try_from(entry[key].as_u64().unwrap()).unwrap();
        let (bits, group) = (number("bits"), number("group_size"));
        let words = &tensors[&format!("{base}.weight")];
        let scales = floats(&tensors[&format!("{base}.scales")]);
        let biases = floats(&tensors[&format!("{base}.biases")]);
        // Rows are whole words, so the whole tensor is one bit stream.
        let n = words.bytes.len() * 8 / bits;
        (0..n)
            .map(|i| {
                let code: u32 = (0..bits)
                    .map(|b| {
                        let at = i * bits + b;
                        u32::from(words.bytes[at / 8] >> (at % 8) & 1) << b
                    })
                    .sum();
                code as f32 * scales[i / group] + biases[i / group]
            })
            .collect()
    }

    fn stored(&mut self, name: &str) -> Vec<f32> {
        let tensors = &self.files.tensors;
        let base = name.trim_end_matches(".weight").to_owned();
        self.seen.insert(name.to_owned());
        if tensors.contains_key(&format!("{base}.scales")) {
            self.seen.insert(format!("{base}.scales"));
            self.seen.insert(format!("{base}.biases"));
            return self.dequantized(&base);
        }
        floats(tensors.get(name).unwrap_or_else(|| panic!("{name} is stored")))
    }

    fn name(&self, canonical: &str) -> String {
        let plain = canonical.starts_with("lm_head") || canonical.starts_with("mtp.");
        match (self.is_mlx, plain) {
            (true, true) => format!("language_model.{canonical}"),
            (true, false) => format!("language_model.model.{canonical}"),
            (false, true) => canonical.to_owned(),
            (false, false) => format!("model.language_model.{canonical}"),
        }
    }

    fn matrix(&mut self, canonical: &str, matrix: &WeightMatrix) {
        let name = self.name(&format!("{canonical}.weight"));
        let expected = self.stored(&name);
        assert_rows(&name, matrix.view(), &expected);
    }

    fn gain(&mut self, canonical: &str, gain: &[f32]) {
        let name = self.name(&format!("{canonical}.weight"));
        let stored = self.stored(&name);
        let shift = if self.is_mlx { 0.0 } else { 1.0 };
        let expected: Vec<f32> = stored.iter().map(|w| w + shift).collect();
        assert_eq!(gain, expected, "{name}");
        let mean = gain.iter().sum::<f32>() / gain.len() as f32;
        assert!((0.9..1.1).contains(&mean), "{name}: the gain of a folded norm is near 1: {mean}");
    }

    fn vector(&mut self, canonical: &str, vector: &[f32]) {
        let name = self.name(canonical);
        assert_eq!(vector, self.stored(&name), "{name}");
    }

    fn experts(&mut self, p: &str, part: &str, experts: &WeightExperts) {
        let size = experts.rows * experts.cols;
        let stack = if self.is_mlx {
            let name = self.name(&format!("{p}.switch_mlp.{part}.weight"));
            self.stored(&name)
        } else if part == "down_proj" {
            let name = self.name(&format!("{p}.experts.down_proj"));
            self.stored(&name)
        } else {
            let name = self.name(&format!("{p}.experts.gate_up_proj"));
            let first = usize::from(part == "up_proj");
            let fused = self.stored(&name);
            fused.chunks(size).skip(first).step_by(2).flatten().copied().collect()
        };
        assert_eq!(stack.len(), experts.n_experts() * size);
        for (e, expected) in stack.chunks(size).enumerate() {
            assert_rows(&format!("{p}.{part} of expert {e}"), experts.expert(e), expected);
        }
    }

    fn layer(&mut self, p: &str, layer: &LayerWeights) {
        self.gain(&format!("{p}.input_layernorm"), &layer.input_norm);
        self.gain(&format!("{p}.post_attention_layernorm"), &layer.post_attention_norm);
        match &layer.mixer {
            MixerWeights::Attention(w) => {
                let p = format!("{p}.self_attn");
                self.matrix(&format!("{p}.q_proj"), &w.q_proj);
                self.matrix(&format!("{p}.k_proj"), &w.k_proj);
                self.matrix(&format!("{p}.v_proj"), &w.v_proj);
                self.matrix(&format!("{p}.o_proj"), &w.o_proj);
                self.gain(&format!("{p}.q_norm"), &w.q_norm);
                self.gain(&format!("{p}.k_norm"), &w.k_norm);
            }
            MixerWeights::GatedDeltaNet(w) => {
                let p = format!("{p}.linear_attn");
                self.matrix(&format!("{p}.in_proj_qkv"), &w.in_proj_qkv);
                self.matrix(&format!("{p}.in_proj_z"), &w.in_proj_z);
                self.matrix(&format!("{p}.in_proj_b"), &w.in_proj_b);
                self.matrix(&format!("{p}.in_proj_a"), &w.in_proj_a);
                self.matrix(&format!("{p}.out_proj"), &w.out_proj);
                self.vector(&format!("{p}.conv1d.weight"), &w.conv1d);
                self.vector(&format!("{p}.dt_bias"), &w.dt_bias);
                self.vector(&format!("{p}.norm.weight"), &w.norm);
                let name = self.name(&format!("{p}.A_log"));
                let decay: Vec<f32> = self.stored(&name).iter().map(|a| -a.exp()).collect();
                assert_eq!(w.decay, decay, "{name}");
            }
        }
        let (p, moe) = (format!("{p}.mlp"), &layer.moe);
        self.matrix(&format!("{p}.gate"), &moe.gate);
        self.experts(&p, "gate_proj", &moe.expert_gate);
        self.experts(&p, "up_proj", &moe.expert_up);
        self.experts(&p, "down_proj", &moe.expert_down);
        self.matrix(&format!("{p}.shared_expert.gate_proj"), &moe.shared_gate_proj);
        self.matrix(&format!("{p}.shared_expert.up_proj"), &moe.shared_up_proj);
        self.matrix(&format!("{p}.shared_expert.down_proj"), &moe.shared_down_proj);
        self.matrix(&format!("{p}.shared_expert_gate"), &moe.shared_expert_gate);
    }
}

fn assert_rows(name: &str, matrix: Matrix<'_>, expected: &[f32]) {
    assert_eq!(matrix.rows * matrix.cols, expected.len(), "{name}");
    let mut row = vec![0.0; matrix.cols];
    for (i, expected) in expected.chunks(matrix.cols).enumerate() {
        matrix.row_to_f32(i, &mut row);
        assert_eq!(row, expected, "row {i} of {name}");
    }
}

fn check(files: &Files) {
    let checkpoint = files.open().unwrap();
    let is_mlx = files.config.get("quantization").is_some();
    let mut checker = Checker { files, is_mlx, seen: BTreeSet::new() };
    let w = &checkpoint.weights;
    checker.matrix("embed_tokens", &w.embed_tokens);
    checker.matrix("lm_head", &w.lm_head);
    checker.gain("norm", &w.norm);
    assert_eq!(w.layers.len(), checkpoint.shape.n_layers);
    for (i, layer) in w.layers.iter().enumerate() {
        let is_attention = matches!(layer.mixer, MixerWeights::Attention(_));
        assert_eq!(is_attention, i % 4 == 3);
        checker.layer(&format!("layers.{i}"), layer);
    }
    let mtp = w.mtp.as_ref().expect("the fixtures have an MTP head");
    checker.matrix("mtp.fc", &mtp.fc);
    checker.gain("mtp.pre_fc_norm_embedding", &mtp.pre_fc_norm_embedding);
    checker.gain("mtp.pre_fc_norm_hidden", &mtp.pre_fc_norm_hidden);
    checker.gain("mtp.norm", &mtp.norm);
    checker.layer("mtp.layers.0", &mtp.layer);
    let unseen: Vec<_> = files
        .tensors
        .keys()
        .filter(|name| !name.contains("visual") && !checker.seen.contains(*name))
        .collect();
    assert!(unseen.is_empty(), "the test looks at every tensor but {unseen:?}");
    assert_eq!(checkpoint.summary.copied_bytes, 0, "an aligned file is used in place");
}

#[test]
fn every_tensor_of_hf_bf16() {
    check(&Files::hf());
}

#[test]
fn every_tensor_of_hf_f16_and_f32() {
    let mut files = Files::hf();
    for (i, tensor) in files.tensors.values_mut().enumerate() {
        let values = floats(tensor);
        if i % 2 == 0 {
            tensor.bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            tensor.dtype = "F32";
        } else {
            let f16 = values.iter().flat_map(|&x| half::f16::from_f32(x).to_le_bytes());
            tensor.bytes = f16.collect();
            tensor.dtype = "F16";
        }
    }
    check(&files);
}

#[test]
fn every_tensor_of_mlx_affine() {
    for bits in affine::BITS {
        check(&Files::mlx_of(Variant::Small, bits, 64));
    }
    check(&Files::mlx_of(Variant::Small, 3, 32));
    check(&Files::mlx_of(Variant::Heads, 4, 64));
}

/// Scales and biases in f16 and f32, as conversions from other source types have them.
#[test]
fn scales_of_every_float_type() {
    for dtype in ["F16", "F32"] {
        let mut files = Files::mlx();
        for (name, tensor) in &mut files.tensors {
            if name.ends_with(".scales") || name.ends_with(".biases") {
                let values = floats(tensor);
                tensor.bytes = match dtype {
                    "F16" => {
                        values.iter().flat_map(|&x| half::f16::from_f32(x).to_le_bytes()).collect()
                    }
                    _ => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
                };
                tensor.dtype = dtype;
            }
        }
        check(&files);
    }
}

/// Vectors made by `mx.quantize` and `mx.dequantize`.
#[test]
fn blocks_equal_mlx() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/blocks-mlx.safetensors");
    let blocks = read_safetensors(&std::fs::read(path).unwrap());
    let source = floats(&blocks["source"]);
    let mut seen = 0;
    for (case, bits, group) in [
        ("affine2", 2, 64),
        ("affine3", 3, 64),
        ("affine4", 4, 64),
        ("affine5", 5, 64),
        ("affine6", 6, 64),
        ("affine8", 8, 64),
        ("affine4g32", 4, 32),
        ("affine4g128", 4, 128),
    ] {
        let part = |name: &str| -> &Tensor { &blocks[&format!("{case}.{name}")] };
        let words: Vec<u32> =
            part("w").bytes.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
        let scales = halves(part("scales"));
        let biases = halves(part("biases"));
        let expected = floats(part("f32"));
        let x = lily_weights::Affine {
            bits,
            group,
            codes: &words,
            scales: lily_weights::Half::Bf16(&scales),
            biases: lily_weights::Half::Bf16(&biases),
        };
        let (words_per_row, groups_per_row) = (affine::words_per_row(256, bits), 256 / group);
        for (row, source) in source.chunks(256).enumerate() {
            let mut out = vec![0.0; 256];
            affine::dequantize_row(&x, row, 256, &mut out);
            assert_eq!(out, expected[row * 256..][..256], "row {row} of {case}");

            let encoded = affine::quantize_row(source, bits, group);
            assert_eq!(encoded.codes, words[row * words_per_row..][..words_per_row], "{case}");
            let stored = |values: &[f32]| -> Vec<half::bf16> {
                values.iter().map(|&x| half::bf16::from_f32(x)).collect()
            };
            let at = row * groups_per_row;
            assert_eq!(stored(&encoded.scales), scales[at..][..groups_per_row], "{case}");
            assert_eq!(stored(&encoded.biases), biases[at..][..groups_per_row], "{case}");
            seen += 1;
        }
        assert!(scales.iter().any(|s| s.to_f32() < 0.0), "{case} has negative scales");
    }
    assert_eq!(seen, 32);
}

fn halves(tensor: &Tensor) -> Vec<half::bf16> {
    tensor.bytes.chunks(2).map(|b| half::bf16::from_le_bytes([b[0], b[1]])).collect()
}
