//! The `quantization` entries of `config.json`.

use crate::WeightsError;
use crate::config::shown;
use crate::formats::{Role, mlx};
use crate::quant::affine::{BITS, GROUPS};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

const CONVERT_REMEDY: &str =
    "use an MLX affine conversion (2 to 8 bits) or the bf16 checkpoint of the model";

/// Bits and group of a module's affine quantisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModuleQuant {
    pub(crate) bits: u8,
    pub(crate) group: usize,
}

/// Default and per-module quantisation of an MLX checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Quantization {
    default: ModuleQuant,
    /// By canonical module name; `None` for a module that is not quantised.
    modules: BTreeMap<String, Option<ModuleQuant>>,
}

impl Quantization {
    /// Reads `quantization`; `None` if the checkpoint is not quantised.
    pub(crate) fn parse(
        root: &Map<String, Value>,
        text: &Map<String, Value>,
    ) -> Result<Option<Self>, WeightsError> {
        for (key, entry) in [
            ("quantization", root.get("quantization")),
            ("quantization_config", root.get("quantization_config")),
            ("text_config.quantization_config", text.get("quantization_config")),
        ] {
            let Some(entry) = entry.filter(|entry| !entry.is_null()) else { continue };
            let Some(map) = entry.as_object() else {
                return Err(unsupported(key, format!("{}, not an object", shown(entry))));
            };
            // FP8, GPTQ, AWQ and their like name a method; MLX does not.
            if let Some(method) = map.get("quant_method") {
                return Err(unsupported(key, format!("quant_method {}", shown(method))));
            }
            return Self::parse_mlx(key, map).map(Some);
        }
        Ok(None)
    }

    fn parse_mlx(key: &str, map: &Map<String, Value>) -> Result<Self, WeightsError> {
        let default = module_quant(key, map, None)?;
        let mut modules = BTreeMap::new();
        for (name, entry) in map {
            let quant = match entry {
                Value::Bool(false) => None,
                Value::Object(entry) => Some(module_quant(name, entry, Some(default))?),
                _ => continue,
            };
            if let Role::Text(name) = mlx::role(name) {
                modules.insert(name, quant);
            }
        }
        Ok(Self { default, modules })
    }

    /// Bits and group of the module of that canonical name, if it may have scales.
    pub(crate) fn of(&self, module: &str) -> Option<ModuleQuant> {
        self.modules.get(module).copied().unwrap_or(Some(self.default))
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
        return Err(unsupported(module, format!("mode {}", shown(mode))));
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

fn unsupported(module: &str, found: String) -> WeightsError {
    WeightsError::UnsupportedQuantisation {
        module: module.to_owned(),
        found,
        remedy: CONVERT_REMEDY,
    }
}

fn unsupported_value(
    module: &str,
    key: &str,
    map: &Map<String, Value>,
    expected: &str,
) -> WeightsError {
    let value = map.get(key).map_or_else(|| "missing".to_owned(), shown);
    unsupported(module, format!("{key} is {value}, not {expected}"))
}
