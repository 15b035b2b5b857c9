//! The text side of one answer: ids become text, text becomes deltas, stop strings end it.
//!
//! Stop strings are looked for in what the client sees as content: reasoning and tool calls of a
//! conversation are not searched, and a tool call between two pieces of content separates them. A
//! text or token prompt has no such parts, so everything is searched. Special tokens have no text,
//! but a stop string that names one ends the answer there.

use crate::stop::StopMatcher;
use lily_text::{Delta, Detokenizer, OutputParser, ParserOptions, TokenId, Tokenizer};
use std::sync::Arc;

/// Follows the tokens of one answer.
#[derive(Debug)]
pub(crate) struct Answer {
    tokenizer: Arc<Tokenizer>,
    detokenizer: Detokenizer,
    /// `None` for text and token prompts.
    parser: Option<OutputParser>,
    stop: StopMatcher,
    /// Special tokens that are stop strings.
    stop_tokens: Vec<TokenId>,
    stop_string: Option<String>,
    n_tool_calls: usize,
    n_reasoning_tokens: usize,
}

impl Answer {
    /// An answer in conversation if there are parser options.
    pub(crate) fn new(
        tokenizer: Arc<Tokenizer>,
        parser: Option<ParserOptions>,
        stop: &[String],
    ) -> Self {
        let special = |id: &TokenId| tokenizer.is_special(*id);
        let stop_tokens =
            stop.iter().filter_map(|s| tokenizer.token_id(s)).filter(special).collect();
        Self {
            detokenizer: Detokenizer::new(Arc::clone(&tokenizer)),
            tokenizer,
            parser: parser.map(OutputParser::new),
            stop: StopMatcher::new(stop),
            stop_tokens,
            stop_string: None,
            n_tool_calls: 0,
            n_reasoning_tokens: 0,
        }
    }

    /// What a token adds. Ids that end an answer have no text and do not belong here.
    pub(crate) fn push(&mut self, id: TokenId) -> Vec<Delta> {
        if self.tokenizer.is_special(id) {
            return self.push_special(id);
        }
        let text = self.detokenizer.push(id);
        let was_reasoning = self.in_reasoning();
        let deltas = self.parse(text);
        // The tag that ends the reasoning is not inside.
        if was_reasoning && self.in_reasoning() {
            self.n_reasoning_tokens += 1;
        }
        self.filter(deltas)
    }

    /// What is left when no token follows. Nothing after a stop string.
    pub(crate) fn finish(&mut self) -> Vec<Delta> {
        if self.stop_string.is_some() {
            return Vec::new();
        }
        let text = self.detokenizer.finish();
        let mut deltas = self.parse(text);
        if let Some(parser) = &mut self.parser {
            deltas.extend(parser.finish());
        }
        let mut deltas = self.filter(deltas);
        if self.stop_string.is_none() {
            push_content(&mut deltas, self.stop.flush());
        }
        deltas
    }

    /// The stop string that was found.
    pub(crate) fn stop_string(&self) -> Option<&str> {
        self.stop_string.as_deref()
    }

    /// Tool calls that are complete.
    pub(crate) fn n_tool_calls(&self) -> usize {
        self.n_tool_calls
    }

    /// Tokens inside the think block.
    pub(crate) fn n_reasoning_tokens(&self) -> usize {
        self.n_reasoning_tokens
    }

    fn push_special(&mut self, id: TokenId) -> Vec<Delta> {
        if !self.stop_tokens.contains(&id) {
            return Vec::new();
        }
        let deltas = self.finish();
        let text = String::from_utf8_lossy(self.tokenizer.token_bytes(id));
        self.stop_string.get_or_insert_with(|| text.into_owned());
        deltas
    }

    /// Whether the text so far ends inside the reasoning; `None` where nobody looks for it.
    pub(crate) fn is_reasoning(&self) -> Option<bool> {
        self.parser.as_ref().map(OutputParser::in_reasoning)
    }

    fn in_reasoning(&self) -> bool {
        self.is_reasoning() == Some(true)
    }

    fn parse(&mut self, text: String) -> Vec<Delta> {
        match &mut self.parser {
            _ if text.is_empty() => Vec::new(),
            Some(parser) => parser.push(&text),
            None => vec![Delta::Content(text)],
        }
    }

    /// Cuts the answer at a stop string and holds back what may become one.
    fn filter(&mut self, deltas: Vec<Delta>) -> Vec<Delta> {
        let mut out = Vec::with_capacity(deltas.len());
        for delta in deltas {
            if let Delta::Content(text) = &delta {
                let matched = self.stop.push(text);
                push_content(&mut out, matched.text);
                if matched.stop.is_some() {
                    self.stop_string = matched.stop;
                    break;
                }
            } else {
                push_content(&mut out, self.stop.flush());
                self.n_tool_calls += usize::from(matches!(delta, Delta::ToolCallEnd { .. }));
                out.push(delta);
            }
        }
        out
    }
}

fn push_content(deltas: &mut Vec<Delta>, text: String) {
    match deltas.last_mut() {
        _ if text.is_empty() => {}
        Some(Delta::Content(last)) => last.push_str(&text),
        _ => deltas.push(Delta::Content(text)),
    }
}
