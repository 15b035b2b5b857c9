//! What a chat request means.

use super::wire::{ChatCompletionRequest, ChatMessage};
use super::{choice, format, messages, thinking};
use crate::ask::Ask;
use crate::error::{ApiError, quoted};
use crate::json::Object;
use crate::{tools, values};
use lily_engine::{ChatPrompt, GenerateRequest, Prompt, Sampling, ToolRule};
use serde_json::{Map, Value};

/// What the answer needs to know of its request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) n_choices: usize,
    /// Answer in server-sent events.
    pub(crate) stream: bool,
    /// The stream ends with the usage.
    pub(crate) include_usage: bool,
    /// With the log-probabilities.
    pub(crate) logprobs: bool,
}

/// Checks a request and says what it means.
///
/// # Errors
/// 400 with the path of the first field that is meaningless or not served.
pub(crate) fn ask(request: ChatCompletionRequest) -> Result<(Ask, Form), ApiError> {
    refuse_unserved(&request)?;
    let stream = request.stream.unwrap_or(false);
    let include_usage = include_usage(&request, stream)?;
    let n_choices = values::n_choices(request.n)?;
    let sampling = sampling(&request)?;
    let logprobs = logprobs(request.logprobs, request.top_logprobs)?;
    let newer = values::n_tokens("max_completion_tokens", request.max_completion_tokens)?;
    let older = values::n_tokens("max_tokens", request.max_tokens)?;
    let (options, thinking_budget) = thinking::options(
        request.chat_template_kwargs,
        request.enable_thinking,
        request.reasoning_effort.as_deref(),
        request.thinking_budget,
    )?;
    let offered = tools::offered(request.tools.unwrap_or_default())?;
    let chosen = choice::choice(request.tool_choice.as_ref())?;
    let (tools, choice) = tools::choose("tool_choice", offered, chosen)?;
    let single_call = request.parallel_tool_calls == Some(false);
    let format = request.response_format.map(|Object(format)| format);
    let constraint = format::constraint(format, request.grammar, request.regex)?;
    let continue_final_message =
        continues(request.continue_final_message, request.add_generation_prompt)?;
    let messages = messages::messages(request.messages)?;
    let tool_rule = ToolRule { choice, single_call };
    let prompt = ChatPrompt { messages, tools, options, tool_rule, continue_final_message };
    let generate = GenerateRequest {
        sampling,
        max_tokens: newer.or(older),
        stop: values::stop("stop", request.stop)?,
        logprobs,
        ignore_eos: request.ignore_eos.unwrap_or(false),
        constraint,
        thinking_budget,
        ..GenerateRequest::new(Prompt::Chat(prompt))
    };
    let form = Form { n_choices, stream, include_usage, logprobs: logprobs.is_some() };
    Ok((Ask { generate, more: Vec::new(), n_choices, single_call, stream }, form))
}

/// Fields whose silent loss would change the answer.
fn refuse_unserved(request: &ChatCompletionRequest) -> Result<(), ApiError> {
    if request.functions.is_some() {
        return Err(ApiError::unsupported("functions", "is the old form; send `tools`"));
    }
    if request.function_call.is_some() {
        return Err(ApiError::unsupported("function_call", "is the old form; send `tool_choice`"));
    }
    if request.audio.is_some() {
        return Err(ApiError::unsupported("audio", "is not served: this server writes text only"));
    }
    if request.web_search_options.is_some() {
        let problem = "is not served: this server reaches no network";
        return Err(ApiError::unsupported("web_search_options", problem));
    }
    for (i, modality) in request.modalities.iter().flatten().enumerate() {
        if modality != "text" {
            let problem = format!("is `{}`; this server writes text only", quoted(modality));
            return Err(ApiError::unsupported(format!("modalities[{i}]"), problem));
        }
    }
    Ok(())
}

fn include_usage(request: &ChatCompletionRequest, stream: bool) -> Result<bool, ApiError> {
    match &request.stream_options {
        Some(_) if !stream => Err(ApiError::invalid("stream_options", "needs `stream` to be true")),
        Some(options) => Ok(options.0.include_usage.unwrap_or(false)),
        None => Ok(false),
    }
}

fn sampling(request: &ChatCompletionRequest) -> Result<Sampling, ApiError> {
    use values::within;
    Ok(Sampling {
        temperature: within("temperature", request.temperature, 0.0..=2.0)?,
        top_k: values::top_k("top_k", request.top_k)?,
        top_p: within("top_p", request.top_p, 0.0..=1.0)?,
        min_p: within("min_p", request.min_p, 0.0..=1.0)?,
        presence_penalty: within("presence_penalty", request.presence_penalty, -2.0..=2.0)?,
        frequency_penalty: within("frequency_penalty", request.frequency_penalty, -2.0..=2.0)?,
        repetition_penalty: values::repetition_penalty(
            "repetition_penalty",
            request.repetition_penalty,
        )?,
        logit_bias: values::logit_bias(request.logit_bias.as_ref())?,
        seed: request.seed.as_ref().map(|seed| values::seed("seed", seed)).transpose()?,
    })
}

fn logprobs(wanted: Option<bool>, top: Option<u64>) -> Result<Option<u8>, ApiError> {
    let top = top.map(|top| values::top_logprobs("top_logprobs", top)).transpose()?;
    match (wanted.unwrap_or(false), top) {
        (false, Some(1..)) => Err(ApiError::invalid("top_logprobs", "needs `logprobs` to be true")),
        (false, _) => Ok(None),
        (true, top) => Ok(Some(top.unwrap_or(0))),
    }
}

/// Whether the last message is continued. Hugging Face and vLLM ask for both fields; one is enough.
fn continues(continues: Option<bool>, opens: Option<bool>) -> Result<bool, ApiError> {
    match (continues, opens) {
        (Some(true), Some(true)) => Err(ApiError::invalid(
            "continue_final_message",
            "cannot be combined with `add_generation_prompt`: the answer continues a message or \
             starts one",
        )),
        (None | Some(false), Some(false)) => Err(ApiError::unsupported(
            "add_generation_prompt",
            "is false, but an answer needs a start; send `continue_final_message` to continue \
             the last message",
        )),
        (continues, _) => Ok(continues.unwrap_or(false)),
    }
}

/// A conversation to be rendered and not answered.
///
/// # Errors
/// As [`ask`].
pub(crate) fn prompt_of(
    messages: Vec<Object<ChatMessage>>,
    tools: Vec<Map<String, Value>>,
    kwargs: Option<Map<String, Value>>,
    enable_thinking: Option<bool>,
) -> Result<ChatPrompt, ApiError> {
    let (options, _) = thinking::options(kwargs, enable_thinking, None, None)?;
    let tools = tools::offered(tools)?;
    Ok(ChatPrompt::new(messages::messages(messages)?, tools, options))
}
