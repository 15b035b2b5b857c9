//! SIMD primitives of the CPU forward pass.
//!
//! Everything works on slices. A primitive is written once over vectors of lanes and compiled for
//! AVX-512, AVX2 and the portable path, which is also what NEON runs; the best is chosen at run
//! time. It knows the block layouts of `lily-weights` and nothing of the model.

#![allow(
    clippy::inline_always,
    reason = "the code of a kernel has to end up in the functions that enable its instructions"
)]

mod activations;
mod attention;
mod buffer;
mod conv;
mod delta_rule;
mod kv;
mod math;
mod matmul;
mod moe;
mod norm;
mod pool;
mod rope;
mod router;
mod simd;
mod split;
mod tile;

pub use activations::{Activations, Precision};
pub use attention::{AttentionArgs, AttentionScratch, AttentionShape, attention};
pub use delta_rule::{
    DeltaInputs, DeltaScratch, DeltaShape, DeltaStash, DeltaState, DeltaWeights, apply,
    gated_delta_net, gated_delta_net_tentative,
};
pub use kv::{KvCache, KvDtype};
pub use math::sigmoid_in_place;
pub use matmul::{MatmulJob, matmul};
pub use moe::{MoeScratch, moe};
pub use norm::rms_norm;
pub use pool::{Pool, physical_cores};
pub use rope::RopeTable;
pub use router::{Routes, route};
