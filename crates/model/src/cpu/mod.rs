//! The forward pass on the CPU.
//!
//! It is the default everywhere and the oracle of every other implementation.

mod forward;
mod mtp;
mod state;

pub(crate) use state::CpuState;
pub use state::MtpState;

use crate::state::StateInner;
use crate::{Logits, Model, ModelError, SeqState, Snapshot, SnapshotSize, Step};
use forward::Scratch;
use lily_cpu::{KvDtype, Pool, Precision, RopeTable};
use lily_weights::{ModelWeights, Shape};
use std::sync::Arc;

/// How the CPU computes.
#[derive(Clone, Copy, Debug)]
pub struct CpuOptions {
    /// Threads of the pool, the caller's included.
    pub n_threads: usize,
    /// [`Precision::F32`] is the exact reference with an f32 KV cache; [`Precision::Int8`] rounds
    /// the activations of quantised matrices to 8 bits and keeps KV rows in bf16.
    pub precision: Precision,
    /// The most tokens of one forward pass; scratch memory grows with it.
    pub max_batch_tokens: usize,
}

/// A checkpoint computed by the CPU.
#[derive(Debug)]
pub struct CpuModel {
    shape: Arc<Shape>,
    weights: ModelWeights,
    options: CpuOptions,
    pool: Pool,
    rope: RopeTable,
    scratch: Scratch,
}

impl CpuModel {
    /// Takes the weights of a checkpoint. Nothing is copied or converted.
    pub fn new(shape: Shape, weights: ModelWeights, options: CpuOptions) -> Self {
        let pool = Pool::new(options.n_threads.max(1));
        let rope = RopeTable::new(shape.rotary_dim, shape.rope_theta);
        let scratch = Scratch::new(&shape, options.precision);
        let options = CpuOptions { max_batch_tokens: options.max_batch_tokens.max(1), ..options };
        Self { shape: Arc::new(shape), weights, options, pool, rope, scratch }
    }

    /// Threads in use.
    pub fn n_threads(&self) -> usize {
        self.pool.n_threads()
    }

    /// Whether the checkpoint brought an MTP head.
    pub fn has_mtp(&self) -> bool {
        self.weights.mtp.is_some()
    }

    /// [`Model::forward`] that shows the residual stream, `[n_tokens, hidden]`, to `tap`: as it
    /// enters each layer, as it leaves the last one, and after the final norm.
    ///
    /// # Errors
    /// Those of [`Model::forward`].
    pub fn forward_tapped(
        &mut self,
        batch: &mut [Step<'_>],
        out: &mut Logits,
        tap: &mut dyn FnMut(Tap, &[f32]),
    ) -> Result<(), ModelError> {
        self.check(batch)?;
        self.run(batch, out, tap, &|| false)
    }

    /// Refuses a batch before anything of it is computed.
    fn check(&self, batch: &[Step<'_>]) -> Result<(), ModelError> {
        let n_tokens: usize = batch.iter().map(|step| step.tokens.len()).sum();
        if n_tokens > self.options.max_batch_tokens {
            return Err(ModelError::BatchTooLarge { n_tokens, max: self.options.max_batch_tokens });
        }
        for step in batch {
            let state = cpu_state(step.state, &self.shape)?;
            if step.tokens.is_empty() {
                return Err(ModelError::EmptyStep);
            }
            state.check_room(step.tokens.len())?;
            let vocab_size = self.shape.vocab_size;
            if let Some(&id) = step.tokens.iter().find(|&&id| id as usize >= vocab_size) {
                return Err(ModelError::TokenOutOfRange { id, vocab_size });
            }
        }
        Ok(())
    }

    fn kv_dtype(&self) -> KvDtype {
        match self.options.precision {
            Precision::F32 => KvDtype::F32,
            Precision::Int8 => KvDtype::Bf16,
        }
    }
}

/// Where [`CpuModel::forward_tapped`] looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tap {
    /// The residual stream before this layer; the number of layers stands for after the last.
    LayerInput(usize),
    /// After the final norm: what `lm_head` and the MTP head see.
    FinalNorm,
}

impl Model for CpuModel {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn max_batch_tokens(&self) -> usize {
        self.options.max_batch_tokens
    }

    fn new_state(&self, capacity_tokens: usize) -> Result<SeqState, ModelError> {
        let state = CpuState::new(Arc::clone(&self.shape), self.kv_dtype(), capacity_tokens)?;
        Ok(SeqState { inner: StateInner::Cpu(Box::new(state)) })
    }

    fn state_bytes(&self, capacity_tokens: usize) -> usize {
        CpuState::bytes_needed(&self.shape, self.kv_dtype(), capacity_tokens)
    }

    fn snapshot_size(&self) -> SnapshotSize {
        // The last page of a snapshot is its own as soon as the sequence goes on.
        let fixed = self.state_bytes(lily_cpu::KvCache::PAGE_TOKENS);
        let per_token = self.state_bytes(1) - self.state_bytes(0);
        SnapshotSize { fixed, per_token, shares_rows: true }
    }

    fn forward(&mut self, batch: &mut [Step<'_>], out: &mut Logits) -> Result<(), ModelError> {
        self.forward_tapped(batch, out, &mut |_, _| {})
    }

    fn forward_interruptible(
        &mut self,
        batch: &mut [Step<'_>],
        out: &mut Logits,
        interrupt: &dyn Fn() -> bool,
    ) -> Result<(), ModelError> {
        self.check(batch)?;
        let mut saved = Vec::with_capacity(batch.len());
        for step in batch.iter() {
            saved.push(cpu_state(step.state, &self.shape)?.recurrent());
        }
        let done = self.run(batch, out, &mut |_, _| {}, interrupt);
        if done.is_err() {
            for (step, saved) in batch.iter_mut().zip(saved) {
                cpu_state_mut(step.state, &self.shape)?.undo(saved);
            }
        }
        done
    }

    fn commit(&mut self, state: &mut SeqState, n_kept: usize) -> Result<(), ModelError> {
        cpu_state_mut(state, &self.shape)?.commit(n_kept)
    }

    fn snapshot(&self, state: &SeqState) -> Result<Snapshot, ModelError> {
        let state = cpu_state(state, &self.shape)?;
        state.check_committed()?;
        Ok(Snapshot { inner: StateInner::Cpu(Box::new(state.clone())) })
    }

    fn restore(&self, state: &mut SeqState, snapshot: &Snapshot) -> Result<(), ModelError> {
        let state = cpu_state_mut(state, &self.shape)?;
        match &snapshot.inner {
            StateInner::Cpu(source) if *source.shape() == *self.shape => state.restore(source),
            _ => Err(ModelError::ForeignState),
        }
    }
}

fn cpu_state<'a>(state: &'a SeqState, shape: &Shape) -> Result<&'a CpuState, ModelError> {
    match &state.inner {
        StateInner::Cpu(state) if *state.shape() == *shape => Ok(state),
        _ => Err(ModelError::ForeignState),
    }
}

fn cpu_state_mut<'a>(
    state: &'a mut SeqState,
    shape: &Shape,
) -> Result<&'a mut CpuState, ModelError> {
    match &mut state.inner {
        StateInner::Cpu(state) if *state.shape() == *shape => Ok(state),
        _ => Err(ModelError::ForeignState),
    }
}
