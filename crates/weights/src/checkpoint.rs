//! Opening a checkpoint: a directory, or files inside the program.

use crate::assemble::{NamedTensor, Tensors, assemble};
use crate::config::{Config, token_ids};
use crate::error::DOWNLOAD_AGAIN;
use crate::formats::{Role, hf, mlx};
use crate::mapping::Mapping;
use crate::safetensors::{self, StoredTensor};
use crate::summary::Summary;
use crate::{ModelWeights, Shape, WeightsError};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Configuration and text files are some megabytes at most (a tokenizer has 13).
const TEXT_FILE_BYTES_MAX: u64 = 256 << 20;
/// The published bf16 checkpoint has 26 shards, the FP8 one 42.
const SHARDS_MAX: usize = 4096;

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

/// Sampling values of `generation_config.json` and the ids that end an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationConfig {
    /// The union of both config files, in order, without repetition.
    pub eos_token_ids: Vec<u32>,
    /// `temperature`
    pub temperature: Option<f32>,
    /// `top_p`
    pub top_p: Option<f32>,
    /// `top_k`
    pub top_k: Option<u32>,
    /// `min_p`
    pub min_p: Option<f32>,
    /// `presence_penalty`
    pub presence_penalty: Option<f32>,
    /// `repetition_penalty`
    pub repetition_penalty: Option<f32>,
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

/// Where the files of a checkpoint are.
enum Source<'a> {
    Directory(&'a Path),
    Embedded(&'a [EmbeddedFile]),
}

impl Source<'_> {
    fn open(&self, progress: &mut dyn FnMut(Progress)) -> Result<Checkpoint, WeightsError> {
        let config = self.text("config.json")?.ok_or_else(|| missing_file("config.json"))?;
        let config = Config::parse(&config)?;
        let format = match config.quantization {
            Some(_) => Format::MlxAffine,
            None => Format::HfSafetensors,
        };
        let (by_name, vision) = self.tensors(format, progress)?;
        let tensors = Tensors {
            norm_gain: if is_mlx(format, &by_name) { mlx::norm_gain } else { hf::norm_gain },
            by_name,
            quantization: config.quantization,
            copied_bytes: 0,
        };
        let (weights, copied_bytes) = assemble(&config.shape, tensors)?;
        let summary = Summary::new(&weights, &vision, copied_bytes)
            .with_bytes_per_token(&weights, &config.shape);
        let chat_template = self.text("chat_template.jinja")?;
        Ok(Checkpoint {
            summary,
            weights,
            format,
            tokenizer: self.text("tokenizer.json")?,
            chat_template: chat_template.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            tokenizer_config: self.text("tokenizer_config.json")?,
            generation: self.generation(&config.eos_token_ids)?,
            shape: config.shape,
        })
    }

    /// The bytes of a configuration file; `None` if there is none.
    fn text(&self, name: &str) -> Result<Option<Vec<u8>>, WeightsError> {
        match self {
            Self::Embedded(files) => {
                Ok(files.iter().find(|file| file.name == name).map(|file| file.bytes.to_vec()))
            }
            Self::Directory(dir) => read_text(&dir.join(name)),
        }
    }

    fn map(&self, name: &str) -> Result<Mapping, WeightsError> {
        match self {
            Self::Embedded(files) => files
                .iter()
                .find(|file| file.name == name)
                .map(|file| Mapping::Static(file.bytes))
                .ok_or_else(|| missing_file(name)),
            Self::Directory(dir) => {
                let path = dir.join(name);
                if path.exists() { Mapping::file(&path) } else { Err(missing_file(name)) }
            }
        }
    }

    fn file_names(&self) -> Result<Vec<String>, WeightsError> {
        let mut names: Vec<String> = match self {
            Self::Embedded(files) => files.iter().map(|file| file.name.to_owned()).collect(),
            Self::Directory(dir) => std::fs::read_dir(dir)
                .map_err(|source| WeightsError::Io { path: PathBuf::from(dir), source })?
                .flatten()
                .filter_map(|entry| entry.file_name().into_string().ok())
                .collect(),
        };
        names.retain(|name| {
            Path::new(name).extension().is_some_and(|e| e == "safetensors") && !name.starts_with('.')
        });
        names.sort();
        Ok(names)
    }

    /// All tensors by canonical name, and those of the vision tower.
    fn tensors(
        &self,
        format: Format,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(BTreeMap<String, NamedTensor>, Vec<StoredTensor>), WeightsError> {
        let index = self.index()?;
        let mut files = self.file_names()?;
        if let Some(index) = &index {
            // Beside the indexed shards only an MTP side-car is wanted.
            let shards: BTreeSet<&String> = index.values().collect();
            files.retain(|name| !shards.contains(name) && name.contains("mtp"));
            files.extend(shards.into_iter().cloned());
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
                check_shard(file, index, &tensors)?;
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

    /// `weight_map` of `model.safetensors.index.json`: tensor to file.
    fn index(&self) -> Result<Option<BTreeMap<String, String>>, WeightsError> {
        const FILE: &str = "model.safetensors.index.json";
        let Some(bytes) = self.text(FILE)? else { return Ok(None) };
        let damaged = |what: &str, expected: &str, found: String| WeightsError::Damaged {
            file: FILE.to_owned(),
            what: what.to_owned(),
            expected: expected.to_owned(),
            found,
            remedy: DOWNLOAD_AGAIN,
        };
        let index: Value = serde_json::from_slice(&bytes)
            .map_err(|error| damaged("JSON", "an object", error.to_string()))?;
        let map = index["weight_map"]
            .as_object()
            .ok_or_else(|| damaged("weight_map", "an object", "none".to_owned()))?;
        let mut files = BTreeMap::new();
        for (tensor, file) in map {
            // Only a plain name: the directory is the whole world of a checkpoint. (Files that are
            // symbolic links are fine: the hub cache is made of them.)
            let file = file.as_str().filter(|file| is_plain_name(file)).ok_or_else(|| {
                let what = format!("file of tensor `{tensor}`");
                let expected = "the name of a .safetensors file in the same directory";
                damaged(&what, expected, crate::config::shown(file))
            })?;
            files.insert(tensor.clone(), file.to_owned());
        }
        let n_shards = files.values().collect::<BTreeSet<_>>().len();
        if n_shards > SHARDS_MAX {
            let expected = format!("at most {SHARDS_MAX} files");
            return Err(damaged("weight_map", &expected, format!("{n_shards} files")));
        }
        Ok(Some(files))
    }

    fn generation(&self, config_eos: &[u32]) -> Result<GenerationConfig, WeightsError> {
        let bytes = self.text("generation_config.json")?.unwrap_or_else(|| b"{}".to_vec());
        let value: Value =
            serde_json::from_slice(&bytes).map_err(|error| WeightsError::Damaged {
                file: "generation_config.json".to_owned(),
                what: "JSON".to_owned(),
                expected: "an object".to_owned(),
                found: error.to_string(),
                remedy: "repair or remove the file",
            })?;
        #[expect(clippy::cast_possible_truncation, reason = "sampling values need no more than f32")]
        let number = |key: &str| value[key].as_f64().map(|x| x as f32);
        let mut eos_token_ids = token_ids(value.get("eos_token_id"));
        eos_token_ids.extend_from_slice(config_eos);
        let mut seen = BTreeSet::new();
        eos_token_ids.retain(|id| seen.insert(*id));
        Ok(GenerationConfig {
            eos_token_ids,
            temperature: number("temperature"),
            top_p: number("top_p"),
            top_k: value["top_k"].as_u64().and_then(|k| u32::try_from(k).ok()),
            min_p: number("min_p"),
            presence_penalty: number("presence_penalty"),
            repetition_penalty: number("repetition_penalty"),
        })
    }
}

/// An unquantised checkpoint may be Hugging Face's or an MLX bf16 conversion.
fn role_of_plain(name: &str) -> Role {
    if name.starts_with("language_model.") || name.starts_with("vision_tower.") {
        mlx::role(name)
    } else {
        hf::role(name)
    }
}

/// MLX folds the norms; an unquantised MLX file shows itself by its names or by the layout of the
/// convolution.
fn is_mlx(format: Format, by_name: &BTreeMap<String, NamedTensor>) -> bool {
    format == Format::MlxAffine
        || by_name.values().any(|named| {
            named.stored_name.ends_with("conv1d.weight")
                && named.tensor.shape.last() == Some(&1)
        })
}

fn is_plain_name(file: &str) -> bool {
    let mut components = Path::new(file).components();
    matches!(components.next(), Some(std::path::Component::Normal(_)))
        && components.next().is_none()
        && !file.contains(['/', '\\', '\0'])
        && Path::new(file).extension().is_some_and(|e| e == "safetensors")
}

fn check_shard(
    file: &str,
    index: &BTreeMap<String, String>,
    tensors: &BTreeMap<String, StoredTensor>,
) -> Result<(), WeightsError> {
    for (tensor, shard) in index {
        if shard == file && !tensors.contains_key(tensor) {
            return Err(WeightsError::Damaged {
                file: file.to_owned(),
                what: format!("tensor `{tensor}`"),
                expected: "to be here, as the index says".to_owned(),
                found: "no such tensor".to_owned(),
                remedy: DOWNLOAD_AGAIN,
            });
        }
    }
    Ok(())
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

fn missing_file(name: &str) -> WeightsError {
    WeightsError::MissingTensor {
        tensor: format!("(file) {name}"),
        remedy: "the download may be incomplete: check that every file is there",
    }
}

fn read_text(path: &Path) -> Result<Option<Vec<u8>>, WeightsError> {
    let io = |source| WeightsError::Io { path: path.to_owned(), source };
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    if metadata.len() > TEXT_FILE_BYTES_MAX {
        return Err(WeightsError::Damaged {
            file: path.display().to_string(),
            what: "file size".to_owned(),
            expected: format!("at most {TEXT_FILE_BYTES_MAX} bytes"),
            found: format!("{} bytes", metadata.len()),
            remedy: DOWNLOAD_AGAIN,
        });
    }
    std::fs::read(path).map(Some).map_err(io)
}
