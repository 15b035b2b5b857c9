//! Layouts of quantised weights.

pub mod affine;
