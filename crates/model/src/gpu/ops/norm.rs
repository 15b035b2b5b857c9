//! RMS norm of the residual stream.

use crate::gpu::Kernels;
use lily_device::{Commands, DeviceError, Grid, Slice};

/// `out[t] = norm(x[t]) * gain`: `x` f32 `[n_tokens, hidden]`, `out` activations of that shape.
pub(crate) fn rms_norm(
    kernels: &Kernels,
    commands: &mut Commands,
    n_tokens: usize,
    x: &Slice,
    gain: &Slice,
    out: &Slice,
) -> Result<(), DeviceError> {
    let kernel = kernels.get("norm", "rms_norm", &[])?;
    let buffers = [x.clone(), gain.clone(), out.clone()];
    commands.dispatch(&kernel, Grid::linear(n_tokens, 256), &buffers, &[]);
    Ok(())
}
