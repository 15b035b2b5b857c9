//! Values that all dialects know under one name or another, with their ranges.

use crate::error::{ApiError, quoted};
use crate::json::OneOrMany;
use crate::limits::{
    CHOICES_MAX, LOGIT_BIAS_MAX, STOP_STRING_BYTES_MAX, STOP_STRINGS_MAX, TOP_LOGPROBS_MAX,
};
use lily_text::TokenId;
use serde_json::{Map, Number, Value};
use std::ops::RangeInclusive;

/// A number within a range.
///
/// # Errors
/// 400 for `param` outside of it.
#[allow(clippy::cast_possible_truncation, reason = "sampling works in f32; the range is checked")]
pub(crate) fn within(
    param: &str,
    value: Option<f64>,
    range: RangeInclusive<f64>,
) -> Result<Option<f32>, ApiError> {
    match value {
        Some(value) if !range.contains(&value) => {
            let (low, high) = range.into_inner();
            let problem = format!("is {value}, but must be from {low} to {high}");
            Err(ApiError::invalid(param, problem))
        }
        value => Ok(value.map(|v| v as f32)),
    }
}

/// A factor for seen tokens, which divides and so cannot be 0.
///
/// # Errors
/// 400 for `param` outside its range.
pub(crate) fn repetition_penalty(param: &str, value: Option<f64>) -> Result<Option<f32>, ApiError> {
    if value.is_some_and(|v| v <= 0.0) {
        return Err(ApiError::invalid(param, "must be more than 0 and at most 2"));
    }
    within(param, value, 0.0..=2.0)
}

/// How many of the most likely tokens; -1 and 0 are all.
///
/// # Errors
/// 400 for `param` below -1 and beyond 2^32.
pub(crate) fn top_k(param: &str, value: Option<i64>) -> Result<Option<u32>, ApiError> {
    match value {
        None => Ok(None),
        Some(-1) => Ok(Some(0)),
        Some(k) => u32::try_from(k).map(Some).map_err(|_| {
            ApiError::invalid(param, format!("is {k}, but must be -1 or a count from 0"))
        }),
    }
}

/// Any 64-bit integer; negative ones by their bits.
///
/// # Errors
/// 400 for other numbers.
pub(crate) fn seed(param: &str, value: &Number) -> Result<u64, ApiError> {
    value
        .as_u64()
        .or_else(|| value.as_i64().map(i64::cast_unsigned))
        .ok_or_else(|| ApiError::invalid(param, format!("is {value}, but must be an integer")))
}

/// Token ids, written as decimal strings, to what is added to their logits.
///
/// # Errors
/// 400 for the first entry that is no token id or out of range.
#[allow(clippy::cast_possible_truncation, reason = "sampling works in f32; the range is checked")]
pub(crate) fn logit_bias(
    map: Option<&Map<String, Value>>,
) -> Result<Vec<(TokenId, f32)>, ApiError> {
    let Some(map) = map else { return Ok(Vec::new()) };
    if map.len() > LOGIT_BIAS_MAX {
        let problem = format!("has {} entries, but {LOGIT_BIAS_MAX} are allowed", map.len());
        return Err(ApiError::invalid("logit_bias", problem));
    }
    map.iter()
        .map(|(key, value)| {
            let param = || format!("logit_bias.{}", quoted(key));
            let id = key
                .parse::<TokenId>()
                .map_err(|_| ApiError::invalid(param(), "must be named by a token id"))?;
            let bias = value
                .as_f64()
                .filter(|b| (-100.0..=100.0).contains(b))
                .ok_or_else(|| ApiError::invalid(param(), "must be a number from -100 to 100"))?;
            Ok((id, bias as f32))
        })
        .collect()
}

/// Alternatives a position.
///
/// # Errors
/// 400 for `param` above the most.
pub(crate) fn top_logprobs(param: &str, top: u64) -> Result<u8, ApiError> {
    if top > TOP_LOGPROBS_MAX {
        let problem = format!("is {top}, but must be from 0 to {TOP_LOGPROBS_MAX}");
        return Err(ApiError::invalid(param, problem));
    }
    Ok(u8::try_from(top).expect("at most 20"))
}

/// Strings that end an answer.
///
/// # Errors
/// 400 for `param` or an entry of it: too many, empty or too long.
pub(crate) fn stop(param: &str, stop: Option<OneOrMany>) -> Result<Vec<String>, ApiError> {
    let (list, single) = match stop {
        None => return Ok(Vec::new()),
        Some(OneOrMany::One(text)) => (vec![text], true),
        Some(OneOrMany::Many(list)) => (list, false),
    };
    if list.len() > STOP_STRINGS_MAX {
        let problem = format!("has {} strings, but {STOP_STRINGS_MAX} are allowed", list.len());
        return Err(ApiError::invalid(param, problem));
    }
    for (i, text) in list.iter().enumerate() {
        let entry = || if single { param.to_owned() } else { format!("{param}[{i}]") };
        if text.is_empty() {
            return Err(ApiError::invalid(entry(), "is empty and would end every answer at once"));
        }
        if text.len() > STOP_STRING_BYTES_MAX {
            let problem = format!("is longer than {STOP_STRING_BYTES_MAX} bytes");
            return Err(ApiError::invalid(entry(), problem));
        }
    }
    Ok(list)
}

/// How many answers to one prompt.
///
/// # Errors
/// 400 for none and for too many.
pub(crate) fn n_choices(n: Option<u64>) -> Result<usize, ApiError> {
    let n = n.unwrap_or(1);
    if !(1..=CHOICES_MAX).contains(&n) {
        let problem = format!("is {n}, but must be from 1 to {CHOICES_MAX}");
        return Err(ApiError::invalid("n", problem));
    }
    Ok(usize::try_from(n).expect("at most 8"))
}

/// A length of answers or of thoughts; more than the context holds means until its end.
///
/// # Errors
/// 400 for 0.
pub(crate) fn n_tokens(param: &str, n: Option<u64>) -> Result<Option<usize>, ApiError> {
    if n == Some(0) {
        return Err(ApiError::invalid(param, "is 0, but must be at least 1"));
    }
    Ok(n.map(|n| usize::try_from(n).unwrap_or(usize::MAX)))
}
