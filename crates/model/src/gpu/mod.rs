//! The forward pass on a GPU-like device: the same maths as [`crate::CpuModel`], as command lists.

pub mod checks;
mod decode;
mod kernels;
mod listing;
mod load;
mod model;
mod ops;
mod prefill;
pub mod speed;
mod state;
mod weights;

pub use kernels::{Activations, Kernels};
pub use listing::all_kernels;
pub use model::{GpuModel, GpuOptions};
pub(crate) use state::{GpuSnapshot, GpuState};
pub use weights::{Format, GpuExperts, GpuMatrix};
