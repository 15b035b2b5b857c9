//! Checkpoints made in memory, changed by a test, written and opened.

#![allow(dead_code, reason = "every test binary uses a part of it")]

use lily_fixtures::{Tensor, Tensors, Variant, safetensors, tiny_config, tiny_tensors};
use lily_weights::{Checkpoint, WeightsError};
use serde_json::Value;
use std::path::Path;
use std::sync::OnceLock;

/// The files of a checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) config: Value,
    pub(crate) tensors: Tensors,
    /// Further files, or replacements of the two above, by name.
    pub(crate) others: Vec<(String, Vec<u8>)>,
}

impl Files {
    /// The small variant as Hugging Face bf16.
    pub(crate) fn hf() -> Self {
        static TENSORS: OnceLock<Tensors> = OnceLock::new();
        let tensors =
            TENSORS.get_or_init(|| tiny_tensors(Variant::Small, Variant::Small.golden_seed()));
        let config = tiny_config(Variant::Small);
        Self { config, tensors: tensors.clone(), others: Vec::new() }
    }

    /// The small variant as MLX affine, 4 bits in groups of 64.
    pub(crate) fn mlx() -> Self {
        static FILES: OnceLock<Files> = OnceLock::new();
        FILES.get_or_init(|| Self::mlx_of(Variant::Small, 4, 64)).clone()
    }

    /// Any variant as MLX affine.
    pub(crate) fn mlx_of(variant: Variant, bits: u8, group: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        lily_fixtures::write_mlx(dir.path(), variant, variant.golden_seed(), bits, group).unwrap();
        Self::read(dir.path())
    }

    fn read(dir: &Path) -> Self {
        let config = serde_json::from_slice(&std::fs::read(dir.join("config.json")).unwrap());
        let bytes = std::fs::read(dir.join("model.safetensors")).unwrap();
        Self { config: config.unwrap(), tensors: read_safetensors(&bytes), others: Vec::new() }
    }

    pub(crate) fn text_config(&mut self) -> &mut serde_json::Map<String, Value> {
        self.config["text_config"].as_object_mut().unwrap()
    }

    pub(crate) fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.get_mut(name).unwrap_or_else(|| panic!("the fixture has {name}"))
    }

    /// Takes a tensor out.
    pub(crate) fn take(&mut self, name: &str) -> Tensor {
        self.tensors.remove(name).unwrap_or_else(|| panic!("the fixture has {name}"))
    }

    pub(crate) fn put(&mut self, name: &str, tensor: Tensor) {
        self.tensors.insert(name.to_owned(), tensor);
    }

    /// Renames every tensor whose new name differs.
    pub(crate) fn rename(&mut self, new_name: impl Fn(&str) -> String) {
        self.tensors = std::mem::take(&mut self.tensors)
            .into_iter()
            .map(|(name, tensor)| (new_name(&name), tensor))
            .collect();
    }

    pub(crate) fn file(&mut self, name: &str, bytes: impl Into<Vec<u8>>) {
        self.others.push((name.to_owned(), bytes.into()));
    }

    /// `model.safetensors`
    pub(crate) fn weights(&self) -> Vec<u8> {
        safetensors(&self.tensors, "test")
    }

    pub(crate) fn write(&self, dir: &Path) {
        std::fs::write(dir.join("config.json"), self.config.to_string()).unwrap();
        if !self.tensors.is_empty() {
            std::fs::write(dir.join("model.safetensors"), self.weights()).unwrap();
        }
        for (name, bytes) in &self.others {
            std::fs::write(dir.join(name), bytes).unwrap();
        }
    }

    pub(crate) fn open(&self) -> Result<Checkpoint, WeightsError> {
        let dir = tempfile::tempdir().unwrap();
        self.write(dir.path());
        Checkpoint::open(dir.path())
    }
}

/// The tensors of a file, read by the public crate.
pub(crate) fn read_safetensors(bytes: &[u8]) -> Tensors {
    use ::safetensors::{Dtype, SafeTensors};
    let file = SafeTensors::deserialize(bytes).unwrap();
    file.iter()
        .map(|(name, view)| {
            let dtype = match view.dtype() {
                Dtype::BF16 => "BF16",
                Dtype::F16 => "F16",
                Dtype::F32 => "F32",
                Dtype::U32 => "U32",
                Dtype::U8 => "U8",
                other => panic!("no fixture has {other:?}"),
            };
            let (shape, bytes) = (view.shape().to_vec(), view.data().to_vec());
            (name.to_owned(), Tensor { dtype, shape, bytes })
        })
        .collect()
}

/// Elements as f32, written for clarity.
pub(crate) fn floats(tensor: &Tensor) -> Vec<f32> {
    let pairs = || tensor.bytes.chunks(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    match tensor.dtype {
        "BF16" => pairs().map(|bits| f32::from_bits(u32::from(bits) << 16)).collect(),
        "F16" => pairs().map(|bits| half::f16::from_bits(bits).to_f32()).collect(),
        "F32" => {
            tensor.bytes.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        }
        other => panic!("{other} holds no floats"),
    }
}

pub(crate) fn bf16_tensor(shape: &[usize], values: &[f32]) -> Tensor {
    let bytes = values.iter().flat_map(|&x| half::bf16::from_f32(x).to_le_bytes()).collect();
    Tensor { dtype: "BF16", shape: shape.to_vec(), bytes }
}
