//! Prompts that need not be read again.
//!
//! The recurrent state of a sequence cannot be cut back, so it is kept at places where another
//! prompt may go on: after the first message (tools and instructions, which all conversations of an
//! application share), before the last (the answer to come: what follows it differs, as a template
//! renders past answers otherwise than they were written), and at the end of an answer. A prompt
//! begins behind the longest of those that it starts with.
//!
//! Entries go when their bytes exceed the budget, by `GreedyDual-Size` (Cao and Irani, 1997): each has
//! the tokens that it saves per byte as its credit, on top of what the last entry that had to go had,
//! and gets it again when it is used. What is long, small and used often stays.

use lily_model::{Snapshot, SnapshotSize};
use lily_text::TokenId;

/// Entries at most: a look-up compares the prompt with each of them.
const ENTRIES_MAX: usize = 1_024;
/// Tokens that an entry has to save: a copy of the state costs as much as reading a few.
pub(crate) const TOKENS_MIN: usize = 16;

/// Snapshots by the tokens that they have read.
#[derive(Debug, Default)]
pub(crate) struct PromptCache {
    /// Bytes that may be held; 0 keeps nothing.
    budget_bytes: usize,
    size: SnapshotSize,
    held_bytes: usize,
    entries: Vec<Entry>,
    /// The credit of the entry that went last.
    floor: f64,
}

#[derive(Debug)]
struct Entry {
    tokens: Vec<TokenId>,
    snapshot: Snapshot,
    bytes: usize,
    /// Tokens saved, beside what the next shorter entry saves, per byte.
    worth: f64,
    credit: f64,
}

impl PromptCache {
    pub(crate) fn new(budget_bytes: usize, size: SnapshotSize) -> Self {
        Self { budget_bytes, size, ..Self::default() }
    }

    /// Whether anything may be kept.
    pub(crate) fn is_on(&self) -> bool {
        self.budget_bytes > 0
    }

    /// Bytes held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub(crate) fn n_entries(&self) -> usize {
        self.entries.len()
    }

    /// The longest entry that `prompt` starts with and goes beyond: the last token has to be read for
    /// its logits. With its length.
    pub(crate) fn longest(&mut self, prompt: &[TokenId]) -> Option<(usize, &Snapshot)> {
        let floor = self.floor;
        let entry = self
            .entries
            .iter_mut()
            .filter(|e| e.tokens.len() < prompt.len() && prompt.starts_with(&e.tokens))
            .max_by_key(|e| e.tokens.len())?;
        entry.credit = floor + entry.worth;
        Some((entry.tokens.len(), &entry.snapshot))
    }

    /// Whether exactly these tokens are kept; counts as a use.
    pub(crate) fn has(&mut self, tokens: &[TokenId]) -> bool {
        let floor = self.floor;
        let found = self.entries.iter_mut().find(|entry| entry.tokens == tokens);
        if let Some(entry) = found {
            entry.credit = floor + entry.worth;
            return true;
        }
        false
    }

    /// The tokens of the longest entry that `tokens` starts with, itself included; 0 if none does.
    pub(crate) fn shared_len(&self, tokens: &[TokenId]) -> usize {
        let prefixes = self.entries.iter().filter(|entry| tokens.starts_with(&entry.tokens));
        prefixes.map(|entry| entry.tokens.len()).max().unwrap_or(0)
    }

    /// Whether an entry of so many tokens may be kept at all.
    pub(crate) fn takes(&self, n_tokens: usize) -> bool {
        self.bytes_of(n_tokens, 0) <= self.budget_bytes
    }

    /// Keeps a snapshot that has read `tokens`, which no entry has; may let go of others, or of it.
    pub(crate) fn insert(&mut self, tokens: &[TokenId], snapshot: Snapshot) {
        let n_shared = self.shared_len(tokens);
        let bytes = self.bytes_of(tokens.len(), n_shared);
        let worth = (tokens.len() - n_shared) as f64 / bytes.max(1) as f64;
        let credit = self.floor + worth;
        self.held_bytes += bytes;
        self.entries.push(Entry { tokens: tokens.to_vec(), snapshot, bytes, worth, credit });
        self.recount(tokens);
        self.keep_budget();
    }

    fn bytes_of(&self, n_tokens: usize, n_shared: usize) -> usize {
        let n_own = if self.size.shares_rows { n_tokens - n_shared } else { n_tokens };
        self.size.per_token.saturating_mul(n_own).saturating_add(self.size.fixed)
    }

    /// Counts anew the bytes of the entries that go on where one begins or began.
    fn recount(&mut self, prefix: &[TokenId]) {
        if !self.size.shares_rows {
            return;
        }
        for idx in 0..self.entries.len() {
            let tokens = &self.entries[idx].tokens;
            if tokens.len() <= prefix.len() || !tokens.starts_with(prefix) {
                continue;
            }
            let shorter = self.entries.iter().map(|entry| &entry.tokens);
            let shorter = shorter.filter(|o| o.len() < tokens.len() && tokens.starts_with(o));
            let n_shared = shorter.map(Vec::len).max().unwrap_or(0);
            let bytes = self.bytes_of(tokens.len(), n_shared);
            self.held_bytes = self.held_bytes - self.entries[idx].bytes + bytes;
            self.entries[idx].bytes = bytes;
        }
    }

    fn remove(&mut self, idx: usize) {
        let Entry { tokens, bytes, credit, .. } = self.entries.swap_remove(idx);
        self.held_bytes -= bytes;
        self.floor = credit;
        // What went on from it has its rows alone now.
        self.recount(&tokens);
    }

    /// Lets go of the entry that is worth least; `false` if there is none.
    pub(crate) fn evict(&mut self) -> bool {
        let removed = self.remove_least();
        self.keep_budget();
        removed
    }

    fn remove_least(&mut self) -> bool {
        let entries = self.entries.iter().enumerate();
        let Some((idx, _)) = entries.min_by(|a, b| a.1.credit.total_cmp(&b.1.credit)) else {
            return false;
        };
        self.remove(idx);
        true
    }

    /// Rows that two entries shared with one that went are counted for both: that can be too much.
    fn keep_budget(&mut self) {
        while self.held_bytes > self.budget_bytes || self.entries.len() > ENTRIES_MAX {
            self.remove_least();
        }
    }
}

/// Where a prompt is worth keeping: lengths, ascending, below its own. `turn` is the token that begins
/// a message.
pub(crate) fn places(prompt: &[TokenId], turn: Option<TokenId>) -> Vec<usize> {
    let is_turn = |id: &TokenId| turn == Some(*id);
    let first = prompt.iter().skip(1).position(is_turn).map(|at| at + 1);
    // Text without messages: all but its end, in steps that suit the kernels.
    let last = match prompt.iter().rposition(is_turn) {
        Some(at) => at,
        None => (prompt.len().max(1) - 1) / 64 * 64,
    };
    let mut places: Vec<usize> = first.into_iter().chain([last]).collect();
    places.retain(|&place| place >= TOKENS_MIN);
    places.sort_unstable();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn snapshot(len: usize) -> Snapshot {
        Snapshot::scripted(len)
    }

    fn keep(cache: &mut PromptCache, tokens: &[TokenId]) {
        if !cache.has(tokens) && cache.takes(tokens.len()) {
            cache.insert(tokens, snapshot(tokens.len()));
        }
    }

    /// Ten bytes an entry.
    fn cache(budget_bytes: usize) -> PromptCache {
        let size = SnapshotSize { fixed: 10, per_token: 0, shares_rows: false };
        PromptCache::new(budget_bytes, size)
    }

    #[test]
    fn the_longest_prefix_is_found() {
        let mut cache = cache(100);
        keep(&mut cache, &[1, 2]);
        keep(&mut cache, &[1, 2, 3, 4]);
        keep(&mut cache, &[1, 9]);
        let mut found = |prompt: &[TokenId]| cache.longest(prompt).map(|(n, _)| n);
        assert_eq!(found(&[1, 2, 3, 4, 5]), Some(4));
        assert_eq!(found(&[1, 2, 3, 4]), Some(2), "the last token is read");
        assert_eq!(found(&[1, 2, 3]), Some(2));
        assert_eq!(found(&[1, 2]), None);
        assert_eq!(found(&[2, 2, 3]), None);
        assert_eq!(found(&[]), None);
        assert_eq!(cache.shared_len(&[1, 2, 3, 4]), 4);
    }

    #[test]
    fn what_is_used_and_long_stays() {
        let mut cache = cache(30);
        keep(&mut cache, &[1; 100]);
        keep(&mut cache, &[2; 20]);
        keep(&mut cache, &[3; 50]);
        // The shortest goes.
        keep(&mut cache, &[4; 60]);
        assert_eq!((cache.n_entries(), cache.held_bytes()), (3, 30));
        assert!(!cache.has(&[2; 20]) && cache.has(&[3; 50]));
        // The long one is never used again, and goes in time; the other is, in every round.
        for i in 10..40 {
            keep(&mut cache, &[i; 50]);
            assert!(cache.has(&[3; 50]));
        }
        assert!(!cache.has(&[1; 100]));
        while cache.evict() {}
        assert_eq!((cache.n_entries(), cache.held_bytes()), (0, 0));
    }

    #[test]
    fn shared_rows_are_counted_once_and_never_forgotten() {
        let size = SnapshotSize { fixed: 10, per_token: 1, shares_rows: true };
        let mut cache = PromptCache::new(1000, size);
        keep(&mut cache, &[1; 500]);
        keep(&mut cache, &[1; 520]);
        assert_eq!(cache.held_bytes(), 10 + 500 + 10 + 20);
        keep(&mut cache, &[1; 100]);
        assert_eq!(cache.held_bytes(), 3 * 10 + 520);
        let idx = cache.entries.iter().position(|entry| entry.tokens.len() == 500);
        cache.remove(idx.expect("kept"));
        assert_eq!(cache.held_bytes(), 2 * 10 + 520);
        let idx = cache.entries.iter().position(|entry| entry.tokens.len() == 100);
        cache.remove(idx.expect("kept"));
        assert_eq!(cache.held_bytes(), 10 + 520);
        assert!(!cache.takes(1000) && cache.takes(990));
    }

    #[test]
    fn places_are_after_the_first_message_and_before_the_last() {
        let mut prompt = vec![5; 100];
        for at in [0, 30, 70, 95] {
            prompt[at] = 1;
        }
        assert_eq!(places(&prompt, Some(1)), [30, 95]);
        prompt[30] = 5;
        prompt[70] = 5;
        assert_eq!(places(&prompt, Some(1)), [95]);
        assert_eq!(places(&prompt[..95], Some(1)), [0; 0], "a lone message has nothing before it");
        assert_eq!(places(&prompt, None), [64]);
        assert_eq!(places(&[5; 64], None), [0; 0]);
        assert_eq!(places(&[], None), [0; 0]);
    }

    proptest! {
        /// Whatever happens: the bytes are those of the entries, each row counted once, within the
        /// budget, and only prefixes are found.
        #[test]
        fn bytes_are_counted(
            ops in prop::collection::vec((prop::collection::vec(0u32..2, 1..8), 0u8..4), 1..60),
            shares_rows: bool,
        ) {
            let size = SnapshotSize { fixed: 5, per_token: 3, shares_rows };
            let mut cache = PromptCache::new(90, size);
            for (tokens, op) in ops {
                match op {
                    0 => { cache.evict(); }
                    1 => {
                        let found = cache.longest(&tokens).map(|(n, _)| n);
                        prop_assert!(found.is_none_or(|n| n < tokens.len()));
                    }
                    _ => keep(&mut cache, &tokens),
                }
                let rows: usize = if shares_rows {
                    // Rows behind a common beginning that no entry ends at are held by each.
                    let ends: Vec<&[TokenId]> = cache.entries.iter().map(|e| &*e.tokens).collect();
                    ends.iter()
                        .map(|e| {
                            let shared = ends.iter().filter(|o| o.len() < e.len() && e.starts_with(o));
                            e.len() - shared.map(|o| o.len()).max().unwrap_or(0)
                        })
                        .sum()
                } else {
                    cache.entries.iter().map(|entry| entry.tokens.len()).sum()
                };
                let expected = 5 * cache.n_entries() + 3 * rows;
                prop_assert_eq!(cache.held_bytes(), expected);
                prop_assert!(expected <= 90);
            }
        }
    }
}
