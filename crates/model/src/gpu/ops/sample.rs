//! The next token by the request's rules, on the device.

use super::gemv::param;
use crate::DeviceSampling;
use crate::gpu::Kernels;
use lily_device::{Commands, DeviceError, Grid, Slice};

/// Candidates that the kernels keep, `K_MAX` in `kernels/sample.metal`.
pub(crate) const TOP_K_MAX: usize = DeviceSampling::TOP_K_MAX;
/// SIMD groups that look at a share of the logits each; `choose` merges as many lists.
const LISTS: usize = 1024;

/// Buffers of [`sample`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample<'a> {
    /// f32 `[vocab_size]`
    pub(crate) logits: &'a Slice,
    /// Scratch of [`sample_bytes`].
    pub(crate) scratch: &'a Slice,
    /// f32 `[history]`, the draw for the token of position p in p % history.
    pub(crate) draws: &'a Slice,
    /// u32: the token of the next step.
    pub(crate) ids: &'a Slice,
    /// u32: committed tokens, one more afterwards.
    pub(crate) seq: &'a Slice,
    /// u32 `[history]`, like the draws: the token chosen, or the vocabulary's size if the logits
    /// were no numbers.
    pub(crate) noted: &'a Slice,
}

/// Bytes of [`Sample::scratch`].
pub(crate) fn sample_bytes() -> usize {
    LISTS * (2 * TOP_K_MAX + 1) * 4
}

/// Draws the next token.
pub(crate) fn sample(
    kernels: &Kernels,
    commands: &mut Commands,
    rules: &DeviceSampling,
    step: Sample<'_>,
) -> Result<(), DeviceError> {
    assert!((1..=TOP_K_MAX).contains(&rules.top_k), "the kernels keep {TOP_K_MAX} candidates");
    let defines = [("LISTS", LISTS.to_string())];
    let list_bytes = LISTS * TOP_K_MAX * 4;
    let start = step.scratch.offset;
    let part =
        |from: usize, len: usize| step.scratch.buffer.slice(start + from..start + from + len);
    let values = part(0, list_bytes);
    let ids = part(list_bytes, list_bytes);
    let bad = part(2 * list_bytes, LISTS * 4);

    let kernel = kernels.get("sample", "top_parts", &defines)?;
    let buffers = [step.logits, &values, &ids, &bad].map(Clone::clone);
    let params = [("top_k", param(rules.top_k)), ("vocab", param(rules.vocab_size))];
    commands.dispatch(&kernel, Grid::linear(LISTS / 8, 256), &buffers, &params);

    let kernel = kernels.get("sample", "choose", &defines)?;
    let buffers =
        [&values, &ids, &bad, step.draws, step.ids, step.seq, step.noted].map(Clone::clone);
    let params = [
        ("top_k", param(rules.top_k)),
        ("history", param(step.noted.len / 4)),
        ("temperature", rules.temperature.to_bits()),
        ("top_p", rules.top_p.to_bits()),
        ("min_p", rules.min_p.to_bits()),
    ];
    commands.dispatch(&kernel, Grid::linear(1, 1024), &buffers, &params);
    Ok(())
}
