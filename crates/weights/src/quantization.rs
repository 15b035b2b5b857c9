//! The `quantization` entries of `config.json`.

use crate::WeightsError;
use crate::quant::affine::{BITS, GROUPS};
use serde_json::{Map, Value};

const CONVERT_REMEDY: &str =
    "use an MLX affine conversion (2 to 8 bits) or the bf16 checkpoint of the model";

/// Bits and group of a module's affine quantisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModuleQuant {
    pub(crate) bits: u8,
    pub(crate) group: usize,
}

/// Default and per-module quantisation of an MLX checkpoint.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quantization {
    default: Option<ModuleQuant>,
    modules: Vec<(String, Option<ModuleQuant>)>,
}

impl Quantization {
    /// Reads `quantization`; `None` if the checkpoint is not quantised.
    pub(crate) fn parse(root: &Map<String, Value>) -> Result<Option<Self>, WeightsError> {
        if let Some(entry) = root.get("quantization").filter(|entry| !entry.is_null()) {
            let map = entry.as_object().ok_or_else(|| unsupported("quantization", entry))?;
            return Self::parse_mlx(map).map(Some);
        }
        match root.get("quantization_config").filter(|entry| !entry.is_null()) {
            None => Ok(None),
            Some(entry) => match entry.as_object() {
                // Some MLX conversions write only this key.
                Some(map) if !map.contains_key("quant_method") && map.contains_key("bits") => {
                    Self::parse_mlx(map).map(Some)
                }
                _ => Err(unsupported("quantization_config", &entry["quant_method"])),
            },
        }
    }

    fn parse_mlx(map: &Map<String, Value>) -> Result<Self, WeightsError> {
        let default = module_quant("quantization", map, None)?;
        let mut modules = Vec::new();
        for (name, entry) in map {
            match entry {
                Value::Bool(false) => modules.push((name.clone(), None)),
                Value::Object(entry) => {
                    modules.push((name.clone(), Some(module_quant(name, entry, Some(default))?)));
                }
                _ => {}
            }
        }
        Ok(Self { default: Some(default), modules })
    }

    /// Bits and group of a module that has scales.
    pub(crate) fn of(&self, module: &str) -> Option<ModuleQuant> {
        self.modules
            .iter()
            .find(|(name, _)| name == module)
            .map_or(self.default, |(_, quant)| *quant)
    }
}

fn module_quant(
    module: &str,
    map: &Map<String, Value>,
    default: Option<ModuleQuant>,
) -> Result<ModuleQuant, WeightsError> {
    if let Some(mode) = map.get("mode")
        && mode.as_str() != Some("affine")
    {
        return Err(unsupported(module, mode));
    }
    let number = |key: &str, default: Option<usize>| match map.get(key) {
        Some(value) => value.as_u64().and_then(|value| usize::try_from(value).ok()),
        None => default,
    };
    let bits = number("bits", default.map(|quant| quant.bits.into()))
        .and_then(|bits| u8::try_from(bits).ok())
        .filter(|bits| BITS.contains(bits))
        .ok_or_else(|| unsupported_value(module, "bits", map, "one of 2, 3, 4, 5, 6, 8"))?;
    let group = number("group_size", default.map(|quant| quant.group))
        .filter(|group| GROUPS.contains(group))
        .ok_or_else(|| unsupported_value(module, "group_size", map, "one of 32, 64, 128"))?;
    Ok(ModuleQuant { bits, group })
}

fn unsupported(module: &str, found: &Value) -> WeightsError {
    WeightsError::UnsupportedQuantisation {
        module: module.to_owned(),
        found: crate::config::shown(found),
        remedy: CONVERT_REMEDY,
    }
}

fn unsupported_value(
    module: &str,
    key: &str,
    map: &Map<String, Value>,
    expected: &str,
) -> WeightsError {
    let value = map.get(key).map_or_else(|| "missing".to_owned(), crate::config::shown);
    WeightsError::UnsupportedQuantisation {
        module: module.to_owned(),
        found: format!("{key} is {value}, not {expected}"),
        remedy: CONVERT_REMEDY,
    }
}
