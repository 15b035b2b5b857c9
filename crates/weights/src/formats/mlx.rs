//! MLX conversions: affine quantised, norms stored as `1 + w`, experts under `switch_mlp`.

use super::{NormGain, Role, strip};

/// mlx-lm and mlx-vlm use `language_model.model.`; MTP side-car files have `mtp.` alone.
pub(crate) fn role(name: &str) -> Role {
    if ["vision_tower.", "model.visual.", "visual."].iter().any(|p| name.starts_with(p)) {
        return Role::Vision;
    }
    let name = strip(name, &["language_model.model.", "model.language_model.", "language_model."]);
    Role::Text(strip(name, &["model."]).to_owned())
}

/// Converted norms are folded, but some MTP side-car files are raw deltas: gains of this model are
/// near 1 on average, deltas near 0, so the mean tells them apart.
pub(crate) fn norm_gain(name: &str, stored: &[f32]) -> NormGain {
    let mean = stored.iter().sum::<f32>() / stored.len() as f32;
    if name.starts_with("mtp.") && mean < 0.5 { NormGain::Delta } else { NormGain::Folded }
}

/// Whether the file as a whole is a conversion, judged as mlx-lm does: it moves the channel axis of
/// `conv1d.weight` last, and folds the norms in the same step.
pub(crate) fn is_converted<'a>(
    tensors: impl Iterator<Item = (&'a str, &'a [usize])>,
) -> Option<bool> {
    tensors
        .filter(|(name, shape)| name.ends_with("conv1d.weight") && shape.len() == 3)
        .map(|(_, shape)| shape[2] == 1)
        .next()
}
