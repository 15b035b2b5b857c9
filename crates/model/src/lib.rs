//! The forward pass of Qwen3.6-35B-A3B and the state of a sequence.
//!
//! [`Model`] is all that the engine sees. This crate knows token ids, not text.

mod error;
mod model;

pub use error::ModelError;
pub use model::{Advance, Logits, Model, Rows, SeqState, Snapshot, Step, TokenId};
