//! The engine's events of one choice become the pieces that a client reads.
//!
//! A complete answer is the fold of its chunks, so both forms agree by construction.

use super::wire::{
    AssistantMessage, Choice, ChunkChoice, ChunkDelta, CompletionTokensDetails, FunctionCall,
    FunctionChunk, LogprobsContent, PromptTokensDetails, Timings, TokenLogprobEntry, ToolCall,
    ToolCallChunk, TopLogprob, Usage,
};
use crate::ids::Ids;
use crate::tokens::{self, Counts, Vocabulary};
use lily_engine::{FinishReason, Summary, TokenLogprob};
use lily_text::Delta;

/// One choice in the making.
#[derive(Debug)]
pub(crate) struct Answer {
    index: usize,
    /// Log-probabilities of tokens whose text is still held back; `None` when not asked for.
    pending: Option<LogprobsContent>,
}

impl Answer {
    pub(crate) fn new(index: usize, logprobs: bool) -> Self {
        Self { index, pending: logprobs.then(LogprobsContent::default) }
    }

    /// The chunk that opens the answer.
    pub(crate) fn open(&self) -> ChunkChoice {
        self.chunk(ChunkDelta {
            role: Some("assistant"),
            content: Some(String::new()),
            ..ChunkDelta::default()
        })
    }

    /// The chunks of one step, none if it adds nothing yet.
    pub(crate) fn step(
        &mut self,
        deltas: Vec<Delta>,
        logprobs: &[TokenLogprob],
        vocabulary: Vocabulary<'_>,
        ids: &Ids,
    ) -> Vec<ChunkChoice> {
        if let Some(pending) = &mut self.pending {
            let kept = logprobs.iter().filter(|t| !vocabulary.is_end(t.id));
            pending.content.extend(kept.map(|t| token_logprob(t, vocabulary)));
        }
        let mut chunks = Vec::with_capacity(deltas.len());
        for delta in deltas {
            let Some(delta) = piece(delta, ids) else { continue };
            let mut chunk = self.chunk(delta);
            chunk.logprobs = self.take_logprobs();
            chunks.push(chunk);
        }
        chunks
    }

    /// The chunk that closes the answer.
    pub(crate) fn close(&mut self, reason: FinishReason) -> ChunkChoice {
        let mut chunk = self.chunk(ChunkDelta::default());
        chunk.logprobs = self.take_logprobs();
        chunk.finish_reason = Some(finish_reason(reason));
        chunk
    }

    /// A chunk that adds nothing.
    pub(crate) fn silence(&self) -> ChunkChoice {
        self.chunk(ChunkDelta::default())
    }

    fn chunk(&self, delta: ChunkDelta) -> ChunkChoice {
        ChunkChoice { index: self.index, delta, logprobs: None, finish_reason: None }
    }

    fn take_logprobs(&mut self) -> Option<LogprobsContent> {
        self.pending.as_mut().filter(|p| !p.content.is_empty()).map(std::mem::take)
    }
}

/// The word for an end.
pub(crate) fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::ToolCalls => "tool_calls",
    }
}

fn piece(delta: Delta, ids: &Ids) -> Option<ChunkDelta> {
    match delta {
        Delta::Content(text) => Some(ChunkDelta { content: Some(text), ..ChunkDelta::default() }),
        Delta::Reasoning(text) => {
            Some(ChunkDelta { reasoning_content: Some(text), ..ChunkDelta::default() })
        }
        Delta::ToolCallStart { index, name } => {
            let function = FunctionChunk { name: Some(name), arguments: String::new() };
            Some(call(index, Some(ids.next("call_")), function))
        }
        Delta::ToolCallArguments { index, json } => {
            Some(call(index, None, FunctionChunk { name: None, arguments: json }))
        }
        Delta::ToolCallEnd { .. } => None,
    }
}

fn call(index: u32, id: Option<String>, function: FunctionChunk) -> ChunkDelta {
    let kind = id.is_some().then_some("function");
    let piece = ToolCallChunk { index: index as usize, id, kind, function };
    ChunkDelta { tool_calls: vec![piece], ..ChunkDelta::default() }
}

/// A token as clients see it.
pub(crate) fn token_logprob(token: &TokenLogprob, vocabulary: Vocabulary<'_>) -> TokenLogprobEntry {
    let top_logprobs = token
        .top
        .iter()
        .map(|&(id, logprob)| TopLogprob {
            token: vocabulary.text(id),
            logprob: tokens::finite(logprob),
            bytes: vocabulary.bytes(id).to_vec(),
        })
        .collect();
    TokenLogprobEntry {
        token: vocabulary.text(token.id),
        logprob: tokens::finite(token.logprob),
        bytes: vocabulary.bytes(token.id).to_vec(),
        top_logprobs,
    }
}

impl Choice {
    /// An answer without any chunk yet.
    pub(crate) fn empty(index: usize) -> Self {
        let message = AssistantMessage { role: "assistant", ..AssistantMessage::default() };
        Self { index, message, logprobs: None, finish_reason: "stop" }
    }

    /// Adds what a chunk holds.
    pub(crate) fn absorb(&mut self, chunk: ChunkChoice) {
        let ChunkDelta { role: _, content, reasoning_content, tool_calls } = chunk.delta;
        if let Some(text) = content {
            self.message.content.get_or_insert_default().push_str(&text);
        }
        if let Some(text) = reasoning_content {
            self.message.reasoning_content.get_or_insert_default().push_str(&text);
        }
        for piece in tool_calls {
            self.absorb_call(piece);
        }
        if let Some(more) = chunk.logprobs {
            self.logprobs.get_or_insert_default().content.extend(more.content);
        }
        if let Some(reason) = chunk.finish_reason {
            self.finish_reason = reason;
            if !self.message.tool_calls.is_empty()
                && self.message.content.as_ref().is_some_and(String::is_empty)
            {
                self.message.content = None;
            }
        }
    }

    fn absorb_call(&mut self, piece: ToolCallChunk) {
        let ToolCallChunk { index, id, kind: _, function } = piece;
        if let Some(call) = self.message.tool_calls.get_mut(index) {
            call.function.arguments.push_str(&function.arguments);
        } else {
            self.message.tool_calls.push(ToolCall {
                id: id.unwrap_or_default(),
                kind: "function",
                function: FunctionCall {
                    name: function.name.unwrap_or_default(),
                    arguments: function.arguments,
                },
            });
        }
    }
}

/// Usage of a request with one prompt: the prompt once, the answers together.
pub(crate) fn total(summaries: &[Summary]) -> Usage {
    usage(Counts::of(summaries, summaries.len()))
}

/// `OpenAI`'s names for them.
pub(crate) fn usage(counts: Counts) -> Usage {
    Usage {
        prompt_tokens: counts.prompt,
        completion_tokens: counts.completion,
        total_tokens: counts.prompt + counts.completion,
        prompt_tokens_details: PromptTokensDetails { cached_tokens: counts.cached },
        completion_tokens_details: CompletionTokensDetails { reasoning_tokens: counts.reasoning },
    }
}

/// Timings of answers that ran side by side: the first one's prompt, all tokens, the longest
/// time.
pub(crate) fn timings(summaries: &[Summary]) -> Timings {
    let prompt = summaries.first().map(|s| s.prompt).unwrap_or_default();
    let prompt_n = prompt.prompt_tokens - prompt.cached_tokens.min(prompt.prompt_tokens);
    let predicted_n = summaries.iter().map(|s| s.completion_tokens).sum();
    let decode_s = summaries.iter().map(|s| s.decode_s).fold(0.0, f64::max);
    Timings {
        queued_ms: ms(prompt.queued_s),
        cache_n: prompt.cached_tokens,
        prompt_n,
        prompt_ms: ms(prompt.prefill_s),
        prompt_per_second: rate(prompt_n, prompt.prefill_s),
        predicted_n,
        predicted_ms: ms(decode_s),
        predicted_per_second: rate(predicted_n, decode_s),
    }
}

/// Milliseconds, to the microsecond.
fn ms(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e3
}

fn rate(n: usize, seconds: f64) -> f64 {
    if seconds > 0.0 { (n as f64 / seconds * 100.0).round() / 100.0 } else { 0.0 }
}
