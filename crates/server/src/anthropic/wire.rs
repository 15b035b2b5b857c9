//! The wire types of Anthropic's messages, and nothing else.
//!
//! What a field means is decided in [`super::request`]; `docs/api-anthropic.md` has the table.

use crate::json::{Object, TextOr};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Body of `POST /v1/messages` and of `POST /v1/messages/count_tokens`, which needs no
/// `max_tokens`. `null` means absent everywhere.
#[derive(Debug, Deserialize)]
pub(super) struct MessagesRequest {
    /// Any string: one model is served, whatever it is called. Read for its type only.
    #[serde(rename = "model")]
    _model: Option<String>,
    /// Most tokens of the answer, thinking included.
    pub(super) max_tokens: Option<u64>,
    /// The turns so far.
    pub(super) messages: Vec<Object<MessageField>>,
    /// Instructions.
    pub(super) system: Option<TextOr<Block>>,
    /// Answer in server-sent events.
    pub(super) stream: Option<bool>,
    /// The answer ends before the first of these.
    pub(super) stop_sequences: Option<Vec<String>>,
    /// 0 is greedy.
    pub(super) temperature: Option<f64>,
    /// Nucleus sampling.
    pub(super) top_p: Option<f64>,
    /// The most likely tokens to draw from; -1 and 0 are all.
    pub(super) top_k: Option<i64>,
    /// Functions the model may call.
    pub(super) tools: Option<Vec<Map<String, Value>>>,
    /// Which of them.
    pub(super) tool_choice: Option<Object<ToolChoiceField>>,
    /// Whether and how long to think.
    pub(super) thinking: Option<Object<ThinkingField>>,
    /// Effort and form of the answer.
    pub(super) output_config: Option<Object<OutputConfig>>,
    /// The older place of the form.
    pub(super) output_format: Option<Object<FormatField>>,
    /// Refused unless empty.
    pub(super) mcp_servers: Option<Vec<IgnoredAny>>,
    /// Refused.
    pub(super) container: Option<IgnoredAny>,
}

/// One turn.
#[derive(Debug, Deserialize)]
pub(super) struct MessageField {
    /// `user`, `assistant` or `system`.
    pub(super) role: String,
    /// Text or blocks.
    pub(super) content: TextOr<Block>,
}

/// A block of a turn. Which fields it has depends on its type.
#[derive(Debug, Deserialize)]
pub(super) struct Block {
    /// `text`, `tool_use`, `tool_result`, `thinking` …
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// Of `text`.
    pub(super) text: Option<String>,
    /// Of `thinking`.
    pub(super) thinking: Option<String>,
    /// Of `tool_use`: the id that its result names.
    pub(super) id: Option<String>,
    /// Of `tool_use`: what was called.
    pub(super) name: Option<String>,
    /// Of `tool_use`: the arguments.
    pub(super) input: Option<Value>,
    /// Of `tool_result`: the call that it answers.
    pub(super) tool_use_id: Option<String>,
    /// Of `tool_result`: what the call returned.
    pub(super) content: Option<TextOr<ResultBlock>>,
    /// Of `tool_result`: the call failed.
    pub(super) is_error: Option<bool>,
}

/// A block inside a `tool_result`.
#[derive(Debug, Deserialize)]
pub(super) struct ResultBlock {
    /// `text` is the only one that is read.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// Of `text`.
    pub(super) text: Option<String>,
}

/// `tool_choice`.
#[derive(Debug, Deserialize)]
pub(super) struct ToolChoiceField {
    /// `auto`, `any`, `tool` or `none`.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// Of `tool`.
    pub(super) name: Option<String>,
    /// One call at most.
    pub(super) disable_parallel_tool_use: Option<bool>,
}

/// `thinking`.
#[derive(Debug, Deserialize)]
pub(super) struct ThinkingField {
    /// `enabled`, `disabled` or `adaptive`.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// Of `enabled`: most tokens of thinking.
    pub(super) budget_tokens: Option<u64>,
    /// `summarized` or `omitted`.
    pub(super) display: Option<String>,
}

/// `output_config`.
#[derive(Debug, Deserialize)]
pub(super) struct OutputConfig {
    /// Bounds the thinking.
    pub(super) effort: Option<String>,
    /// Form of the answer.
    pub(super) format: Option<Object<FormatField>>,
}

/// The form of an answer.
#[derive(Debug, Deserialize)]
pub(super) struct FormatField {
    /// `json_schema`.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// The schema.
    pub(super) schema: Option<Value>,
}

/// A complete answer, and the empty one that a stream starts with.
#[derive(Debug, Serialize)]
pub(super) struct Message {
    pub(super) id: String,
    /// `message`.
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    /// `assistant`.
    pub(super) role: &'static str,
    pub(super) model: String,
    pub(super) content: Vec<ContentBlock>,
    #[serde(flatten)]
    pub(super) ending: Ending,
    pub(super) usage: Usage,
}

/// How an answer ended; both are `null` while it has not.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Ending {
    /// `end_turn`, `max_tokens`, `stop_sequence` or `tool_use`.
    pub(super) stop_reason: Option<&'static str>,
    pub(super) stop_sequence: Option<String>,
}

/// A block of an answer.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ContentBlock {
    Text { text: String },
    Thinking { thinking: String, signature: String },
    ToolUse { id: String, name: String, input: Map<String, Value> },
}

/// An event of a stream.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum StreamEvent {
    MessageStart { message: Message },
    ContentBlockStart { index: usize, content_block: ContentBlock },
    ContentBlockDelta { index: usize, delta: BlockDelta },
    ContentBlockStop { index: usize },
    MessageDelta { delta: Ending, usage: Usage },
    MessageStop,
    Ping,
}

impl StreamEvent {
    /// The name of the event, which its type repeats.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
            Self::Ping => "ping",
        }
    }
}

/// What an event adds to a block.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum BlockDelta {
    TextDelta { text: String },
    ThinkingDelta { thinking: String },
    SignatureDelta { signature: String },
    InputJsonDelta { partial_json: String },
}

/// Tokens used. The prompt is the sum of the three input counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Usage {
    /// Tokens of the prompt that were computed.
    pub(super) input_tokens: usize,
    /// Always 0: whatever is computed may be reused, and costs nothing more.
    pub(super) cache_creation_input_tokens: usize,
    /// Tokens of the prompt whose state was reused.
    pub(super) cache_read_input_tokens: usize,
    pub(super) output_tokens: usize,
    pub(super) output_tokens_details: OutputTokensDetails,
}

/// Of the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct OutputTokensDetails {
    /// Tokens inside the think block.
    pub(super) thinking_tokens: usize,
}

/// Answer of `POST /v1/messages/count_tokens`.
#[derive(Debug, Serialize)]
pub(crate) struct TokenCount {
    pub(super) input_tokens: usize,
}
