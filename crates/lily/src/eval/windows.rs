//! A text cut into windows; each token but the first is scored once.

use anyhow::{Context, Result};
use lily_model::{Advance, Logits, Model, Rows, SeqState, Step, TokenId};
use std::ops::Range;

pub(super) struct Windows {
    pub(super) ids: Vec<TokenId>,
    /// Tokens that a model sees at once.
    pub(super) window: usize,
    /// Tokens between the starts of two windows.
    pub(super) stride: usize,
}

/// Part of a text that is fed to an empty sequence.
#[derive(Debug, PartialEq, Eq)]
struct Window {
    /// Tokens that only give context.
    context: Range<usize>,
    /// Tokens whose successors are scored.
    scored: Range<usize>,
}

impl Windows {
    /// Tokens that are scored in all.
    pub(super) fn n_scored(&self) -> usize {
        self.ids.len().saturating_sub(1)
    }

    fn cut(&self) -> Vec<Window> {
        let mut windows = Vec::new();
        let (mut start, mut scored_to) = (0, 1);
        while scored_to < self.ids.len() {
            let end = (start + self.window).min(self.ids.len());
            // The last token of a window is only scored, never fed. So a window that starts where
            // the one before ends can begin with that token and still be no longer than it may.
            let first = start.min(scored_to - 1);
            windows.push(Window { context: first..scored_to - 1, scored: scored_to - 1..end - 1 });
            scored_to = end;
            start += self.stride;
        }
        windows
    }

    /// Feeds the text to all models in step and calls `score` with a row of logits of each, and
    /// the token that follows in the text.
    pub(super) fn score(
        &self,
        models: &mut [Box<dyn Model>],
        chunk: usize,
        mut score: impl FnMut(&[&[f32]], TokenId),
    ) -> Result<()> {
        let mut outs: Vec<Logits> = models.iter().map(|_| Logits::default()).collect();
        for Window { context, scored } in self.cut() {
            let n_tokens = scored.end - context.start;
            let mut states = Vec::new();
            for model in models.iter() {
                let state = model.new_state(n_tokens).context("a sequence could not be started")?;
                states.push(state);
            }
            let mut feed = |tokens: &[TokenId], rows: Rows, outs: &mut [Logits]| {
                let mut each = models.iter_mut().zip(&mut states).zip(outs);
                each.try_for_each(|((model, state), out)| {
                    forward(model.as_mut(), state, tokens, rows, out)
                })
            };
            for tokens in self.ids[context].chunks(chunk) {
                feed(tokens, Rows::None, &mut outs)?;
            }
            let mut position = scored.start;
            for tokens in self.ids[scored].chunks(chunk) {
                feed(tokens, Rows::All, &mut outs)?;
                for row in 0..tokens.len() {
                    let rows: Vec<&[f32]> = outs.iter().map(|out| out.row(row)).collect();
                    score(&rows, self.ids[position + row + 1]);
                }
                position += tokens.len();
            }
        }
        Ok(())
    }
}

fn forward(
    model: &mut dyn Model,
    state: &mut SeqState,
    tokens: &[TokenId],
    rows: Rows,
    out: &mut Logits,
) -> Result<()> {
    let step = Step { state, tokens, rows, advance: Advance::Commit };
    model.forward(&mut [step], out).context("the forward pass failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_but_the_first_is_scored_once() {
        for n in 2..40 {
            for window in 2..20 {
                for stride in 1..=window {
                    let windows = Windows { ids: vec![0; n], window, stride };
                    let mut next = Vec::new();
                    for cut in windows.cut() {
                        assert_eq!(cut.context.end, cut.scored.start);
                        assert!(cut.scored.end - cut.context.start <= window);
                        next.extend(cut.scored.map(|position| position + 1));
                    }
                    assert_eq!(next, (1..n).collect::<Vec<_>>(), "{n} {window} {stride}");
                }
            }
        }
    }

    #[test]
    fn overlap_is_context() {
        let cut = Windows { ids: vec![0; 10], window: 6, stride: 3 }.cut();
        assert_eq!(cut[0], Window { context: 0..0, scored: 0..5 });
        assert_eq!(cut[1], Window { context: 3..5, scored: 5..8 });
        assert_eq!(cut[2], Window { context: 6..8, scored: 8..9 });
        assert_eq!(cut.len(), 3);
    }
}
