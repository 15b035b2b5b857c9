//! The wire types of `OpenAI`'s chat completions, and nothing else.
//!
//! What a field means is decided in [`super::request`];
//! `docs/api.md` has the table of fields, and a test compares it with [`ChatCompletionRequest`],
//! [`ChatMessage`] and `IGNORED_FIELDS`.

use crate::json::{Object, OneOrMany, TextOr};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

/// Fields of `OpenAI`'s request that change nothing here and are accepted without a word, as is
/// any field that nobody knows. For the comparison with `docs/api.md`.
#[cfg(test)]
pub(crate) const IGNORED_FIELDS: [&str; 10] = [
    "metadata",
    "moderation",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
    "verbosity",
];

/// Body of `POST /v1/chat/completions`. `null` means absent everywhere.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ChatCompletionRequest {
    /// Any string: one model is served, whatever it is called.
    pub(crate) model: Option<String>,
    /// The turns so far.
    #[schemars(length(min = 1, max = 16_384))]
    pub(crate) messages: Vec<Object<ChatMessage>>,
    /// Answer in server-sent events.
    pub(crate) stream: Option<bool>,
    /// What a stream holds besides the answer.
    pub(crate) stream_options: Option<Object<StreamOptions>>,
    /// Most tokens of the answer, reasoning included.
    #[schemars(range(min = 1))]
    pub(crate) max_completion_tokens: Option<u64>,
    /// The older name of the same.
    #[schemars(range(min = 1))]
    pub(crate) max_tokens: Option<u64>,
    /// Answers to draw from the same prompt.
    #[schemars(range(min = 1, max = 8))]
    pub(crate) n: Option<u64>,
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
    /// Return log-probabilities.
    pub(crate) logprobs: Option<bool>,
    /// Alternatives a position.
    #[schemars(range(max = 20))]
    pub(crate) top_logprobs: Option<u64>,
    /// Functions the model may call; given to the template as they are.
    pub(crate) tools: Option<Vec<Map<String, Value>>>,
    /// Which of them.
    pub(crate) tool_choice: Option<Value>,
    /// False returns one call at most.
    pub(crate) parallel_tool_calls: Option<bool>,
    /// Form of the answer.
    pub(crate) response_format: Option<Object<ResponseFormat>>,
    /// Extension: the answer follows a grammar in `llguidance`'s dialect of Lark.
    pub(crate) grammar: Option<String>,
    /// Extension: the answer matches a regular expression.
    pub(crate) regex: Option<String>,
    /// `none` turns thinking off, `minimal` to `medium` bound it.
    #[schemars(extend("enum" = ["none", "minimal", "low", "medium", "high", "xhigh", "max", null]))]
    pub(crate) reasoning_effort: Option<String>,
    /// Extension: most tokens of thinking.
    pub(crate) thinking_budget: Option<u64>,
    /// Thinking on or off, as the vendor's own API spells it.
    pub(crate) enable_thinking: Option<bool>,
    /// Arguments of the chat template.
    pub(crate) chat_template_kwargs: Option<Map<String, Value>>,
    /// Extension: the last message is the start of the answer.
    pub(crate) continue_final_message: Option<bool>,
    /// False where the last message is continued, in the words of other servers.
    pub(crate) add_generation_prompt: Option<bool>,
    /// Go on at the end-of-sequence token (benchmarks).
    pub(crate) ignore_eos: Option<bool>,
    /// Output kinds; only text is there.
    pub(crate) modalities: Option<Vec<String>>,
    /// Refused.
    #[schemars(skip)]
    pub(crate) audio: Option<IgnoredAny>,
    /// Refused: the form before `tools`.
    #[schemars(skip)]
    pub(crate) functions: Option<IgnoredAny>,
    /// Refused: the form before `tool_choice`.
    #[schemars(skip)]
    pub(crate) function_call: Option<IgnoredAny>,
    /// Refused.
    #[schemars(skip)]
    pub(crate) web_search_options: Option<IgnoredAny>,
}

/// One turn.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ChatMessage {
    /// `system`, `developer`, `user`, `assistant` or `tool`.
    #[schemars(extend("enum" = ["system", "developer", "user", "assistant", "tool"]))]
    pub(crate) role: String,
    /// Text or parts.
    pub(crate) content: Option<ContentField>,
    /// Reasoning of an earlier answer.
    pub(crate) reasoning_content: Option<String>,
    /// Another name of the same.
    pub(crate) reasoning: Option<String>,
    /// What an earlier answer said instead of content.
    pub(crate) refusal: Option<String>,
    /// Calls of an earlier answer.
    pub(crate) tool_calls: Option<Vec<Object<ToolCallField>>>,
    /// The call that a `tool` message answers.
    pub(crate) tool_call_id: Option<String>,
    /// Refused: the form before `tool_calls`.
    #[schemars(skip)]
    pub(crate) function_call: Option<IgnoredAny>,
    /// Refused.
    #[schemars(skip)]
    pub(crate) audio: Option<IgnoredAny>,
}

/// Content of a turn.
pub(crate) type ContentField = TextOr<ContentPart>;

/// A part of a content list.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ContentPart {
    /// `text`, `refusal`, `image_url` …
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["text", "refusal"]))]
    pub(crate) kind: String,
    /// Of a text part.
    pub(crate) text: Option<String>,
    /// Of a refusal part.
    pub(crate) refusal: Option<String>,
}

/// A call in the history.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ToolCallField {
    /// Id that its result names.
    pub(crate) id: Option<String>,
    /// `function`.
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    /// What was called.
    pub(crate) function: Object<FunctionField>,
}

/// Name and arguments of a call in the history.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct FunctionField {
    /// Name of the function.
    pub(crate) name: String,
    /// An object written as a JSON string; an object is taken too.
    pub(crate) arguments: Option<Value>,
}

/// `stream_options`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct StreamOptions {
    /// A last chunk without choices holds the usage.
    pub(crate) include_usage: Option<bool>,
}

/// `response_format`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ResponseFormat {
    /// `text`, `json_object`, `json_schema`, `grammar` or `regex`.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["text", "json_object", "json_schema", "grammar", "regex"]))]
    pub(crate) kind: String,
    /// Of `json_schema`.
    pub(crate) json_schema: Option<Object<JsonSchemaFormat>>,
    /// Of `grammar`.
    pub(crate) grammar: Option<String>,
    /// Of `regex`.
    pub(crate) regex: Option<String>,
}

/// `response_format.json_schema`. It is enforced whether it is `strict` or not.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct JsonSchemaFormat {
    /// The schema.
    pub(crate) schema: Option<Value>,
}

/// Answer of `POST /v1/chat/completions` without `stream`.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct ChatCompletion {
    pub(crate) id: String,
    /// `chat.completion`.
    pub(crate) object: &'static str,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) model: String,
    pub(crate) choices: Vec<Choice>,
    pub(crate) usage: Usage,
    pub(crate) system_fingerprint: String,
    pub(crate) timings: Timings,
}

/// One complete answer.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Choice {
    pub(crate) index: usize,
    pub(crate) message: AssistantMessage,
    pub(crate) logprobs: Option<LogprobsContent>,
    pub(crate) finish_reason: &'static str,
}

/// The message of a complete answer.
#[derive(Debug, Default, JsonSchema, Serialize)]
pub(crate) struct AssistantMessage {
    /// `assistant`.
    pub(crate) role: &'static str,
    /// `null` when there are tool calls and no text.
    pub(crate) content: Option<String>,
    /// Always `null`; `OpenAI`'s clients expect the field.
    pub(crate) refusal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_calls: Vec<ToolCall>,
}

/// A complete tool call.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub(crate) struct ToolCall {
    pub(crate) id: String,
    /// `function`.
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) function: FunctionCall,
}

/// Name and arguments of a complete tool call.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub(crate) struct FunctionCall {
    pub(crate) name: String,
    /// An object written as a JSON string.
    pub(crate) arguments: String,
}

/// One event of a stream.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct ChatCompletionChunk<'a> {
    pub(crate) id: &'a str,
    /// `chat.completion.chunk`.
    pub(crate) object: &'static str,
    pub(crate) created: u64,
    pub(crate) model: &'a str,
    pub(crate) system_fingerprint: &'a str,
    /// Empty in the chunk that holds the usage.
    pub(crate) choices: Vec<ChunkChoice>,
    /// Absent without `include_usage`; `null` in all chunks but the last with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<ChunkUsage>,
    /// In the last chunk of each choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timings: Option<Timings>,
}

/// `usage` of a chunk.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(untagged)]
pub(crate) enum ChunkUsage {
    /// `null`: more chunks follow.
    Pending,
    Total(Usage),
}

/// What a chunk adds to one answer.
#[derive(Debug, JsonSchema, PartialEq, Serialize)]
pub(crate) struct ChunkChoice {
    pub(crate) index: usize,
    pub(crate) delta: ChunkDelta,
    pub(crate) logprobs: Option<LogprobsContent>,
    pub(crate) finish_reason: Option<&'static str>,
}

/// The pieces that a chunk adds.
#[derive(Debug, Default, JsonSchema, PartialEq, Serialize)]
pub(crate) struct ChunkDelta {
    /// `assistant`, in the first chunk of each choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_calls: Vec<ToolCallChunk>,
}

/// A piece of a tool call: the first has id, type and name, all have arguments.
#[derive(Debug, JsonSchema, PartialEq, Serialize)]
pub(crate) struct ToolCallChunk {
    pub(crate) index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<&'static str>,
    pub(crate) function: FunctionChunk,
}

/// A piece of a call's name and arguments.
#[derive(Debug, JsonSchema, PartialEq, Serialize)]
pub(crate) struct FunctionChunk {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) arguments: String,
}

/// Log-probabilities of an answer, or of a piece of it.
#[derive(Clone, Debug, Default, JsonSchema, PartialEq, Serialize)]
pub(crate) struct LogprobsContent {
    /// One entry per generated token, reasoning included, the end-of-sequence token not.
    pub(crate) content: Vec<TokenLogprobEntry>,
    /// Always `null`.
    pub(crate) refusal: Option<()>,
}

/// Log-probability of one token.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub(crate) struct TokenLogprobEntry {
    /// Text of the token; bytes that are no UTF-8 by themselves are replaced by U+FFFD.
    pub(crate) token: String,
    /// Natural logarithm of the probability.
    pub(crate) logprob: f32,
    /// Bytes of the token.
    pub(crate) bytes: Vec<u8>,
    /// The most likely tokens at this position.
    pub(crate) top_logprobs: Vec<TopLogprob>,
}

/// An alternative at a position.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub(crate) struct TopLogprob {
    pub(crate) token: String,
    pub(crate) logprob: f32,
    pub(crate) bytes: Vec<u8>,
}

/// Tokens used.
#[derive(Clone, Copy, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: usize,
    /// Sum over the choices.
    pub(crate) completion_tokens: usize,
    pub(crate) total_tokens: usize,
    pub(crate) prompt_tokens_details: PromptTokensDetails,
    pub(crate) completion_tokens_details: CompletionTokensDetails,
}

/// Of the prompt.
#[derive(Clone, Copy, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
pub(crate) struct PromptTokensDetails {
    /// Tokens whose state was reused.
    pub(crate) cached_tokens: usize,
}

/// Of the answer.
#[derive(Clone, Copy, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
pub(crate) struct CompletionTokensDetails {
    /// Tokens inside the think block.
    pub(crate) reasoning_tokens: usize,
}

/// Where the time went; an extension, in the words that llama.cpp's server introduced.
#[derive(Clone, Copy, Debug, Default, JsonSchema, PartialEq, Serialize)]
pub(crate) struct Timings {
    /// Milliseconds from arrival to the start of the prefill.
    pub(crate) queued_ms: f64,
    /// Prompt tokens whose state was reused.
    pub(crate) cache_n: usize,
    /// Prompt tokens computed.
    pub(crate) prompt_n: usize,
    pub(crate) prompt_ms: f64,
    pub(crate) prompt_per_second: f64,
    /// Tokens generated.
    pub(crate) predicted_n: usize,
    pub(crate) predicted_ms: f64,
    pub(crate) predicted_per_second: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::completions::wire::CompletionRequest;
    use serde::de::value::Error;
    use serde::de::{Deserializer, Visitor};
    use std::collections::BTreeSet;

    /// Takes the names of a struct's fields from its `Deserialize`.
    struct FieldNames<'a>(&'a mut Vec<&'static str>);

    impl<'de> Deserializer<'de> for FieldNames<'_> {
        type Error = Error;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
            Err(serde::de::Error::custom("not a struct"))
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, Error> {
            self.0.extend(fields);
            Err(serde::de::Error::custom("names only"))
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
            unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    fn fields_of<T: for<'de> Deserialize<'de>>() -> BTreeSet<String> {
        let mut names = Vec::new();
        T::deserialize(FieldNames(&mut names)).err().expect("always ends early");
        names.into_iter().map(str::to_owned).collect()
    }

    /// Fields and handling in the table after a marker in `docs/api.md`.
    fn table_after(marker: &str) -> Vec<(String, String)> {
        let doc = include_str!("../../../../docs/api.md");
        let (_, rest) = doc.split_once(marker).expect("the marker is there");
        let rows = rest.lines().skip_while(|l| !l.starts_with('|'));
        rows.take_while(|line| line.starts_with('|'))
            .skip(2)
            .flat_map(|line| {
                let mut cells = line.split('|').skip(1).map(str::trim);
                let fields = cells.next().expect("a field").split(", ");
                let handling = cells.next().expect("a handling");
                let row = |field: &str| (field.trim_matches('`').to_owned(), handling.to_owned());
                fields.map(row).collect::<Vec<_>>()
            })
            .collect()
    }

    #[track_caller]
    fn check_table(marker: &str, known: &BTreeSet<String>, ignored: &[&str]) {
        let rows = table_after(marker);
        let listed: BTreeSet<_> = rows.iter().map(|(field, _)| field.clone()).collect();
        assert_eq!(listed.len(), rows.len(), "a field has two rows");
        let (unused, used): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.1 == "ignored");
        assert!(used.iter().all(|row| ["honoured", "refused"].contains(&row.1.as_str())));
        let used: BTreeSet<_> = used.into_iter().map(|row| row.0).collect();
        assert_eq!(&used, known, "docs/api.md and the request type differ");
        let unused: BTreeSet<_> = unused.into_iter().map(|row| row.0).collect();
        assert_eq!(unused, ignored.iter().map(|f| (*f).to_owned()).collect());
    }

    #[test]
    fn the_tables_of_fields_are_complete() {
        let request = fields_of::<ChatCompletionRequest>();
        check_table("<!-- request fields:", &request, &IGNORED_FIELDS);
        check_table("<!-- message fields:", &fields_of::<ChatMessage>(), &[]);
        let request = fields_of::<CompletionRequest>();
        check_table("<!-- completion fields:", &request, &["user"]);
    }
}
