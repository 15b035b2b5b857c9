//! Fixtures shared by the tests of the forward pass. Each test file uses a part of them.

#![allow(dead_code, unreachable_pub, reason = "compiled once per test file")]

use lily_fixtures::{Variant, write_hf, write_mlx4};
use lily_model::{CpuModel, CpuOptions, Precision, TokenId};
use lily_weights::Checkpoint;
use safetensors::{Dtype, SafeTensors};
use std::path::{Path, PathBuf};

fn tests_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests")
}

/// Opens a test checkpoint with the exact f32 arithmetic.
pub fn open(name: &str) -> CpuModel {
    open_with(name, CpuOptions { n_threads: 2, precision: Precision::F32, max_batch_tokens: 256 })
}

pub fn open_with(name: &str, options: CpuOptions) -> CpuModel {
    let checkpoint = checkpoint(name);
    CpuModel::new(checkpoint.shape, checkpoint.weights, options)
}

/// A test checkpoint.
pub fn checkpoint(name: &str) -> Checkpoint {
    let variant = if name.contains("heads") { Variant::Heads } else { Variant::Small };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let write = if name.ends_with("hf") { write_hf } else { write_mlx4 };
    write(dir.path(), variant, variant.golden_seed()).expect("the checkpoint is written");
    // The mapping outlives the directory entry.
    Checkpoint::open(dir.path()).expect("the fixture opens")
}

/// A file of golden vectors.
pub struct Goldens {
    bytes: Vec<u8>,
}

impl Goldens {
    pub fn load(name: &str) -> Self {
        let path = tests_dir().join("golden").join(format!("{name}.safetensors"));
        Self { bytes: std::fs::read(path).expect("the goldens are in the repository") }
    }

    fn words(&self, name: &str, dtype: Dtype) -> Vec<[u8; 4]> {
        let file = SafeTensors::deserialize(&self.bytes).expect("valid goldens");
        let tensor = file.tensor(name).expect("a golden of that name");
        assert_eq!(tensor.dtype(), dtype, "{name}");
        tensor.data().as_chunks::<4>().0.to_vec()
    }

    pub fn f32s(&self, name: &str) -> Vec<f32> {
        self.words(name, Dtype::F32).into_iter().map(f32::from_le_bytes).collect()
    }

    pub fn ids(&self, name: &str) -> Vec<TokenId> {
        self.words(name, Dtype::I32).into_iter().map(u32::from_le_bytes).collect()
    }
}

pub fn argmax(row: &[f32]) -> TokenId {
    let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]).then(b.cmp(&a)));
    TokenId::try_from(best.expect("a row is not empty")).expect("a small vocabulary")
}

/// NaN anywhere counts as infinitely different.
pub fn max_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0.0, |max, (a, b)| {
        let difference = (a - b).abs();
        if difference.is_nan() { f32::INFINITY } else { f32::max(max, difference) }
    })
}
