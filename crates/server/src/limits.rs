//! Every bound of the HTTP side and its reason. Bounds of the engine are in the engine.

use std::time::Duration;

/// Body of a request. Long contexts are about 1 MB of text; the rest is room for tool schemas and
/// escapes.
pub(crate) const BODY_BYTES_MAX_DEFAULT: usize = 32 * 1024 * 1024;

/// A client that sends its body slower than this holds a connection for nothing.
pub(crate) const BODY_READ_TIME_MAX: Duration = Duration::from_mins(1);

/// Turns of a conversation; a turn costs at least five tokens, so a full context has fewer.
pub(crate) const MESSAGES_MAX: usize = 16_384;

/// Parts of one content list.
pub(crate) const PARTS_MAX: usize = 4_096;

/// Tool calls of one turn in the history.
pub(crate) const TOOL_CALLS_MAX: usize = 1_024;

/// Tool definitions; agents with many servers attached send some hundreds.
pub(crate) const TOOLS_MAX: usize = 1_024;

/// Name of a function; `OpenAI`'s limit is 64, names that gateways prefix are longer.
pub(crate) const TOOL_NAME_BYTES_MAX: usize = 256;

/// Levels of arrays and objects inside tool schemas, arguments and template arguments. The parser
/// stops at 128 for the whole body.
pub(crate) const JSON_DEPTH_MAX: usize = 64;

/// Stop strings; `OpenAI` takes 4.
pub(crate) const STOP_STRINGS_MAX: usize = 16;

/// Bytes of a stop string: the answer is held back by as much.
pub(crate) const STOP_STRING_BYTES_MAX: usize = 1_024;

/// Answers to one prompt.
pub(crate) const CHOICES_MAX: u64 = 8;

/// Alternatives a position, as `OpenAI` allows.
pub(crate) const TOP_LOGPROBS_MAX: u64 = 20;

/// Entries of `logit_bias`: each costs time for every token.
pub(crate) const LOGIT_BIAS_MAX: usize = 1_024;

/// Arguments for the template.
pub(crate) const TEMPLATE_ARGUMENTS_MAX: usize = 64;

/// A grammar or a regular expression; compiling one is bounded as well.
pub(crate) const GRAMMAR_BYTES_MAX: usize = 256 * 1024;

/// Bytes of a value from the request that an error message repeats.
pub(crate) const QUOTED_BYTES_MAX: usize = 200;

/// Bytes of an `x-request-id` that a client may choose.
pub(crate) const REQUEST_ID_BYTES_MAX: usize = 128;

/// Silence on a stream after which an empty piece keeps proxies and clients from giving up.
pub(crate) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Connections at a time, beyond which new ones wait to be accepted. An idle stream costs some tens
/// of kB.
pub(crate) const CONNECTIONS_MAX: usize = 4_096;

/// A client that takes longer for the head of a request, or leaves its connection unused for so
/// long, holds it for nothing.
pub(crate) const HEAD_READ_TIME_MAX: Duration = Duration::from_mins(1);

/// A client that reads nothing for so long, with data waiting for it, is gone: laptops sleep, and
/// networks forget.
pub(crate) const WRITE_STALL_TIME_MAX: Duration = Duration::from_mins(5);

/// Prompts of one completion request, all queued at once.
pub(crate) const PROMPTS_MAX: usize = 64;

/// Token ids in a list; more than any context has.
pub(crate) const TOKEN_PROMPT_MAX: usize = 4 * 1024 * 1024;

/// Responses kept for `previous_response_id`; more than an evening of one person has.
pub(crate) const STORED_RESPONSES_MAX: usize = 1_024;

/// Text of all of them, each with its whole conversation: eight of the largest bodies, and little
/// beside the weights.
pub(crate) const STORED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Entries of a response's `metadata`, as `OpenAI` allows.
pub(crate) const METADATA_MAX: usize = 16;

/// Bytes of an entry of `metadata`; `OpenAI` allows 64 characters for its name and 512 for its
/// value.
pub(crate) const METADATA_BYTES_MAX: usize = 4 * (64 + 512);

/// Items of a page of `input_items`, as `OpenAI` allows.
pub(crate) const ITEMS_PAGE_MAX: usize = 100;

/// The same if the client does not say.
pub(crate) const ITEMS_PAGE_DEFAULT: usize = 20;
