//! Checkpoints of Qwen3.6-35B-A3B: formats, canonical tensor names, quantisation layouts.
//!
//! Owns everything between a path and [`ModelWeights`]. Knows no device and computes nothing but
//! the reference decode of a stored row.

mod assemble;
mod checkpoint;
mod config;
mod error;
mod formats;
mod generation;
mod index;
mod mapping;
mod matrix;
pub mod quant;
mod quantization;
mod random;
mod safetensors;
mod source;
mod stored;
mod summary;
mod weights;

pub use checkpoint::{Checkpoint, EmbeddedFile, Format, Progress};
pub use config::Shape;
pub use error::WeightsError;
pub use generation::GenerationConfig;
pub use matrix::{Affine, FloatType, Half, Matrix, Storage, WeightExperts, WeightMatrix};
pub use random::RandomQuant;
pub use stored::{Region, Stored};
pub use summary::{ClassSummary, MemoryNeeded, Summary, memory_needed, storage_name};
pub use weights::{
    AttentionWeights, GatedDeltaNetWeights, LayerWeights, MixerWeights, ModelWeights, MoeWeights,
    MtpWeights,
};
