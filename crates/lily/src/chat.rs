//! Chat: one answer, or a conversation in the terminal.

mod render;
mod repl;

use crate::args::{ChatArgs, Compute, Switch};
use crate::load;
use crate::output;
use anyhow::{Context, Result, bail};
use lily_engine::{
    ChatPrompt, Engine, EngineConfig, Event, GenerateRequest, Prompt, Sampling, Summary,
};
use lily_text::{Delta, Message, RenderOptions, Role};
use render::Screen;
use serde_json::json;
use std::io::{IsTerminal, Read};

/// Tokens of a prefill chunk: nothing else runs between two.
const PREFILL_CHUNK_TOKENS: usize = 512;
/// A prompt from a pipe; more than any context holds.
const STDIN_BYTES_MAX: u64 = 64 << 20;

/// What stays the same from turn to turn.
struct Session {
    engine: Engine,
    sampling: Sampling,
    max_tokens: Option<usize>,
    thinking: Option<bool>,
    messages: Vec<Message>,
}

/// An answer, complete.
struct Answer {
    reasoning: String,
    content: String,
    /// Name and JSON arguments.
    calls: Vec<(String, String)>,
    summary: Summary,
}

pub(crate) fn run(args: &ChatArgs) -> Result<()> {
    let piped = piped_text()?;
    let prompt = match (&args.prompt, piped) {
        (Some(prompt), Some(text)) => Some(format!("{prompt}\n\n{text}")),
        (Some(prompt), None) => Some(prompt.clone()),
        (None, text) => text,
    };
    if prompt.as_deref().is_some_and(|prompt| prompt.trim().is_empty()) {
        bail!("the prompt is empty; give one as an argument or on standard input");
    }
    let mut session = start(args)?;
    match prompt {
        Some(prompt) => one_shot(&mut session, &prompt, args.json),
        None => repl::run(&mut session),
    }
}

/// Standard input, unless it is a terminal or empty.
fn piped_text() -> Result<Option<String>> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    stdin
        .lock()
        .take(STDIN_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .context("standard input could not be read")?;
    if bytes.len() as u64 > STDIN_BYTES_MAX {
        bail!("standard input is longer than {} MB; no context holds that", STDIN_BYTES_MAX >> 20);
    }
    let text = String::from_utf8(bytes).context("standard input is not UTF-8 text")?;
    Ok(Some(text).filter(|text| !text.trim().is_empty()))
}

fn start(args: &ChatArgs) -> Result<Session> {
    let loaded = load::load(&args.model, Compute::Int8, PREFILL_CHUNK_TOKENS)?;
    let text = load::need_text(loaded.text, &loaded.name)?;
    let config = EngineConfig {
        context_tokens: load::context_tokens(args.ctx, &loaded.shape)?,
        max_running: 1,
        max_queued: 1,
        prefill_chunk_tokens: PREFILL_CHUNK_TOKENS,
    };
    let sampling = Sampling {
        temperature: args.sampling.temp,
        top_k: args.sampling.top_k,
        top_p: args.sampling.top_p,
        min_p: args.sampling.min_p,
        seed: args.sampling.seed,
        ..Sampling::default()
    };
    let mut messages = Vec::new();
    if let Some(system) = &args.system {
        messages.push(Message::text(Role::System, system_text(system)?));
    }
    Ok(Session {
        engine: Engine::start(loaded.model, text, config),
        sampling,
        max_tokens: args.max_tokens,
        thinking: args.think.map(|switch| switch == Switch::On),
        messages,
    })
}

fn system_text(argument: &str) -> Result<String> {
    match argument.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("the system message {path} could not be read")),
        None => Ok(argument.to_owned()),
    }
}

fn one_shot(session: &mut Session, prompt: &str, as_json: bool) -> Result<()> {
    session.messages.push(Message::text(Role::User, prompt));
    if !as_json {
        let mut screen = Screen::one_shot();
        session.answer(&mut |delta| screen.show(delta))?;
        return screen.finish();
    }
    let answer = session.answer(&mut |_| Ok(()))?;
    let calls: Vec<_> = answer
        .calls
        .iter()
        .map(|(name, arguments)| json!({"name": name, "arguments": arguments}))
        .collect();
    let summary = &answer.summary;
    output::json(&json!({
        "content": answer.content,
        "reasoning": answer.reasoning,
        "tool_calls": calls,
        "finish_reason": finish_reason(summary),
        "usage": {
            "prompt_tokens": summary.prompt.prompt_tokens,
            "completion_tokens": summary.completion_tokens,
            "reasoning_tokens": summary.reasoning_tokens,
        },
        "timings": {
            "prefill_s": summary.prompt.prefill_s,
            "decode_s": summary.decode_s,
        },
    }))
}

fn finish_reason(summary: &Summary) -> &'static str {
    match summary.finish_reason {
        lily_engine::FinishReason::Stop => "stop",
        lily_engine::FinishReason::Length => "length",
        lily_engine::FinishReason::ToolCalls => "tool_calls",
    }
}

impl Session {
    /// Answers the conversation so far; `show` sees each piece and may fail to stop the answer.
    fn answer(&mut self, show: &mut dyn FnMut(&Delta) -> Result<()>) -> Result<Answer> {
        let prompt = ChatPrompt {
            messages: self.messages.clone(),
            tools: Vec::new(),
            options: RenderOptions {
                add_generation_prompt: true,
                enable_thinking: self.thinking,
                extra: serde_json::Map::new(),
            },
        };
        let request = GenerateRequest {
            sampling: self.sampling.clone(),
            max_tokens: self.max_tokens,
            ..GenerateRequest::new(Prompt::Chat(prompt))
        };
        let mut events = self.engine.submit(request)?;
        let (mut reasoning, mut content, mut calls) = (String::new(), String::new(), Vec::new());
        while let Some(event) = events.next_blocking() {
            match event {
                Event::Started(_) => {}
                Event::Step { deltas, .. } => {
                    for delta in &deltas {
                        match delta {
                            Delta::Reasoning(text) => reasoning.push_str(text),
                            Delta::Content(text) => content.push_str(text),
                            Delta::ToolCallStart { name, .. } => {
                                calls.push((name.clone(), String::new()));
                            }
                            Delta::ToolCallArguments { json, .. } => {
                                if let Some((_, arguments)) = calls.last_mut() {
                                    arguments.push_str(json);
                                }
                            }
                            Delta::ToolCallEnd { .. } => {}
                        }
                        show(delta)?;
                    }
                }
                Event::Finished(summary) => {
                    return Ok(Answer { reasoning, content, calls, summary });
                }
                Event::Failed(error) => return Err(error.into()),
            }
        }
        bail!("the engine ended without an answer; see the log above")
    }
}
