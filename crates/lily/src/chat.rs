//! Chat: one answer, or a conversation in the terminal.

mod render;
mod repl;
mod transcript;

use crate::accelerator;
use crate::args::{ChatArgs, Cli, Compute, Switch};
use crate::load;
use crate::output::{self, note, rate, seconds};
use anyhow::{Context, Result, bail};
use clap::CommandFactory;
use clap::error::ErrorKind;
use indicatif::ProgressBar;
use lily_engine::{
    ChatPrompt, Engine, EngineConfig, Event, Events, FinishReason, GenerateRequest, Prompt,
    Sampling, Summary,
};
use lily_text::{Delta, Message, RenderOptions, Role};
use render::Screen;
use serde_json::json;
use std::io::{IsTerminal, Read};
use std::pin::pin;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Tokens of a prefill chunk: nothing else runs between two.
const PREFILL_CHUNK_TOKENS: usize = 512;
/// A prompt from a pipe; more than any context holds.
const STDIN_BYTES_MAX: u64 = 64 << 20;
/// A prompt that takes longer to read than this is worth a sign of life.
const PATIENCE: Duration = Duration::from_millis(500);

/// The answer was stopped by Ctrl-C.
#[derive(Debug, thiserror::Error)]
#[error("stopped")]
pub(crate) struct Interrupted;

/// What stays the same from turn to turn.
struct Session {
    engine: Engine,
    /// Waits for events and Ctrl-C at once.
    runtime: Runtime,
    sampling: Sampling,
    max_tokens: Option<usize>,
    thinking: Option<bool>,
    messages: Vec<Message>,
}

/// An answer as far as it came.
#[derive(Default)]
struct Answer {
    reasoning: String,
    content: String,
    /// Name and JSON arguments.
    calls: Vec<(String, String)>,
    /// `None` if it was interrupted.
    summary: Option<Summary>,
}

pub(crate) fn run(args: &ChatArgs) -> Result<()> {
    let is_terminal = std::io::stdin().is_terminal();
    let piped = if is_terminal { None } else { piped_text()? };
    let prompt = match (&args.prompt, piped) {
        (Some(prompt), Some(text)) => Some(format!("{prompt}\n\n{text}")),
        (Some(prompt), None) => Some(prompt.clone()),
        (None, text) => text,
    };
    let Some(prompt) = prompt else {
        if !is_terminal {
            bail!("standard input is empty and there is no PROMPT; give one of them");
        }
        if args.json {
            let problem = "--json needs a PROMPT, or text on standard input";
            Cli::command().error(ErrorKind::MissingRequiredArgument, problem).exit();
        }
        return repl::run(&mut start(args)?);
    };
    if prompt.trim().is_empty() {
        bail!("the prompt is empty; give one as an argument or on standard input");
    }
    let mut session = start(args)?;
    session.messages.push(Message::text(Role::User, prompt));
    if args.json { print_json(&session) } else { print_text(&session) }
}

/// Standard input, unless it is empty.
fn piped_text() -> Result<Option<String>> {
    let mut bytes = Vec::new();
    std::io::stdin()
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
    let mut messages = Vec::new();
    if let Some(system) = &args.system {
        messages.push(Message::text(Role::System, system_text(system)?));
    }
    let chunk = accelerator::chunk_tokens(args.model.device, PREFILL_CHUNK_TOKENS);
    let loaded = load::load(&args.model, Compute::Int8, chunk)?;
    let text = load::need_text(loaded.text, &loaded.name)?;
    let config = EngineConfig {
        context_tokens: load::context_tokens(args.ctx, &loaded.shape)?,
        max_running: 1,
        max_queued: 1,
        prefill_chunk_tokens: chunk,
        cache_bytes: accelerator::cache_bytes(args.model.device, None),
    };
    let sampling = Sampling {
        temperature: args.sampling.temp,
        top_k: args.sampling.top_k,
        top_p: args.sampling.top_p,
        min_p: args.sampling.min_p,
        seed: args.sampling.seed,
        ..Sampling::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the async runtime could not be started")?;
    Ok(Session {
        engine: Engine::start(loaded.model, text, config),
        runtime,
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

fn print_text(session: &Session) -> Result<()> {
    let mut screen = Screen::for_streams();
    let answer = session.answer(&mut |delta| screen.show(delta))?;
    screen.finish()?;
    let summary = answer.summary.as_ref().ok_or(Interrupted)?;
    if let Some(text) = session.cut(summary) {
        note!("{text}");
    }
    if std::io::stdout().is_terminal() && std::io::stderr().is_terminal() {
        note!("{}", render::dimmed(&format!("({})", stats(summary))));
    }
    Ok(())
}

fn print_json(session: &Session) -> Result<()> {
    let answer = session.answer(&mut |_| Ok(()))?;
    let summary = answer.summary.ok_or(Interrupted)?;
    let calls: Vec<_> = answer
        .calls
        .iter()
        .map(|(name, arguments)| json!({"name": name, "arguments": arguments}))
        .collect();
    let prompt = &summary.prompt;
    output::json(&json!({
        "content": answer.content,
        "reasoning": answer.reasoning,
        "tool_calls": calls,
        "finish_reason": match summary.finish_reason {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::ToolCalls => "tool_calls",
        },
        "usage": {
            "prompt_tokens": prompt.prompt_tokens,
            "cached_tokens": prompt.cached_tokens,
            "completion_tokens": summary.completion_tokens,
            "reasoning_tokens": summary.reasoning_tokens,
            "total_tokens": prompt.prompt_tokens + summary.completion_tokens,
        },
        "timings": {
            "queued_s": prompt.queued_s,
            "prefill_s": prompt.prefill_s,
            "prefill_tokens_per_s": prefill_rate(&summary),
            "decode_s": summary.decode_s,
            "decode_tokens_per_s": rate(summary.completion_tokens, summary.decode_s),
        },
    }))
}

fn prefill_rate(summary: &Summary) -> f64 {
    let prompt = &summary.prompt;
    rate(prompt.prompt_tokens.saturating_sub(prompt.cached_tokens), prompt.prefill_s)
}

fn stats(summary: &Summary) -> String {
    format!(
        "prompt {} tokens in {} ({:.0} tok/s); answer {} tokens, {} of them thinking, in {} \
         ({:.1} tok/s)",
        summary.prompt.prompt_tokens,
        seconds(summary.prompt.prefill_s),
        prefill_rate(summary),
        summary.completion_tokens,
        summary.reasoning_tokens,
        seconds(summary.decode_s),
        rate(summary.completion_tokens, summary.decode_s),
    )
}

impl Session {
    /// Answers the conversation so far; `show` sees each piece and may fail to stop the answer.
    fn answer(&self, show: &mut dyn FnMut(&Delta) -> Result<()>) -> Result<Answer> {
        let options =
            RenderOptions { enable_thinking: self.thinking, ..RenderOptions::for_answer() };
        let prompt = ChatPrompt::new(self.messages.clone(), Vec::new(), options);
        let request = GenerateRequest {
            sampling: self.sampling.clone(),
            max_tokens: self.max_tokens,
            ..GenerateRequest::new(Prompt::Chat(prompt))
        };
        let events = self.engine.submit(request)?;
        self.runtime.block_on(collect(events, show))
    }

    /// What to say about an answer that did not end by itself.
    fn cut(&self, summary: &Summary) -> Option<String> {
        if summary.finish_reason != FinishReason::Length {
            return None;
        }
        Some(match self.max_tokens {
            Some(n) if summary.completion_tokens >= n => {
                format!("(the answer was cut at {n} tokens, as --max-tokens says)")
            }
            _ => format!(
                "(the answer was cut: the context of {} tokens is full; start with a larger --ctx)",
                self.engine.context_tokens()
            ),
        })
    }
}

/// Waits for the events of an answer. Ctrl-C ends the wait, even while the prompt is read; the
/// events are dropped then, which cancels the answer.
async fn collect(mut events: Events, show: &mut dyn FnMut(&Delta) -> Result<()>) -> Result<Answer> {
    let mut answer = Answer::default();
    let mut interrupt = pin!(async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    });
    let mut patience = pin!(tokio::time::sleep(PATIENCE));
    let mut waiting: Option<Waiting> = None;
    let mut has_started = false;
    loop {
        let event = tokio::select! {
            event = events.next() => {
                event.context("the engine ended without an answer; see the log above")?
            }
            () = &mut interrupt => return Ok(answer),
            () = &mut patience, if waiting.is_none() && !has_started => {
                waiting = Some(Waiting::start());
                continue;
            }
        };
        has_started = true;
        waiting = None;
        match event {
            Event::PromptLogprobs(_) | Event::Started(_) => {}
            Event::Step { deltas, .. } => {
                for delta in &deltas {
                    answer.add(delta);
                    show(delta)?;
                }
            }
            Event::Finished(summary) => {
                answer.summary = Some(summary);
                return Ok(answer);
            }
            Event::Failed(error) => return Err(error.into()),
        }
    }
}

/// A sign of life on a terminal, gone when dropped.
struct Waiting(ProgressBar);

impl Waiting {
    fn start() -> Self {
        let bar = ProgressBar::new_spinner().with_message("reading the prompt");
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

impl Answer {
    fn add(&mut self, delta: &Delta) {
        match delta {
            Delta::Reasoning(text) => self.reasoning.push_str(text),
            Delta::Content(text) => self.content.push_str(text),
            Delta::ToolCallStart { name, .. } => self.calls.push((name.clone(), String::new())),
            Delta::ToolCallArguments { json, .. } => {
                if let Some((_, arguments)) = self.calls.last_mut() {
                    arguments.push_str(json);
                }
            }
            Delta::ToolCallEnd { .. } => {}
        }
    }
}
