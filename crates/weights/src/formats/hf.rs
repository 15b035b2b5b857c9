//! Hugging Face safetensors: bf16, f16 or f32.

use super::{NormGain, Role, strip};

/// `model.language_model.` in the published files; fine-tunes may drop the middle.
pub(crate) fn role(name: &str) -> Role {
    if name.starts_with("model.visual.") || name.starts_with("visual.") {
        return Role::Vision;
    }
    Role::Text(strip(name, &["model.language_model.", "model."]).to_owned())
}

/// Every `(1 + w)` norm is stored as `w`.
pub(crate) fn norm_gain(_name: &str, _stored: &[f32]) -> NormGain {
    NormGain::Delta
}
