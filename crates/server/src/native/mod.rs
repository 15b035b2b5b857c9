//! What no other API has a place for: text to tokens and back, the rendered prompt, and what the
//! server is and does.

use crate::App;
use crate::ask;
use crate::chat::prompt_of;
use crate::chat::wire::ChatMessage;
use crate::completions::token_ids;
use crate::error::ApiError;
use crate::json::Object;
use crate::limits;
use axum::Json;
use axum::extract::{Request, State};
use lily_engine::Sampling;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// A conversation to be rendered.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Rendering {
    messages: Option<Vec<Object<ChatMessage>>>,
    tools: Option<Vec<Map<String, Value>>>,
    enable_thinking: Option<bool>,
    chat_template_kwargs: Option<Map<String, Value>>,
    /// Without the start of an answer if false.
    add_generation_prompt: Option<bool>,
}

/// Body of `POST /tokenize`: a text under either name, or a conversation.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct TokenizeRequest {
    /// The name in llama.cpp's server.
    content: Option<String>,
    /// The name in vLLM's.
    prompt: Option<String>,
    /// Tags in the text are tokens; true if not said.
    parse_special: Option<bool>,
    /// Return the text of each token as well.
    with_pieces: Option<bool>,
    #[serde(flatten)]
    rendering: Rendering,
}

/// Answer of `POST /tokenize`.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Tokenized {
    tokens: Vec<u32>,
    count: usize,
    max_model_len: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pieces: Option<Vec<String>>,
}

/// Body of `POST /detokenize`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct DetokenizeRequest {
    tokens: Vec<Value>,
}

/// `POST /tokenize`.
pub(crate) async fn tokenize(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Json<Tokenized>, ApiError> {
    let work = Arc::clone(&app);
    ask::read(app, request, move |_, wire: TokenizeRequest| tokens_of(&work, wire)).await.map(Json)
}

fn tokens_of(app: &App, wire: TokenizeRequest) -> Result<Tokenized, ApiError> {
    let text = app.engine.text();
    let failed =
        |e: lily_text::TextError| ApiError::invalid("content", format!("has no tokens: {e}"));
    let tokens = match (wire.content.or(wire.prompt), wire.rendering.messages.is_some()) {
        (Some(_), true) => {
            return Err(ApiError::invalid("messages", "cannot be combined with `content`"));
        }
        (None, false) => return Err(ApiError::invalid("content", "is missing")),
        (None, true) => {
            let (prompt, options) = rendering(wire.rendering)?;
            let template = text.template.as_ref().ok_or_else(no_template)?;
            template
                .encode(&text.tokenizer, &prompt.messages, &prompt.tools, &options)
                .map_err(|e| ApiError::invalid("messages", format!("cannot be rendered: {e}")))?
        }
        (Some(content), false) if wire.parse_special == Some(false) => {
            text.tokenizer.encode_plain(&content).map_err(failed)?
        }
        (Some(content), false) => text.tokenizer.encode(&content).map_err(failed)?,
    };
    let pieces = wire.with_pieces.unwrap_or(false).then(|| {
        let bytes =
            |&id: &u32| String::from_utf8_lossy(text.tokenizer.token_bytes(id)).into_owned();
        tokens.iter().map(bytes).collect()
    });
    let max_model_len = app.engine.context_tokens();
    Ok(Tokenized { count: tokens.len(), tokens, max_model_len, pieces })
}

fn rendering(
    wire: Rendering,
) -> Result<(lily_engine::ChatPrompt, lily_text::RenderOptions), ApiError> {
    let messages = wire.messages.ok_or_else(|| ApiError::invalid("messages", "is missing"))?;
    let mut prompt = prompt_of(
        messages,
        wire.tools.unwrap_or_default(),
        wire.chat_template_kwargs,
        wire.enable_thinking,
    )?;
    let options = lily_text::RenderOptions {
        add_generation_prompt: wire.add_generation_prompt.unwrap_or(true),
        ..std::mem::replace(&mut prompt.options, lily_text::RenderOptions::for_answer())
    };
    Ok((prompt, options))
}

fn no_template() -> ApiError {
    ApiError::bad_request("this checkpoint has no chat template; send a text")
}

/// `POST /detokenize`: the text under both of its usual names.
pub(crate) async fn detokenize(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let work = Arc::clone(&app);
    ask::read(app, request, move |_, wire: DetokenizeRequest| {
        let ids = token_ids("tokens", wire.tokens)?;
        let text = work.engine.text();
        let size = text.tokenizer.vocab_size();
        if let Some(i) = ids.iter().position(|&id| id as usize >= size) {
            let problem = format!("is {}, but the vocabulary has {size} tokens", ids[i]);
            return Err(ApiError::invalid(format!("tokens[{i}]"), problem));
        }
        let content = crate::trace::raw(text, &ids);
        Ok(json!({"content": content, "prompt": content}))
    })
    .await
    .map(Json)
}

/// `POST /apply-template`: the prompt of a conversation as the model reads it.
pub(crate) async fn apply_template(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let work = Arc::clone(&app);
    ask::read(app, request, move |_, wire: Rendering| {
        let (prompt, options) = rendering(wire)?;
        let template = work.engine.text().template.as_ref().ok_or_else(no_template)?;
        let text = template
            .render(&prompt.messages, &prompt.tools, &options)
            .map_err(|e| ApiError::invalid("messages", format!("cannot be rendered: {e}")))?;
        Ok(json!({"prompt": text}))
    })
    .await
    .map(Json)
}

/// `GET /v1/lily/props`: what is served, and its limits.
pub(crate) async fn props(State(app): State<Arc<App>>) -> Json<Value> {
    let text = app.engine.text();
    let sampling = |s: &Sampling| {
        json!({
            "temperature": s.temperature, "top_p": s.top_p, "top_k": s.top_k, "min_p": s.min_p,
            "presence_penalty": s.presence_penalty, "frequency_penalty": s.frequency_penalty,
            "repetition_penalty": s.repetition_penalty,
        })
    };
    Json(json!({
        "model": app.config.model_id,
        "version": env!("CARGO_PKG_VERSION"),
        "system_fingerprint": app.config.system_fingerprint,
        "started": app.started_s,
        "context_tokens": app.engine.context_tokens(),
        "vocab_size": text.tokenizer.vocab_size(),
        "eos_token_ids": text.eos_token_ids,
        "has_chat_template": text.template.is_some(),
        "sampling": {
            "thinking": sampling(&text.defaults.thinking),
            "plain": sampling(&text.defaults.plain),
        },
        "limits": {
            "body_bytes": app.config.max_body_bytes,
            "deadline_s": app.config.deadline.map(|d| d.as_secs_f64()),
            "messages": limits::MESSAGES_MAX,
            "tools": limits::TOOLS_MAX,
            "choices": limits::CHOICES_MAX,
            "stop_strings": limits::STOP_STRINGS_MAX,
            "prompts": limits::PROMPTS_MAX,
        },
    }))
}

/// `GET /v1/lily/slots`: what is being computed, and what waits.
pub(crate) async fn slots(State(app): State<Arc<App>>) -> Json<Value> {
    let stats = app.engine.stats();
    Json(json!({
        "running": stats.n_running,
        "queued": stats.n_queued,
        "requests": app.active.list(),
    }))
}
