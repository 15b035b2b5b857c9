//! The wire types of `OpenAI`'s completions, and nothing else.

use crate::chat::wire::{ChunkUsage, StreamOptions, Timings};
use crate::json::{Object, OneOrMany};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

/// Body of `POST /v1/completions`. `null` means absent everywhere.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct CompletionRequest {
    /// Any string: one model is served, whatever it is called.
    pub(crate) model: Option<String>,
    /// A string, token ids, or a list of either.
    pub(crate) prompt: Option<Value>,
    /// Answer in server-sent events.
    pub(crate) stream: Option<bool>,
    /// What a stream holds besides the answer.
    pub(crate) stream_options: Option<Object<StreamOptions>>,
    /// Most tokens of the answer; 16 if not said. 0 with `echo` only.
    pub(crate) max_tokens: Option<u64>,
    /// Answers to draw from each prompt.
    #[schemars(range(min = 1, max = 8))]
    pub(crate) n: Option<u64>,
    /// As `n`, or refused.
    pub(crate) best_of: Option<u64>,
    /// Return the prompt as well.
    pub(crate) echo: Option<bool>,
    /// Alternatives a position.
    pub(crate) logprobs: Option<u64>,
    /// The answer ends before the first of these.
    pub(crate) stop: Option<OneOrMany>,
    /// Makes the draws reproducible.
    pub(crate) seed: Option<Number>,
    /// 0 is greedy.
    #[schemars(range(min = 0.0, max = 2.0))]
    pub(crate) temperature: Option<f64>,
    /// Nucleus sampling.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(crate) top_p: Option<f64>,
    /// The most likely tokens to draw from; -1 and 0 are all.
    pub(crate) top_k: Option<i64>,
    /// Least probability in proportion to the most likely token.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(crate) min_p: Option<f64>,
    /// Subtracted once from tokens already generated.
    #[schemars(range(min = -2.0, max = 2.0))]
    pub(crate) presence_penalty: Option<f64>,
    /// Subtracted per occurrence from tokens already generated.
    #[schemars(range(min = -2.0, max = 2.0))]
    pub(crate) frequency_penalty: Option<f64>,
    /// Divides the logits of tokens seen.
    pub(crate) repetition_penalty: Option<f64>,
    /// Token ids, as decimal strings, to what is added to their logits.
    pub(crate) logit_bias: Option<Map<String, Value>>,
    /// Extension: the answer follows a grammar in `llguidance`'s dialect of Lark.
    pub(crate) grammar: Option<String>,
    /// Extension: the answer matches a regular expression.
    pub(crate) regex: Option<String>,
    /// Go on at the end-of-sequence token (benchmarks).
    pub(crate) ignore_eos: Option<bool>,
    /// Refused: the model fills no gaps.
    #[schemars(skip)]
    pub(crate) suffix: Option<IgnoredAny>,
}

/// Answer of `POST /v1/completions`, complete or one event of a stream.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Completion<'a> {
    pub(crate) id: &'a str,
    /// `text_completion`.
    pub(crate) object: &'static str,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) model: &'a str,
    pub(crate) system_fingerprint: &'a str,
    pub(crate) choices: Vec<TextChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<ChunkUsage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timings: Option<Timings>,
}

/// One answer, or what an event adds to it.
#[derive(Debug, Default, JsonSchema, PartialEq, Serialize)]
pub(crate) struct TextChoice {
    pub(crate) index: usize,
    pub(crate) text: String,
    pub(crate) logprobs: Option<TextLogprobs>,
    pub(crate) finish_reason: Option<&'static str>,
}

/// Log-probabilities, a list each.
#[derive(Clone, Debug, Default, JsonSchema, PartialEq, Serialize)]
pub(crate) struct TextLogprobs {
    /// Where each token begins, in characters from the start of `text`.
    pub(crate) text_offset: Vec<usize>,
    /// `null` for the first token of a prompt.
    pub(crate) token_logprobs: Vec<Option<f32>>,
    pub(crate) tokens: Vec<String>,
    /// The most likely tokens by their text.
    pub(crate) top_logprobs: Vec<Option<Map<String, Value>>>,
}
