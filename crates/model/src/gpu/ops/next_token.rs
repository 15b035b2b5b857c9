//! The end of a step: the next token on the device, and the length of the sequence.

use super::gemv::param;
use crate::gpu::Kernels;
use lily_device::{Commands, DeviceError, Grid, Slice};

/// Threadgroups that share the search for the largest logit.
const PARTS: usize = 64;

/// Buffers of [`next_token`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextToken<'a> {
    /// f32 `[vocab_size]`
    pub(crate) logits: &'a Slice,
    /// Scratch of [`scratch_bytes`].
    pub(crate) scratch: &'a Slice,
    /// u32: the token of the next step.
    pub(crate) ids: &'a Slice,
    /// u32: committed tokens, one more afterwards.
    pub(crate) seq: &'a Slice,
    /// u32 `[history]`: the token chosen for position p, in p % history.
    pub(crate) noted: &'a Slice,
}

/// Bytes of [`NextToken::scratch`].
pub(crate) fn scratch_bytes() -> usize {
    2 * PARTS * 4
}

/// The largest logit becomes the next token.
pub(crate) fn next_token(
    kernels: &Kernels,
    commands: &mut Commands,
    step: NextToken<'_>,
) -> Result<(), DeviceError> {
    let defines = [("PARTS", PARTS.to_string())];
    let start = step.scratch.offset;
    let best = step.scratch.buffer.slice(start..start + PARTS * 4);
    let at = step.scratch.buffer.slice(start + PARTS * 4..start + 2 * PARTS * 4);
    let kernel = kernels.get("next_token", "argmax_parts", &defines)?;
    let buffers = [step.logits.clone(), best.clone(), at.clone()];
    commands.dispatch(&kernel, Grid::linear(PARTS, 256), &buffers, &[]);

    let kernel = kernels.get("next_token", "argmax", &defines)?;
    let buffers = [best, at, step.ids.clone(), step.seq.clone(), step.noted.clone()];
    let params = [("history", param(step.noted.len / 4))];
    commands.dispatch(&kernel, Grid::linear(1, 32), &buffers, &params);
    Ok(())
}

/// `seq += n_tokens`.
pub(crate) fn advance(
    kernels: &Kernels,
    commands: &mut Commands,
    n_tokens: usize,
    seq: &Slice,
) -> Result<(), DeviceError> {
    let kernel = kernels.get("next_token", "advance", &[("PARTS", PARTS.to_string())])?;
    let params = [("n_tokens", param(n_tokens))];
    commands.dispatch(&kernel, Grid::linear(1, 32), std::slice::from_ref(seq), &params);
    Ok(())
}
