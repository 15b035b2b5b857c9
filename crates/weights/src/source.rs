//! The files of a checkpoint: a directory, or part of the program.

use crate::error::{CHECK_DOWNLOAD, DOWNLOAD_AGAIN};
use crate::mapping::Mapping;
use crate::{EmbeddedFile, WeightsError};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Text files are some megabytes at most (a tokenizer has 13).
const TEXT_FILE_BYTES_MAX: u64 = 256 << 20;
/// Files that become a JSON tree, which takes some ten times their size; the longest, the index of
/// the FP8 checkpoint, has 6 MB.
const JSON_FILE_BYTES_MAX: u64 = 32 << 20;

/// Where the files of a checkpoint are.
pub(crate) enum Source<'a> {
    Directory(&'a Path),
    Embedded(&'a [EmbeddedFile]),
}

impl Source<'_> {
    /// The bytes of a configuration file; `None` if there is none.
    pub(crate) fn text(&self, name: &str) -> Result<Option<Vec<u8>>, WeightsError> {
        match self {
            Self::Embedded(files) => {
                Ok(files.iter().find(|file| file.name == name).map(|file| file.bytes.to_vec()))
            }
            Self::Directory(dir) => read_text(&dir.join(name)),
        }
    }

    /// The bytes of a weight file, mapped.
    pub(crate) fn map(&self, name: &str) -> Result<Mapping, WeightsError> {
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

    /// The weight files that are there, in order.
    pub(crate) fn weight_files(&self) -> Result<Vec<String>, WeightsError> {
        let mut names: Vec<String> = match self {
            Self::Embedded(files) => files.iter().map(|file| file.name.to_owned()).collect(),
            Self::Directory(dir) => std::fs::read_dir(dir)
                .map_err(|source| WeightsError::Io { path: PathBuf::from(dir), source })?
                .flatten()
                .filter_map(|entry| entry.file_name().into_string().ok())
                .collect(),
        };
        names.retain(|name| {
            Path::new(name).extension().is_some_and(|e| e == "safetensors")
                && !name.starts_with('.')
        });
        names.sort();
        Ok(names)
    }
}

pub(crate) fn missing_file(name: &str) -> WeightsError {
    WeightsError::MissingFile { file: name.to_owned(), remedy: CHECK_DOWNLOAD }
}

fn read_text(path: &Path) -> Result<Option<Vec<u8>>, WeightsError> {
    let io = |source| WeightsError::Io { path: path.to_owned(), source };
    // Before opening: a pipe would wait for a writer.
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err(io(std::io::Error::other("it is not a regular file"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    }
    let is_tokenizer = path.file_name().is_some_and(|name| name == "tokenizer.json");
    let max = if is_tokenizer { TEXT_FILE_BYTES_MAX } else { JSON_FILE_BYTES_MAX };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(io)?;
    file.take(max + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > max {
        return Err(WeightsError::Damaged {
            file: path.display().to_string(),
            what: "file size".to_owned(),
            expected: format!("at most {max} bytes"),
            found: "more".to_owned(),
            remedy: DOWNLOAD_AGAIN,
        });
    }
    Ok(Some(bytes))
}
