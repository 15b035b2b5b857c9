//! What a completion request means.

use super::wire::CompletionRequest;
use crate::App;
use crate::ask::Ask;
use crate::chat::format;
use crate::error::{ApiError, quoted};
use crate::json::wrong_type;
use crate::limits::{PROMPTS_MAX, TOKEN_PROMPT_MAX};
use crate::values;
use lily_engine::{GenerateRequest, Prompt, Sampling};
use lily_text::TokenId;
use serde_json::Value;

/// `OpenAI`'s default.
const MAX_TOKENS_DEFAULT: usize = 16;

/// What the answer needs to know of its request.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    /// The text of each prompt, for `echo`; empty without.
    pub(crate) echoes: Vec<String>,
    /// Tokens of each prompt, for `echo` with log-probabilities; empty without.
    pub(crate) echo_ids: Vec<Vec<TokenId>>,
    /// Answers to each prompt.
    pub(crate) n_choices: usize,
    pub(crate) n_prompts: usize,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) logprobs: bool,
}

/// Checks a request and says what it means.
///
/// # Errors
/// 400 with the path of the first field that is meaningless or not served.
pub(crate) fn ask(app: &App, request: CompletionRequest) -> Result<(Ask, Form), ApiError> {
    if request.suffix.is_some() {
        let problem = "is not served: this model continues text and fills no gaps";
        return Err(ApiError::unsupported("suffix", problem));
    }
    let stream = request.stream.unwrap_or(false);
    let include_usage = match &request.stream_options {
        Some(_) if !stream => {
            return Err(ApiError::invalid("stream_options", "needs `stream` to be true"));
        }
        Some(options) => options.0.include_usage.unwrap_or(false),
        None => false,
    };
    let n_choices = values::n_choices(request.n)?;
    if let Some(best_of) = request.best_of
        && best_of != n_choices as u64
    {
        let problem =
            format!("is {best_of}, but must be `n` ({n_choices}): answers are not ranked");
        return Err(ApiError::unsupported("best_of", problem));
    }
    let echo = request.echo.unwrap_or(false);
    let max_tokens = match request.max_tokens {
        None => MAX_TOKENS_DEFAULT,
        Some(0) if echo => 0,
        n => values::n_tokens("max_tokens", n)?.expect("given"),
    };
    let logprobs = request.logprobs.map(|top| values::top_logprobs("logprobs", top)).transpose()?;
    let sampling = sampling(&request)?;
    let constraint = format::constraint(None, request.grammar, request.regex)?;
    let mut prompts = prompts(request.prompt)?;
    let n_prompts = prompts.len();
    let text = app.engine.text();
    let mut form = Form {
        echoes: Vec::new(),
        echo_ids: Vec::new(),
        n_choices,
        n_prompts,
        stream,
        include_usage,
        logprobs: logprobs.is_some(),
    };
    // Nothing to generate is only allowed together with what is to be said of the prompt.
    let looks_back = echo && (logprobs.is_some() || max_tokens == 0);
    if echo {
        for prompt in &mut prompts {
            let ids = match prompt {
                Prompt::Text(prompt) => text.tokenizer.encode(prompt).map_err(|e| {
                    ApiError::invalid("prompt", format!("cannot be tokenised: {e}"))
                })?,
                Prompt::Tokens(ids) => std::mem::take(ids),
                Prompt::Chat(_) => unreachable!("a completion continues text"),
            };
            form.echoes.push(match prompt {
                Prompt::Text(prompt) => std::mem::take(prompt),
                _ => crate::trace::raw(text, &ids),
            });
            if logprobs.is_some() {
                form.echo_ids.push(ids.clone());
            }
            *prompt = Prompt::Tokens(ids);
        }
    }
    let mut prompts = prompts.into_iter();
    let generate = GenerateRequest {
        sampling,
        max_tokens: Some(max_tokens),
        stop: values::stop("stop", request.stop)?,
        logprobs,
        ignore_eos: request.ignore_eos.unwrap_or(false),
        constraint,
        prompt_logprobs: looks_back.then_some(logprobs.unwrap_or(0)),
        ..GenerateRequest::new(prompts.next().expect("at least one"))
    };
    let ask = Ask { generate, more: prompts.collect(), n_choices, single_call: false, stream };
    Ok((ask, form))
}

fn sampling(request: &CompletionRequest) -> Result<Sampling, ApiError> {
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

fn prompts(value: Option<Value>) -> Result<Vec<Prompt>, ApiError> {
    const EXPECTED: &str = "a string, an array of token ids, or an array of either";
    match value {
        None | Some(Value::Null) => Err(ApiError::invalid("prompt", "is missing")),
        Some(Value::String(text)) => prompt_text("prompt", text).map(|prompt| vec![prompt]),
        Some(Value::Array(items)) if items.is_empty() => {
            Err(ApiError::invalid("prompt", "is empty; send at least one prompt"))
        }
        Some(Value::Array(items)) if items[0].is_number() => {
            prompt_ids("prompt", items).map(|prompt| vec![prompt])
        }
        Some(Value::Array(items)) if items.len() > PROMPTS_MAX => {
            let problem = format!("has {} entries, but {PROMPTS_MAX} are allowed", items.len());
            Err(ApiError::invalid("prompt", problem))
        }
        Some(Value::Array(items)) => items
            .into_iter()
            .enumerate()
            .map(|(i, item)| {
                let param = format!("prompt[{i}]");
                match item {
                    Value::String(text) => prompt_text(&param, text),
                    Value::Array(ids) => prompt_ids(&param, ids),
                    other => Err(wrong_type(&param, &other, "a string or an array of token ids")),
                }
            })
            .collect(),
        Some(other) => Err(wrong_type("prompt", &other, EXPECTED)),
    }
}

fn prompt_text(param: &str, text: String) -> Result<Prompt, ApiError> {
    if text.is_empty() {
        return Err(ApiError::invalid(param, "is empty; the model needs a token to continue"));
    }
    Ok(Prompt::Text(text))
}

fn prompt_ids(param: &str, items: Vec<Value>) -> Result<Prompt, ApiError> {
    if items.is_empty() {
        return Err(ApiError::invalid(param, "is empty; the model needs a token to continue"));
    }
    token_ids(param, items).map(Prompt::Tokens)
}

/// A list of token ids; whether the vocabulary has them is the engine's question.
///
/// # Errors
/// 400 for the first entry that is none.
pub(crate) fn token_ids(param: &str, items: Vec<Value>) -> Result<Vec<TokenId>, ApiError> {
    if items.len() > TOKEN_PROMPT_MAX {
        let problem = format!("has {} tokens, but {TOKEN_PROMPT_MAX} are allowed", items.len());
        return Err(ApiError::invalid(param, problem));
    }
    items
        .into_iter()
        .enumerate()
        .map(|(i, item)| {
            item.as_u64().and_then(|id| TokenId::try_from(id).ok()).ok_or_else(|| {
                let problem = format!("is {}, but must be a token id", quoted(&item.to_string()));
                ApiError::invalid(format!("{param}[{i}]"), problem)
            })
        })
        .collect()
}
