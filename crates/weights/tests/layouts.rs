//! The ways in which checkpoints of this model are stored, names are written and files are split.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use lily_fixtures::{Tensor, Tensors, safetensors};
use lily_weights::{
    Checkpoint, EmbeddedFile, Format, GenerationConfig, ModelWeights, Shape, Storage, WeightMatrix,
    WeightsError, memory_needed,
};
use serde_json::{Value, json};
use std::path::Path;
use support::{Files, bf16_tensor, floats};

fn rows(matrix: &WeightMatrix) -> Vec<f32> {
    let view = matrix.view();
    let mut all = vec![0.0; view.rows * view.cols];
    for (i, row) in all.chunks_mut(view.cols).enumerate() {
        view.row_to_f32(i, row);
    }
    all
}

/// A fingerprint of the text model: some of everything that a layout can get wrong.
fn fingerprint(w: &ModelWeights) -> Vec<f32> {
    let mut all = rows(&w.lm_head);
    for layer in w.layers.iter().chain(w.mtp.iter().map(|mtp| &mtp.layer)) {
        all.extend(&layer.input_norm);
        let mut row = vec![0.0; layer.moe.expert_gate.cols];
        let mut down = vec![0.0; layer.moe.expert_down.cols];
        for e in 0..layer.moe.expert_gate.n_experts() {
            layer.moe.expert_gate.expert(e).row_to_f32(1, &mut row);
            all.extend(&row);
            layer.moe.expert_up.expert(e).row_to_f32(2, &mut row);
            all.extend(&row);
            layer.moe.expert_down.expert(e).row_to_f32(3, &mut down);
            all.extend(&down);
        }
    }
    all.extend(&w.norm);
    all.extend(w.mtp.iter().flat_map(|mtp| &mtp.norm));
    all
}

fn assert_same(changed: &Files, original: &Files) {
    let (changed, original) = (changed.open().unwrap(), original.open().unwrap());
    assert_eq!(fingerprint(&changed.weights), fingerprint(&original.weights));
    assert_eq!(changed.shape, original.shape);
}

/// Splits tensors over shards with an index.
fn sharded(files: &Files, n: usize) -> Files {
    let mut split = Files { tensors: Tensors::new(), ..files.clone() };
    let mut map = serde_json::Map::new();
    for shard in 0..n {
        let name = format!("model-{:05}-of-{n:05}.safetensors", shard + 1);
        let part: Tensors = files.tensors.clone().into_iter().skip(shard).step_by(n).collect();
        map.extend(part.keys().map(|tensor| (tensor.clone(), Value::from(name.clone()))));
        split.file(&name, safetensors(&part, "test"));
    }
    let index = json!({"metadata": {"total_size": 1}, "weight_map": map});
    split.file("model.safetensors.index.json", index.to_string());
    split
}

#[test]
fn shards_with_index() {
    assert_same(&sharded(&Files::hf(), 3), &Files::hf());
    assert_same(&sharded(&Files::mlx(), 2), &Files::mlx());
}

#[test]
fn files_beside_the_indexed_shards_are_left_alone() {
    let mut files = sharded(&Files::hf(), 2);
    files.file("adapter_model.safetensors", "not a checkpoint");
    files.file(".hidden.safetensors", "neither");
    assert_same(&files, &Files::hf());
}

#[test]
#[cfg(unix)]
fn hub_cache_of_symbolic_links() {
    let dir = tempfile::tempdir().unwrap();
    let (blobs, snapshot) = (dir.path().join("blobs"), dir.path().join("snapshots/main"));
    std::fs::create_dir_all(&blobs).unwrap();
    std::fs::create_dir_all(&snapshot).unwrap();
    sharded(&Files::hf(), 2).write(&blobs);
    for (i, entry) in std::fs::read_dir(&blobs).unwrap().flatten().enumerate() {
        let blob = blobs.join(format!("blob{i}"));
        std::fs::rename(entry.path(), &blob).unwrap();
        let target = Path::new("../../blobs").join(blob.file_name().unwrap());
        std::os::unix::fs::symlink(target, snapshot.join(entry.file_name())).unwrap();
    }
    let opened = Checkpoint::open(&snapshot).unwrap();
    assert_eq!(fingerprint(&opened.weights), fingerprint(&Files::hf().open().unwrap().weights));
}

#[test]
fn prefixes_of_fine_tunes() {
    let mut short = Files::hf();
    short.rename(|name| name.replace("model.language_model.", "model."));
    assert_same(&short, &Files::hf());

    let mut bare = Files::mlx();
    bare.rename(|name| match name.strip_prefix("language_model.") {
        Some(rest) if rest.starts_with("mtp.") || rest.starts_with("lm_head.") => rest.to_owned(),
        _ => name.to_owned(),
    });
    assert_same(&bare, &Files::mlx());
}

#[test]
fn one_tensor_per_expert() {
    let mut files = Files::hf();
    let fused: Vec<String> =
        files.tensors.keys().filter(|name| name.contains(".experts.")).cloned().collect();
    for name in fused {
        let tensor = files.take(&name);
        let (p, part) = name.rsplit_once('.').unwrap();
        let [n, rows, cols] = tensor.shape[..] else { panic!("a stack of experts") };
        let parts: &[&str] =
            if part == "down_proj" { &["down_proj"] } else { &["gate_proj", "up_proj"] };
        let rows = rows / parts.len();
        for (i, bytes) in tensor.bytes.chunks(rows * cols * 2).enumerate() {
            let (e, part) = (i / parts.len(), parts[i % parts.len()]);
            assert!(e < n);
            let shape = vec![rows, cols];
            let one = Tensor { dtype: "BF16", shape, bytes: bytes.to_vec() };
            files.put(&format!("{p}.{e}.{part}.weight"), one);
        }
    }
    assert_same(&files, &Files::hf());
}

#[test]
fn flat_config() {
    let mut files = Files::hf();
    let text = files.config["text_config"].take();
    files.config = text;
    assert_same(&files, &Files::hf());
}

#[test]
fn mtp_in_a_side_car_with_raw_deltas() {
    let mut files = sharded(&without_mtp(&Files::mlx()), 2);
    // As in the Hugging Face file: plain bf16, fused experts, norms as deltas.
    let head: Tensors =
        Files::hf().tensors.into_iter().filter(|(name, _)| name.starts_with("mtp.")).collect();
    files.file("model-mtp-head.safetensors", safetensors(&head, "pt"));
    let (opened, hf) = (files.open().unwrap(), Files::hf().open().unwrap());
    let (mtp, hf) = (opened.weights.mtp.unwrap(), hf.weights.mtp.unwrap());
    assert_eq!(mtp.norm, hf.norm);
    assert_eq!(mtp.layer.post_attention_norm, hf.layer.post_attention_norm);
    assert_eq!(rows(&mtp.fc), rows(&hf.fc));
}

fn without_mtp(files: &Files) -> Files {
    let mut files = files.clone();
    files.tensors.retain(|name, _| !name.contains("mtp."));
    files
}

#[test]
fn mtp_is_optional_whatever_the_config_says() {
    for files in [Files::hf(), Files::mlx()] {
        assert_eq!(files.config["text_config"]["mtp_num_hidden_layers"], 1);
        assert!(without_mtp(&files).open().unwrap().weights.mtp.is_none());
    }
}

#[test]
fn unquantised_mlx_conversion_is_already_folded() {
    let mut files = Files::hf();
    files.rename(|name| {
        format!("language_model.{}", name.replace("model.language_model.", "model."))
    });
    files.tensors.retain(|name, _| !name.contains("visual"));
    for (name, tensor) in &mut files.tensors {
        let is_norm = name.ends_with("norm.weight") || name.contains("layernorm.weight");
        if name.ends_with("conv1d.weight") {
            tensor.shape = vec![tensor.shape[0], 4, 1];
        } else if (is_norm && !name.contains("linear_attn")) || name.contains("pre_fc_norm") {
            let folded: Vec<f32> = floats(tensor).iter().map(|w| w + 1.0).collect();
            *tensor = Tensor {
                dtype: "F32",
                shape: tensor.shape.clone(),
                bytes: folded.iter().flat_map(|x| x.to_le_bytes()).collect(),
            };
        }
    }
    assert_same(&files, &Files::hf());
}

/// A module may be left alone (`false`), or quantised otherwise than the rest.
#[test]
fn overrides_of_single_modules() {
    let mut files = Files::mlx();
    let base = "language_model.model.layers.3.self_attn.o_proj";
    for part in ["weight", "scales", "biases"] {
        files.take(&format!("{base}.{part}"));
    }
    let original =
        Files::hf().tensors["model.language_model.layers.3.self_attn.o_proj.weight"].clone();
    files.put(&format!("{base}.weight"), original.clone());
    for key in ["quantization", "quantization_config"] {
        files.config[key][base] = Value::Bool(false);
    }
    // The same module of layer 7 in 3 bits, groups of 32.
    let base = "language_model.model.layers.7.self_attn.o_proj";
    let other = Files::mlx_of(lily_fixtures::Variant::Small, 3, 32);
    for part in ["weight", "scales", "biases"] {
        let name = format!("{base}.{part}");
        files.put(&name, other.tensors[&name].clone());
    }
    files.config["quantization"][base] = json!({"group_size": 32, "bits": 3, "mode": "affine"});

    let weights = files.open().unwrap().weights;
    let o_proj = |layer: usize| match &weights.layers[layer].mixer {
        lily_weights::MixerWeights::Attention(w) => w.o_proj.clone(),
        lily_weights::MixerWeights::GatedDeltaNet(_) => panic!("layer {layer} is attention"),
    };
    assert!(matches!(o_proj(3).view().storage, Storage::Bf16(_)));
    assert_eq!(rows(&o_proj(3)), floats(&original));
    match o_proj(7).view().storage {
        Storage::Affine(x) => assert_eq!((x.bits, x.group), (3, 32)),
        _ => panic!("layer 7 is quantised"),
    }
    let (a, b) = (weights.layers[0].moe.gate.view().storage, weights.lm_head.view().storage);
    assert!(matches!(a, Storage::Affine(x) if x.bits == 8));
    assert!(matches!(b, Storage::Affine(x) if x.bits == 4));
}

#[test]
fn misaligned_tensors_are_copied_and_reported() {
    let files = Files::mlx();
    let mut bytes = files.weights();
    // One more space in the header moves the data to an odd address.
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    bytes[..8].copy_from_slice(&(len + 1).to_le_bytes());
    bytes.insert(8 + usize::try_from(len).unwrap(), b' ');
    let mut odd = files.clone();
    odd.file("model.safetensors", bytes);
    let opened = odd.open().unwrap();
    assert!(opened.summary.copied_bytes > 1_000_000);
    assert_eq!(fingerprint(&opened.weights), fingerprint(&files.open().unwrap().weights));
}

#[test]
fn embedded_files_open_like_a_directory() {
    let files = Files::mlx();
    let leak = |bytes: Vec<u8>| -> &'static [u8] { Box::leak(bytes.into_boxed_slice()) };
    let embedded = [
        EmbeddedFile { name: "config.json", bytes: leak(files.config.to_string().into_bytes()) },
        EmbeddedFile { name: "model.safetensors", bytes: leak(files.weights()) },
        EmbeddedFile { name: "tokenizer.json", bytes: b"{}" },
        EmbeddedFile { name: "chat_template.jinja", bytes: b"{{ x }}" },
    ];
    let opened = Checkpoint::from_embedded(&embedded).unwrap();
    assert_eq!(fingerprint(&opened.weights), fingerprint(&files.open().unwrap().weights));
    assert_eq!(opened.tokenizer.as_deref(), Some(&b"{}"[..]));
    assert_eq!(opened.chat_template.as_deref(), Some("{{ x }}"));
    assert!(matches!(
        Checkpoint::from_embedded(&embedded[1..]),
        Err(WeightsError::MissingFile { file, .. }) if file == "config.json"
    ));
}

/// The mapping belongs to the weights, not to the directory.
#[test]
fn weights_outlive_the_directory_and_the_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    Files::mlx().write(dir.path());
    let weights = Checkpoint::open(dir.path()).unwrap().weights;
    drop(dir);
    let thread = std::thread::spawn(move || rows(&weights.lm_head).len());
    assert_eq!(thread.join().unwrap(), 512 * 64);
}

#[test]
fn generation_config_and_end_tokens() {
    let mut files = Files::hf();
    files.config["eos_token_id"] = json!(7);
    files.text_config()["eos_token_id"] = json!([9, 7]);
    files.file(
        "generation_config.json",
        r#"{"eos_token_id": [5, 7], "temperature": 0.6, "top_p": 0.95, "top_k": 20,
            "do_sample": true, "min_p": null}"#,
    );
    let expected = GenerationConfig {
        eos_token_ids: vec![5, 7, 9],
        temperature: Some(0.6),
        top_p: Some(0.95),
        top_k: Some(20),
        ..GenerationConfig::default()
    };
    assert_eq!(files.open().unwrap().generation, expected);
    assert_eq!(Files::hf().open().unwrap().generation.eos_token_ids, [511]);
}

#[test]
fn chat_template_of_an_older_checkpoint() {
    let mut files = Files::hf();
    files.file("tokenizer_config.json", r#"{"chat_template": "old"}"#);
    assert_eq!(files.open().unwrap().chat_template.as_deref(), Some("old"));
    files.file("chat_template.jinja", "new");
    assert_eq!(files.open().unwrap().chat_template.as_deref(), Some("new"));
}

#[test]
fn summary_counts_what_is_stored() {
    let files = Files::hf();
    let opened = files.open().unwrap();
    assert_eq!(opened.format, Format::HfSafetensors);
    let class = |name: &str| {
        let found = opened.summary.classes.iter().find(|class| class.class == name);
        found.unwrap_or_else(|| panic!("{name} is a class")).clone()
    };
    assert_eq!(class("embedding").parameters, 512 * 64);
    assert_eq!(class("lm_head").bytes, 512 * 64 * 2);
    // 8 layers of 16 experts with three matrices of 64 x 64.
    assert_eq!(class("routed experts").parameters, 8 * 16 * 3 * 64 * 64);
    assert_eq!(class("routed experts").tensors, 8 * 16 * 3);
    let vision: usize = files
        .tensors
        .iter()
        .filter(|(name, _)| name.contains("visual"))
        .map(|(_, tensor)| tensor.bytes.len())
        .sum();
    assert_eq!(class("vision tower").bytes, vision as u64);
    let of = |summary: &lily_weights::Summary| summary.weight_bytes;
    assert!(of(&Files::mlx().open().unwrap().summary) * 3 < of(&opened.summary));
    let json = serde_json::to_value(&opened.summary).unwrap();
    assert!(json["classes"][0]["storage"].is_object());
}

/// Numbers of the model's description.
#[test]
fn memory_of_the_35b() {
    let needed = memory_needed(&Shape::qwen36_35b(), 0, 1000);
    assert_eq!(needed.kv_cache, 20_480 * 1000);
    let (delta, conv) = (30 * 32 * 128 * 128 * 4, 30 * 3 * 8192 * 4);
    assert_eq!(needed.recurrent_state, delta + conv);
}

#[test]
fn progress_ends_at_the_whole() {
    let dir = tempfile::tempdir().unwrap();
    sharded(&Files::mlx(), 3).write(dir.path());
    let mut seen = Vec::new();
    Checkpoint::open_with_progress(dir.path(), &mut |progress| seen.push(progress)).unwrap();
    let last = seen.last().unwrap();
    assert_eq!((seen.len(), last.files_done, last.files_total), (3, 3, 3));
    assert!(last.bytes_done > 1_300_000);
}

/// Norms of MTP side-cars are told apart by their mean.
#[test]
fn mtp_norm_folded_or_not() {
    for (stored, expected) in [(-0.25_f32, 0.75_f32), (0.25, 1.25), (0.75, 0.75), (1.25, 1.25)] {
        let mut files = Files::mlx();
        files.put("language_model.mtp.norm.weight", bf16_tensor(&[64], &[stored; 64]));
        assert_eq!(files.open().unwrap().weights.mtp.unwrap().norm, [expected; 64]);
    }
}
