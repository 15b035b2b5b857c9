//! Memory, kernels and command lists of the GPU-like devices: Metal, CUDA and a simulator.
//!
//! The three agree exactly at "compile this source, bind these buffers, launch this grid", so that
//! is the boundary: [`Device`] is small, object safe and knows no model. What a forward pass does
//! is written into [`Commands`], plain data that works out its own barriers, can be counted in a
//! test, and is submitted once or prepared for many replays.
//!
//! The kernels are the files of `kernels/`, embedded as text; see `docs/kernels.md`.

mod commands;
#[cfg(not(target_os = "macos"))]
pub mod cuda;
mod device;
mod error;
mod kernel;
mod listing;
mod memory;
#[cfg(target_os = "macos")]
pub mod metal;
pub mod metal_plan;
#[cfg(unix)]
pub mod sim;
pub mod source;

pub use commands::{Command, Commands, Counts, Grid};
pub use device::{Device, DeviceInfo, DeviceKind, Program, Ticket, TileBody};
pub use error::DeviceError;
pub use kernel::{Kernel, KernelSource};
pub use listing::ListingDevice;
pub use memory::{Buffer, HostBytes, Memory, Slice};
