//! Where the bytes of a matrix are, for devices that read the mapped file themselves.

use crate::mapping::{Bytes, Mapping};
use crate::matrix::Data;
use crate::{FloatType, WeightExperts, WeightMatrix};
use std::ops::Range;
use std::sync::Arc;

/// Bytes inside a mapping that many tensors share.
#[derive(Clone)]
pub struct Region {
    /// The whole mapping: keeps it alive, and two regions of one file have the same.
    pub mapping: Arc<dyn AsRef<[u8]> + Send + Sync>,
    /// The tensor inside it.
    pub range: Range<usize>,
}

impl Region {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &(*self.mapping).as_ref()[self.range.clone()]
    }

    /// Equal for regions of one mapping.
    pub fn mapping_id(&self) -> usize {
        Arc::as_ptr(&self.mapping).cast::<()>().addr()
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region").field("range", &self.range).finish_non_exhaustive()
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl From<&Bytes> for Region {
    fn from(bytes: &Bytes) -> Self {
        let (mapping, range) = bytes.location();
        Self { mapping: Arc::clone(mapping) as Arc<dyn AsRef<[u8]> + Send + Sync>, range }
    }
}

/// The stored parts of a matrix.
#[derive(Clone, Debug)]
pub enum Stored {
    /// Elements.
    Plain {
        /// Their type.
        dtype: FloatType,
        /// Row-major.
        elements: Region,
    },
    /// MLX affine codes, scales and biases, as in [`crate::Affine`].
    Affine {
        /// Bits of a code.
        bits: u8,
        /// Inputs that share a scale.
        group: usize,
        /// Type of scales and biases.
        dtype: FloatType,
        /// `[rows, cols * bits / 32]` words.
        codes: Region,
        /// `[rows, cols / group]`
        scales: Region,
        /// `[rows, cols / group]`
        biases: Region,
    },
}

impl WeightMatrix {
    /// Where the bytes are.
    pub fn stored(&self) -> Stored {
        match &self.data {
            Data::Plain { dtype, elements } => {
                Stored::Plain { dtype: *dtype, elements: elements.into() }
            }
            Data::Affine { bits, group, codes, dtype, scales, biases } => Stored::Affine {
                bits: *bits,
                group: *group,
                dtype: *dtype,
                codes: codes.into(),
                scales: scales.into(),
                biases: biases.into(),
            },
        }
    }
}

impl WeightExperts {
    /// Where the bytes of expert `expert` are.
    pub fn stored(&self, expert: usize) -> Stored {
        self.experts[expert].stored()
    }
}
