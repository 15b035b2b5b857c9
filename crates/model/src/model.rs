//! The boundary between the engine and a forward pass.

use crate::{ModelError, SeqState, Snapshot};
use lily_device::Counts;
use lily_weights::Shape;

/// Index of a row of the embedding table.
pub type TokenId = u32;

/// One implementation of the forward pass: a CPU or a GPU holding one checkpoint.
///
/// The recurrent state of the delta rule cannot be truncated, so a sequence only moves forward:
/// either at once ([`Advance::Commit`]) or tentatively ([`Advance::Tentative`]) until
/// [`Model::commit`] says how many of the tokens stay.
pub trait Model: Send {
    /// The shape of the checkpoint.
    fn shape(&self) -> &Shape;

    /// The most tokens that one `forward` takes, over all its steps.
    fn max_batch_tokens(&self) -> usize;

    /// An empty sequence that can grow to `capacity_tokens`.
    ///
    /// # Errors
    /// [`ModelError::OutOfMemory`] if its memory cannot be reserved.
    fn new_state(&self, capacity_tokens: usize) -> Result<SeqState, ModelError>;

    /// Bytes that a sequence of `capacity_tokens` needs.
    fn state_bytes(&self, capacity_tokens: usize) -> usize;

    /// Runs every step of the batch: prefill chunks, decode steps and verifications alike.
    ///
    /// `out` receives the logits of the rows asked for, in the order of the batch. Nothing is
    /// changed if an error is returned.
    ///
    /// # Errors
    /// See [`ModelError`].
    fn forward(&mut self, batch: &mut [Step<'_>], out: &mut Logits) -> Result<(), ModelError>;

    /// [`Model::forward`] that may be given up between two parts of the work: when `interrupt` says
    /// so, the pass fails with [`ModelError::Interrupted`] and, as after any error, nothing is
    /// changed. A model whose passes are short need not ask.
    ///
    /// # Errors
    /// As [`Model::forward`], and [`ModelError::Interrupted`].
    fn forward_interruptible(
        &mut self,
        batch: &mut [Step<'_>],
        out: &mut Logits,
        _interrupt: &dyn Fn() -> bool,
    ) -> Result<(), ModelError> {
        self.forward(batch, out)
    }

    /// Feeds `token` and then, `n_tokens` times in all, the token with the largest logit (equal
    /// logits: the lower id); returns the tokens chosen. A device does this without waiting for the
    /// host in between.
    ///
    /// # Errors
    /// As [`Model::forward`].
    fn decode_greedy(
        &mut self,
        state: &mut SeqState,
        token: TokenId,
        n_tokens: usize,
    ) -> Result<Vec<TokenId>, ModelError> {
        let mut out = Logits::default();
        let mut chosen: Vec<TokenId> = Vec::with_capacity(n_tokens);
        for _ in 0..n_tokens {
            let tokens = [*chosen.last().unwrap_or(&token)];
            let step = Step {
                state: &mut *state,
                tokens: &tokens,
                rows: Rows::Last,
                advance: Advance::Commit,
            };
            self.forward(&mut [step], &mut out)?;
            chosen.push(out.argmax(0));
        }
        Ok(chosen)
    }

    /// Whether [`Model::decode_sampled`] may choose tokens.
    fn samples(&self) -> bool {
        false
    }

    /// Feeds `token` and then, one for each of `draws` (from 0 to below 1), the token that `rules`
    /// draw; returns the tokens chosen, without waiting for the host in between. `None` if this model
    /// does not choose tokens by these rules: nothing happened then.
    ///
    /// A token outside the vocabulary says that the logits were no numbers; the sequence is of no
    /// use from there on.
    ///
    /// # Errors
    /// As [`Model::forward`].
    fn decode_sampled(
        &mut self,
        _state: &mut SeqState,
        _token: TokenId,
        _rules: &DeviceSampling,
        _draws: &[f32],
    ) -> Result<Option<Vec<TokenId>>, ModelError> {
        Ok(None)
    }

    /// Launches and barriers of one decode step of `state`; `None` where there are none.
    fn decode_counts(&self, _state: &SeqState) -> Option<Counts> {
        None
    }

    /// Keeps the first `n_kept` tokens of a tentative step and forgets the others.
    ///
    /// # Errors
    /// [`ModelError::CommitOutOfRange`] if the step had fewer tokens.
    fn commit(&mut self, state: &mut SeqState, n_kept: usize) -> Result<(), ModelError>;

    /// A copy of what cannot be recomputed cheaply: the recurrent state and the KV rows so far.
    ///
    /// # Errors
    /// [`ModelError::Uncommitted`] for a tentative state.
    fn snapshot(&self, state: &SeqState) -> Result<Snapshot, ModelError>;

    /// Bytes that snapshots take.
    fn snapshot_size(&self) -> SnapshotSize {
        let fixed = self.state_bytes(0);
        SnapshotSize { fixed, per_token: self.state_bytes(1) - fixed, shares_rows: false }
    }

    /// Puts a sequence back to the point of a snapshot.
    ///
    /// # Errors
    /// [`ModelError::ContextFull`] if the snapshot is longer than the capacity,
    /// [`ModelError::ForeignState`] if it comes from another model.
    fn restore(&self, state: &mut SeqState, snapshot: &Snapshot) -> Result<(), ModelError>;
}

/// Bytes that snapshots take: `fixed + per_token * n`, where n is the number of tokens, or, if
/// `shares_rows`, of those that no other snapshot holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotSize {
    /// The recurrent state.
    pub fixed: usize,
    /// KV rows.
    pub per_token: usize,
    /// Whether snapshots of sequences that begin alike share their KV rows.
    pub shares_rows: bool,
}

/// Rules for choosing tokens on a device: temperature, then top-k, top-p and min-p, then a draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceSampling {
    /// Above 0.
    pub temperature: f32,
    /// From 1 to [`DeviceSampling::TOP_K_MAX`].
    pub top_k: usize,
    /// 1 is off.
    pub top_p: f32,
    /// 0 is off.
    pub min_p: f32,
    /// Rows of logits beyond this are padding and never chosen.
    pub vocab_size: usize,
}

impl DeviceSampling {
    /// The most candidates that a device keeps; a request that wants more, or all, is the host's.
    pub const TOP_K_MAX: usize = 32;
}

/// A run of tokens of one sequence.
#[derive(Debug)]
pub struct Step<'a> {
    /// The sequence to extend.
    pub state: &'a mut SeqState,
    /// The next tokens, at least one.
    pub tokens: &'a [TokenId],
    /// Which positions need logits.
    pub rows: Rows,
    /// Whether the tokens are final.
    pub advance: Advance,
}

/// Positions of a step whose logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// None: a prefill chunk that is not the last.
    None,
    /// The last position only.
    Last,
    /// Every position.
    All,
}

/// Whether the tokens of a step are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// They are.
    Commit,
    /// They may be taken back: the step keeps what [`Model::commit`] needs to replay a prefix.
    Tentative,
}

/// Logits of a batch, row-major `[n_rows, vocab_size]`, f32.
#[derive(Clone, Debug, Default)]
pub struct Logits {
    /// Row-major values.
    pub values: Vec<f32>,
    /// Rows of the embedding table, padding included.
    pub vocab_size: usize,
}

impl Logits {
    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.values.len().checked_div(self.vocab_size).unwrap_or(0)
    }

    /// The index of the largest value of row `i`; equal values: the lowest, none: 0.
    pub fn argmax(&self, i: usize) -> TokenId {
        let mut best = 0;
        let mut top = f32::NEG_INFINITY;
        for (id, &logit) in (0..).zip(self.row(i)) {
            if logit > top {
                (best, top) = (id, logit);
            }
        }
        best
    }

    /// Row `i`, `[vocab_size]`.
    pub fn row(&self, i: usize) -> &[f32] {
        &self.values[i * self.vocab_size..(i + 1) * self.vocab_size]
    }
}
