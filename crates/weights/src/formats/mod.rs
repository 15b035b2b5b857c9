//! What differs between the checkpoint formats: names and norm conventions.
//!
//! Canonical names are the Hugging Face ones without their prefix: `embed_tokens.weight`,
//! `layers.3.self_attn.q_proj.weight`, `norm.weight`, `lm_head.weight`, `mtp.fc.weight`.

pub(crate) mod hf;
pub(crate) mod mlx;

/// What a stored name stands for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A tensor of the text model or of its MTP head, under its canonical name.
    Text(String),
    /// Part of the vision tower: kept for later.
    Vision,
}

/// How a format stores the gain of a `(1 + w)` norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NormGain {
    /// As `w`: add 1.
    Delta,
    /// As `1 + w`.
    Folded,
}

/// Removes the first of `prefixes` that `name` starts with.
fn strip<'a>(name: &'a str, prefixes: &[&str]) -> &'a str {
    prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
}
