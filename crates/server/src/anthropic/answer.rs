//! The engine's events become the blocks that a client reads.
//!
//! A complete answer is the fold of the events of a stream, so both forms agree by construction.

use super::wire::{
    BlockDelta, ContentBlock, Ending, Message, OutputTokensDetails, StreamEvent, Usage,
};
use crate::ids::Ids;
use crate::tokens::Counts;
use lily_engine::{FinishReason, PromptStats, Summary};
use lily_text::Delta;
use serde_json::Map;

/// Anthropic signs thoughts, and some clients drop those without a signature. Nothing is signed
/// here and nothing is checked when it comes back.
const SIGNATURE: &str = "unsigned";

/// An answer in the making.
#[derive(Debug)]
pub(super) struct Answer {
    shows_thinking: bool,
    /// The block that is being written.
    open: Option<Kind>,
    /// Blocks that are complete.
    n_closed: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Thinking,
    Text,
    ToolUse,
}

impl Answer {
    pub(super) fn new(shows_thinking: bool) -> Self {
        Self { shows_thinking, open: None, n_closed: 0 }
    }

    /// The event that opens an answer.
    pub(super) fn start(id: String, model: String, prompt: PromptStats) -> StreamEvent {
        StreamEvent::MessageStart { message: Message::empty(id, model, usage_of(prompt)) }
    }

    /// The events of one step, none if it adds nothing yet.
    pub(super) fn step(&mut self, deltas: Vec<Delta>, ids: &Ids) -> Vec<StreamEvent> {
        let mut events = Vec::with_capacity(deltas.len());
        for delta in deltas {
            match delta {
                Delta::Reasoning(thinking) => {
                    self.open(Kind::Thinking, empty_thinking, &mut events);
                    if self.shows_thinking {
                        events.push(self.delta(BlockDelta::ThinkingDelta { thinking }));
                    }
                }
                Delta::Content(text) => {
                    let block = || ContentBlock::Text { text: String::new() };
                    self.open(Kind::Text, block, &mut events);
                    events.push(self.delta(BlockDelta::TextDelta { text }));
                }
                Delta::ToolCallStart { name, .. } => {
                    self.close(&mut events);
                    let id = ids.next("toolu_");
                    let block = || ContentBlock::ToolUse { id, name, input: Map::new() };
                    self.open(Kind::ToolUse, block, &mut events);
                }
                Delta::ToolCallArguments { json, .. } => {
                    events.push(self.delta(BlockDelta::InputJsonDelta { partial_json: json }));
                }
                Delta::ToolCallEnd { .. } => self.close(&mut events),
            }
        }
        events
    }

    /// The events that close an answer.
    pub(super) fn end(&mut self, summary: &Summary) -> Vec<StreamEvent> {
        let mut events = Vec::new();
        self.close(&mut events);
        let usage = usage(summary);
        events.push(StreamEvent::MessageDelta { delta: ending(summary), usage });
        events.push(StreamEvent::MessageStop);
        events
    }

    /// Makes sure that a block of this kind is open.
    fn open(
        &mut self,
        kind: Kind,
        block: impl FnOnce() -> ContentBlock,
        events: &mut Vec<StreamEvent>,
    ) {
        if self.open == Some(kind) {
            return;
        }
        self.close(events);
        self.open = Some(kind);
        events
            .push(StreamEvent::ContentBlockStart { index: self.n_closed, content_block: block() });
    }

    fn close(&mut self, events: &mut Vec<StreamEvent>) {
        let Some(kind) = self.open.take() else { return };
        if kind == Kind::Thinking {
            let signature = SIGNATURE.to_owned();
            events.push(self.delta(BlockDelta::SignatureDelta { signature }));
        }
        events.push(StreamEvent::ContentBlockStop { index: self.n_closed });
        self.n_closed += 1;
    }

    fn delta(&self, delta: BlockDelta) -> StreamEvent {
        StreamEvent::ContentBlockDelta { index: self.n_closed, delta }
    }
}

fn empty_thinking() -> ContentBlock {
    ContentBlock::Thinking { thinking: String::new(), signature: String::new() }
}

/// A complete answer, from the events of a stream.
#[derive(Debug)]
pub(super) struct Folded {
    message: Message,
    /// The text of the arguments of the call that is being read.
    json: String,
}

impl Folded {
    pub(super) fn new() -> Self {
        let message = Message::empty(String::new(), String::new(), Usage::default());
        Self { message, json: String::new() }
    }

    /// Adds what an event says.
    pub(super) fn absorb(&mut self, event: StreamEvent) {
        match event {
            StreamEvent::MessageStart { message } => self.message = message,
            StreamEvent::ContentBlockStart { content_block, .. } => {
                self.message.content.push(content_block);
            }
            StreamEvent::ContentBlockDelta { delta, .. } => self.extend(delta),
            StreamEvent::ContentBlockStop { .. } => {
                if let Some(ContentBlock::ToolUse { input, .. }) = self.message.content.last_mut() {
                    // The parser writes valid objects; none of it is a call without arguments.
                    *input = serde_json::from_str(&self.json).unwrap_or_default();
                }
                self.json.clear();
            }
            StreamEvent::MessageDelta { delta, usage } => {
                self.message.ending = delta;
                self.message.usage = usage;
            }
            StreamEvent::MessageStop | StreamEvent::Ping => {}
        }
    }

    pub(super) fn finish(self) -> Message {
        self.message
    }

    fn extend(&mut self, delta: BlockDelta) {
        match (self.message.content.last_mut(), delta) {
            (Some(ContentBlock::Text { text }), BlockDelta::TextDelta { text: more }) => {
                text.push_str(&more);
            }
            (
                Some(ContentBlock::Thinking { thinking, .. }),
                BlockDelta::ThinkingDelta { thinking: more },
            ) => thinking.push_str(&more),
            (
                Some(ContentBlock::Thinking { signature, .. }),
                BlockDelta::SignatureDelta { signature: more },
            ) => signature.push_str(&more),
            (Some(ContentBlock::ToolUse { .. }), BlockDelta::InputJsonDelta { partial_json }) => {
                self.json.push_str(&partial_json);
            }
            (_, _) => {}
        }
    }
}

impl Message {
    fn empty(id: String, model: String, usage: Usage) -> Self {
        Self {
            id,
            kind: "message",
            role: "assistant",
            model,
            content: Vec::new(),
            ending: Ending::default(),
            usage,
        }
    }
}

fn ending(summary: &Summary) -> Ending {
    let stop_sequence = summary.stop_string.clone();
    match (summary.finish_reason, stop_sequence) {
        (FinishReason::Length, _) => {
            Ending { stop_reason: Some("max_tokens"), stop_sequence: None }
        }
        (FinishReason::ToolCalls, _) => {
            Ending { stop_reason: Some("tool_use"), stop_sequence: None }
        }
        (FinishReason::Stop, None) => Ending { stop_reason: Some("end_turn"), stop_sequence: None },
        (FinishReason::Stop, stop_sequence) => {
            Ending { stop_reason: Some("stop_sequence"), stop_sequence }
        }
    }
}

fn usage(summary: &Summary) -> Usage {
    let counts = Counts::of(std::slice::from_ref(summary), 1);
    let output_tokens_details = OutputTokensDetails { thinking_tokens: counts.reasoning };
    Usage { output_tokens: counts.completion, output_tokens_details, ..usage_of(summary.prompt) }
}

fn usage_of(prompt: PromptStats) -> Usage {
    let cached = prompt.cached_tokens.min(prompt.prompt_tokens);
    Usage {
        input_tokens: prompt.prompt_tokens - cached,
        cache_read_input_tokens: cached,
        ..Usage::default()
    }
}
