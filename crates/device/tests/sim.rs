//! The simulator: kernels mean what they mean in Metal, and each kind of mistake is found.
#![cfg(unix)]

#[path = "sim/support.rs"]
mod support;

#[path = "sim/device.rs"]
mod device;
#[path = "sim/dialect.rs"]
mod dialect;
#[path = "sim/faults.rs"]
mod faults;
#[path = "sim/matrix.rs"]
mod matrix;
#[path = "sim/real.rs"]
mod real;
#[path = "sim/speed.rs"]
mod speed;
#[path = "sim/tensor.rs"]
mod tensor;
