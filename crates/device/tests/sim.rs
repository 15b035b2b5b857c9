//! The simulator: kernels mean what they mean in Metal, and each kind of mistake is found.
#![cfg(unix)]

#[path = "sim/support.rs"]
mod support;

#[path = "sim/dialect.rs"]
mod dialect;
#[path = "sim/real.rs"]
mod real;
