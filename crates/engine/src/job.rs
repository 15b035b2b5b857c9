//! A request on its way to the engine thread: rendered, tokenised and checked.

use crate::sample::Settings;
use crate::{EngineError, Event, GenerateRequest, Prompt, SubmitError, TextModel, validate};
use lily_text::{ChatTemplate, ParserOptions, TokenId, ToolSchema};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// A request that is all right.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// At least one token, and room for another in the context.
    pub(crate) prompt: Vec<TokenId>,
    /// Most tokens of the answer, at least one.
    pub(crate) n_answer_max: usize,
    pub(crate) settings: Settings,
    pub(crate) seed: Option<u64>,
    pub(crate) stop: Vec<String>,
    /// For a conversation.
    pub(crate) parser: Option<ParserOptions>,
    /// How many alternatives to report.
    pub(crate) logprobs: Option<usize>,
    pub(crate) ignore_eos: bool,
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
        vocab_size: usize,
        context_tokens: usize,
    ) -> Result<Self, SubmitError> {
        validate::request(&request)?;
        let (prompt, tools) = match &request.prompt {
            Prompt::Chat(chat) => {
                let template = text.template.as_ref().ok_or(SubmitError::NoTemplate)?;
                let ids =
                    template.encode(&text.tokenizer, &chat.messages, &chat.tools, &chat.options)?;
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
        validate::prompt(&prompt, vocab_size, context_tokens)?;
        let is_thinking = ChatTemplate::ids_open_thinking(&text.tokenizer, &prompt);
        let defaults = if is_thinking { &text.defaults.thinking } else { &text.defaults.plain };
        let settings = Settings::new(&request.sampling, defaults);
        validate::settings(&settings, vocab_size)?;
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
            ignore_eos: request.ignore_eos,
            time_limit: request.deadline,
        })
    }
}
