//! Checkpoints with one thing wrong: each is refused with the right error, which names the thing
//! and a remedy. Nothing panics.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(clippy::too_many_lines, reason = "tables of cases")]

mod support;

use lily_fixtures::{Tensor, Tensors, Variant, safetensors};
use lily_weights::{Checkpoint, WeightsError};
use serde_json::{Value, json};
use std::path::Path;
use support::{Files, bf16_tensor};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Io,
    NotACheckpoint,
    Config,
    Quantisation,
    Damaged,
    MissingFile,
    MissingTensor,
    ExtraTensor,
    WrongTensor,
}

fn kind(error: &WeightsError) -> Kind {
    match error {
        WeightsError::Io { .. } => Kind::Io,
        WeightsError::NotACheckpoint { .. } => Kind::NotACheckpoint,
        WeightsError::Config { .. } => Kind::Config,
        WeightsError::UnsupportedQuantisation { .. } => Kind::Quantisation,
        WeightsError::Damaged { .. } => Kind::Damaged,
        WeightsError::MissingFile { .. } => Kind::MissingFile,
        WeightsError::MissingTensor { .. } => Kind::MissingTensor,
        WeightsError::ExtraTensor { .. } => Kind::ExtraTensor,
        WeightsError::WrongTensor { .. } => Kind::WrongTensor,
        other => panic!("a kind that this test does not know: {other}"),
    }
}

/// The error must be of `expected` kind and its message hold every one of `words` and a remedy.
fn assert_error(
    case: &str,
    result: Result<Checkpoint, WeightsError>,
    expected: Kind,
    words: &[&str],
) {
    let error = result.err().unwrap_or_else(|| panic!("{case}: it opened"));
    let message = error.to_string();
    assert_eq!(kind(&error), expected, "{case}: {message}");
    for word in words {
        assert!(message.contains(word), "{case}: no {word:?} in {message:?}");
    }
    let remedy = message.rsplit_once("; ").map_or("", |(_, remedy)| remedy);
    assert!(remedy.len() > 10, "{case}: no remedy in {message:?}");
    assert!(message.len() < 1000, "{case}: a message to be read: {message:?}");
}

type Case = (&'static str, fn(&mut Files), Kind, &'static [&'static str]);

fn assert_all(good: &Files, cases: &[Case]) {
    good.open().unwrap();
    for (case, change, kind, words) in cases {
        let mut files = good.clone();
        change(&mut files);
        assert_error(case, files.open(), *kind, words);
    }
}

fn set(files: &mut Files, key: &str, value: impl Into<Value>) {
    files.text_config().insert(key.to_owned(), value.into());
}

fn set_rope(files: &mut Files, key: &str, value: impl Into<Value>) {
    files.config["text_config"]["rope_parameters"][key] = value.into();
}

#[test]
fn config_of_another_model_or_absurd() {
    const CASES: &[Case] = &[
        ("not json", |f| f.file("config.json", "{"), Kind::Damaged, &["config.json", "JSON"]),
        (
            "not utf-8",
            |f| f.file("config.json", [b'"', 0xff, b'"']),
            Kind::Damaged,
            &["config.json"],
        ),
        ("a list", |f| f.file("config.json", "[]"), Kind::Config, &["model_type", "missing"]),
        ("empty", |f| f.file("config.json", ""), Kind::Damaged, &["config.json"]),
        (
            "nested deeply",
            |f| f.file("config.json", "[".repeat(100_000)),
            Kind::Damaged,
            &["config.json"],
        ),
        (
            "another architecture",
            |f| f.config["model_type"] = json!("llama"),
            Kind::Config,
            &["model_type", "llama", "qwen3_5_moe"],
        ),
        (
            "another text model",
            |f| set(f, "model_type", "qwen3_next"),
            Kind::Config,
            &["text_config.model_type", "qwen3_next"],
        ),
        (
            "text_config of the wrong type",
            |f| f.config["text_config"] = json!([1]),
            Kind::Config,
            &["text_config"],
        ),
        (
            "activation",
            |f| set(f, "hidden_act", "gelu"),
            Kind::Config,
            &["hidden_act", "silu", "gelu"],
        ),
        ("attention bias", |f| set(f, "attention_bias", true), Kind::Config, &["attention_bias"]),
        (
            "no output gate",
            |f| set(f, "attn_output_gate", false),
            Kind::Config,
            &["attn_output_gate"],
        ),
        ("tied", |f| set(f, "tie_word_embeddings", true), Kind::Config, &["tie_word_embeddings"]),
        (
            "kernel",
            |f| set(f, "linear_conv_kernel_dim", 3),
            Kind::Config,
            &["linear_conv_kernel_dim", "3"],
        ),
        ("eps of zero", |f| set(f, "rms_norm_eps", 0.0), Kind::Config, &["rms_norm_eps"]),
        ("eps below f32", |f| set(f, "rms_norm_eps", 1e-300), Kind::Config, &["rms_norm_eps"]),
        (
            "no hidden size",
            |f| {
                f.text_config().remove("hidden_size");
            },
            Kind::Config,
            &["hidden_size", "missing"],
        ),
        ("hidden size of zero", |f| set(f, "hidden_size", 0), Kind::Config, &["hidden_size", "0"]),
        (
            "width that is not whole vectors",
            |f| set(f, "hidden_size", 65),
            Kind::Config,
            &["hidden_size", "multiple of 32", "65"],
        ),
        (
            "head that is not whole vectors",
            |f| set(f, "linear_value_head_dim", 8),
            Kind::Config,
            &["linear_value_head_dim", "multiple of 16"],
        ),
        ("negative size", |f| set(f, "head_dim", -32), Kind::Config, &["head_dim", "-32"]),
        ("huge size", |f| set(f, "hidden_size", u64::MAX), Kind::Config, &["hidden_size"]),
        ("huge vocabulary", |f| set(f, "vocab_size", 1_u64 << 40), Kind::Config, &["vocab_size"]),
        (
            "a billion layers",
            |f| set(f, "num_hidden_layers", 1_000_000_000),
            Kind::Config,
            &["num_hidden_layers"],
        ),
        ("size as text", |f| set(f, "num_experts", "16"), Kind::Config, &["num_experts"]),
        ("fractional size", |f| set(f, "num_experts", 16.5), Kind::Config, &["num_experts"]),
        (
            "heads and kv heads",
            |f| set(f, "num_key_value_heads", 3),
            Kind::Config,
            &["num_attention_heads", "num_key_value_heads (3)"],
        ),
        (
            "value heads and key heads",
            |f| set(f, "linear_num_key_heads", 3),
            Kind::Config,
            &["linear_num_value_heads", "linear_num_key_heads (3)"],
        ),
        (
            "more experts per token than experts",
            |f| set(f, "num_experts_per_tok", 17),
            Kind::Config,
            &["num_experts_per_tok", "17"],
        ),
        (
            "layer types",
            |f| f.config["text_config"]["layer_types"][0] = json!("full_attention"),
            Kind::Config,
            &["layer_types"],
        ),
        (
            "too few layer types",
            |f| f.config["text_config"]["layer_types"] = json!(["linear_attention"]),
            Kind::Config,
            &["layer_types", "8 entries"],
        ),
        (
            "another interval",
            |f| set(f, "full_attention_interval", 2),
            Kind::Config,
            &["layer_types"],
        ),
        (
            "YaRN",
            |f| set_rope(f, "rope_type", "yarn"),
            Kind::Config,
            &["rope_type", "yarn", "not supported yet"],
        ),
        (
            "YaRN under the older key",
            |f| set(f, "rope_scaling", json!({"type": "yarn", "factor": 4.0})),
            Kind::Config,
            &["rope_scaling.type", "yarn"],
        ),
        (
            "no rope",
            |f| {
                f.text_config().remove("rope_parameters");
            },
            Kind::Config,
            &["rope_parameters"],
        ),
        ("theta", |f| set_rope(f, "rope_theta", 0.0), Kind::Config, &["rope_theta"]),
        (
            "odd rotary part",
            |f| set_rope(f, "partial_rotary_factor", 0.1),
            Kind::Config,
            &["partial_rotary_factor"],
        ),
        (
            "rotary part above one",
            |f| set_rope(f, "partial_rotary_factor", 2.0),
            Kind::Config,
            &["partial_rotary_factor"],
        ),
        (
            "sections",
            |f| set_rope(f, "mrope_section", json!([2, 1, 2])),
            Kind::Config,
            &["mrope_section", "sum to 4"],
        ),
        (
            "sections beyond 16 bits",
            |f| set_rope(f, "mrope_section", json!([65538, 1, 1])),
            Kind::Config,
            &["mrope_section"],
        ),
        (
            "four sections",
            |f| set_rope(f, "mrope_section", json!([1, 1, 1, 1])),
            Kind::Config,
            &["mrope_section"],
        ),
        (
            "contiguous rope",
            |f| set_rope(f, "mrope_interleaved", false),
            Kind::Config,
            &["mrope_interleaved"],
        ),
        ("end token", |f| set(f, "eos_token_id", "</s>"), Kind::Config, &["eos_token_id", "</s>"]),
        (
            "negative end token",
            |f| set(f, "eos_token_id", json!([1, -1])),
            Kind::Config,
            &["eos_token_id"],
        ),
        (
            "temperature as text",
            |f| f.file("generation_config.json", r#"{"temperature": "hot"}"#),
            Kind::Damaged,
            &["generation_config.json", "temperature", "hot"],
        ),
        (
            "generation config as a list",
            |f| f.file("generation_config.json", "[1]"),
            Kind::Damaged,
            &["generation_config.json"],
        ),
        (
            "template that is not text",
            |f| f.file("chat_template.jinja", [0xff, 0xfe]),
            Kind::Damaged,
            &["chat_template.jinja", "UTF-8"],
        ),
    ];
    assert_all(&Files::hf(), CASES);
}

#[test]
fn quantisation_of_another_kind() {
    const CASES: &[Case] = &[
        (
            "fp8",
            |f| f.config["quantization_config"] = json!({"quant_method": "fp8", "fmt": "e4m3"}),
            Kind::Quantisation,
            &["quantization_config", "fp8", "MLX"],
        ),
        (
            "gptq",
            |f| f.config["quantization_config"] = json!({"quant_method": "gptq", "bits": 4}),
            Kind::Quantisation,
            &["gptq"],
        ),
        (
            "awq in the text config",
            |f| set(f, "quantization_config", json!({"quant_method": "awq"})),
            Kind::Quantisation,
            &["text_config.quantization_config", "awq"],
        ),
        (
            "mxfp4",
            |f| f.config["quantization"] = json!({"mode": "mxfp4", "bits": 4, "group_size": 32}),
            Kind::Quantisation,
            &["quantization", "mxfp4"],
        ),
        (
            "7 bits",
            |f| f.config["quantization"] = json!({"bits": 7, "group_size": 64}),
            Kind::Quantisation,
            &["bits is 7"],
        ),
        (
            "260 bits",
            |f| f.config["quantization"] = json!({"bits": 260, "group_size": 64}),
            Kind::Quantisation,
            &["bits is 260"],
        ),
        (
            "group of 48",
            |f| f.config["quantization"] = json!({"bits": 4, "group_size": 48}),
            Kind::Quantisation,
            &["group_size is 48"],
        ),
        (
            "no bits",
            |f| f.config["quantization"] = json!({"group_size": 64}),
            Kind::Quantisation,
            &["bits is missing"],
        ),
        (
            "a number",
            |f| f.config["quantization"] = json!(4),
            Kind::Quantisation,
            &["quantization", "not an object"],
        ),
    ];
    assert_all(&Files::hf(), CASES);
}

#[test]
fn quantised_tensors_that_do_not_fit() {
    const CASES: &[Case] = &[
        (
            "a module in mxfp4",
            |f| {
                let entry = json!({"mode": "mxfp4", "bits": 4, "group_size": 32});
                f.config["quantization"]["language_model.model.layers.0.mlp.gate"] = entry;
            },
            Kind::Quantisation,
            &["layers.0.mlp.gate", "mxfp4"],
        ),
        (
            "scales of a module that the config calls unquantised",
            |f| f.config["quantization"]["language_model.lm_head"] = json!(false),
            Kind::Quantisation,
            &["language_model.lm_head", "gives no bits"],
        ),
        (
            "scales without a config",
            |f| {
                let config = f.config.as_object_mut().unwrap();
                config.remove("quantization");
                config.remove("quantization_config");
            },
            Kind::Quantisation,
            &["embed_tokens", "gives no bits"],
        ),
        (
            "groups that do not divide the inputs",
            |f| f.config["quantization"]["group_size"] = json!(128),
            Kind::Quantisation,
            &["embed_tokens", "groups of 128", "64 inputs"],
        ),
        (
            "other bits than the codes",
            |f| f.config["quantization"]["bits"] = json!(8),
            Kind::WrongTensor,
            &["embed_tokens.weight", "8 bits"],
        ),
        (
            "a gate without its entry",
            |f| {
                let quantization = f.config["quantization"].as_object_mut().unwrap();
                quantization.remove("language_model.model.layers.2.mlp.gate").unwrap();
            },
            Kind::WrongTensor,
            &["layers.2.mlp.gate.weight", "4 bits"],
        ),
        (
            "no biases",
            |f| {
                f.take("language_model.lm_head.biases");
            },
            Kind::MissingTensor,
            &["lm_head.biases"],
        ),
        (
            "no scales",
            |f| {
                f.take("language_model.lm_head.scales");
            },
            Kind::WrongTensor,
            &["lm_head.weight", "U32"],
        ),
        (
            "scales of another type than biases",
            |f| {
                let tensor = f.tensor("language_model.lm_head.biases");
                let n: usize = tensor.shape.iter().product();
                *tensor =
                    Tensor { dtype: "F32", shape: tensor.shape.clone(), bytes: vec![0; n * 4] };
            },
            Kind::WrongTensor,
            &["lm_head.biases", "BF16", "F32"],
        ),
        (
            "scales of another shape",
            |f| f.tensor("language_model.lm_head.scales").shape = vec![1, 512],
            Kind::WrongTensor,
            &["lm_head.scales", "[512, 1]", "[1, 512]"],
        ),
        (
            "codes of another type",
            |f| f.tensor("language_model.lm_head.weight").dtype = "F32",
            Kind::WrongTensor,
            &["lm_head.weight", "U32", "F32"],
        ),
    ];
    assert_all(&Files::mlx(), CASES);
}

#[test]
fn tensors_that_do_not_fit() {
    const CASES: &[Case] = &[
        (
            "missing",
            |f| {
                f.take("model.language_model.layers.3.self_attn.k_proj.weight");
            },
            Kind::MissingTensor,
            &["layers.3.self_attn.k_proj.weight"],
        ),
        (
            "missing experts",
            |f| {
                f.take("model.language_model.layers.3.mlp.experts.gate_up_proj");
            },
            Kind::MissingTensor,
            &["layers.3.mlp.experts.gate_up_proj"],
        ),
        (
            "half an MTP head",
            |f| {
                f.take("mtp.fc.weight");
            },
            Kind::MissingTensor,
            &["mtp.fc.weight"],
        ),
        (
            "a layer too many",
            |f| {
                let norm = f.tensors["model.language_model.norm.weight"].clone();
                f.put("model.language_model.layers.8.input_layernorm.weight", norm);
            },
            Kind::ExtraTensor,
            &["model.language_model.layers.8.input_layernorm.weight"],
        ),
        (
            "bias where there is none",
            |f| f.put("lm_head.bias", bf16_tensor(&[512], &[0.0; 512])),
            Kind::ExtraTensor,
            &["lm_head.bias"],
        ),
        (
            "adapter",
            |f| f.put("base_model.lora_A.weight", bf16_tensor(&[8], &[0.0; 8])),
            Kind::ExtraTensor,
            &["base_model.lora_A.weight"],
        ),
        (
            "transposed",
            |f| f.tensor("lm_head.weight").shape = vec![64, 512],
            Kind::WrongTensor,
            &["lm_head.weight", "[512, 64]", "[64, 512]"],
        ),
        (
            "flat",
            |f| f.tensor("lm_head.weight").shape = vec![512 * 64],
            Kind::WrongTensor,
            &["lm_head.weight", "[32768]"],
        ),
        (
            "short norm",
            |f| f.put("model.language_model.norm.weight", bf16_tensor(&[63], &[0.0; 63])),
            Kind::WrongTensor,
            &["model.language_model.norm.weight", "[64]", "[63]"],
        ),
        (
            "eight-bit floats",
            |f| {
                let bytes = vec![0; 512 * 64];
                f.put("lm_head.weight", Tensor { dtype: "F8_E4M3", shape: vec![512, 64], bytes });
            },
            Kind::WrongTensor,
            &["lm_head.weight", "F8_E4M3", "BF16"],
        ),
        (
            "integers as a norm",
            |f| {
                let bytes = vec![0; 256];
                let tensor = Tensor { dtype: "I32", shape: vec![64], bytes };
                f.put("model.language_model.norm.weight", tensor);
            },
            Kind::WrongTensor,
            &["norm.weight", "I32"],
        ),
        (
            "a norm with NaN",
            |f| {
                let mut values = [0.0; 64];
                values[5] = f32::NAN;
                f.put("model.language_model.norm.weight", bf16_tensor(&[64], &values));
            },
            Kind::WrongTensor,
            &["norm.weight", "NaN", "finite"],
        ),
        (
            "a decay beyond f32",
            |f| {
                let tensor = f.tensor("model.language_model.layers.0.linear_attn.A_log");
                tensor.bytes[..4].copy_from_slice(&200_f32.to_le_bytes());
            },
            Kind::WrongTensor,
            &["layers.0.linear_attn.A_log", "200"],
        ),
        (
            "two tensors for one role",
            |f| {
                let norm = f.tensors["model.language_model.norm.weight"].clone();
                f.put("model.norm.weight", norm);
            },
            Kind::Damaged,
            &["model.norm.weight", "stands for the same"],
        ),
        (
            "config with fewer layers",
            |f| {
                set(f, "num_hidden_layers", 4);
                f.text_config().remove("layer_types");
            },
            Kind::ExtraTensor,
            &["layers.4."],
        ),
        (
            "config with another width",
            |f| set(f, "hidden_size", 128),
            Kind::WrongTensor,
            &["embed_tokens", "[512, 128]"],
        ),
        (
            "config with other experts",
            |f| set(f, "num_experts", 8),
            Kind::WrongTensor,
            &["mlp.", "[16,"],
        ),
        (
            "config with another expert width",
            |f| set(f, "moe_intermediate_size", 32),
            Kind::WrongTensor,
            &["gate_up_proj"],
        ),
    ];
    assert_all(&Files::hf(), CASES);
}

/// A file with this header and `n` bytes behind it.
fn with_header(header: &str, n: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + n, 0);
    file
}

#[test]
fn damaged_files() {
    // Each is the whole of model.safetensors.
    let cases: &[(&str, Vec<u8>, &[&str])] = &[
        ("empty", Vec::new(), &["file size", "0 bytes"]),
        ("7 bytes", vec![0; 7], &["file size", "7 bytes"]),
        ("header beyond the file", with_header("{}", 0)[..9].to_vec(), &["header length"]),
        ("header of 2^64 bytes", vec![0xff; 64], &["header length"]),
        ("header over the limit", (200_u64 << 20).to_le_bytes().to_vec(), &["header length"]),
        ("no json", with_header("????", 0), &["header"]),
        ("a list", with_header("[]", 0), &["header"]),
        ("nested deeply", with_header(&"{\"a\":".repeat(50_000), 0), &["header"]),
        ("pickle", b"\x80\x02}q\x00(X\x05\x00\x00\x00modelq\x01".to_vec(), &["header length"]),
        ("not utf-8", with_header("{\"a", 0).into_iter().chain([0xff]).collect(), &["header"]),
        (
            "listed twice",
            with_header(
                r#"{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},
                    "a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#,
                0,
            ),
            &["`a` is listed twice"],
        ),
        (
            "no dtype",
            with_header(r#"{"a":{"shape":[0],"data_offsets":[0,0]}}"#, 0),
            &["tensor `a`", "dtype"],
        ),
        (
            "dtype unknown",
            with_header(r#"{"a":{"dtype":"F4","shape":[0],"data_offsets":[0,0]}}"#, 0),
            &["tensor `a`", "F4"],
        ),
        (
            "negative size",
            with_header(r#"{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}}"#, 0),
            &["tensor `a`", "-1"],
        ),
        (
            "nine axes",
            with_header(
                r#"{"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}}"#,
                1,
            ),
            &["tensor `a`", "at most 8"],
        ),
        (
            "product overflows",
            with_header(
                r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}}"#,
                4,
            ),
            &["tensor `a`", "2^64"],
        ),
        (
            "offsets beyond the file",
            with_header(r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}"#, 7),
            &["tensor `a`", "0 to 8"],
        ),
        (
            "offsets backwards",
            with_header(r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[8,0]}}"#, 8),
            &["tensor `a`", "8 to 0"],
        ),
        (
            "offsets of three",
            with_header(r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8,8]}}"#, 8),
            &["tensor `a`"],
        ),
        (
            "offsets of 2^64",
            with_header(
                r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[18446744073709551608,18446744073709551615]}}"#,
                8,
            ),
            &["tensor `a`"],
        ),
        (
            "fewer bytes than the shape needs",
            with_header(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#, 4),
            &["tensor `a`", "8 bytes", "4 bytes"],
        ),
        (
            "overlap",
            with_header(
                r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
                    "b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}}"#,
                7,
            ),
            &["tensor `b`", "overlap"],
        ),
    ];
    for (case, bytes, words) in cases {
        let mut files = Files::hf();
        files.file("model.safetensors", bytes.clone());
        assert_error(case, files.open(), Kind::Damaged, words);
    }
}

/// A checkpoint in one shard, with an index that a test may spoil.
fn indexed(spoil: impl Fn(&mut Value)) -> Files {
    const SHARD: &str = "model-00001-of-00001.safetensors";
    let files = Files::mlx();
    let map: serde_json::Map<String, Value> =
        files.tensors.keys().map(|name| (name.clone(), SHARD.into())).collect();
    let mut index = json!({ "weight_map": map });
    spoil(&mut index);
    let mut split = Files { tensors: Tensors::new(), ..files.clone() };
    split.file(SHARD, safetensors(&files.tensors, "test"));
    split.file("model.safetensors.index.json", index.to_string());
    split
}

#[test]
fn index_that_lies() {
    const NORM: &str = "language_model.model.norm.weight";
    indexed(|_| ()).open().unwrap();
    for outside in [
        "../x.safetensors",
        "/etc/x.safetensors",
        "a/x.safetensors",
        "..",
        "",
        "x.bin",
        "a\\x.safetensors",
        "a\0.safetensors",
    ] {
        let files = indexed(|index| index["weight_map"][NORM] = outside.into());
        assert_error(outside, files.open(), Kind::Damaged, &[NORM, "same directory"]);
    }
    let files = indexed(|index| index["weight_map"][NORM] = 3.into());
    assert_error("a number", files.open(), Kind::Damaged, &[NORM, "3"]);
    let files = indexed(|index| index["weight_map"][NORM] = "model-2.safetensors".into());
    assert_error("missing shard", files.open(), Kind::MissingFile, &["model-2.safetensors"]);
    let files = indexed(|index| {
        index["weight_map"]["other.weight"] = "model-00001-of-00001.safetensors".into();
    });
    assert_error("promised", files.open(), Kind::Damaged, &["other.weight", "index says"]);
    let files = indexed(|index| index["weight_map"] = json!([]));
    assert_error("a list", files.open(), Kind::Damaged, &["weight_map"]);
    let files = indexed(|index| index["weight_map"] = json!({}));
    assert_error("nothing", files.open(), Kind::Damaged, &["weight_map"]);
    let mut files = indexed(|_| ());
    files.file("model.safetensors.index.json", "{");
    assert_error("not json", files.open(), Kind::Damaged, &["model.safetensors.index.json"]);
}

#[test]
fn paths_that_hold_no_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let open = |path: &Path| Checkpoint::open(path);
    let missing = path("missing");
    assert_error("missing", open(&missing), Kind::NotACheckpoint, &["missing", "does not exist"]);
    assert_error("empty", open(dir.path()), Kind::NotACheckpoint, &["no config.json"]);
    std::fs::write(path("model.safetensors"), "x").unwrap();
    let file = path("model.safetensors");
    assert_error("a file", open(&file), Kind::NotACheckpoint, &["it is a file", "directory"]);
    std::fs::write(path("model.gguf"), "GGUF").unwrap();
    let gguf = path("model.gguf");
    assert_error("a gguf file", open(&gguf), Kind::NotACheckpoint, &["GGUF", "not supported yet"]);
    let words = &["GGUF", "not supported yet"];
    assert_error("only gguf", open(dir.path()), Kind::NotACheckpoint, words);

    let config = Files { tensors: Tensors::new(), ..Files::hf() };
    assert_error("no weights", config.open(), Kind::MissingFile, &["model.safetensors"]);

    let dir = tempfile::tempdir().unwrap();
    config.write(dir.path());
    std::fs::create_dir(dir.path().join("model.safetensors")).unwrap();
    let words = &["model.safetensors", "not a regular file"];
    assert_error("weights are a directory", open(dir.path()), Kind::Io, words);
}

#[test]
#[cfg(unix)]
fn broken_links() {
    let dir = tempfile::tempdir().unwrap();
    Files { tensors: Tensors::new(), ..Files::hf() }.write(dir.path());
    std::os::unix::fs::symlink("nowhere", dir.path().join("model.safetensors")).unwrap();
    let words = &["model.safetensors", "incomplete"];
    assert_error("broken", Checkpoint::open(dir.path()), Kind::MissingFile, words);
}

/// The fixtures themselves are good, whatever the variant.
#[test]
fn good_ones_open() {
    Files::hf().open().unwrap();
    Files::mlx_of(Variant::Heads, 4, 64).open().unwrap();
}
