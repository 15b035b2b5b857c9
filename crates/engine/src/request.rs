//! What the engine is asked to do.

use lily_text::{ChatTemplate, Message, RenderOptions, TokenId, Tokenizer};
use std::sync::Arc;
use std::time::Duration;

/// The text side of a checkpoint.
#[derive(Clone, Debug)]
pub struct TextModel {
    /// Tokenizer of the checkpoint.
    pub tokenizer: Arc<Tokenizer>,
    /// Chat template of the checkpoint; `None` allows only text and token prompts.
    pub template: Option<Arc<ChatTemplate>>,
    /// Ids that end an answer, from `generation_config.json` and `config.json` together.
    pub eos_token_ids: Vec<TokenId>,
    /// Sampling values for what a request leaves open.
    pub defaults: SamplingDefaults,
}

/// Limits of the engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// Tokens that a request may use, prompt and answer together.
    pub context_tokens: usize,
    /// Requests computed at the same time, at most one for each token of a pass.
    pub max_running: usize,
    /// Requests waiting beyond those; more are refused with [`SubmitError::Busy`].
    pub max_queued: usize,
    /// Tokens of a prefill chunk; between chunks other sequences decode. Less if a chunk and
    /// `max_running` - 1 tokens do not fit into one pass of the model.
    pub prefill_chunk_tokens: usize,
}

/// Sampling values of a checkpoint for both thinking modes.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingDefaults {
    /// When the answer starts inside `<think>`.
    pub thinking: Sampling,
    /// When it does not.
    pub plain: Sampling,
}

impl SamplingDefaults {
    /// Thinking answers follow the checkpoint's `generation_config.json`, which is made for them.
    /// For plain answers it says nothing: those take the values that the model's card recommends
    /// (temperature 0.7, top-p 0.8, top-k 20, presence penalty 1.5).
    pub fn from_generation_config(thinking: Sampling) -> Self {
        let plain = Sampling {
            temperature: Some(0.7),
            top_p: Some(0.8),
            top_k: Some(20),
            min_p: Some(0.0),
            presence_penalty: Some(1.5),
            ..Sampling::default()
        };
        Self { thinking, plain }
    }
}

/// A request for one answer.
#[derive(Clone, Debug)]
pub struct GenerateRequest {
    /// What to continue.
    pub prompt: Prompt,
    /// Values left `None` come from the checkpoint's defaults for the thinking mode.
    pub sampling: Sampling,
    /// Most tokens to generate; `None` is until the end of the context.
    pub max_tokens: Option<usize>,
    /// The answer ends before the first of these to be complete. Of a conversation only the content
    /// is searched, not reasoning and tool calls.
    pub stop: Vec<String>,
    /// Log-probabilities of the chosen token and of this many alternatives (0 to 20).
    pub logprobs: Option<u8>,
    /// Keep going at an end-of-sequence token, which has no text (benchmarks).
    pub ignore_eos: bool,
    /// The request fails with [`crate::EngineError::DeadlineExceeded`] after this long.
    pub deadline: Option<Duration>,
}

impl GenerateRequest {
    /// A request that leaves everything but the prompt open.
    pub fn new(prompt: Prompt) -> Self {
        Self {
            prompt,
            sampling: Sampling::default(),
            max_tokens: None,
            stop: Vec::new(),
            logprobs: None,
            ignore_eos: false,
            deadline: None,
        }
    }
}

/// What to continue.
#[derive(Clone, Debug)]
pub enum Prompt {
    /// A conversation, rendered by the checkpoint's template; the answer is parsed into
    /// reasoning, content and tool calls.
    Chat(ChatPrompt),
    /// Text continued as it is; the answer is content only.
    Text(String),
    /// Token ids continued as they are; the answer is content only.
    Tokens(Vec<TokenId>),
}

/// A conversation.
#[derive(Clone, Debug)]
pub struct ChatPrompt {
    /// The turns so far.
    pub messages: Vec<Message>,
    /// Tool definitions in `OpenAI`'s form, given to the template as they are.
    pub tools: Vec<serde_json::Value>,
    /// Thinking and further template arguments.
    pub options: RenderOptions,
}

/// How the next token is chosen. `None` means: not said.
///
/// Order: penalties and bias on the logits, temperature, top-k, top-p, min-p, draw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: Option<f32>,
    /// 0 is off.
    pub top_k: Option<u32>,
    /// 1 is off.
    pub top_p: Option<f32>,
    /// 0 is off.
    pub min_p: Option<f32>,
    /// Subtracted once from every token already generated.
    pub presence_penalty: Option<f32>,
    /// Subtracted as often as the token was generated.
    pub frequency_penalty: Option<f32>,
    /// Divides positive and multiplies negative logits of tokens seen in prompt or answer; 1 is
    /// off.
    pub repetition_penalty: Option<f32>,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Makes the draws reproducible.
    pub seed: Option<u64>,
}

/// Why a request was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The queue is full.
    #[error("{n_queued} requests are waiting already; try again in {retry_after_s} s")]
    Busy {
        /// Requests waiting.
        n_queued: usize,
        /// An estimate of when a place is free.
        retry_after_s: u64,
    },
    /// The prompt leaves no room for an answer.
    #[error(
        "the prompt has {prompt_tokens} tokens but the context holds {context_tokens}; shorten it \
         or start with a larger --ctx"
    )]
    TooLong {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens of the context.
        context_tokens: usize,
    },
    /// A value makes no sense.
    #[error("`{field}` is {value}, but must be {expected}")]
    Invalid {
        /// Name of the field as in this module.
        field: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        expected: &'static str,
    },
    /// The conversation cannot be rendered or tokenised.
    #[error(transparent)]
    Text(#[from] lily_text::TextError),
    /// A conversation for a checkpoint without a template.
    #[error("this checkpoint has no chat template; send a text prompt")]
    NoTemplate,
    /// The engine has stopped or is draining.
    #[error("the engine is shutting down")]
    Stopped,
}
