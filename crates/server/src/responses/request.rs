//! What a request for a response means.

use super::store::StoredItem;
use super::tools::{Names, Offer};
use super::wire::{
    Echo, FormatEcho, FormatField, ReasoningEcho, ReasoningField, ResponsesRequest, TextEcho,
    TextField,
};
use super::{input, tools};
use crate::App;
use crate::ask::Ask;
use crate::chat::format::json_schema;
use crate::chat::thinking::{Effort, by_effort};
use crate::error::{ApiError, quoted};
use crate::json::Object;
use crate::limits::{METADATA_BYTES_MAX, METADATA_MAX};
use crate::values;
use lily_engine::{ChatPrompt, Constraint, GenerateRequest, Prompt, Sampling, ToolRule};
use lily_text::RenderOptions;
use serde_json::{Map, Value};

/// What may be included. Parts that no answer here has are accepted.
const INCLUDES: [&str; 8] = [
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    LOGPROBS,
    ENCRYPTED_REASONING,
    "web_search_call.action.sources",
    "web_search_call.results",
];
const LOGPROBS: &str = "message.output_text.logprobs";
const ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";

/// What the answer needs to know of its request.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a wish of its own")]
pub(super) struct Form {
    /// Answer in server-sent events.
    pub(super) stream: bool,
    /// With the log-probabilities.
    pub(super) logprobs: bool,
    /// What is thought comes as a summary.
    pub(super) summary: bool,
    /// What is thought comes for clients that keep nothing else of it.
    pub(super) encrypted: bool,
    pub(super) names: Names,
    pub(super) echo: Echo,
    /// The conversation so far.
    pub(super) items: Vec<StoredItem>,
}

/// Checks a request and says what it means.
///
/// # Errors
/// 400 with the path of the first field that is meaningless or not served; 404 for an earlier
/// response that is not kept.
pub(super) fn ask(app: &App, request: ResponsesRequest) -> Result<(Ask, Form), ApiError> {
    refuse_unserved(&request)?;
    let stream = request.stream.unwrap_or(false);
    if request.stream_options.is_some() && !stream {
        return Err(ApiError::invalid("stream_options", "needs `stream` to be true"));
    }
    let sampling = sampling(&request)?;
    let max_tokens = values::n_tokens("max_output_tokens", request.max_output_tokens)?;
    let (with_logprobs, encrypted) = includes(request.include.as_deref().unwrap_or_default())?;
    let top_logprobs = request.top_logprobs.unwrap_or(0);
    let top = values::top_logprobs("top_logprobs", top_logprobs)?;
    let logprobs = (with_logprobs || top > 0).then_some(top);
    let metadata = metadata(request.metadata)?;
    let truncation = truncation(request.truncation)?;
    let (effort, reasoning) = reasoning(request.reasoning)?;
    let (constraint, text) = text(request.text)?;
    let Offer { functions, served, names } = tools::offer(request.tools.unwrap_or_default())?;
    let chosen = tools::choose(request.tool_choice.as_ref(), &names)?;
    let (functions, choice) = crate::tools::choose("tool_choice", functions, chosen)?;
    let single_call = request.parallel_tool_calls == Some(false);
    let previous = match &request.previous_response_id {
        None => None,
        Some(id) => Some(app.responses.get(id).ok_or_else(|| previous_not_found(id))?),
    };
    let n_before = previous.as_ref().map_or(0, |previous| previous.items().count());
    let items = input::items(app, previous.as_deref(), request.input)?;
    let messages = input::messages(request.instructions.as_deref(), &items, n_before)?;
    let options = RenderOptions {
        enable_thinking: effort.map(|effort| effort.thinks),
        ..RenderOptions::for_answer()
    };
    let tool_rule = ToolRule { choice, single_call };
    let prompt = ChatPrompt { tool_rule, ..ChatPrompt::new(messages, functions, options) };
    let generate = GenerateRequest {
        sampling,
        max_tokens,
        logprobs,
        constraint,
        thinking_budget: effort.and_then(|effort| effort.budget),
        ..GenerateRequest::new(Prompt::Chat(prompt))
    };
    let summary = reasoning.summary.is_some();
    let echo = Echo {
        background: false,
        instructions: request.instructions,
        max_output_tokens: request.max_output_tokens,
        max_tool_calls: request.max_tool_calls,
        metadata,
        parallel_tool_calls: !single_call,
        previous_response_id: request.previous_response_id,
        prompt_cache_key: request.prompt_cache_key,
        reasoning,
        safety_identifier: request.safety_identifier,
        service_tier: "default",
        store: request.store.unwrap_or(true),
        temperature: request.temperature,
        text,
        tool_choice: request.tool_choice.unwrap_or_else(|| "auto".into()),
        tools: served,
        top_logprobs,
        top_p: request.top_p,
        truncation,
        user: request.user,
    };
    let logprobs = logprobs.is_some();
    let form = Form { stream, logprobs, summary, encrypted, names, echo, items };
    Ok((Ask { generate, more: Vec::new(), n_choices: 1, single_call, stream }, form))
}

/// Fields whose silent loss would change the answer.
fn refuse_unserved(request: &ResponsesRequest) -> Result<(), ApiError> {
    if request.background == Some(true) {
        let problem = "is true, but this server answers while the client waits";
        return Err(ApiError::unsupported("background", problem));
    }
    if request.conversation.is_some() {
        let problem = "is not served; send `previous_response_id` or the items";
        return Err(ApiError::unsupported("conversation", problem));
    }
    if request.prompt.is_some() {
        let problem = "is not served: this server keeps no templates; send `instructions`";
        return Err(ApiError::unsupported("prompt", problem));
    }
    if request.context_management.as_ref().is_some_and(|list| !list.is_empty()) {
        let problem = "is not served: this server never shortens a conversation";
        return Err(ApiError::unsupported("context_management", problem));
    }
    Ok(())
}

fn previous_not_found(id: &str) -> ApiError {
    let message = format!("Previous response with id '{}' not found.", quoted(id));
    let mut error = ApiError::not_found("previous_response_not_found", message);
    error.param = Some("previous_response_id".to_owned());
    error
}

fn sampling(request: &ResponsesRequest) -> Result<Sampling, ApiError> {
    use values::within;
    Ok(Sampling {
        temperature: within("temperature", request.temperature, 0.0..=2.0)?,
        top_k: values::top_k("top_k", request.top_k)?,
        top_p: within("top_p", request.top_p, 0.0..=1.0)?,
        min_p: within("min_p", request.min_p, 0.0..=1.0)?,
        presence_penalty: within("presence_penalty", request.presence_penalty, -2.0..=2.0)?,
        frequency_penalty: within("frequency_penalty", request.frequency_penalty, -2.0..=2.0)?,
        seed: request.seed.as_ref().map(|seed| values::seed("seed", seed)).transpose()?,
        ..Sampling::default()
    })
}

/// Whether log-probabilities and encrypted reasoning are wanted.
fn includes(list: &[String]) -> Result<(bool, bool), ApiError> {
    for (i, what) in list.iter().enumerate() {
        if !INCLUDES.contains(&what.as_str()) {
            let problem =
                format!("is `{}`, but must be one of {}", quoted(what), INCLUDES.join(", "));
            return Err(ApiError::invalid(format!("include[{i}]"), problem));
        }
    }
    let has = |what: &str| list.iter().any(|included| included == what);
    Ok((has(LOGPROBS), has(ENCRYPTED_REASONING)))
}

fn metadata(metadata: Option<Map<String, Value>>) -> Result<Map<String, Value>, ApiError> {
    let metadata = metadata.unwrap_or_default();
    if metadata.len() > METADATA_MAX {
        let problem = format!("has {} entries, but {METADATA_MAX} are allowed", metadata.len());
        return Err(ApiError::invalid("metadata", problem));
    }
    for (key, value) in &metadata {
        let param = format!("metadata.{}", quoted(key));
        match value {
            Value::String(text) if key.len() + text.len() <= METADATA_BYTES_MAX => {}
            Value::String(_) => {
                let problem = format!("is longer than {METADATA_BYTES_MAX} bytes");
                return Err(ApiError::invalid(param, problem));
            }
            other => return Err(crate::json::wrong_type(&param, other, "a string")),
        }
    }
    Ok(metadata)
}

/// Both are the same here: what does not fit is refused.
fn truncation(word: Option<String>) -> Result<String, ApiError> {
    match word {
        None => Ok("disabled".to_owned()),
        Some(word) if ["auto", "disabled"].contains(&word.as_str()) => Ok(word),
        Some(other) => {
            let problem = format!("is `{}`, but must be auto or disabled", quoted(&other));
            Err(ApiError::invalid("truncation", problem))
        }
    }
}

fn reasoning(
    field: Option<Object<ReasoningField>>,
) -> Result<(Option<Effort>, ReasoningEcho), ApiError> {
    let Some(Object(ReasoningField { effort, summary, generate_summary })) = field else {
        return Ok((None, ReasoningEcho { effort: None, summary: None }));
    };
    let meaning = effort.as_deref().map(|e| by_effort("reasoning.effort", e)).transpose()?;
    let summary = match summary.or(generate_summary) {
        Some(word) if word == "none" => None,
        Some(word) if !["auto", "concise", "detailed"].contains(&word.as_str()) => {
            let problem = format!("is `{}`, but must be auto, concise or detailed", quoted(&word));
            return Err(ApiError::invalid("reasoning.summary", problem));
        }
        summary => summary,
    };
    Ok((meaning, ReasoningEcho { effort, summary }))
}

fn text(field: Option<Object<TextField>>) -> Result<(Option<Constraint>, TextEcho), ApiError> {
    let (format, verbosity) = match field {
        Some(Object(TextField { format, verbosity })) => (format, verbosity),
        None => (None, None),
    };
    if let Some(word) = &verbosity
        && !["low", "medium", "high"].contains(&word.as_str())
    {
        let problem = format!("is `{}`, but must be low, medium or high", quoted(word));
        return Err(ApiError::invalid("text.verbosity", problem));
    }
    let plain = FormatField {
        kind: "text".to_owned(),
        schema: None,
        name: None,
        description: None,
        strict: None,
    };
    let FormatField { kind, schema, name, description, strict } =
        format.map_or(plain, |Object(format)| format);
    let (constraint, schema) = match kind.as_str() {
        "text" => (None, None),
        "json_object" => (Some(Constraint::JsonObject), None),
        "json_schema" => {
            let param = "text.format.schema";
            let schema = schema.ok_or_else(|| ApiError::invalid(param, "is missing"))?;
            (Some(json_schema(param, schema.clone())?), Some(schema))
        }
        other => {
            let problem =
                format!("is `{}`, but must be text, json_object or json_schema", quoted(other));
            return Err(ApiError::invalid("text.format.type", problem));
        }
    };
    // The SDKs know no format without a name.
    let name =
        if schema.is_some() { Some(name.unwrap_or_else(|| "schema".to_owned())) } else { None };
    let format = FormatEcho { kind, name, description, schema, strict };
    Ok((constraint, TextEcho { format, verbosity }))
}

/// A failure below, which knows the fields by their names in chat completions, in our words.
pub(super) fn in_our_words(mut error: ApiError) -> ApiError {
    let ours = match error.param.as_deref() {
        Some("messages") => "input",
        Some("max_tokens") => "max_output_tokens",
        Some("json_schema") => "text.format.schema",
        _ => return error,
    };
    if let Some(theirs) = error.param.replace(ours.to_owned()) {
        error.message = error.message.replacen(&format!("`{theirs}`"), &format!("`{ours}`"), 1);
    }
    error
}
