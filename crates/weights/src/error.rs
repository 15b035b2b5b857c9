//! What can be wrong with a checkpoint.

use std::path::PathBuf;

/// Errors of opening a checkpoint. Each names the thing, what was expected, what was found and,
/// where there is one, the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// A file or directory could not be read.
    #[error("{path} could not be read: {source}; check that it exists and may be read")]
    Io {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The path holds no checkpoint that Lily can open.
    #[error("{path} is not a checkpoint: {found}; {remedy}")]
    NotACheckpoint {
        /// The path.
        path: PathBuf,
        /// What is there instead.
        found: String,
        /// What to do.
        remedy: &'static str,
    },
    /// `config.json` describes another architecture or a value that the kernels do not assume.
    #[error("config.json: `{key}` is {found}, but Lily needs {expected}; {remedy}")]
    Config {
        /// The key, with its parents.
        key: String,
        /// What is supported.
        expected: String,
        /// What the file says.
        found: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A quantisation that is not supported.
    #[error("unsupported quantisation of `{module}`: {found}; {remedy}")]
    UnsupportedQuantisation {
        /// The module, or `config.json`.
        module: String,
        /// What was found.
        found: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A file is damaged: truncated, overlapping or absurd.
    #[error("{file}: {what}: expected {expected}, found {found}; {remedy}")]
    Damaged {
        /// The file.
        file: String,
        /// Which part.
        what: String,
        /// What should be there.
        expected: String,
        /// What is there.
        found: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A file that the checkpoint needs is not there.
    #[error("file `{file}` is missing; {remedy}")]
    MissingFile {
        /// Its name.
        file: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A tensor is missing.
    #[error("tensor `{tensor}` is missing; {remedy}")]
    MissingTensor {
        /// The canonical name: as Hugging Face calls it, without prefix.
        tensor: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A tensor that the architecture does not have.
    #[error("tensor `{tensor}` does not belong to this architecture; {remedy}")]
    ExtraTensor {
        /// The name.
        tensor: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A tensor has another shape or type.
    #[error("tensor `{tensor}` is {found}, but {expected} is needed; {remedy}")]
    WrongTensor {
        /// The name.
        tensor: String,
        /// Shape or type that fits `config.json`.
        expected: String,
        /// Shape or type of the file.
        found: String,
        /// What to do.
        remedy: &'static str,
    },
}

/// For files or tensors that are not there.
pub(crate) const CHECK_DOWNLOAD: &str =
    "the download may be incomplete: check that every file is there";
/// For damaged files.
pub(crate) const DOWNLOAD_AGAIN: &str = "download the file again";
/// For files that disagree with `config.json`.
pub(crate) const MATCHING_FILES: &str =
    "config.json and the weights must come from the same repository";
