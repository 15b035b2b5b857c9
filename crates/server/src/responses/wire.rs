//! The wire types of `OpenAI`'s responses, and nothing else.
//!
//! What a field means is decided in [`super::request`], what an item means in [`super::input`];
//! `docs/api-responses.md` has the tables.

use crate::chat::wire::TokenLogprobEntry;
use crate::json::{Object, TextOr};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

/// A JSON object whose meaning is not yet known.
pub(crate) type Fields = Map<String, Value>;

/// Body of `POST /v1/responses` and `POST /v1/responses/input_tokens`. `null` means absent
/// everywhere.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ResponsesRequest {
    /// Any string: one model is served, whatever it is called.
    #[serde(rename = "model")]
    pub(crate) _model: Option<String>,
    /// What was said so far, beside `previous_response_id`.
    pub(crate) input: Option<TextOr<Fields>>,
    /// Said before everything else, for this answer only.
    pub(crate) instructions: Option<String>,
    /// A stored response that this one goes on from.
    pub(crate) previous_response_id: Option<String>,
    /// What the model may call.
    pub(crate) tools: Option<Vec<Fields>>,
    /// Which of them.
    pub(crate) tool_choice: Option<Value>,
    /// False returns one call at most.
    pub(crate) parallel_tool_calls: Option<bool>,
    /// Bounds tools that run in the server, of which there are none.
    pub(crate) max_tool_calls: Option<u64>,
    /// Form of the answer.
    pub(crate) text: Option<Object<TextField>>,
    /// Thinking.
    pub(crate) reasoning: Option<Object<ReasoningField>>,
    /// What the answer holds besides.
    pub(crate) include: Option<Vec<String>>,
    /// Most tokens of the answer, reasoning included.
    #[schemars(range(min = 1))]
    pub(crate) max_output_tokens: Option<u64>,
    /// 0 is greedy.
    #[schemars(range(min = 0.0, max = 2.0))]
    pub(crate) temperature: Option<f64>,
    /// Nucleus sampling.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(crate) top_p: Option<f64>,
    /// Extension: the most likely tokens to draw from; -1 and 0 are all.
    pub(crate) top_k: Option<i64>,
    /// Extension: least probability in proportion to the most likely token.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(crate) min_p: Option<f64>,
    /// Extension: subtracted once from tokens already generated.
    #[schemars(range(min = -2.0, max = 2.0))]
    pub(crate) presence_penalty: Option<f64>,
    /// Extension: subtracted per occurrence from tokens already generated.
    #[schemars(range(min = -2.0, max = 2.0))]
    pub(crate) frequency_penalty: Option<f64>,
    /// Extension: makes the draws reproducible.
    pub(crate) seed: Option<Number>,
    /// Alternatives a position.
    #[schemars(range(max = 20))]
    pub(crate) top_logprobs: Option<u64>,
    /// Keep the response; true if not said.
    pub(crate) store: Option<bool>,
    /// Answer in server-sent events.
    pub(crate) stream: Option<bool>,
    /// Nothing in it changes an answer.
    #[schemars(skip)]
    pub(crate) stream_options: Option<Object<IgnoredAny>>,
    /// `auto` or `disabled`; nothing is ever cut.
    pub(crate) truncation: Option<String>,
    /// True is refused.
    pub(crate) background: Option<bool>,
    /// Refused.
    #[schemars(skip)]
    pub(crate) conversation: Option<IgnoredAny>,
    /// Refused: a template kept by the vendor.
    #[schemars(skip)]
    pub(crate) prompt: Option<IgnoredAny>,
    /// Refused unless empty: a conversation is never shortened.
    #[schemars(skip)]
    pub(crate) context_management: Option<Vec<IgnoredAny>>,
    /// Comes back with the response.
    pub(crate) metadata: Option<Fields>,
    /// Comes back with the response.
    pub(crate) user: Option<String>,
    /// Comes back with the response.
    pub(crate) safety_identifier: Option<String>,
    /// Comes back with the response.
    pub(crate) prompt_cache_key: Option<String>,
}

/// `text`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct TextField {
    /// The form.
    pub(crate) format: Option<Object<FormatField>>,
    /// Comes back with the response.
    pub(crate) verbosity: Option<String>,
}

/// `text.format`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct FormatField {
    /// `text`, `json_object` or `json_schema`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Of `json_schema`. It is enforced whether it is `strict` or not.
    pub(crate) schema: Option<Value>,
    /// Of `json_schema`, comes back with the response.
    pub(crate) name: Option<String>,
    /// Of `json_schema`, comes back with the response.
    pub(crate) description: Option<String>,
    /// Of `json_schema`, comes back with the response.
    pub(crate) strict: Option<bool>,
}

/// `reasoning`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ReasoningField {
    /// Whether and how long the model thinks.
    pub(crate) effort: Option<String>,
    /// What is thought comes as a summary.
    pub(crate) summary: Option<String>,
    /// The older name of the same.
    pub(crate) generate_summary: Option<String>,
}

/// A response, as `response.*` events, `POST` and `GET` show it.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Response<'a> {
    pub(crate) id: &'a str,
    /// `response`.
    pub(crate) object: &'static str,
    /// Seconds since 1970.
    pub(crate) created_at: u64,
    pub(crate) completed_at: Option<u64>,
    /// `in_progress`, `completed`, `incomplete` or `failed`.
    pub(crate) status: &'static str,
    pub(crate) error: Option<ErrorField>,
    pub(crate) incomplete_details: Option<IncompleteDetails>,
    pub(crate) model: &'a str,
    pub(crate) output: &'a [Item],
    pub(crate) usage: Option<Usage>,
    #[serde(flatten)]
    pub(crate) echo: &'a Echo,
}

/// What a response repeats of its request.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Echo {
    pub(crate) background: bool,
    pub(crate) instructions: Option<String>,
    #[schemars(range(min = 1))]
    pub(crate) max_output_tokens: Option<u64>,
    pub(crate) max_tool_calls: Option<u64>,
    pub(crate) metadata: Fields,
    pub(crate) parallel_tool_calls: bool,
    pub(crate) previous_response_id: Option<String>,
    pub(crate) prompt_cache_key: Option<String>,
    pub(crate) reasoning: ReasoningEcho,
    pub(crate) safety_identifier: Option<String>,
    /// `default`.
    pub(crate) service_tier: &'static str,
    pub(crate) store: bool,
    #[schemars(range(min = 0.0, max = 2.0))]
    pub(crate) temperature: Option<f64>,
    pub(crate) text: TextEcho,
    pub(crate) tool_choice: Value,
    /// Those that the model was offered; others were left out.
    pub(crate) tools: Vec<Fields>,
    pub(crate) top_logprobs: u64,
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(crate) top_p: Option<f64>,
    pub(crate) truncation: String,
    pub(crate) user: Option<String>,
}

/// `reasoning` of a response.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct ReasoningEcho {
    pub(crate) effort: Option<String>,
    pub(crate) summary: Option<String>,
}

/// `text` of a response.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct TextEcho {
    pub(crate) format: FormatEcho,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) verbosity: Option<String>,
}

/// `text.format` of a response.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct FormatEcho {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) schema: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) strict: Option<bool>,
}

/// Why a response failed.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub(crate) struct ErrorField {
    /// `server_error`: `OpenAI`'s list has no better word for what can happen here.
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

/// Why a response ended early.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub(crate) struct IncompleteDetails {
    /// `max_output_tokens`, also for the end of the context.
    pub(crate) reason: &'static str,
}

/// Tokens used.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub(crate) struct Usage {
    pub(crate) input_tokens: usize,
    pub(crate) input_tokens_details: InputTokensDetails,
    pub(crate) output_tokens: usize,
    pub(crate) output_tokens_details: OutputTokensDetails,
    pub(crate) total_tokens: usize,
}

/// Of the input.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub(crate) struct InputTokensDetails {
    /// Tokens whose state was reused.
    pub(crate) cached_tokens: usize,
    /// Always 0: the vendor has a price for them.
    pub(crate) cache_write_tokens: usize,
}

/// Of the output.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub(crate) struct OutputTokensDetails {
    /// Tokens inside the think block.
    pub(crate) reasoning_tokens: usize,
}

/// What the model put out, in its order.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Item {
    Reasoning {
        id: String,
        status: Status,
        /// The reasoning if a summary was asked for.
        summary: Vec<Part>,
        /// The reasoning if none was.
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<Vec<Part>>,
        /// The reasoning for clients that keep no other part of it.
        #[serde(skip_serializing_if = "Option::is_none")]
        encrypted_content: Option<String>,
    },
    Message {
        id: String,
        status: Status,
        /// `assistant`.
        role: &'static str,
        content: Vec<Part>,
    },
    FunctionCall {
        id: String,
        status: Status,
        call_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        name: String,
        /// An object written as a JSON string.
        arguments: String,
    },
    CustomToolCall {
        id: String,
        status: Status,
        call_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        name: String,
        input: String,
    },
}

/// How far an item is.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    InProgress,
    Completed,
    /// Cut by the length.
    Incomplete,
}

/// A piece of an item.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(clippy::enum_variant_names, reason = "the wire's names")]
pub(crate) enum Part {
    OutputText {
        text: String,
        /// Always empty.
        annotations: [(); 0],
        logprobs: Vec<TokenLogprobEntry>,
    },
    ReasoningText {
        text: String,
    },
    SummaryText {
        text: String,
    },
}

/// An event of a stream.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct StreamEvent<'a, T> {
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) sequence_number: u64,
    #[serde(flatten)]
    pub(crate) body: &'a T,
}

/// Of `response.created`, `.in_progress`, `.completed`, `.incomplete` and `.failed`.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct OfResponse<'a> {
    pub(crate) response: Response<'a>,
}

/// Of `response.output_item.added` and `.done`.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct OfItem<'a> {
    pub(crate) output_index: usize,
    pub(crate) item: &'a Item,
}

/// Of what happens inside an item.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct WithinItem<'a> {
    pub(crate) item_id: &'a str,
    pub(crate) output_index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) summary_index: Option<usize>,
    #[serde(flatten)]
    pub(crate) news: News<'a>,
}

/// What happened inside an item.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(untagged)]
pub(crate) enum News<'a> {
    /// A part begins or ends.
    Part { part: &'a Part },
    /// More of a message.
    TextDelta { delta: &'a str, logprobs: &'a [TokenLogprobEntry] },
    /// All of it.
    TextDone { text: &'a str, logprobs: &'a [TokenLogprobEntry] },
    /// More of anything else.
    Delta { delta: &'a str },
    /// All of a reasoning.
    Text { text: &'a str },
    /// All of the arguments of a call.
    Arguments { name: &'a str, arguments: &'a str },
    /// All of the input of a call.
    Input { input: &'a str },
}

/// Answer of `GET /v1/responses/{id}/input_items`.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct ItemList {
    /// `list`.
    pub(crate) object: &'static str,
    pub(crate) data: Vec<Value>,
    pub(crate) first_id: Option<String>,
    pub(crate) last_id: Option<String>,
    pub(crate) has_more: bool,
}

/// Answer of `DELETE /v1/responses/{id}`.
#[derive(Debug, JsonSchema, Serialize)]
#[expect(clippy::struct_field_names, reason = "the wire's names")]
pub(crate) struct Deleted {
    pub(crate) id: String,
    /// `response`.
    pub(crate) object: &'static str,
    /// `true`.
    pub(crate) deleted: bool,
}

/// Answer of `POST /v1/responses/input_tokens`.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct InputTokens {
    /// `response.input_tokens`.
    pub(crate) object: &'static str,
    pub(crate) input_tokens: usize,
}
