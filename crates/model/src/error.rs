//! What can go wrong in a forward pass.

/// Errors of the forward pass and of sequence state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A token id outside the embedding table.
    #[error("token id {id} is outside the vocabulary of {vocab_size} rows")]
    TokenOutOfRange {
        /// The id that was given.
        id: u32,
        /// Rows of the embedding table.
        vocab_size: usize,
    },
    /// The sequence would outgrow the capacity it was created with.
    #[error("the sequence holds {len} tokens and {added} more exceed its capacity of {capacity}")]
    ContextFull {
        /// Tokens already in the sequence.
        len: usize,
        /// Tokens of this step.
        added: usize,
        /// The capacity given to `new_state`.
        capacity: usize,
    },
    /// More tokens than one forward pass takes.
    #[error("a batch of {n_tokens} tokens exceeds the limit of {max}; split it into chunks")]
    BatchTooLarge {
        /// Tokens of the batch.
        n_tokens: usize,
        /// The limit given when the model was made.
        max: usize,
    },
    /// A step without tokens.
    #[error("a step needs at least one token")]
    EmptyStep,
    /// A tentative state was stepped or snapshot before `commit`.
    #[error("the sequence has {n_tentative} uncommitted tokens; commit them first")]
    Uncommitted {
        /// Tokens of the tentative step.
        n_tentative: usize,
    },
    /// `commit` asked for more tokens than the tentative step had.
    #[error("cannot keep {n_kept} tokens of a tentative step of {n_tentative}")]
    CommitOutOfRange {
        /// Tokens to keep.
        n_kept: usize,
        /// Tokens of the tentative step.
        n_tentative: usize,
    },
    /// A snapshot or state of another model shape.
    #[error("the sequence state belongs to a model of another shape or backend")]
    ForeignState,
    /// Memory for a sequence could not be reserved.
    #[error(
        "cannot reserve {bytes} bytes for a sequence of {capacity} tokens{}; lower --ctx",
        would_fit(*.fits)
    )]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
        /// Capacity asked for, in tokens.
        capacity: usize,
        /// The longest sequence that there is memory for, where that is known.
        fits: Option<usize>,
    },
    /// The device failed, or has too little memory.
    #[error(transparent)]
    Device(#[from] lily_device::DeviceError),
    /// The pass was given up because the caller asked for it.
    #[error("the pass was interrupted")]
    Interrupted,
    /// The checkpoint has no MTP tensors.
    #[error("this checkpoint has no MTP head (no `mtp.*` tensors)")]
    NoMtp,
}

fn would_fit(fits: Option<usize>) -> String {
    fits.map_or_else(String::new, |fits| format!(" (about {fits} would fit)"))
}
