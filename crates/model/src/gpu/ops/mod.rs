//! One function a kernel: it knows the geometry, checks the shapes and records the dispatch.

mod norm;

pub(crate) use norm::rms_norm;
