//! The wire types of Ollama's API, and nothing else.
//!
//! What a field means is decided in [`super::request`]; `docs/api-ollama.md` has the tables.

use crate::json::{Object, OneOrMany};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

/// Body of `POST /api/chat`. `null` means absent everywhere.
#[derive(Debug, Deserialize)]
pub(super) struct ChatRequest {
    /// Any string: one model is served, whatever it is called. Read for its type only.
    #[serde(rename = "model")]
    _model: Option<String>,
    /// The turns so far; none asks only for the model to be loaded.
    pub(super) messages: Option<Vec<Object<MessageField>>>,
    /// Functions the model may call, in `OpenAI`'s form.
    pub(super) tools: Option<Vec<Map<String, Value>>>,
    /// Answer in lines; so it is if nothing is said.
    pub(super) stream: Option<bool>,
    /// `json` or a schema.
    pub(super) format: Option<Value>,
    /// Sampling and length.
    pub(super) options: Option<Object<Options>>,
    /// True, false, or an effort.
    pub(super) think: Option<Value>,
    /// 0 asks for the model to be unloaded, which only the end of the server does.
    pub(super) keep_alive: Option<Value>,
    /// Return log-probabilities.
    pub(super) logprobs: Option<bool>,
    /// Alternatives a position.
    pub(super) top_logprobs: Option<u64>,
}

/// Body of `POST /api/generate`.
#[derive(Debug, Deserialize)]
pub(super) struct GenerateRequest {
    /// As in [`ChatRequest`].
    #[serde(rename = "model")]
    _model: Option<String>,
    /// What to answer or, if `raw`, to continue; none asks only for the model to be loaded.
    pub(super) prompt: Option<String>,
    /// Instructions.
    pub(super) system: Option<String>,
    /// The prompt is continued as it is.
    pub(super) raw: Option<bool>,
    /// Refused unless empty.
    pub(super) suffix: Option<String>,
    /// Refused unless empty.
    pub(super) template: Option<String>,
    /// Refused unless empty.
    pub(super) context: Option<Vec<IgnoredAny>>,
    /// Refused unless empty.
    pub(super) images: Option<Vec<IgnoredAny>>,
    /// As in [`ChatRequest`].
    pub(super) stream: Option<bool>,
    /// As in [`ChatRequest`].
    pub(super) format: Option<Value>,
    /// As in [`ChatRequest`].
    pub(super) options: Option<Object<Options>>,
    /// As in [`ChatRequest`].
    pub(super) think: Option<Value>,
    /// As in [`ChatRequest`].
    pub(super) keep_alive: Option<Value>,
    /// As in [`ChatRequest`].
    pub(super) logprobs: Option<bool>,
    /// As in [`ChatRequest`].
    pub(super) top_logprobs: Option<u64>,
}

/// `options`. Those that say how a model is loaded change nothing here.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Options {
    /// Most tokens of the answer; what is not above 0 is until the end of the context.
    pub(super) num_predict: Option<i64>,
    /// 0 is greedy.
    pub(super) temperature: Option<f64>,
    /// The most likely tokens to draw from; -1 and 0 are all.
    pub(super) top_k: Option<i64>,
    /// Nucleus sampling.
    pub(super) top_p: Option<f64>,
    /// Least probability in proportion to the most likely token.
    pub(super) min_p: Option<f64>,
    /// Makes the draws reproducible; -1 does not.
    pub(super) seed: Option<Number>,
    /// The answer ends before the first of these.
    pub(super) stop: Option<OneOrMany>,
    /// Divides the logits of tokens seen.
    pub(super) repeat_penalty: Option<f64>,
    /// Subtracted once from tokens already generated.
    pub(super) presence_penalty: Option<f64>,
    /// Subtracted per occurrence from tokens already generated.
    pub(super) frequency_penalty: Option<f64>,
}

/// One turn.
#[derive(Debug, Deserialize)]
pub(super) struct MessageField {
    /// `system`, `user`, `assistant` or `tool`.
    pub(super) role: String,
    /// Its words.
    pub(super) content: Option<String>,
    /// What the model thought before it.
    pub(super) thinking: Option<String>,
    /// Refused unless empty.
    pub(super) images: Option<Vec<IgnoredAny>>,
    /// Calls of an earlier answer.
    pub(super) tool_calls: Option<Vec<Object<CallField>>>,
    /// The call that a `tool` message answers; without it results go by their order.
    pub(super) tool_call_id: Option<String>,
}

/// A call in the history.
#[derive(Debug, Deserialize)]
pub(super) struct CallField {
    /// Id that its result may name.
    pub(super) id: Option<String>,
    /// What was called.
    pub(super) function: Object<FunctionField>,
}

/// Name and arguments of a call in the history.
#[derive(Debug, Deserialize)]
pub(super) struct FunctionField {
    pub(super) name: String,
    /// An object.
    pub(super) arguments: Option<Value>,
}

/// Body of `POST /api/show`.
#[derive(Debug, Deserialize)]
pub(super) struct ShowRequest {
    /// Any string.
    #[serde(rename = "model")]
    _model: Option<String>,
    /// The older name of the same.
    #[serde(rename = "name")]
    _name: Option<String>,
}

/// A line of a stream, and a complete answer. One of chat has `message`, one of generate has
/// `response`.
#[derive(Debug, Serialize)]
pub(super) struct Answer<'a> {
    pub(super) model: &'a str,
    /// When it was written, as RFC 3339 says it.
    pub(super) created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<Message>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thinking: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) logprobs: Vec<Logprob>,
    /// The last line, or a complete answer.
    pub(super) done: bool,
    /// `stop`, `length`, `load` or `unload`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) done_reason: Option<&'static str>,
    #[serde(flatten)]
    pub(super) figures: Option<Figures>,
}

/// The message of a chat answer, or a piece of it.
#[derive(Debug, Serialize)]
pub(super) struct Message {
    /// `assistant`.
    pub(super) role: &'static str,
    pub(super) content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thinking: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<Call>,
}

/// A complete tool call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) function: CallFunction,
}

/// What is called.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct CallFunction {
    /// Number of the call in the answer.
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) arguments: Map<String, Value>,
}

/// Log-probability of one token of an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Logprob {
    #[serde(flatten)]
    pub(super) token: TokenLogprob,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) top_logprobs: Vec<TokenLogprob>,
}

/// A token and its log-probability.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct TokenLogprob {
    pub(super) token: String,
    pub(super) logprob: f32,
    pub(super) bytes: Vec<u8>,
}

/// Counts, and times in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) total_duration: u64,
    /// The time in the queue: the model is loaded when the server starts.
    pub(super) load_duration: u64,
    pub(super) prompt_eval_count: usize,
    pub(super) prompt_eval_duration: u64,
    pub(super) eval_count: usize,
    pub(super) eval_duration: u64,
}

/// Answer of `GET /api/tags`.
#[derive(Debug, Serialize)]
pub(crate) struct Models<T> {
    pub(super) models: Vec<T>,
}

/// The served model among those that are there.
#[derive(Debug, Serialize)]
pub(crate) struct Installed {
    pub(super) name: String,
    pub(super) model: String,
    pub(super) modified_at: String,
    /// 0: the server does not know it.
    pub(super) size: u64,
    pub(super) digest: String,
    pub(super) details: Details,
}

/// The served model among those that are loaded.
#[derive(Debug, Serialize)]
pub(crate) struct Loaded {
    pub(super) name: String,
    pub(super) model: String,
    pub(super) size: u64,
    pub(super) digest: String,
    pub(super) details: Details,
    pub(super) expires_at: &'static str,
    pub(super) size_vram: u64,
    pub(super) context_length: usize,
}

/// What a model is.
#[derive(Debug, Serialize)]
pub(crate) struct Details {
    pub(super) parent_model: &'static str,
    pub(super) format: &'static str,
    pub(super) family: &'static str,
    pub(super) families: [&'static str; 1],
    pub(super) parameter_size: &'static str,
    pub(super) quantization_level: &'static str,
}

/// Answer of `POST /api/show`.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    pub(super) modelfile: String,
    pub(super) parameters: String,
    pub(super) template: &'static str,
    pub(super) license: &'static str,
    pub(super) details: Details,
    pub(super) model_info: Map<String, Value>,
    pub(super) capabilities: [&'static str; 3],
    pub(super) modified_at: String,
}

/// Answer of `GET /api/version`.
#[derive(Debug, Serialize)]
pub(crate) struct Version {
    pub(super) version: &'static str,
    /// An extension: the version of this server.
    pub(super) lily: &'static str,
}
