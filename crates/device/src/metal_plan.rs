//! Which language and which hardware paths a Mac gets. Decided from plain values, so that it can be
//! tested without one.

use crate::{DeviceError, KernelSource, TileBody};

/// A version of the Metal shading language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Language {
    /// macOS 14: the first with bfloat.
    V3_1,
    /// macOS 15.
    V3_2,
    /// macOS 26: tensors.
    V4_0,
}

/// What is used of a Mac.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetalPlan {
    /// Set explicitly: left alone, it would follow the deployment target of the binary.
    pub language: Language,
    /// Whether buffers are kept resident by a set (macOS 15).
    pub residency_sets: bool,
    /// Whether the GPU has tensor units that the language can reach: M5 and later, macOS 26.2.
    pub tensor_units: bool,
}

impl MetalPlan {
    /// Which body of the tiles runs, and what to say of it. `probe` compiles a kernel that uses tensor
    /// operations, and says why it could not; it is asked only if the plan has tensor units.
    pub fn tile(&self, probe: impl FnOnce() -> Result<(), String>) -> (TileBody, String) {
        if !self.tensor_units {
            return (TileBody::Simdgroup, String::new());
        }
        match probe() {
            Ok(()) => (TileBody::Tensor, ", tensor units".to_owned()),
            Err(reason) => {
                let reason = reason.lines().next().unwrap_or_default().to_owned();
                (TileBody::Simdgroup, format!(", tensor units not used: {reason}"))
            }
        }
    }
}

/// Decides from the version of macOS, major and minor, and the name of the GPU's architecture
/// (`applegpu_g17s`: a generation of two digits, then a letter for the size, `p` for phones).
///
/// # Errors
/// [`DeviceError::Unavailable`] before macOS 14, whose language has no bfloat.
pub fn plan(macos: (u32, u32), architecture: &str) -> Result<MetalPlan, DeviceError> {
    let language = match macos.0 {
        ..14 => {
            return Err(DeviceError::Unavailable {
                device: "metal",
                reason: format!("macOS {}.{} has no bfloat in Metal", macos.0, macos.1),
                remedy: "update to macOS 14 or newer, or use --device cpu",
            });
        }
        14 => Language::V3_1,
        15..26 => Language::V3_2,
        26.. => Language::V4_0,
    };
    let tensor_units = macos >= (26, 2)
        && generation(architecture).is_some_and(|(generation, size)| {
            // The phones' chips of one generation came with the units a generation later.
            generation >= if size == 'p' { 18 } else { 17 }
        });
    Ok(MetalPlan { language, residency_sets: macos.0 >= 15, tensor_units })
}

fn generation(architecture: &str) -> Option<(u32, char)> {
    let rest = architecture.strip_prefix("applegpu_g")?;
    let size = rest.chars().next_back()?;
    Some((rest.strip_suffix(size)?.parse().ok()?, size))
}

/// For [`MetalPlan::tile`]: a product of many tokens in bfloat, as small as it gets: with tensor operations it compiles where those
/// work.
pub fn tile_probe() -> KernelSource {
    [
        ("LILY_ACT", "bfloat"),
        ("LILY_TILE", TileBody::Tensor.define()),
        ("W_BITS", "4"),
        ("W_GROUP", "64"),
        ("W_SCALE", "bfloat"),
        ("OUT_T", "float"),
        ("ACCUMULATE", "0"),
        ("ROUTED", "0"),
        ("COLS", "64"),
        ("BM", "16"),
        ("BN", "64"),
        ("BK", "64"),
        ("WM", "1"),
        ("WN", "2"),
        ("TOP_K", "1"),
    ]
    .into_iter()
    .fold(KernelSource::new("gemm", "gemm"), |source, (name, value)| source.define(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_system_gets_what_it_can() {
        let check = |macos, architecture: &str, expected: Option<(Language, bool, bool)>| {
            let plan = plan(macos, architecture).ok();
            let plan = plan.map(|plan| (plan.language, plan.residency_sets, plan.tensor_units));
            assert_eq!(plan, expected, "macOS {macos:?}, {architecture}");
        };
        check((13, 6), "applegpu_g13g", None);
        check((14, 0), "applegpu_g13g", Some((Language::V3_1, false, false)));
        check((15, 5), "applegpu_g16s", Some((Language::V3_2, true, false)));
        check((15, 5), "applegpu_g17s", Some((Language::V3_2, true, false)));
        check((26, 0), "applegpu_g17s", Some((Language::V4_0, true, false)));
        check((26, 1), "applegpu_g17g", Some((Language::V4_0, true, false)));
        check((26, 2), "applegpu_g17g", Some((Language::V4_0, true, true)));
        check((26, 2), "applegpu_g17p", Some((Language::V4_0, true, false)));
        check((26, 2), "applegpu_g18p", Some((Language::V4_0, true, true)));
        check((26, 2), "applegpu_g16d", Some((Language::V4_0, true, false)));
        check((27, 0), "applegpu_g18d", Some((Language::V4_0, true, true)));
        check((27, 0), "paravirtual", Some((Language::V4_0, true, false)));
        check((27, 0), "applegpu_g", Some((Language::V4_0, true, false)));
    }

    #[test]
    fn tensor_operations_are_tried_before_they_are_used() {
        let old = plan((15, 5), "applegpu_g16s").expect("a plan");
        let tile = old.tile(|| unreachable!("there is nothing to try"));
        assert_eq!(tile, (TileBody::Simdgroup, String::new()));
        let new = plan((26, 2), "applegpu_g17s").expect("a plan");
        assert_eq!(new.tile(|| Ok(())), (TileBody::Tensor, ", tensor units".to_owned()));
        let (tile, said) = new.tile(|| Err("no such header\n1 error".to_owned()));
        assert_eq!(tile, TileBody::Simdgroup);
        assert_eq!(said, ", tensor units not used: no such header");
    }

    /// A probe that fails for its own faults would hide the units.
    #[cfg(unix)]
    #[test]
    fn the_probe_is_a_kernel() {
        use crate::Device;
        use crate::sim::{SimDevice, SimOptions};
        let dir = tempfile::tempdir().expect("a temporary directory");
        let device = SimDevice::new(SimOptions::new(dir.path())).expect("a C++ compiler");
        device.kernel(&tile_probe()).expect("it compiles");
        let text = crate::source::expand(&tile_probe(), true).expect("it expands");
        assert!(text.contains("#include <metal_tensor>"));
    }
}
