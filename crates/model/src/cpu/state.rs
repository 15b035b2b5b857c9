//! One sequence on the CPU.

use crate::ModelError;
use lily_cpu::{DeltaShape, DeltaStash, DeltaState, KvCache, KvDtype, apply};
use lily_weights::Shape;
use std::sync::Arc;

/// KV rows, recurrent and convolution state of one sequence, one entry per layer.
#[derive(Clone, Debug)]
pub(crate) struct CpuState {
    shape: Arc<Shape>,
    capacity: usize,
    len: usize,
    pub(super) layers: Vec<LayerState>,
    tentative: Option<Tentative>,
}

#[derive(Clone, Debug)]
pub(super) enum LayerState {
    Attention(KvCache),
    GatedDeltaNet(DeltaState),
}

/// The KV caches already hold the rows of a tentative step; the delta-rule states do not.
#[derive(Clone, Debug)]
struct Tentative {
    n_tokens: usize,
    /// One stash per delta-rule layer, in layer order.
    stashes: Vec<DeltaStash>,
}

impl CpuState {
    pub(super) fn new(
        shape: Arc<Shape>,
        dtype: KvDtype,
        capacity: usize,
    ) -> Result<Self, ModelError> {
        let bytes = Self::bytes_needed(&shape, dtype, capacity);
        // The cache grows as it is filled; this only refuses what no machine could hold.
        if isize::try_from(bytes).is_err() {
            return Err(ModelError::OutOfMemory { bytes, capacity, fits: None });
        }
        let delta_shape = delta_shape(&shape);
        let layers = (0..shape.n_layers)
            .map(|layer| {
                if shape.is_attention(layer) {
                    let cache = new_cache(&shape, dtype);
                    LayerState::Attention(cache)
                } else {
                    LayerState::GatedDeltaNet(DeltaState::new(&delta_shape))
                }
            })
            .collect();
        Ok(Self { shape, capacity, len: 0, layers, tentative: None })
    }

    pub(super) fn bytes_needed(shape: &Shape, dtype: KvDtype, capacity: usize) -> usize {
        let element = match dtype {
            KvDtype::F32 => size_of::<f32>(),
            KvDtype::Bf16 => size_of::<u16>(),
        };
        let n_attention = (0..shape.n_layers).filter(|&layer| shape.is_attention(layer)).count();
        let kv_row = 2 * shape.n_kv_heads * shape.head_dim * element;
        let channels = 2 * shape.n_k_heads * shape.k_head_dim + shape.n_v_heads * shape.v_head_dim;
        let recurrent = shape.n_v_heads * shape.k_head_dim * shape.v_head_dim;
        let delta = (recurrent + (shape.conv_kernel - 1) * channels) * size_of::<f32>();
        n_attention
            .saturating_mul(kv_row)
            .saturating_mul(capacity)
            .saturating_add((shape.n_layers - n_attention).saturating_mul(delta))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(super) fn check_committed(&self) -> Result<(), ModelError> {
        match &self.tentative {
            Some(Tentative { n_tokens, .. }) => {
                Err(ModelError::Uncommitted { n_tentative: *n_tokens })
            }
            None => Ok(()),
        }
    }

    pub(super) fn check_room(&self, added: usize) -> Result<(), ModelError> {
        self.check_committed()?;
        if added > self.capacity - self.len {
            return Err(ModelError::ContextFull { len: self.len, added, capacity: self.capacity });
        }
        Ok(())
    }

    /// Marks `n_tokens` as final: every layer has consumed them.
    pub(super) fn advance(&mut self, n_tokens: usize) {
        self.len += n_tokens;
    }

    /// Marks `n_tokens` as tentative: the KV caches have them, `stashes` has the rest.
    pub(super) fn hold(&mut self, n_tokens: usize, stashes: Vec<DeltaStash>) {
        self.tentative = Some(Tentative { n_tokens, stashes });
    }

    pub(super) fn commit(&mut self, n_kept: usize) -> Result<(), ModelError> {
        let n_tentative = self.tentative.as_ref().map_or(0, |tentative| tentative.n_tokens);
        if n_kept > n_tentative {
            return Err(ModelError::CommitOutOfRange { n_kept, n_tentative });
        }
        let Some(Tentative { stashes, .. }) = self.tentative.take() else { return Ok(()) };
        self.len += n_kept;
        let mut stashes = stashes.iter();
        for layer in &mut self.layers {
            match layer {
                LayerState::Attention(cache) => cache.truncate(self.len),
                LayerState::GatedDeltaNet(state) => {
                    let stash = stashes.next().expect("a tentative step stashes every delta layer");
                    apply(stash, n_kept, state);
                }
            }
        }
        Ok(())
    }

    /// Copies what a pass overwrites: the delta-rule states, in layer order. Rows that it adds to KV
    /// caches can be cut off again.
    pub(super) fn recurrent(&self) -> Vec<DeltaState> {
        let recurrent = |layer: &LayerState| match layer {
            LayerState::GatedDeltaNet(state) => Some(state.clone()),
            LayerState::Attention(_) => None,
        };
        self.layers.iter().filter_map(recurrent).collect()
    }

    /// Takes back a pass that was given up, by what [`Self::recurrent`] was before it.
    pub(super) fn undo(&mut self, recurrent: Vec<DeltaState>) {
        let mut recurrent = recurrent.into_iter();
        for layer in &mut self.layers {
            match layer {
                LayerState::Attention(cache) => cache.truncate(self.len),
                LayerState::GatedDeltaNet(state) => {
                    *state = recurrent.next().expect("a copy of every delta-rule state");
                }
            }
        }
    }

    /// Becomes a copy of `source`, forgetting any tentative tokens.
    pub(super) fn restore(&mut self, source: &Self) -> Result<(), ModelError> {
        if source.len > self.capacity {
            return Err(ModelError::ContextFull {
                len: 0,
                added: source.len,
                capacity: self.capacity,
            });
        }
        self.len = source.len;
        self.layers.clone_from(&source.layers);
        self.tentative = None;
        Ok(())
    }
}

/// The capacity is the sequence's: a snapshot may move to a sequence of another capacity.
fn new_cache(shape: &Shape, dtype: KvDtype) -> KvCache {
    KvCache::new(dtype, shape.n_kv_heads, shape.head_dim, usize::MAX)
}

/// The delta-rule dimensions of a shape.
pub(super) fn delta_shape(shape: &Shape) -> DeltaShape {
    DeltaShape {
        n_k_heads: shape.n_k_heads,
        n_v_heads: shape.n_v_heads,
        k_head_dim: shape.k_head_dim,
        v_head_dim: shape.v_head_dim,
        conv_kernel: shape.conv_kernel,
        eps: shape.rms_eps,
    }
}

/// The KV rows of the MTP head for one sequence.
#[derive(Clone, Debug)]
pub struct MtpState {
    pub(super) cache: KvCache,
    capacity: usize,
}

impl MtpState {
    pub(super) fn new(shape: &Shape, dtype: KvDtype, capacity: usize) -> Self {
        Self { cache: new_cache(shape, dtype), capacity }
    }

    /// Positions held.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Whether no position is held yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets the positions from `len` on, after a rejected draft.
    pub fn truncate(&mut self, len: usize) {
        self.cache.truncate(len);
    }

    pub(super) fn check_room(&self, added: usize) -> Result<(), ModelError> {
        let (len, capacity) = (self.len(), self.capacity);
        if added > capacity - len {
            return Err(ModelError::ContextFull { len, added, capacity });
        }
        Ok(())
    }
}
