//! A request on its way to the engine thread: rendered, tokenised and checked.

use crate::constraint::{Form, Grammars, Guide};
use crate::sample::Settings;
use crate::{EngineError, Event, GenerateRequest, Prompt, SubmitError, TextModel, validate};
use lily_text::{ChatTemplate, ParserOptions, TokenId, ToolSchema};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// A request that is all right.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// At least one token, and room for the answer in the context.
    pub(crate) prompt: Vec<TokenId>,
    /// Most tokens of the answer; none only if the prompt is scored.
    pub(crate) n_answer_max: usize,
    pub(crate) settings: Settings,
    pub(crate) seed: Option<u64>,
    pub(crate) stop: Vec<String>,
    /// For a conversation.
    pub(crate) parser: Option<ParserOptions>,
    /// How many alternatives to report.
    pub(crate) logprobs: Option<usize>,
    /// The same for the prompt.
    pub(crate) prompt_logprobs: Option<usize>,
    pub(crate) ignore_eos: bool,
    /// The prompt ends inside an open think block.
    pub(crate) is_thinking: bool,
    pub(crate) thinking_budget: Option<usize>,
    /// Follows the form of the answer, after the thinking; the sequence takes it.
    pub(crate) guide: Option<Guide>,
    pub(crate) time_limit: Option<Duration>,
}

/// A request that was accepted.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: Prepared,
    pub(crate) events: UnboundedSender<Event>,
    pub(crate) span: tracing::Span,
    pub(crate) submitted: Instant,
}

/// Looks at a request from within a pass. Short-lived, since it keeps the channel open.
#[derive(Debug)]
pub(crate) struct Watch {
    events: UnboundedSender<Event>,
    deadline: Option<Instant>,
}

impl Watch {
    /// The client went away, or has waited for too long.
    pub(crate) fn wants_out(&self) -> bool {
        self.events.is_closed() || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

impl Job {
    /// Nobody is waiting for the answer any more.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.events.is_closed()
    }

    /// The error if the request has taken too long.
    pub(crate) fn deadline_error(&self, now: Instant) -> Option<EngineError> {
        let limit = self.request.time_limit?;
        let limit_s = limit.as_secs() + u64::from(limit.subsec_nanos() > 0);
        (now.duration_since(self.submitted) >= limit)
            .then_some(EngineError::DeadlineExceeded { limit_s })
    }

    /// What says that the request should be let go of, for a pass that holds its sequence.
    pub(crate) fn watch(&self) -> Watch {
        let deadline = self.request.time_limit.and_then(|limit| self.submitted.checked_add(limit));
        Watch { events: self.events.clone(), deadline }
    }

    /// Sends an event; a client that went away is noticed at the next tick.
    pub(crate) fn send(&self, event: Event) {
        let _ = self.events.send(event);
    }
}

impl Prepared {
    /// Renders, tokenises and checks.
    ///
    /// # Errors
    /// As [`crate::Engine::submit`], but for those of the queue.
    pub(crate) fn new(
        request: GenerateRequest,
        text: &TextModel,
        grammars: &Grammars,
        context_tokens: usize,
    ) -> Result<Self, SubmitError> {
        validate::request(&request)?;
        let vocab_size = grammars.vocab_size();
        let (prompt, tools) = match &request.prompt {
            Prompt::Chat(chat) => {
                let template = text.template.as_ref().ok_or(SubmitError::NoTemplate)?;
                let ids = if chat.continue_final_message {
                    validate::continued(&chat.messages)?;
                    template.encode_continued(
                        &text.tokenizer,
                        &chat.messages,
                        &chat.tools,
                        &chat.options,
                    )?
                } else {
                    template.encode(&text.tokenizer, &chat.messages, &chat.tools, &chat.options)?
                };
                (
                    ids,
                    Some(
                        chat.tools
                            .iter()
                            .filter_map(ToolSchema::from_definition)
                            .collect::<Vec<_>>(),
                    ),
                )
            }
            Prompt::Text(prompt) => (text.tokenizer.encode(prompt)?, None),
            Prompt::Tokens(ids) => (ids.clone(), None),
        };
        let n_answer_min = request.max_tokens.unwrap_or(1).min(1);
        validate::prompt(&prompt, vocab_size, context_tokens, n_answer_min)?;
        let is_continued = matches!(&request.prompt, Prompt::Chat(c) if c.continue_final_message);
        let is_thinking =
            !is_continued && ChatTemplate::ids_open_thinking(&text.tokenizer, &prompt);
        let defaults = if is_thinking { &text.defaults.thinking } else { &text.defaults.plain };
        let settings = Settings::new(&request.sampling, defaults);
        validate::settings(&settings, vocab_size)?;
        let form = Form {
            constraint: request.constraint.as_ref(),
            after_thinking: is_thinking,
            ..Form::default()
        };
        let guide = grammars.guide(&match &request.prompt {
            Prompt::Chat(chat) => {
                Form { tools: &chat.tools, tool_rule: chat.tool_rule.clone(), ..form }
            }
            _ => form,
        })?;
        let parser = tools.map(|tools| ParserOptions {
            starts_in_thinking: is_thinking,
            parse_tools: !tools.is_empty(),
            tools,
        });
        let n_room = context_tokens - prompt.len();
        Ok(Self {
            n_answer_max: request.max_tokens.map_or(n_room, |n| n.min(n_room)),
            prompt,
            settings,
            seed: request.sampling.seed,
            stop: request.stop,
            parser,
            logprobs: request.logprobs.map(usize::from),
            prompt_logprobs: request.prompt_logprobs.map(usize::from),
            ignore_eos: request.ignore_eos,
            is_thinking,
            thinking_budget: request.thinking_budget,
            guide,
            time_limit: request.deadline,
        })
    }
}
