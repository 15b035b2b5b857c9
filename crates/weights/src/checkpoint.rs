//! Opening a checkpoint: a directory, or files inside the program.

use crate::assemble::{NamedTensor, Tensors, assemble};
use crate::config::Config;
use crate::error::DOWNLOAD_AGAIN;
use crate::formats::{Role, hf, mlx};
use crate::index::{self, Index};
use crate::safetensors::{self, StoredTensor};
use crate::source::{Source, missing_file};
use crate::summary::Summary;
use crate::{GenerationConfig, ModelWeights, Shape, WeightsError};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// How a checkpoint is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Hugging Face safetensors in bf16, f16 or f32.
    HfSafetensors,
    /// MLX affine quantised safetensors.
    MlxAffine,
    /// Random weights made in memory.
    Random,
}

/// An opened checkpoint.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Sizes.
    pub shape: Shape,
    /// How it is stored.
    pub format: Format,
    /// Weights by role.
    pub weights: ModelWeights,
    /// `tokenizer.json`
    pub tokenizer: Option<Vec<u8>>,
    /// `chat_template.jinja`
    pub chat_template: Option<String>,
    /// `tokenizer_config.json`
    pub tokenizer_config: Option<Vec<u8>>,
    /// Sampling defaults and end tokens.
    pub generation: GenerationConfig,
    /// What is in it, by class of tensor.
    pub summary: Summary,
}

/// A file inside the program.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedFile {
    /// As it would be called in a directory.
    pub name: &'static str,
    /// Its bytes; `model.safetensors` should be aligned to 8 bytes to avoid copies.
    pub bytes: &'static [u8],
}

/// How far opening has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Weight files read.
    pub files_done: usize,
    /// Weight files in all.
    pub files_total: usize,
    /// Bytes of the files read.
    pub bytes_done: u64,
}

impl Checkpoint {
    /// Opens a directory.
    ///
    /// # Errors
    /// See [`WeightsError`].
    pub fn open(dir: &Path) -> Result<Self, WeightsError> {
        Self::open_with_progress(dir, &mut |_| {})
    }

    /// Opens a directory and tells how far it has come, once per weight file.
    ///
    /// # Errors
    /// See [`WeightsError`].
    pub fn open_with_progress(
        dir: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, WeightsError> {
        if dir.extension().is_some_and(|e| e == "gguf") {
            return Err(not_a_checkpoint(
                dir,
                "GGUF files are not supported yet",
                "use a Hugging Face or MLX directory",
            ));
        }
        if !dir.is_dir() {
            let found = if dir.exists() { "it is a file" } else { "it does not exist" };
            return Err(not_a_checkpoint(dir, found, "give the directory that holds config.json"));
        }
        if !dir.join("config.json").is_file() {
            return Err(missing_config(dir));
        }
        Source::Directory(dir).open(progress)
    }

    /// Opens files inside the program, by the same rules.
    ///
    /// # Errors
    /// See [`WeightsError`].
    pub fn from_embedded(files: &[EmbeddedFile]) -> Result<Self, WeightsError> {
        Source::Embedded(files).open(&mut |_| {})
    }
}

fn not_a_checkpoint(path: &Path, found: &str, remedy: &'static str) -> WeightsError {
    WeightsError::NotACheckpoint { path: path.to_owned(), found: found.to_owned(), remedy }
}

fn missing_config(dir: &Path) -> WeightsError {
    let has_gguf = std::fs::read_dir(dir).is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.path().extension().is_some_and(|e| e == "gguf"))
    });
    if has_gguf {
        let found = "it holds GGUF files, which are not supported yet";
        return not_a_checkpoint(dir, found, "use a Hugging Face or MLX directory");
    }
    let remedy = "give the directory that holds config.json and the .safetensors files";
    not_a_checkpoint(dir, "it has no config.json", remedy)
}

impl Source<'_> {
    fn open(&self, progress: &mut dyn FnMut(Progress)) -> Result<Checkpoint, WeightsError> {
        let config = self.text("config.json")?.ok_or_else(|| missing_file("config.json"))?;
        let config = Config::parse(&config)?;
        let format = match config.quantization {
            Some(_) => Format::MlxAffine,
            None => Format::HfSafetensors,
        };
        let generation = self.text("generation_config.json")?.unwrap_or_else(|| b"{}".to_vec());
        let generation = GenerationConfig::parse(&generation, &config.eos_token_ids)?;
        let (by_name, vision) = self.tensors(format, progress)?;
        let shapes = by_name.values().map(|x| (&*x.stored_name, &*x.tensor.shape));
        let is_converted = mlx::is_converted(shapes).unwrap_or(format == Format::MlxAffine);
        let tensors = Tensors {
            norm_gain: if is_converted { mlx::norm_gain } else { hf::norm_gain },
            by_name,
            quantization: config.quantization,
            copied_bytes: 0,
        };
        let (weights, copied_bytes) = assemble(&config.shape, tensors)?;
        let summary = Summary::new(&weights, &vision, copied_bytes)
            .with_bytes_per_token(&weights, &config.shape);
        let tokenizer_config = self.text("tokenizer_config.json")?;
        let chat_template = match self.text("chat_template.jinja")? {
            Some(bytes) => Some(utf8("chat_template.jinja", bytes)?),
            None => tokenizer_config.as_deref().and_then(template_of),
        };
        Ok(Checkpoint {
            summary,
            weights,
            format,
            tokenizer: self.text("tokenizer.json")?,
            chat_template,
            tokenizer_config,
            generation,
            shape: config.shape,
        })
    }

    /// All tensors by canonical name, and those of the vision tower.
    fn tensors(
        &self,
        format: Format,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(BTreeMap<String, NamedTensor>, Vec<StoredTensor>), WeightsError> {
        let index = self.text(index::FILE)?.map(|bytes| Index::parse(&bytes)).transpose()?;
        let mut files = self.weight_files()?;
        if let Some(index) = &index {
            // Beside the indexed shards only an MTP side-car is wanted.
            files.retain(|name| !index.contains_file(name) && name.contains("mtp"));
            files.extend(index.files().cloned());
            files.sort();
        }
        if files.is_empty() {
            return Err(missing_file("model.safetensors"));
        }
        let mut by_name = BTreeMap::new();
        let mut vision = Vec::new();
        let mut bytes_done = 0;
        for (files_done, file) in files.iter().enumerate() {
            let mapping = self.map(file)?;
            bytes_done += mapping.bytes().len() as u64;
            let tensors = safetensors::read(file, mapping)?;
            if let Some(index) = &index {
                index.check(file, &tensors)?;
            }
            for (stored_name, tensor) in tensors {
                let role = match format {
                    Format::MlxAffine => mlx::role(&stored_name),
                    Format::HfSafetensors | Format::Random => role_of_plain(&stored_name),
                };
                match role {
                    Role::Vision => vision.push(tensor),
                    Role::Text(name) => insert(&mut by_name, name, stored_name, tensor, file)?,
                }
            }
            progress(Progress { files_done: files_done + 1, files_total: files.len(), bytes_done });
        }
        Ok((by_name, vision))
    }
}

/// The template that older checkpoints keep in `tokenizer_config.json`.
fn template_of(tokenizer_config: &[u8]) -> Option<String> {
    let config: Value = serde_json::from_slice(tokenizer_config).ok()?;
    config["chat_template"].as_str().map(str::to_owned)
}

fn utf8(file: &str, bytes: Vec<u8>) -> Result<String, WeightsError> {
    String::from_utf8(bytes).map_err(|error| WeightsError::Damaged {
        file: file.to_owned(),
        what: "text".to_owned(),
        expected: "UTF-8".to_owned(),
        found: error.to_string(),
        remedy: DOWNLOAD_AGAIN,
    })
}

/// An unquantised checkpoint may be Hugging Face's or an MLX bf16 conversion.
fn role_of_plain(name: &str) -> Role {
    if name.starts_with("language_model.") || name.starts_with("vision_tower.") {
        mlx::role(name)
    } else {
        hf::role(name)
    }
}

fn insert(
    by_name: &mut BTreeMap<String, NamedTensor>,
    name: String,
    stored_name: String,
    tensor: StoredTensor,
    file: &str,
) -> Result<(), WeightsError> {
    let what = format!("tensor `{stored_name}`");
    match by_name.insert(name, NamedTensor { stored_name, tensor }) {
        None => Ok(()),
        Some(previous) => Err(WeightsError::Damaged {
            file: file.to_owned(),
            what,
            expected: "one tensor for each role".to_owned(),
            found: format!("`{}` stands for the same", previous.stored_name),
            remedy: "remove the file that does not belong to the checkpoint",
        }),
    }
}
