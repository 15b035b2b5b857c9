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
    /// Bytes of kept prompts, so that they are not read again; 0 keeps none.
    pub cache_bytes: usize,
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
    /// Most tokens to generate; `None` is until the end of the context. 0 is allowed together with
    /// `prompt_logprobs`.
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
    /// The form of the answer, after the thinking if there is any.
    pub constraint: Option<Constraint>,
    /// The think block is closed after this many tokens; 0 closes it at once. Nothing happens to
    /// answers that do not start inside one.
    pub thinking_budget: Option<usize>,
    /// Log-probabilities of the tokens of a text or token prompt, with this many alternatives
    /// (0 to 20).
    pub prompt_logprobs: Option<u8>,
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
            constraint: None,
            thinking_budget: None,
            prompt_logprobs: None,
        }
    }
}

/// The form that an answer must have.
#[derive(Clone, Debug, PartialEq)]
pub enum Constraint {
    /// Any JSON object.
    JsonObject,
    /// JSON that this schema allows.
    JsonSchema(serde_json::Value),
    /// Text of a grammar in `llguidance`'s dialect of Lark.
    Lark(String),
    /// Text that this regular expression matches as a whole.
    Regex(String),
}

/// Whether and how tools are called.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolRule {
    /// Whether they are called.
    pub choice: ToolChoice,
    /// At most one call; otherwise any number. Of a [`ToolChoice::Auto`] that no grammar rules the
    /// caller has to see to it.
    pub single_call: bool,
}

/// Whether tools are called.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ToolChoice {
    /// As the model likes.
    #[default]
    Auto,
    /// At least one call of any offered tool.
    Required,
    /// At least one call, of these tools only.
    Named(Vec<String>),
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
    /// Whether and how the tools are called.
    pub tool_rule: ToolRule,
    /// The last message is the start of the answer: a turn of the assistant with text and without
    /// calls. The answer is what follows it, and is not thought about any more.
    pub continue_final_message: bool,
}

impl ChatPrompt {
    /// A conversation whose answer may call these tools and is a turn of its own.
    pub fn new(
        messages: Vec<Message>,
        tools: Vec<serde_json::Value>,
        options: RenderOptions,
    ) -> Self {
        let tool_rule = ToolRule::default();
        Self { messages, tools, options, tool_rule, continue_final_message: false }
    }
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
    /// The form asked for cannot be enforced.
    #[error("`{field}` cannot be enforced: {problem}")]
    Constraint {
        /// `json_schema`, `grammar`, `regex` or `tools`.
        field: &'static str,
        /// What is wrong with it, or not supported of it.
        problem: String,
    },
    /// The engine has stopped or is draining.
    #[error("the engine is shutting down")]
    Stopped,
}
