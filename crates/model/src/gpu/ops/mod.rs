//! One function a kernel: it knows the geometry, checks the shapes and records the dispatch.

mod attention_decode;
mod delta_step;
mod gemv;
mod moe_decode;
mod next_token;
mod norm;

pub(crate) use attention_decode::{
    AttentionDecode, HeadNorms, KvRows, attention_decode, parts_floats,
};
pub(crate) use delta_step::{
    CONV_RING, DeltaStash, DeltaState, DeltaStep, DeltaVectors, conv_channels, delta_commit,
    delta_step, n_slices,
};
pub(crate) use gemv::{Input, Output, embed, gemv};
pub(crate) use moe_decode::{GpuMoe, MoeDecode, a_floats, moe_decode};
pub(crate) use next_token::{NextToken, advance, next_token, scratch_bytes};
pub(crate) use norm::rms_norm;
