//! The JSON header, parsed straight into entries: a hostile header costs no more memory than a few
//! times its own length, whatever it nests.

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// No tensor of this architecture has more axes (a video convolution kernel has five).
const AXES_MAX: usize = 8;
/// The FP8 checkpoint, with an entry per expert, has 64,196 tensors in all its files.
const TENSORS_MAX: usize = 1 << 18;

/// What the header says about one tensor.
#[derive(Debug, Deserialize)]
pub(super) struct Entry {
    pub(super) dtype: String,
    #[serde(deserialize_with = "axes")]
    pub(super) shape: Vec<usize>,
    pub(super) data_offsets: [usize; 2],
}

/// Entries by tensor name. A name given twice is refused: readers disagree on which one counts.
pub(super) fn parse(json: &[u8]) -> Result<BTreeMap<String, Entry>, serde_json::Error> {
    serde_json::from_slice::<Header>(json).map(|Header(entries)| entries)
}

struct Header(BTreeMap<String, Entry>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Header, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some(name) = access.next_key::<String>()? {
            if name == "__metadata__" {
                access.next_value::<IgnoredAny>()?;
                continue;
            }
            let entry = access
                .next_value::<Entry>()
                .map_err(|error| Error::custom(format!("tensor `{}`: {error}", cut(&name))))?;
            if entries.len() == TENSORS_MAX {
                return Err(Error::custom(format!("more than {TENSORS_MAX} tensors")));
            }
            if entries.contains_key(&name) {
                return Err(Error::custom(format!("tensor `{}` is listed twice", cut(&name))));
            }
            entries.insert(name, entry);
        }
        Ok(Header(entries))
    }
}

/// A name in a message: a hostile one must not flood the terminal.
fn cut(name: &str) -> String {
    name.chars().take(200).collect()
}

/// Up to [`AXES_MAX`] sizes.
fn axes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<usize>, D::Error> {
    struct Axes;
    impl<'de> Visitor<'de> for Axes {
        type Value = Vec<usize>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a shape of at most {AXES_MAX} sizes")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Vec<usize>, A::Error> {
            let mut shape = Vec::new();
            while let Some(size) = access.next_element()? {
                if shape.len() == AXES_MAX {
                    return Err(Error::invalid_length(AXES_MAX + 1, &self));
                }
                shape.push(size);
            }
            Ok(shape)
        }
    }
    deserializer.deserialize_seq(Axes)
}
