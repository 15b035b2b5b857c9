//! The forward pass of Qwen3.6-35B-A3B and the state of a sequence.
//!
//! [`Model`] is all that the engine sees. This crate knows token ids, not text.

mod cpu;
mod error;
pub mod gpu;
mod model;
mod state;

pub use cpu::{CpuModel, CpuOptions, MtpState, Tap};
pub use error::ModelError;
pub use lily_cpu::Precision;
pub use lily_device::Counts;
pub use lily_weights::Shape;
pub use model::{Advance, DeviceSampling, Logits, Model, Rows, SnapshotSize, Step, TokenId};
pub use state::{SeqState, Snapshot};
