//! One function a kernel: it knows the geometry, checks the shapes and records the dispatch.

mod attention_decode;
mod attention_prefill;
mod delta_prefill;
mod delta_step;
mod gemm;
mod gemv;
mod moe_decode;
mod moe_prefill;
mod next_token;
mod norm;
mod sample;

pub(crate) use attention_decode::{
    AttentionDecode, Cut as AttentionCut, HeadNorms, KvRows, attention_decode, parts_floats,
};
pub(crate) use attention_prefill::{AttentionPrefill, AttentionScratch, attention_prefill};
pub(crate) use delta_prefill::{DeltaPrefill, DeltaScratch, delta_prefill};
pub(crate) use delta_step::{
    CONV_RING, DeltaStash, DeltaState, DeltaStep, DeltaVectors, conv_channels, delta_commit,
    delta_step, n_slices,
};
pub(crate) use gemm::{OutType, gemm};
pub(crate) use gemv::{Input, Output, embed, gemv};
pub(crate) use moe_decode::{GpuMoe, MoeDecode, a_floats, moe_decode};
pub(crate) use moe_prefill::{MoePrefill, MoeScratch, moe_prefill};
pub(crate) use next_token::{NextToken, advance, next_token, scratch_bytes};
pub(crate) use norm::rms_norm;
pub(crate) use sample::{Sample, TOP_K_MAX, sample, sample_bytes};
