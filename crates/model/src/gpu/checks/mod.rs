//! The differential table: every kernel against plain loops, on any device.
//!
//! CI runs it in the simulator, `lily doctor --device X` on the machine it is asked about. Each
//! check draws a shape and values from its seed, poisons its outputs, and says how far the kernel
//! is from the reference, in units of what rounding allows.

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
mod support;

pub use support::{Case, Check, Cx, Rng};

use lily_device::{Device, DeviceError};
use std::sync::Arc;

/// All checks, cheap ones first.
pub fn table() -> Vec<Check> {
    [
        norm::CHECKS,
        gemv::CHECKS,
        delta_step::CHECKS,
        delta_prefill::CHECKS,
        attention_decode::CHECKS,
        attention_prefill::CHECKS,
        moe_decode::CHECKS,
        gemm::CHECKS,
        moe_prefill::CHECKS,
        next_token::CHECKS,
        sample::CHECKS,
    ]
    .concat()
}

/// Runs one check `n` times with the seeds from `seed` on.
///
/// # Errors
/// The first [`DeviceError`]; a wrong result is no error but a [`Case`] that fails.
pub fn run(
    check: &Check,
    device: &Arc<dyn Device>,
    seed: u64,
    n: u64,
) -> Result<Vec<Case>, DeviceError> {
    (seed..seed + n).map(|seed| (check.run)(&mut Cx::new(Arc::clone(device), seed))).collect()
}
