//! One sequence on a device.

use super::Activations;
use super::ops::{CONV_RING, DeltaStash, DeltaState, KvRows, conv_channels};
use crate::{DeviceSampling, ModelError};
use lily_device::{Buffer, Commands, Device, DeviceError, Program, Slice};
use lily_weights::Shape;
use std::cell::Cell;
use std::sync::Arc;

/// KV rows, recurrent and convolution state of one sequence, one entry per layer. Clones share the
/// memory.
#[derive(Clone, Debug)]
pub(crate) struct GpuState {
    pub(super) shape: Arc<Shape>,
    /// Which model's device the memory is on.
    pub(super) device: Arc<dyn Device>,
    pub(super) capacity: usize,
    pub(super) len: usize,
    pub(super) layers: Vec<LayerState>,
    /// u32 `[4]`: committed tokens, first.
    pub(super) seq: Buffer,
    /// Cosines and sines of every position up to the capacity.
    pub(super) rope: Slice,
    pub(super) tentative: Option<Tentative>,
    /// The recorded decode steps of this sequence.
    /// By whether attention reads few rows in it.
    pub(super) programs: [Programs; 2],
}

#[derive(Clone, Debug, Default)]
pub(super) struct Programs {
    /// One token from the host, logits to the host.
    pub(super) step: Option<Arc<Program>>,
    /// The token of the last step, the next one chosen greedily.
    pub(super) greedy: Option<Arc<Program>>,
    /// The same, drawn by rules.
    pub(super) sampled: Option<(DeviceSampling, Arc<Program>)>,
}

#[derive(Clone, Debug)]
pub(super) enum LayerState {
    Attention(KvRows),
    GatedDeltaNet(DeltaState),
}

/// The KV caches and rings already hold the rows of a tentative step; the states do not.
#[derive(Clone, Debug)]
pub(super) struct Tentative {
    pub(super) n_tokens: usize,
    /// One stash per delta-rule layer, in layer order.
    pub(super) stashes: Vec<DeltaStash>,
}

/// A copy of a sequence at one point: whole states, and the KV rows so far.
#[derive(Clone, Debug)]
pub(crate) struct GpuSnapshot {
    shape: Arc<Shape>,
    device: Arc<dyn Device>,
    pub(crate) len: usize,
    layers: Vec<LayerState>,
}

/// Elements of one layer's KV rows, keys or values.
fn kv_elements(shape: &Shape, rows: usize) -> usize {
    shape.n_kv_heads * rows * shape.head_dim
}

/// f32 values of one layer's recurrent state.
fn state_floats(shape: &Shape) -> usize {
    shape.n_v_heads * shape.v_head_dim * shape.k_head_dim
}

fn new_layers(
    device: &Arc<dyn Device>,
    shape: &Shape,
    activations: Activations,
    rows: usize,
) -> Result<Vec<LayerState>, ModelError> {
    let kv_bytes = kv_elements(shape, rows).max(1) * activations.size();
    let ring_bytes = CONV_RING * conv_channels(shape) * activations.size();
    // What a failure gives back is free as well.
    let held_bytes = Cell::new(0);
    let alloc = |len: usize, label: &str| -> Result<Slice, ModelError> {
        let buffer = device
            .alloc(len, label)
            .map_err(|error| too_large(error, shape, activations, rows, held_bytes.get()))?;
        held_bytes.set(held_bytes.get() + len);
        Ok(buffer.all())
    };
    (0..shape.n_layers)
        .map(|layer| {
            Ok(if shape.is_attention(layer) {
                let (k, v) = (alloc(kv_bytes, "keys")?, alloc(kv_bytes, "values")?);
                LayerState::Attention(KvRows { k, v, capacity: rows })
            } else {
                let ring = alloc(ring_bytes, "convolution ring")?;
                let state = alloc(state_floats(shape) * 4, "recurrent state")?;
                LayerState::GatedDeltaNet(DeltaState { ring, state })
            })
        })
        .collect()
}

/// A sequence that does not fit is the user's context being too long; says which would fit, beside
/// what is free and what a failed attempt gives back.
pub(super) fn too_large(
    error: DeviceError,
    shape: &Shape,
    activations: Activations,
    capacity: usize,
    held_bytes: usize,
) -> ModelError {
    let DeviceError::OutOfMemory { available, .. } = error else {
        return ModelError::Device(error);
    };
    let free = usize::try_from(available).unwrap_or(usize::MAX).saturating_add(held_bytes);
    let bytes_of = |rows| GpuState::bytes_needed(shape, activations, rows);
    let fits = free.saturating_sub(bytes_of(0)) / (bytes_of(1) - bytes_of(0)).max(1);
    ModelError::OutOfMemory { bytes: bytes_of(capacity), capacity, fits: Some(fits) }
}

impl GpuState {
    pub(super) fn new(
        device: &Arc<dyn Device>,
        shape: Arc<Shape>,
        activations: Activations,
        capacity: usize,
        rope: Slice,
    ) -> Result<Self, ModelError> {
        let layers = new_layers(device, &shape, activations, capacity)?;
        let seq = device.alloc(16, "sequence length")?;
        let mut commands = Commands::new();
        commands.zero(seq.all());
        for layer in &layers {
            if let LayerState::GatedDeltaNet(DeltaState { ring, state }) = layer {
                commands.zero(ring.clone());
                commands.zero(state.clone());
            }
        }
        device.submit(&commands)?;
        let device = Arc::clone(device);
        let programs = <[Programs; 2]>::default();
        Ok(Self { shape, device, capacity, len: 0, layers, seq, rope, tentative: None, programs })
    }

    pub(super) fn bytes_needed(shape: &Shape, activations: Activations, capacity: usize) -> usize {
        let n_attention = (0..shape.n_layers).filter(|&layer| shape.is_attention(layer)).count();
        let kv_row = 2 * kv_elements(shape, 1) * activations.size();
        let ring = CONV_RING * conv_channels(shape) * activations.size();
        let delta = ring + state_floats(shape) * 4;
        let rope_row = shape.rotary_dim * 4;
        (n_attention * kv_row + rope_row)
            .saturating_mul(capacity)
            .saturating_add((shape.n_layers - n_attention) * delta)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
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

    /// Memory for what a tentative step of `n_tokens` leaves behind.
    pub(super) fn new_stashes(&self, n_tokens: usize) -> Result<Vec<DeltaStash>, ModelError> {
        let shape = &self.shape;
        let heads = n_tokens * shape.n_v_heads;
        let alloc = |floats: usize| -> Result<Slice, DeviceError> {
            Ok(self.device.alloc(floats * 4, "tentative step")?.all())
        };
        (0..shape.n_layers)
            .filter(|&layer| !shape.is_attention(layer))
            .map(|_| {
                Ok(DeltaStash {
                    k: alloc(heads * shape.k_head_dim)?,
                    d: alloc(heads * shape.v_head_dim)?,
                    g: alloc(heads)?,
                })
            })
            .collect()
    }

    /// Tells the device how many tokens are committed.
    pub(super) fn write_len(&self) -> Result<(), ModelError> {
        let len = u32::try_from(self.len).expect("positions are far below 2^32");
        self.device.write(&self.seq.all(), bytemuck::bytes_of(&len))?;
        Ok(())
    }

    pub(super) fn snapshot(&self, activations: Activations) -> Result<GpuSnapshot, ModelError> {
        self.check_committed()?;
        let layers = new_layers(&self.device, &self.shape, activations, self.len)?;
        self.copy(&self.layers, &layers, self.len, activations)?;
        let (shape, device) = (Arc::clone(&self.shape), Arc::clone(&self.device));
        Ok(GpuSnapshot { shape, device, len: self.len, layers })
    }

    /// Becomes a copy of `source`, forgetting any tentative tokens.
    pub(super) fn restore(
        &mut self,
        source: &GpuSnapshot,
        activations: Activations,
    ) -> Result<(), ModelError> {
        if source.len > self.capacity {
            let capacity = self.capacity;
            return Err(ModelError::ContextFull { len: 0, added: source.len, capacity });
        }
        self.copy(&source.layers, &self.layers, source.len, activations)?;
        self.len = source.len;
        self.tentative = None;
        self.write_len()
    }

    /// Copies states and the first `rows` KV rows.
    fn copy(
        &self,
        from: &[LayerState],
        to: &[LayerState],
        rows: usize,
        activations: Activations,
    ) -> Result<(), ModelError> {
        let row_bytes = self.shape.head_dim * activations.size();
        let mut commands = Commands::new();
        for (from, to) in from.iter().zip(to) {
            match (from, to) {
                (LayerState::Attention(from), LayerState::Attention(to)) => {
                    for (from_rows, to_rows) in [(&from.k, &to.k), (&from.v, &to.v)] {
                        for head in (0..self.shape.n_kv_heads).filter(|_| rows > 0) {
                            let part = |rows_of: &Slice, capacity: usize| {
                                let start = rows_of.offset + head * capacity * row_bytes;
                                rows_of.buffer.slice(start..start + rows * row_bytes)
                            };
                            commands
                                .copy(part(from_rows, from.capacity), part(to_rows, to.capacity));
                        }
                    }
                }
                (LayerState::GatedDeltaNet(from), LayerState::GatedDeltaNet(to)) => {
                    commands.copy(from.ring.clone(), to.ring.clone());
                    commands.copy(from.state.clone(), to.state.clone());
                }
                _ => unreachable!("sequences of one shape have the same layers"),
            }
        }
        self.device.submit(&commands)?;
        Ok(())
    }
}

impl GpuSnapshot {
    /// Whether it belongs to sequences of this model.
    pub(super) fn fits(&self, shape: &Shape, device: &Arc<dyn Device>) -> bool {
        *self.shape == *shape && Arc::ptr_eq(&self.device, device)
    }
}
