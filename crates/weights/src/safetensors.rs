//! The safetensors container: a bounded, suspicious reading of its header.

use crate::error::DOWNLOAD_AGAIN;
use crate::mapping::{Bytes, Mapping};
use crate::{FloatType, WeightsError};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Real headers have some kilobytes per thousand tensors; the largest public ones stay below 10 MB.
const HEADER_BYTES_MAX: u64 = 100 << 20;
/// No tensor of this architecture has more axes (a video convolution kernel has five).
const AXES_MAX: usize = 8;

/// Element type of a stored tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dtype {
    Float(FloatType),
    U32,
    /// Known to the format but to none of our layouts; such a tensor can be listed, not computed.
    Other { size: usize },
}

impl Dtype {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "BF16" => Self::Float(FloatType::Bf16),
            "F16" => Self::Float(FloatType::F16),
            "F32" => Self::Float(FloatType::F32),
            "U32" => Self::U32,
            "F64" | "I64" | "U64" => Self::Other { size: 8 },
            "I32" => Self::Other { size: 4 },
            "I16" | "U16" => Self::Other { size: 2 },
            "I8" | "U8" | "BOOL" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => Self::Other { size: 1 },
            _ => return None,
        })
    }

    pub(crate) fn size(self) -> usize {
        match self {
            Self::Float(float) => float.size(),
            Self::U32 => 4,
            Self::Other { size } => size,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Float(FloatType::Bf16) => "BF16",
            Self::Float(FloatType::F16) => "F16",
            Self::Float(FloatType::F32) => "F32",
            Self::U32 => "U32",
            Self::Other { .. } => "another type",
        }
    }
}

/// A tensor in a file.
#[derive(Clone, Debug)]
pub(crate) struct StoredTensor {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Bytes,
}

impl StoredTensor {
    /// "BF16 [512, 64]"
    pub(crate) fn describe(&self) -> String {
        format!("{} {:?}", self.dtype.name(), self.shape)
    }
}

fn damaged(
    file: &str,
    what: impl Into<String>,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> WeightsError {
    WeightsError::Damaged {
        file: file.to_owned(),
        what: what.into(),
        expected: expected.into(),
        found: found.into(),
        remedy: DOWNLOAD_AGAIN,
    }
}

/// Reads the header of `mapping` and returns its tensors by name.
pub(crate) fn read(
    file: &str,
    mapping: Mapping,
) -> Result<BTreeMap<String, StoredTensor>, WeightsError> {
    let mapping = Arc::new(mapping);
    let bytes = mapping.bytes();
    let file_len = bytes.len();
    let prefix = bytes.first_chunk::<8>().ok_or_else(|| {
        damaged(file, "file size", "at least 8 bytes", format!("{file_len} bytes"))
    })?;
    let header_len = u64::from_le_bytes(*prefix);
    let limit = HEADER_BYTES_MAX.min(file_len as u64 - 8);
    let header_len =
        usize::try_from(header_len).ok().filter(|_| header_len <= limit).ok_or_else(|| {
            let expected = format!("at most {limit} bytes");
            damaged(file, "header length", expected, format!("{header_len} bytes"))
        })?;
    let body_start = 8 + header_len;
    let header = parse_header(file, &bytes[8..body_start])?;

    let mut tensors = BTreeMap::new();
    let mut ranges = Vec::with_capacity(header.len());
    for (name, entry) in &header {
        if name == "__metadata__" {
            continue;
        }
        let (dtype, shape, range) = parse_entry(file, name, entry, file_len - body_start)?;
        ranges.push((range.start, range.end, name));
        let bytes = Bytes::new(
            Arc::clone(&mapping),
            body_start + range.start..body_start + range.end,
        );
        tensors.insert(name.clone(), StoredTensor { dtype, shape, bytes });
    }
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        let ((_, end, first), (start, _, second)) = (&pair[0], &pair[1]);
        if start < end {
            let what = format!("data of tensor `{second}`");
            let expected = format!("to start after `{first}`, at {end} or later");
            return Err(damaged(file, what, expected, format!("start at {start}: they overlap")));
        }
    }
    Ok(tensors)
}

fn parse_header(file: &str, json: &[u8]) -> Result<Map<String, Value>, WeightsError> {
    /// A JSON object that refuses a name given twice; `serde_json`'s own map keeps the last.
    struct Strict(Map<String, Value>);
    impl<'de> serde::Deserialize<'de> for Strict {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visitor;
            impl<'de> serde::de::Visitor<'de> for Visitor {
                type Value = Strict;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("an object of tensors")
                }
                fn visit_map<A: serde::de::MapAccess<'de>>(
                    self,
                    mut access: A,
                ) -> Result<Strict, A::Error> {
                    let mut map = Map::new();
                    while let Some((name, value)) = access.next_entry::<String, Value>()? {
                        if map.contains_key(&name) {
                            let message = format!("tensor `{name}` is listed twice");
                            return Err(serde::de::Error::custom(message));
                        }
                        map.insert(name, value);
                    }
                    Ok(Strict(map))
                }
            }
            deserializer.deserialize_map(Visitor)
        }
    }
    serde_json::from_slice::<Strict>(json)
        .map(|Strict(map)| map)
        .map_err(|error| damaged(file, "header", "a JSON object of tensors", error.to_string()))
}

type Entry = (Dtype, Vec<usize>, std::ops::Range<usize>);

fn parse_entry(
    file: &str,
    name: &str,
    entry: &Value,
    body_len: usize,
) -> Result<Entry, WeightsError> {
    let bad = |what: &str, expected: String, found: String| {
        damaged(file, format!("{what} of tensor `{name}`"), expected, found)
    };
    let dtype_name = entry["dtype"].as_str().unwrap_or_default();
    let dtype = Dtype::parse(dtype_name)
        .ok_or_else(|| bad("dtype", "a safetensors dtype".to_owned(), format!("{dtype_name:?}")))?;
    let sizes = |value: &Value, max: usize| -> Option<Vec<usize>> {
        let values = value.as_array().filter(|values| values.len() <= max)?;
        values.iter().map(|x| x.as_u64().and_then(|x| usize::try_from(x).ok())).collect()
    };
    let shape = sizes(&entry["shape"], AXES_MAX).ok_or_else(|| {
        let expected = format!("at most {AXES_MAX} sizes");
        bad("shape", expected, crate::config::shown(&entry["shape"]))
    })?;
    let offsets = sizes(&entry["data_offsets"], 2);
    let range = match offsets.as_deref() {
        Some(&[start, end]) if start <= end && end <= body_len => start..end,
        _ => {
            let found = crate::config::shown(&entry["data_offsets"]);
            return Err(bad("data offsets", format!("a range within {body_len} bytes"), found));
        }
    };
    let expected = shape.iter().try_fold(dtype.size(), |n, &size| n.checked_mul(size));
    if expected != Some(range.len()) {
        let expected = format!("{dtype_name} {shape:?}, so {expected:?} bytes");
        return Err(bad("data", expected, format!("{} bytes", range.len())));
    }
    Ok((dtype, shape, range))
}
