//! `model.safetensors.index.json`: which file holds which tensor.

use crate::WeightsError;
use crate::config::shown;
use crate::error::DOWNLOAD_AGAIN;
use crate::safetensors::StoredTensor;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

pub(crate) const FILE: &str = "model.safetensors.index.json";
/// The published bf16 checkpoint has 26 shards, the FP8 one 42.
const SHARDS_MAX: usize = 4096;

/// Tensors by file.
#[derive(Debug)]
pub(crate) struct Index(BTreeMap<String, Vec<String>>);

impl Index {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, WeightsError> {
        let damaged = |what: &str, expected: &str, found: String| WeightsError::Damaged {
            file: FILE.to_owned(),
            what: what.to_owned(),
            expected: expected.to_owned(),
            found,
            remedy: DOWNLOAD_AGAIN,
        };
        let index: Value = serde_json::from_slice(bytes)
            .map_err(|error| damaged("JSON", "an object", error.to_string()))?;
        let map =
            index["weight_map"].as_object().filter(|map| !map.is_empty()).ok_or_else(|| {
                damaged("`weight_map`", "an object of file names", shown(&index["weight_map"]))
            })?;
        let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (tensor, file) in map {
            // Only a plain name: the directory is the whole world of a checkpoint. (Files that are
            // symbolic links are fine: the hub cache is made of them.)
            let file = file.as_str().filter(|file| is_plain_name(file)).ok_or_else(|| {
                let what = format!("file of tensor `{tensor}`");
                let expected = "the name of a .safetensors file in the same directory";
                damaged(&what, expected, shown(file))
            })?;
            files.entry(file.to_owned()).or_default().push(tensor.clone());
        }
        if files.len() > SHARDS_MAX {
            let expected = format!("at most {SHARDS_MAX} files");
            return Err(damaged("`weight_map`", &expected, format!("{} files", files.len())));
        }
        Ok(Self(files))
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    pub(crate) fn contains_file(&self, file: &str) -> bool {
        self.0.contains_key(file)
    }

    /// Every tensor that the index places in `file` must be there.
    pub(crate) fn check(
        &self,
        file: &str,
        tensors: &BTreeMap<String, StoredTensor>,
    ) -> Result<(), WeightsError> {
        let mut promised = self.0.get(file).into_iter().flatten();
        match promised.find(|tensor| !tensors.contains_key(*tensor)) {
            None => Ok(()),
            Some(tensor) => Err(WeightsError::Damaged {
                file: file.to_owned(),
                what: format!("tensor `{tensor}`"),
                expected: "to be here, as the index says".to_owned(),
                found: "no such tensor".to_owned(),
                remedy: DOWNLOAD_AGAIN,
            }),
        }
    }
}

fn is_plain_name(file: &str) -> bool {
    let mut components = Path::new(file).components();
    matches!(components.next(), Some(std::path::Component::Normal(_)))
        && components.next().is_none()
        && !file.contains(['/', '\\', '\0'])
        && Path::new(file).extension().is_some_and(|e| e == "safetensors")
}
