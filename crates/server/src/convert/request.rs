//! A chat request becomes a [`GenerateRequest`].

use super::{check_depth, kind_of, messages, tools};
use crate::error::{ApiError, quoted};
use crate::limits::{
    CHOICES_MAX, LOGIT_BIAS_MAX, STOP_STRING_BYTES_MAX, STOP_STRINGS_MAX, TEMPLATE_ARGUMENTS_MAX,
    TOP_LOGPROBS_MAX,
};
use crate::openai::{ChatCompletionRequest, OneOrMany};
use lily_engine::{ChatPrompt, GenerateRequest, Prompt, Sampling};
use lily_text::{RenderOptions, TokenId};
use serde_json::{Map, Number, Value};
use std::ops::RangeInclusive;

/// A checked request.
#[derive(Debug)]
pub(crate) struct Chat {
    /// The request for the first choice.
    generate: GenerateRequest,
    /// Answers wanted.
    pub(crate) n_choices: usize,
    /// Answer in server-sent events.
    pub(crate) stream: bool,
    /// The stream ends with the usage.
    pub(crate) include_usage: bool,
    /// Return the first tool call only.
    pub(crate) single_call: bool,
}

impl Chat {
    /// One request a choice; a seed counts up so that choices differ and stay reproducible.
    pub(crate) fn requests(&self) -> impl Iterator<Item = GenerateRequest> + '_ {
        (0..self.n_choices as u64).map(|i| {
            let mut request = self.generate.clone();
            request.sampling.seed = request.sampling.seed.map(|seed| seed.wrapping_add(i));
            request
        })
    }
}

/// Checks a request and says what it means.
///
/// # Errors
/// 400 with the path of the first field that is meaningless or not served.
pub(crate) fn chat(request: ChatCompletionRequest) -> Result<Chat, ApiError> {
    refuse_unserved(&request)?;
    let stream = request.stream.unwrap_or(false);
    let include_usage = include_usage(&request, stream)?;
    let n_choices = n_choices(request.n)?;
    let sampling = sampling(&request)?;
    let logprobs = logprobs(request.logprobs, request.top_logprobs)?;
    let max_tokens = max_tokens(request.max_completion_tokens, request.max_tokens)?;
    let options = render_options(
        request.chat_template_kwargs,
        request.enable_thinking,
        request.reasoning_effort.as_deref(),
    )?;
    let offered = tools::offered(request.tools.unwrap_or_default())?;
    let tools = if tools::allowed(request.tool_choice.as_ref())? { offered } else { Vec::new() };
    let messages = messages::messages(request.messages)?;
    let prompt = Prompt::Chat(ChatPrompt::new(messages, tools, options));
    let generate = GenerateRequest {
        sampling,
        max_tokens,
        stop: stop(request.stop)?,
        logprobs,
        ignore_eos: request.ignore_eos.unwrap_or(false),
        ..GenerateRequest::new(prompt)
    };
    let single_call = request.parallel_tool_calls == Some(false);
    Ok(Chat { generate, n_choices, stream, include_usage, single_call })
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
    match &request.response_format {
        Some(format) if format.0.kind != "text" => {
            let problem =
                format!("is `{}`; this server can only write `text` yet", quoted(&format.0.kind));
            Err(ApiError::unsupported("response_format.type", problem))
        }
        _ => Ok(()),
    }
}

fn include_usage(request: &ChatCompletionRequest, stream: bool) -> Result<bool, ApiError> {
    match &request.stream_options {
        Some(_) if !stream => Err(ApiError::invalid("stream_options", "needs `stream` to be true")),
        Some(options) => Ok(options.0.include_usage.unwrap_or(false)),
        None => Ok(false),
    }
}

fn n_choices(n: Option<u64>) -> Result<usize, ApiError> {
    let n = n.unwrap_or(1);
    if !(1..=CHOICES_MAX).contains(&n) {
        let problem = format!("is {n}, but must be from 1 to {CHOICES_MAX}");
        return Err(ApiError::invalid("n", problem));
    }
    Ok(usize::try_from(n).expect("at most 8"))
}

fn max_tokens(newer: Option<u64>, older: Option<u64>) -> Result<Option<usize>, ApiError> {
    for (param, value) in [("max_completion_tokens", newer), ("max_tokens", older)] {
        if value == Some(0) {
            return Err(ApiError::invalid(param, "is 0, but must be at least 1"));
        }
    }
    Ok(newer.or(older).map(|n| usize::try_from(n).unwrap_or(usize::MAX)))
}

fn sampling(request: &ChatCompletionRequest) -> Result<Sampling, ApiError> {
    Ok(Sampling {
        temperature: within("temperature", request.temperature, 0.0..=2.0)?,
        top_k: top_k(request.top_k)?,
        top_p: within("top_p", request.top_p, 0.0..=1.0)?,
        min_p: within("min_p", request.min_p, 0.0..=1.0)?,
        presence_penalty: within("presence_penalty", request.presence_penalty, -2.0..=2.0)?,
        frequency_penalty: within("frequency_penalty", request.frequency_penalty, -2.0..=2.0)?,
        repetition_penalty: repetition_penalty(request.repetition_penalty)?,
        logit_bias: logit_bias(request.logit_bias.as_ref())?,
        seed: request.seed.as_ref().map(seed).transpose()?,
    })
}

#[allow(clippy::cast_possible_truncation, reason = "sampling works in f32; the range is checked")]
fn within(
    param: &str,
    value: Option<f64>,
    range: RangeInclusive<f64>,
) -> Result<Option<f32>, ApiError> {
    match value {
        Some(value) if !range.contains(&value) => {
            let (low, high) = range.into_inner();
            let problem = format!("is {value}, but must be from {low} to {high}");
            Err(ApiError::invalid(param, problem))
        }
        value => Ok(value.map(|v| v as f32)),
    }
}

fn repetition_penalty(value: Option<f64>) -> Result<Option<f32>, ApiError> {
    if value.is_some_and(|v| v <= 0.0) {
        return Err(ApiError::invalid("repetition_penalty", "must be more than 0 and at most 2"));
    }
    within("repetition_penalty", value, 0.0..=2.0)
}

fn top_k(value: Option<i64>) -> Result<Option<u32>, ApiError> {
    match value {
        None => Ok(None),
        Some(-1) => Ok(Some(0)),
        Some(k) => u32::try_from(k).map(Some).map_err(|_| {
            ApiError::invalid("top_k", format!("is {k}, but must be -1 or a count from 0"))
        }),
    }
}

/// Any 64-bit integer; negative ones by their bits.
fn seed(value: &Number) -> Result<u64, ApiError> {
    value
        .as_u64()
        .or_else(|| value.as_i64().map(i64::cast_unsigned))
        .ok_or_else(|| ApiError::invalid("seed", format!("is {value}, but must be an integer")))
}

#[allow(clippy::cast_possible_truncation, reason = "sampling works in f32; the range is checked")]
fn logit_bias(map: Option<&Map<String, Value>>) -> Result<Vec<(TokenId, f32)>, ApiError> {
    let Some(map) = map else { return Ok(Vec::new()) };
    if map.len() > LOGIT_BIAS_MAX {
        let problem = format!("has {} entries, but {LOGIT_BIAS_MAX} are allowed", map.len());
        return Err(ApiError::invalid("logit_bias", problem));
    }
    map.iter()
        .map(|(key, value)| {
            let param = || format!("logit_bias.{}", quoted(key));
            let id = key
                .parse::<TokenId>()
                .map_err(|_| ApiError::invalid(param(), "must be named by a token id"))?;
            let bias = value
                .as_f64()
                .filter(|b| (-100.0..=100.0).contains(b))
                .ok_or_else(|| ApiError::invalid(param(), "must be a number from -100 to 100"))?;
            Ok((id, bias as f32))
        })
        .collect()
}

fn logprobs(wanted: Option<bool>, top: Option<u64>) -> Result<Option<u8>, ApiError> {
    match (wanted.unwrap_or(false), top) {
        (_, Some(top)) if top > TOP_LOGPROBS_MAX => {
            let problem = format!("is {top}, but must be from 0 to {TOP_LOGPROBS_MAX}");
            Err(ApiError::invalid("top_logprobs", problem))
        }
        (false, Some(1..)) => Err(ApiError::invalid("top_logprobs", "needs `logprobs` to be true")),
        (false, _) => Ok(None),
        (true, top) => Ok(Some(u8::try_from(top.unwrap_or(0)).expect("at most 20"))),
    }
}

fn stop(stop: Option<OneOrMany>) -> Result<Vec<String>, ApiError> {
    let (list, single) = match stop {
        None => return Ok(Vec::new()),
        Some(OneOrMany::One(text)) => (vec![text], true),
        Some(OneOrMany::Many(list)) => (list, false),
    };
    if list.len() > STOP_STRINGS_MAX {
        let problem = format!("has {} strings, but {STOP_STRINGS_MAX} are allowed", list.len());
        return Err(ApiError::invalid("stop", problem));
    }
    for (i, text) in list.iter().enumerate() {
        let param = || if single { "stop".to_owned() } else { format!("stop[{i}]") };
        if text.is_empty() {
            return Err(ApiError::invalid(param(), "is empty and would end every answer at once"));
        }
        if text.len() > STOP_STRING_BYTES_MAX {
            let problem = format!("is longer than {STOP_STRING_BYTES_MAX} bytes");
            return Err(ApiError::invalid(param(), problem));
        }
    }
    Ok(list)
}

/// Arguments that the server gives to the template itself.
const RESERVED_TEMPLATE_ARGUMENTS: [&str; 5] =
    ["add_generation_prompt", "bos_token", "eos_token", "messages", "tools"];

/// Thinking, from the most to the least particular: `chat_template_kwargs.enable_thinking`,
/// `enable_thinking`, `reasoning_effort`.
fn render_options(
    kwargs: Option<Map<String, Value>>,
    enable_thinking: Option<bool>,
    effort: Option<&str>,
) -> Result<RenderOptions, ApiError> {
    let mut kwargs = kwargs.unwrap_or_default();
    if kwargs.len() > TEMPLATE_ARGUMENTS_MAX {
        let problem = format!("has more than {TEMPLATE_ARGUMENTS_MAX} entries");
        return Err(ApiError::invalid("chat_template_kwargs", problem));
    }
    for (name, value) in &kwargs {
        let param = format!("chat_template_kwargs.{}", quoted(name));
        if RESERVED_TEMPLATE_ARGUMENTS.contains(&name.as_str()) {
            return Err(ApiError::invalid(param, "is set by the server"));
        }
        check_depth(&param, value)?;
    }
    let explicit = take_switch(&mut kwargs, "enable_thinking")?;
    if let Some(preserve) = take_switch(&mut kwargs, "preserve_thinking")? {
        kwargs.insert("preserve_thinking".to_owned(), preserve.into());
    }
    let enable_thinking = explicit.or(enable_thinking).or(thinking_by_effort(effort)?);
    Ok(RenderOptions { enable_thinking, extra: kwargs, ..RenderOptions::for_answer() })
}

fn take_switch(kwargs: &mut Map<String, Value>, name: &str) -> Result<Option<bool>, ApiError> {
    match kwargs.shift_remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(switch)) => Ok(Some(switch)),
        Some(other) => {
            let problem = format!("is {}, but must be true or false", kind_of(&other));
            Err(ApiError::invalid(format!("chat_template_kwargs.{name}"), problem))
        }
    }
}

/// The model can think or not; there are no grades in between.
fn thinking_by_effort(effort: Option<&str>) -> Result<Option<bool>, ApiError> {
    match effort {
        None => Ok(None),
        Some("none") => Ok(Some(false)),
        Some("minimal" | "low" | "medium" | "high" | "xhigh" | "max") => Ok(Some(true)),
        Some(other) => {
            let problem = format!(
                "is `{}`, but must be none, minimal, low, medium, high, xhigh or max",
                quoted(other)
            );
            Err(ApiError::invalid("reasoning_effort", problem))
        }
    }
}
