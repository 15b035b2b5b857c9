//! Tokens as clients see them: their text and bytes, what they cost, how long they took.

use lily_engine::{Summary, TextModel};
use lily_text::TokenId;

/// The vocabulary of the served checkpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vocabulary<'a>(pub(crate) &'a TextModel);

impl<'a> Vocabulary<'a> {
    /// The bytes a token stands for.
    pub(crate) fn bytes(self, id: TokenId) -> &'a [u8] {
        self.0.tokenizer.token_bytes(id)
    }

    /// The same as text; bytes that are no UTF-8 by themselves are replaced by U+FFFD.
    pub(crate) fn text(self, id: TokenId) -> String {
        String::from_utf8_lossy(self.bytes(id)).into_owned()
    }

    /// Whether the token ends an answer and so is no part of it.
    pub(crate) fn is_end(self, id: TokenId) -> bool {
        self.0.eos_token_ids.contains(&id)
    }
}

/// JSON has no infinity; `OpenAI` writes this number for a token that cannot be.
pub(crate) fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { -9999.0 }
}

/// Tokens of a request: the prompt once, the answers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) prompt: usize,
    /// Of the prompt, tokens whose state was reused.
    pub(crate) cached: usize,
    pub(crate) completion: usize,
    /// Of the completion, tokens inside the think block.
    pub(crate) reasoning: usize,
}

impl Counts {
    /// Of answers, so many to each prompt.
    pub(crate) fn of(summaries: &[Summary], n_choices: usize) -> Self {
        let prompts = || summaries.iter().step_by(n_choices.max(1)).map(|s| s.prompt);
        Self {
            prompt: prompts().map(|p| p.prompt_tokens).sum(),
            cached: prompts().map(|p| p.cached_tokens).sum(),
            completion: summaries.iter().map(|s| s.completion_tokens).sum(),
            reasoning: summaries.iter().map(|s| s.reasoning_tokens).sum(),
        }
    }
}
