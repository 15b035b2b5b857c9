//! The forward pass on a GPU-like device: the same maths as [`crate::CpuModel`], as command lists.

pub mod checks;
mod kernels;
mod ops;
mod weights;

pub use kernels::{Activations, Kernels};
pub use weights::{Format, GpuExperts, GpuMatrix};
