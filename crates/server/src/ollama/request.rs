//! What a request of Ollama's API means.

use super::wire::{CallField, ChatRequest, GenerateRequest, MessageField, Options};
use crate::ask::Ask;
use crate::chat::format::json_schema;
use crate::chat::thinking::by_effort;
use crate::conversation::{Conversation, Turn, earlier_call};
use crate::error::{ApiError, quoted};
use crate::json::{Object, wrong_type};
use crate::{tools, values};
use lily_engine::{ChatPrompt, Constraint, Prompt, Sampling, ToolRule};
use lily_text::{Message, RenderOptions, ToolCall};
use serde_json::Value;

/// The largest temperature that the engine takes; Ollama has no limit.
const TEMPERATURE_MAX: f64 = 100.0;

/// What a request asks for.
#[derive(Debug)]
pub(super) enum Asked {
    /// The model is there already, and stays.
    Load {
        /// Why the answer is empty.
        reason: &'static str,
    },
    Answer(Box<Ask>),
}

/// What both kinds of requests say.
struct Shared {
    stream: Option<bool>,
    format: Option<Value>,
    options: Option<Object<Options>>,
    logprobs: Option<bool>,
    top_logprobs: Option<u64>,
}

/// Checks a request for the next turn of a conversation and says what it means.
///
/// # Errors
/// 400 with the path of the first field that is meaningless or not served.
pub(super) fn chat(request: ChatRequest) -> Result<Asked, ApiError> {
    let ChatRequest { messages, tools, stream, format, options, think, keep_alive, .. } = request;
    let (logprobs, top_logprobs) = (request.logprobs, request.top_logprobs);
    let Some(list) = messages.filter(|list| !list.is_empty()) else {
        return load(keep_alive.as_ref());
    };
    let (render, thinking_budget) = thinking(think.as_ref())?;
    let tools = tools::offered(tools.unwrap_or_default())?;
    let (messages, continue_final_message) = turns(list)?;
    let prompt = Prompt::Chat(ChatPrompt {
        messages,
        tools,
        options: render,
        tool_rule: ToolRule::default(),
        continue_final_message,
    });
    Shared { stream, format, options, logprobs, top_logprobs }.ask(prompt, thinking_budget)
}

/// Checks a request for an answer to one prompt and says what it means.
///
/// # Errors
/// As [`chat`].
pub(super) fn generate(request: GenerateRequest) -> Result<Asked, ApiError> {
    refuse_unserved(&request)?;
    let GenerateRequest { prompt, system, raw, stream, format, options, think, .. } = request;
    let (logprobs, top_logprobs) = (request.logprobs, request.top_logprobs);
    let Some(prompt) = prompt.filter(|prompt| !prompt.is_empty()) else {
        return load(request.keep_alive.as_ref());
    };
    let (render, thinking_budget) = thinking(think.as_ref())?;
    let system = system.filter(|system| !system.is_empty());
    let prompt = if raw.unwrap_or(false) {
        if system.is_some() {
            let problem = "cannot be combined with `raw`: the prompt is continued as it is";
            return Err(ApiError::invalid("system", problem));
        }
        Prompt::Text(prompt)
    } else {
        let mut conversation = Conversation::default();
        if let Some(system) = system {
            conversation.push(Turn::System(system));
        }
        conversation.push(Turn::User(prompt));
        Prompt::Chat(ChatPrompt::new(conversation.finish(), Vec::new(), render))
    };
    Shared { stream, format, options, logprobs, top_logprobs }.ask(prompt, thinking_budget)
}

/// Fields whose silent loss would change the answer.
fn refuse_unserved(request: &GenerateRequest) -> Result<(), ApiError> {
    let is_said = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    if is_said(&request.suffix) {
        let problem = "is not served: this model does not fill gaps";
        return Err(ApiError::unsupported("suffix", problem));
    }
    if is_said(&request.template) {
        let problem = "is not served: the checkpoint brings its own; send `raw` to use none";
        return Err(ApiError::unsupported("template", problem));
    }
    if request.context.as_ref().is_some_and(|context| !context.is_empty()) {
        let problem = "is the old form; send the conversation to /api/chat";
        return Err(ApiError::unsupported("context", problem));
    }
    refuse_images("images", request.images.as_deref())
}

fn refuse_images<T>(param: &str, images: Option<&[T]>) -> Result<(), ApiError> {
    if images.is_some_and(|images| !images.is_empty()) {
        let problem = "holds an image, but this server reads no images yet";
        return Err(ApiError::unsupported(param, problem));
    }
    Ok(())
}

/// An empty request with `keep_alive: 0` is Ollama's way to unload a model.
#[allow(clippy::unnecessary_wraps, reason = "reads better where it is called")]
fn load(keep_alive: Option<&Value>) -> Result<Asked, ApiError> {
    let unloads = keep_alive.is_some_and(|value| match value {
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(text) => matches!(text.as_str(), "0" | "0s" | "0m" | "0h"),
        _ => false,
    });
    Ok(Asked::Load { reason: if unloads { "unload" } else { "load" } })
}

impl Shared {
    fn ask(self, prompt: Prompt, thinking_budget: Option<usize>) -> Result<Asked, ApiError> {
        let Object(options) = self.options.unwrap_or(Object(Options::default()));
        let stream = self.stream.unwrap_or(true);
        let generate = lily_engine::GenerateRequest {
            max_tokens: max_tokens(options.num_predict)?,
            sampling: sampling(&options)?,
            stop: values::stop("options.stop", options.stop)?,
            logprobs: logprobs(self.logprobs, self.top_logprobs)?,
            constraint: constraint(self.format)?,
            thinking_budget,
            ..lily_engine::GenerateRequest::new(prompt)
        };
        Ok(Asked::Answer(Box::new(Ask {
            generate,
            more: Vec::new(),
            n_choices: 1,
            single_call: false,
            stream,
        })))
    }
}

fn max_tokens(num_predict: Option<i64>) -> Result<Option<usize>, ApiError> {
    match num_predict {
        None | Some(-2..=0) => Ok(None),
        Some(n) => usize::try_from(n).map(Some).map_err(|_| {
            let problem = format!("is {n}, but must be a count, or -1 or -2 for no limit");
            ApiError::invalid("options.num_predict", problem)
        }),
    }
}

fn sampling(options: &Options) -> Result<Sampling, ApiError> {
    use values::within;
    let unseeded = |seed: &&serde_json::Number| seed.as_i64() != Some(-1);
    let seed = options.seed.as_ref().filter(unseeded);
    Ok(Sampling {
        temperature: within("options.temperature", options.temperature, 0.0..=TEMPERATURE_MAX)?,
        top_k: values::top_k("options.top_k", options.top_k)?,
        top_p: within("options.top_p", options.top_p, 0.0..=1.0)?,
        min_p: within("options.min_p", options.min_p, 0.0..=1.0)?,
        presence_penalty: within("options.presence_penalty", options.presence_penalty, -2.0..=2.0)?,
        frequency_penalty: within(
            "options.frequency_penalty",
            options.frequency_penalty,
            -2.0..=2.0,
        )?,
        repetition_penalty: values::repetition_penalty(
            "options.repeat_penalty",
            options.repeat_penalty,
        )?,
        logit_bias: Vec::new(),
        seed: seed.map(|seed| values::seed("options.seed", seed)).transpose()?,
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

/// `json`, a schema, or nothing in several spellings.
fn constraint(format: Option<Value>) -> Result<Option<Constraint>, ApiError> {
    match format {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) if text == "json" => Ok(Some(Constraint::JsonObject)),
        Some(Value::String(text)) => {
            let problem = format!("is `{}`, but must be `json` or a schema", quoted(&text));
            Err(ApiError::invalid("format", problem))
        }
        Some(schema @ Value::Object(_)) => json_schema("format", schema).map(Some),
        Some(other) => Err(wrong_type("format", &other, "`json` or a schema")),
    }
}

/// Nothing said is the template's own choice, as in Ollama.
fn thinking(think: Option<&Value>) -> Result<(RenderOptions, Option<usize>), ApiError> {
    let (enable_thinking, budget) = match think {
        None | Some(Value::Null) => (None, None),
        Some(Value::Bool(on)) => (Some(*on), None),
        Some(Value::String(word)) if ["low", "medium", "high", "max"].contains(&word.as_str()) => {
            let effort = by_effort("think", word)?;
            (Some(effort.thinks), effort.budget)
        }
        Some(Value::String(word)) => {
            let problem =
                format!("is `{}`, but must be true, false, low, medium or high", quoted(word));
            return Err(ApiError::invalid("think", problem));
        }
        Some(other) => return Err(wrong_type("think", other, "a boolean or a string")),
    };
    Ok((RenderOptions { enable_thinking, ..RenderOptions::for_answer() }, budget))
}

/// The turns in the form of the template. True if the last one is the start of the answer, which
/// is what Ollama makes of words of the assistant at the end.
fn turns(list: Vec<Object<MessageField>>) -> Result<(Vec<Message>, bool), ApiError> {
    Conversation::check_len("messages", list.len())?;
    let mut conversation = Conversation::default();
    let mut continues = false;
    for (i, Object(message)) in list.into_iter().enumerate() {
        let turn = turn(&format!("messages[{i}]"), message)?;
        continues = matches!(
            &turn,
            Turn::Assistant { content, calls, .. } if !content.is_empty() && calls.is_empty()
        );
        conversation.push(turn);
    }
    Ok((conversation.finish(), continues))
}

fn turn(param: &str, message: MessageField) -> Result<Turn, ApiError> {
    refuse_images(&format!("{param}.images"), message.images.as_deref())?;
    let text = message.content.unwrap_or_default();
    Ok(match message.role.as_str() {
        "system" => Turn::System(text),
        "user" => Turn::User(text),
        "tool" => Turn::Result { call_id: message.tool_call_id, text },
        "assistant" => {
            let param = format!("{param}.tool_calls");
            let list = message.tool_calls.unwrap_or_default();
            Conversation::check_calls(&param, list.len())?;
            let call = |(i, Object(field))| call(&format!("{param}[{i}].function"), field);
            let calls = list.into_iter().enumerate().map(call).collect::<Result<_, _>>()?;
            let reasoning = message.thinking.filter(|thinking| !thinking.is_empty());
            Turn::Assistant { content: text, reasoning, calls }
        }
        other => {
            let problem =
                format!("is `{}`, but must be system, user, assistant or tool", quoted(other));
            return Err(ApiError::invalid(format!("{param}.role"), problem));
        }
    })
}

fn call(param: &str, field: CallField) -> Result<ToolCall, ApiError> {
    let Object(function) = field.function;
    earlier_call(
        (&format!("{param}.name"), function.name),
        (&format!("{param}.arguments"), function.arguments),
        field.id,
    )
}
