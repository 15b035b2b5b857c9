//! The safetensors container: a bounded, suspicious reading of its header.

mod header;

use crate::error::DOWNLOAD_AGAIN;
use crate::mapping::{Bytes, Mapping};
use crate::{FloatType, WeightsError};
use header::Entry;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Real headers have some kilobytes per thousand tensors; the largest public ones stay below 10 MB.
const HEADER_BYTES_MAX: u64 = 100 << 20;

/// Element type of a stored tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dtype {
    Float(FloatType),
    U32,
    /// Known to the format but to none of our layouts; such a tensor can be listed, not computed.
    Other {
        name: &'static str,
        size: usize,
    },
}

impl Dtype {
    fn parse(name: &str) -> Option<Self> {
        const OTHERS: [(&str, usize); 13] = [
            ("F64", 8),
            ("I64", 8),
            ("U64", 8),
            ("I32", 4),
            ("I16", 2),
            ("U16", 2),
            ("I8", 1),
            ("U8", 1),
            ("BOOL", 1),
            ("F8_E4M3", 1),
            ("F8_E5M2", 1),
            ("F8_E8M0", 1),
            ("C64", 8),
        ];
        match name {
            "BF16" => Some(Self::Float(FloatType::Bf16)),
            "F16" => Some(Self::Float(FloatType::F16)),
            "F32" => Some(Self::Float(FloatType::F32)),
            "U32" => Some(Self::U32),
            _ => OTHERS
                .into_iter()
                .find(|(other, _)| *other == name)
                .map(|(name, size)| Self::Other { name, size }),
        }
    }

    pub(crate) fn size(self) -> usize {
        match self {
            Self::Float(float) => float.size(),
            Self::U32 => 4,
            Self::Other { size, .. } => size,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Float(FloatType::Bf16) => "BF16",
            Self::Float(FloatType::F16) => "F16",
            Self::Float(FloatType::F32) => "F32",
            Self::U32 => "U32",
            Self::Other { name, .. } => name,
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
    let header = header::parse(&bytes[8..body_start])
        .map_err(|error| damaged(file, "header", "a JSON object of tensors", error.to_string()))?;

    let mut tensors = BTreeMap::new();
    let mut ranges = Vec::with_capacity(header.len());
    for (name, entry) in header {
        let (dtype, range) = check_entry(file, &name, &entry, file_len - body_start)?;
        ranges.push((range.start, range.end, name.clone()));
        let range = body_start + range.start..body_start + range.end;
        let bytes = Bytes::new(Arc::clone(&mapping), range);
        tensors.insert(name, StoredTensor { dtype, shape: entry.shape, bytes });
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

/// The type and the range of a tensor, if its entry agrees with itself and with the file.
fn check_entry(
    file: &str,
    name: &str,
    entry: &Entry,
    body_len: usize,
) -> Result<(Dtype, Range<usize>), WeightsError> {
    let bad = |what: &str, expected: String, found: String| {
        damaged(file, format!("{what} of tensor `{name}`"), expected, found)
    };
    let dtype = Dtype::parse(&entry.dtype).ok_or_else(|| {
        let found = crate::config::shown(&entry.dtype.as_str().into());
        bad("dtype", "a safetensors dtype".to_owned(), found)
    })?;
    let [start, end] = entry.data_offsets;
    if start > end || end > body_len {
        let expected = format!("a range within the {body_len} bytes after the header");
        return Err(bad("data offsets", expected, format!("{start} to {end}")));
    }
    let len = end - start;
    match entry.shape.iter().try_fold(dtype.size(), |n, &size| n.checked_mul(size)) {
        Some(needed) if needed == len => Ok((dtype, start..end)),
        needed => {
            let needed = needed.map_or_else(|| "more than 2^64".to_owned(), |n| n.to_string());
            let expected = format!("{needed} bytes for {} {:?}", dtype.name(), entry.shape);
            Err(bad("data", expected, format!("{len} bytes")))
        }
    }
}
