//! `generation_config.json`: sampling defaults and the tokens that end an answer.

use crate::WeightsError;
use crate::config::{shown, token_ids};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Sampling values of `generation_config.json` and the ids that end an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationConfig {
    /// The union of both config files, in order, without repetition.
    pub eos_token_ids: Vec<u32>,
    /// `temperature`
    pub temperature: Option<f32>,
    /// `top_p`
    pub top_p: Option<f32>,
    /// `top_k`
    pub top_k: Option<u32>,
    /// `min_p`
    pub min_p: Option<f32>,
    /// `presence_penalty`
    pub presence_penalty: Option<f32>,
    /// `repetition_penalty`
    pub repetition_penalty: Option<f32>,
}

impl GenerationConfig {
    /// Reads `generation_config.json`; `config_eos` are the end tokens of `config.json`.
    pub(crate) fn parse(bytes: &[u8], config_eos: &[u32]) -> Result<Self, WeightsError> {
        let damaged = |what: &str, expected: &str, found: String| WeightsError::Damaged {
            file: "generation_config.json".to_owned(),
            what: what.to_owned(),
            expected: expected.to_owned(),
            found,
            remedy: "repair or remove the file",
        };
        let value: Map<String, Value> = serde_json::from_slice(bytes)
            .map_err(|error| damaged("JSON", "an object", error.to_string()))?;
        let number = |key: &str| match value.get(key) {
            None | Some(Value::Null) => Ok(None),
            #[expect(clippy::cast_possible_truncation, reason = "f32 is enough for sampling")]
            Some(x) => match x.as_f64().map(|x| x as f32).filter(|x| x.is_finite()) {
                Some(x) => Ok(Some(x)),
                None => Err(damaged(&format!("`{key}`"), "a number", shown(x))),
            },
        };
        let eos = value.get("eos_token_id");
        let mut eos_token_ids = token_ids(eos).ok_or_else(|| {
            let found = eos.map_or_else(String::new, shown);
            damaged("`eos_token_id`", "a token id or a list of them", found)
        })?;
        eos_token_ids.extend_from_slice(config_eos);
        let mut seen = BTreeSet::new();
        eos_token_ids.retain(|id| seen.insert(*id));
        let top_k = match value.get("top_k") {
            None | Some(Value::Null) => None,
            Some(x) => match x.as_u64().and_then(|k| u32::try_from(k).ok()) {
                Some(k) => Some(k),
                None => return Err(damaged("`top_k`", "a count", shown(x))),
            },
        };
        Ok(Self {
            eos_token_ids,
            temperature: number("temperature")?,
            top_p: number("top_p")?,
            top_k,
            min_p: number("min_p")?,
            presence_penalty: number("presence_penalty")?,
            repetition_penalty: number("repetition_penalty")?,
        })
    }
}
