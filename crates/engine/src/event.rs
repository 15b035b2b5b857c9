//! What the engine answers.

use lily_text::{Delta, TokenId};

/// Something that happened to a request, in order: `PromptLogprobs` if asked for, `Started`, then
/// any number of `Step`s, then exactly one of `Finished` and `Failed`.
#[derive(Clone, Debug)]
pub enum Event {
    /// Log-probabilities of the next tokens of the prompt. The pieces joined have an entry for each
    /// token but the first, which nothing comes before.
    PromptLogprobs(Vec<TokenLogprob>),
    /// The prompt was computed; the first token follows.
    Started(PromptStats),
    /// One generated token, or several: what it adds to the answer (maybe nothing yet: a tag or a
    /// UTF-8 sequence can be incomplete) and, if asked for, its log-probabilities.
    Step {
        /// Pieces of reasoning, content and tool calls.
        deltas: Vec<Delta>,
        /// One entry per token when log-probabilities were asked for.
        logprobs: Vec<TokenLogprob>,
    },
    /// The answer is complete.
    Finished(Summary),
    /// The answer could not be completed.
    Failed(EngineError),
}

/// Facts of a computed prompt.
#[derive(Clone, Copy, Debug, Default)]
pub struct PromptStats {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of those, tokens whose state was reused.
    pub cached_tokens: usize,
    /// Seconds from submission to the start of the prefill.
    pub queued_s: f64,
    /// Seconds of the prefill.
    pub prefill_s: f64,
}

/// Facts of a complete answer.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// The stop string that ended it.
    pub stop_string: Option<String>,
    /// Of the prompt.
    pub prompt: PromptStats,
    /// Tokens generated, the ending one included.
    pub completion_tokens: usize,
    /// Of those, tokens inside the think block.
    pub reasoning_tokens: usize,
    /// Seconds from the end of the prefill to the last token.
    pub decode_s: f64,
    /// The ids generated.
    pub token_ids: Vec<TokenId>,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-sequence token or a stop string.
    Stop,
    /// `max_tokens` or the end of the context.
    Length,
    /// The answer ended with at least one tool call.
    ToolCalls,
}

/// Log-probability of a token that was generated or given.
#[derive(Clone, Debug)]
pub struct TokenLogprob {
    /// The token.
    pub id: TokenId,
    /// Natural logarithm of its probability before temperature, penalties and filters.
    pub logprob: f32,
    /// The most likely tokens at this position, best first.
    pub top: Vec<(TokenId, f32)>,
}

/// Why an answer could not be completed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The forward pass failed.
    #[error("the forward pass failed: {0}")]
    Model(String),
    /// The model answered with numbers that are no distribution, or the request's bias excludes
    /// every token.
    #[error("the logits {problem}; check the checkpoint and the logit bias")]
    Logits {
        /// What is wrong with them.
        problem: &'static str,
    },
    /// The deadline of the request passed.
    #[error("the request took longer than its limit of {limit_s} s")]
    DeadlineExceeded {
        /// The limit.
        limit_s: u64,
    },
    /// The engine was stopped.
    #[error("the engine was stopped")]
    Stopped,
    /// The engine thread panicked.
    #[error("the engine failed unexpectedly; see the log")]
    Panicked,
}

/// Why the engine thread ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EngineEnd {
    /// It was drained, or every handle was dropped.
    Drained,
    /// It was stopped.
    Stopped,
    /// It panicked; the process should end with an error.
    Panicked,
}

/// The events of one request. Dropping it cancels the request within one token, or within a layer
/// of the model while a prompt is read.
#[derive(Debug)]
pub struct Events {
    pub(crate) receiver: tokio::sync::mpsc::UnboundedReceiver<Event>,
}

impl Events {
    /// Waits for the next event; `None` after the last one.
    pub async fn next(&mut self) -> Option<Event> {
        self.receiver.recv().await
    }

    /// The same for callers without an async runtime.
    pub fn next_blocking(&mut self) -> Option<Event> {
        self.receiver.blocking_recv()
    }
}
