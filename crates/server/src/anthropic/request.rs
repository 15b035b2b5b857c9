//! What a request of Anthropic's API means.

use super::wire::{FormatField, MessagesRequest, OutputConfig, ThinkingField};
use super::{messages, tools as own_tools};
use crate::ask::Ask;
use crate::chat::format::json_schema;
use crate::chat::thinking::by_effort;
use crate::error::{ApiError, quoted};
use crate::json::{Object, OneOrMany};
use crate::{tools, values};
use lily_engine::{ChatPrompt, Constraint, GenerateRequest, Prompt, Sampling, ToolRule};
use lily_text::RenderOptions;

/// What the answer needs to know of its request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    /// Answer in server-sent events.
    pub(super) stream: bool,
    /// Thinking is shown and not only marked.
    pub(super) shows_thinking: bool,
}

/// Checks a request and says what it means.
///
/// # Errors
/// 400 with the path of the first field that is meaningless or not served.
pub(super) fn ask(request: MessagesRequest) -> Result<(Ask, Form), ApiError> {
    let Some(max_tokens) = values::n_tokens("max_tokens", request.max_tokens)? else {
        return Err(ApiError::invalid("max_tokens", "is missing"));
    };
    let stop = request.stop_sequences.clone().map(OneOrMany::Many);
    let stop = values::stop("stop_sequences", stop)?;
    let stream = request.stream.unwrap_or(false);
    let sampling = Sampling {
        temperature: values::within("temperature", request.temperature, 0.0..=1.0)?,
        top_p: values::within("top_p", request.top_p, 0.0..=1.0)?,
        top_k: values::top_k("top_k", request.top_k)?,
        ..Sampling::default()
    };
    let Asked { prompt, thinking, constraint } = prompt(request)?;
    let single_call = prompt.tool_rule.single_call;
    let generate = GenerateRequest {
        sampling,
        max_tokens: Some(max_tokens),
        stop,
        constraint,
        thinking_budget: thinking.budget,
        ..GenerateRequest::new(Prompt::Chat(prompt))
    };
    let form = Form { stream, shows_thinking: thinking.is_shown };
    Ok((Ask { generate, more: Vec::new(), n_choices: 1, single_call, stream }, form))
}

/// The part of a request that is about what is said, and not about how the answer is drawn.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) prompt: ChatPrompt,
    thinking: Thinking,
    constraint: Option<Constraint>,
}

/// Checks that part.
///
/// # Errors
/// As [`ask`].
pub(super) fn prompt(request: MessagesRequest) -> Result<Asked, ApiError> {
    if request.mcp_servers.is_some_and(|servers| !servers.is_empty()) {
        let problem = "is not served: this server reaches no network";
        return Err(ApiError::unsupported("mcp_servers", problem));
    }
    if request.container.is_some() {
        let problem = "is not served: this server runs no code";
        return Err(ApiError::unsupported("container", problem));
    }
    let (effort, format) = match request.output_config {
        Some(Object(OutputConfig { effort, format })) => (effort, format),
        None => (None, None),
    };
    let thinking = thinking(request.thinking.map(|Object(field)| field), effort.as_deref())?;
    let constraint = constraint(format, request.output_format)?;
    let offered = own_tools::offered(request.tools.unwrap_or_default())?;
    let choice_field = request.tool_choice.map(|Object(field)| field);
    let chosen = own_tools::choice(choice_field.as_ref())?;
    let (tools, choice) = tools::choose("tool_choice", offered, chosen)?;
    let single_call = choice_field.is_some_and(|f| f.disable_parallel_tool_use.unwrap_or(false));
    let (messages, continue_final_message) = messages::messages(request.system, request.messages)?;
    let options =
        RenderOptions { enable_thinking: Some(thinking.is_on), ..RenderOptions::for_answer() };
    let tool_rule = ToolRule { choice, single_call };
    let prompt = ChatPrompt { messages, tools, options, tool_rule, continue_final_message };
    Ok(Asked { prompt, thinking, constraint })
}

#[derive(Clone, Copy, Debug)]
struct Thinking {
    is_on: bool,
    /// Most tokens.
    budget: Option<usize>,
    is_shown: bool,
}

/// Off unless asked for. An effort bounds the thinking but does not ask for it; a budget in tokens
/// is more particular.
fn thinking(field: Option<ThinkingField>, effort: Option<&str>) -> Result<Thinking, ApiError> {
    let effort = effort.map(|effort| by_effort("output_config.effort", effort)).transpose()?;
    let Some(field) = field else {
        return Ok(Thinking { is_on: false, budget: None, is_shown: true });
    };
    let is_shown = match field.display.as_deref() {
        None | Some("summarized") => true,
        Some("omitted") => false,
        Some(other) => {
            let problem = format!("is `{}`, but must be summarized or omitted", quoted(other));
            return Err(ApiError::invalid("thinking.display", problem));
        }
    };
    let given = values::n_tokens("thinking.budget_tokens", field.budget_tokens)?;
    let (is_on, budget) = match field.kind.as_str() {
        "disabled" => (false, None),
        "adaptive" => {
            let is_on = effort.is_none_or(|effort| effort.thinks);
            (is_on, given.or(effort.and_then(|effort| effort.budget)))
        }
        "enabled" if given.is_none() => {
            return Err(ApiError::invalid("thinking.budget_tokens", "is missing"));
        }
        "enabled" => (true, given),
        "between_tools" => {
            let problem = "is `between_tools`, which this server does not know; send adaptive";
            return Err(ApiError::unsupported("thinking.type", problem));
        }
        other => {
            let problem =
                format!("is `{}`, but must be enabled, disabled or adaptive", quoted(other));
            return Err(ApiError::invalid("thinking.type", problem));
        }
    };
    Ok(Thinking { is_on, budget, is_shown })
}

fn constraint(
    newer: Option<Object<FormatField>>,
    older: Option<Object<FormatField>>,
) -> Result<Option<Constraint>, ApiError> {
    let (param, format) = match (newer, older) {
        (None, None) => return Ok(None),
        (Some(Object(format)), None) => ("output_config.format", format),
        (None, Some(Object(format))) => ("output_format", format),
        (Some(_), Some(_)) => {
            let problem = "cannot be combined with `output_config.format`: an answer has one form";
            return Err(ApiError::invalid("output_format", problem));
        }
    };
    if format.kind != "json_schema" {
        let problem = format!("is `{}`, but must be `json_schema`", quoted(&format.kind));
        return Err(ApiError::invalid(format!("{param}.type"), problem));
    }
    let param = format!("{param}.schema");
    let schema = format.schema.ok_or_else(|| ApiError::invalid(param.as_str(), "is missing"))?;
    json_schema(&param, schema).map(Some)
}
