//! The think block that an answer starts in: where it ends, and what ends it early.

use lily_text::{TokenId, Tokenizer};

const CLOSE: &[u8] = b"</think>";

/// What the model writes at the end of its thinking.
const CLOSING_TEXT: &str = "\n</think>\n\n";

/// Follows the think block of one answer.
#[derive(Debug)]
pub(crate) struct Thinking {
    is_open: bool,
    n_tokens: usize,
    budget: Option<usize>,
    /// The last bytes, fewer than the closing tag has.
    tail: Vec<u8>,
}

impl Thinking {
    pub(crate) fn new(is_open: bool, budget: Option<usize>) -> Self {
        Self { is_open, n_tokens: 0, budget, tail: Vec::new() }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether it will have to be closed some time, or has to be now.
    pub(crate) fn has_budget(&self) -> bool {
        self.is_open && self.budget.is_some()
    }

    /// Whether it has to be closed now.
    pub(crate) fn is_spent(&self) -> bool {
        self.is_open && self.budget.is_some_and(|budget| self.n_tokens >= budget)
    }

    /// Notes that it ended in another way than by its tag.
    pub(crate) fn close(&mut self) {
        self.is_open = false;
    }

    /// Goes on by the bytes of a token. If they end the block, returns how many of them come after
    /// it.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<usize> {
        self.n_tokens += 1;
        self.tail.extend_from_slice(bytes);
        let found = self.tail.windows(CLOSE.len()).position(|window| window == CLOSE);
        if let Some(at) = found {
            self.is_open = false;
            return Some(self.tail.len() - at - CLOSE.len());
        }
        let n_old = self.tail.len().saturating_sub(CLOSE.len() - 1);
        self.tail.drain(..n_old);
        None
    }
}

/// The tokens that close a think block as the model does; empty if the tokenizer has no such text.
pub(crate) fn closing_tokens(tokenizer: &Tokenizer) -> Vec<TokenId> {
    tokenizer.encode(CLOSING_TEXT).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_is_found_however_it_is_cut() {
        for cuts in [&["a</think>"][..], &["a</", "think", ">"], &["<", "/think>"]] {
            let mut thinking = Thinking::new(true, None);
            let found: Vec<_> = cuts.iter().map(|cut| thinking.push(cut.as_bytes())).collect();
            assert_eq!(found.last(), Some(&Some(0)), "{cuts:?}");
            assert!(found[..found.len() - 1].iter().all(Option::is_none));
            assert!(!thinking.is_open());
        }
        let mut thinking = Thinking::new(true, None);
        assert_eq!(thinking.push(b"so </thin"), None);
        assert_eq!(thinking.push(b"g></think>\n{"), Some(2), "with what follows in the token");
    }

    #[test]
    fn a_budget_is_spent_by_tokens() {
        let mut thinking = Thinking::new(true, Some(2));
        assert!(thinking.has_budget() && !thinking.is_spent());
        thinking.push(b"a");
        assert!(!thinking.is_spent());
        thinking.push(b"b");
        assert!(thinking.is_spent());
        assert!(Thinking::new(true, Some(0)).is_spent());
        assert!(!Thinking::new(false, Some(0)).is_spent(), "there is nothing to close");
    }
}
