//! The state of a sequence, opaque to everything above the model.

use crate::cpu::CpuState;
use crate::gpu::{GpuSnapshot, GpuState};

/// The state of one sequence: KV rows of the attention layers, recurrent and convolution state of
/// the delta-rule layers. Made by [`crate::Model::new_state`] and only usable with that model.
#[derive(Debug)]
pub struct SeqState {
    pub(crate) inner: StateInner,
}

/// What a backend keeps for a sequence.
#[derive(Clone, Debug)]
pub(crate) enum StateInner {
    Cpu(Box<CpuState>),
    Gpu(Box<GpuState>),
    GpuSnapshot(Box<GpuSnapshot>),
    Scripted { len: usize },
}

impl SeqState {
    /// The state of a model that computes nothing: only a length. For models made of scripts.
    pub fn scripted(len: usize) -> Self {
        Self { inner: StateInner::Scripted { len } }
    }

    /// Sets the length of a scripted state; `false` if the state belongs to a real model.
    pub fn set_scripted_len(&mut self, new_len: usize) -> bool {
        match &mut self.inner {
            StateInner::Scripted { len } => {
                *len = new_len;
                true
            }
            StateInner::Cpu(_) | StateInner::Gpu(_) | StateInner::GpuSnapshot(_) => false,
        }
    }

    /// Committed tokens.
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// Whether no token was committed yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A copy of a sequence at one point.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) inner: StateInner,
}

impl Snapshot {
    /// A copy of a scripted state.
    pub fn scripted(len: usize) -> Self {
        Self { inner: StateInner::Scripted { len } }
    }

    /// Tokens of the sequence at that point.
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// Whether the snapshot is of an empty sequence.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl StateInner {
    fn len(&self) -> usize {
        match self {
            Self::Cpu(state) => state.len(),
            Self::Gpu(state) => state.len(),
            Self::GpuSnapshot(snapshot) => snapshot.len,
            Self::Scripted { len } => *len,
        }
    }
}
