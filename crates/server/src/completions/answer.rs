//! What the engine's events add to the text of a completion.

use super::request::Form;
use super::wire::{TextChoice, TextLogprobs};
use crate::tokens::{Vocabulary, finite};
use lily_engine::TokenLogprob;
use lily_text::{Delta, TokenId};
use serde_json::{Map, Value};

/// One choice in the making.
#[derive(Debug)]
pub(super) struct Text {
    index: usize,
    /// The prompt, until it is out.
    echo: Option<String>,
    /// Its tokens, if their log-probabilities are wanted.
    echo_ids: Vec<TokenId>,
    /// Log-probabilities that are not out yet; `None` when not asked for.
    pending: Option<TextLogprobs>,
    /// Characters of the tokens so far.
    offset: usize,
}

impl Text {
    /// The choices of a request.
    pub(super) fn all(form: &Form) -> Vec<Self> {
        (0..form.n_prompts * form.n_choices)
            .map(|index| Self {
                index,
                echo: form.echoes.get(index / form.n_choices).cloned(),
                echo_ids: form.echo_ids.get(index / form.n_choices).cloned().unwrap_or_default(),
                pending: form.logprobs.then(TextLogprobs::default),
                offset: 0,
            })
            .collect()
    }

    /// Log-probabilities of the next tokens of the prompt.
    pub(super) fn prompt(&mut self, logprobs: &[TokenLogprob], vocabulary: Vocabulary<'_>) {
        if self.echo_ids.is_empty() {
            return;
        }
        self.first_of_prompt(vocabulary);
        for token in logprobs {
            self.push(token, vocabulary);
        }
    }

    /// The first token has none: nothing comes before it.
    fn first_of_prompt(&mut self, vocabulary: Vocabulary<'_>) {
        let Some(pending) = &mut self.pending else { return };
        if pending.tokens.is_empty()
            && let Some(&id) = self.echo_ids.first()
        {
            let text = vocabulary.text(id);
            pending.text_offset.push(0);
            self.offset = text.chars().count();
            pending.tokens.push(text);
            pending.token_logprobs.push(None);
            pending.top_logprobs.push(None);
        }
    }

    fn push(&mut self, token: &TokenLogprob, vocabulary: Vocabulary<'_>) {
        let Some(pending) = &mut self.pending else { return };
        let text = vocabulary.text(token.id);
        let top: Map<String, Value> = token
            .top
            .iter()
            .map(|&(id, logprob)| (vocabulary.text(id), finite(logprob).into()))
            .collect();
        pending.text_offset.push(self.offset);
        self.offset += text.chars().count();
        pending.tokens.push(text);
        pending.token_logprobs.push(Some(finite(token.logprob)));
        pending.top_logprobs.push(Some(top));
    }

    /// The prompt is computed: with `echo` it is the first piece.
    pub(super) fn open(&mut self, vocabulary: Vocabulary<'_>) -> Option<TextChoice> {
        // A prompt of one token has no log-probability at all.
        self.first_of_prompt(vocabulary);
        let text = self.echo.take()?;
        Some(self.choice(text, None))
    }

    /// The piece of one step, if it adds anything yet.
    pub(super) fn step(
        &mut self,
        deltas: Vec<Delta>,
        logprobs: &[TokenLogprob],
        vocabulary: Vocabulary<'_>,
    ) -> Option<TextChoice> {
        for token in logprobs.iter().filter(|token| !vocabulary.is_end(token.id)) {
            self.push(token, vocabulary);
        }
        let mut text = String::new();
        for delta in deltas {
            if let Delta::Content(piece) = delta {
                text.push_str(&piece);
            }
        }
        (!text.is_empty()).then(|| self.choice(text, None))
    }

    /// The last piece.
    pub(super) fn close(&mut self, finish_reason: &'static str) -> TextChoice {
        self.choice(String::new(), Some(finish_reason))
    }

    /// A piece that adds nothing.
    pub(super) fn silence(&self) -> TextChoice {
        TextChoice { index: self.index, ..TextChoice::default() }
    }

    fn choice(&mut self, text: String, finish_reason: Option<&'static str>) -> TextChoice {
        let logprobs = self.pending.as_mut().filter(|p| !p.tokens.is_empty()).map(std::mem::take);
        TextChoice { index: self.index, text, logprobs, finish_reason }
    }
}

impl TextChoice {
    /// Adds what a piece holds.
    pub(super) fn absorb(&mut self, piece: Self) {
        self.text.push_str(&piece.text);
        self.finish_reason = piece.finish_reason.or(self.finish_reason);
        if let Some(more) = piece.logprobs {
            let all = self.logprobs.get_or_insert_default();
            all.text_offset.extend(more.text_offset);
            all.token_logprobs.extend(more.token_logprobs);
            all.tokens.extend(more.tokens);
            all.top_logprobs.extend(more.top_logprobs);
        }
    }
}
