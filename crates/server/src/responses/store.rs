//! Responses kept for `previous_response_id`, `item_reference` and `GET`: in memory, as many as
//! the bounds allow, the oldest out first.
//!
//! Everything is kept as JSON text, whose size is known; parsed, the same could take many times
//! its room. Each entry holds its whole conversation, so that a chain outlives its beginning. Turns
//! that entries share are there once, but count in each, so the bound is never exceeded.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What an entry takes besides its text, roughly.
const ITEM_OVERHEAD_BYTES: usize = 64;

/// An item of a conversation.
#[derive(Clone, Debug)]
pub(crate) struct StoredItem {
    pub(crate) id: Arc<str>,
    pub(crate) json: Arc<str>,
}

/// A response with what it answered.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) id: String,
    /// The response itself.
    pub(crate) json: String,
    /// The conversation before it.
    pub(crate) input: Vec<StoredItem>,
    /// What it added.
    pub(crate) output: Vec<StoredItem>,
}

impl Stored {
    /// The conversation with the response.
    pub(crate) fn items(&self) -> impl Iterator<Item = &StoredItem> {
        self.input.iter().chain(&self.output)
    }

    fn n_bytes(&self) -> usize {
        let item = |item: &StoredItem| item.id.len() + item.json.len() + ITEM_OVERHEAD_BYTES;
        self.id.len() + self.json.len() + self.items().map(item).sum::<usize>()
    }
}

/// The responses.
#[derive(Debug)]
pub(crate) struct Store {
    responses_max: usize,
    bytes_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The oldest first.
    responses: VecDeque<Arc<Stored>>,
    n_bytes: usize,
}

impl Store {
    pub(crate) fn new(responses_max: usize, bytes_max: usize) -> Self {
        Self { responses_max, bytes_max, kept: Mutex::default() }
    }

    /// Keeps a response, unless it alone is more than all may be together.
    pub(crate) fn insert(&self, stored: Stored) {
        let n_bytes = stored.n_bytes();
        if n_bytes > self.bytes_max {
            tracing::info!(response = stored.id, n_bytes, "too large to be stored");
            return;
        }
        let mut kept = self.lock();
        kept.n_bytes += n_bytes;
        kept.responses.push_back(Arc::new(stored));
        while kept.n_bytes > self.bytes_max || kept.responses.len() > self.responses_max {
            let Some(oldest) = kept.responses.pop_front() else { break };
            kept.n_bytes -= oldest.n_bytes();
        }
    }

    pub(crate) fn get(&self, id: &str) -> Option<Arc<Stored>> {
        self.lock().responses.iter().rev().find(|r| r.id == id).cloned()
    }

    /// Forgets a response; false if there is none.
    pub(crate) fn remove(&self, id: &str) -> bool {
        let mut kept = self.lock();
        let Some(i) = kept.responses.iter().position(|r| r.id == id) else { return false };
        if let Some(removed) = kept.responses.remove(i) {
            kept.n_bytes -= removed.n_bytes();
        }
        true
    }

    /// The items of any response by their ids, all in one pass.
    pub(crate) fn items(&self, ids: &HashSet<&str>) -> HashMap<Arc<str>, StoredItem> {
        if ids.is_empty() {
            return HashMap::new();
        }
        let responses: Vec<_> = self.lock().responses.iter().cloned().collect();
        let items = responses.iter().flat_map(|response| response.items());
        let wanted = items.filter(|item| ids.contains(&*item.id));
        wanted.map(|item| (Arc::clone(&item.id), item.clone())).collect()
    }

    /// Nothing that holds the lock can leave it half done.
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(id: &str, n_bytes: usize) -> StoredItem {
        StoredItem { id: id.into(), json: "x".repeat(n_bytes).into() }
    }

    fn response(id: &str, n_bytes: usize) -> Stored {
        let output = vec![item(&format!("item_of_{id}"), n_bytes)];
        Stored { id: id.to_owned(), json: "{}".to_owned(), input: Vec::new(), output }
    }

    fn ids(store: &Store) -> Vec<String> {
        store.lock().responses.iter().map(|r| r.id.clone()).collect()
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let store = Store::new(2, usize::MAX);
        for id in ["a", "b", "c"] {
            store.insert(response(id, 10));
        }
        assert_eq!(ids(&store), ["b", "c"]);
        assert!(store.get("a").is_none() && store.get("b").is_some());
    }

    #[test]
    fn the_oldest_go_when_they_are_too_large() {
        let store = Store::new(100, 1_000);
        for i in 0..50 {
            store.insert(response(&i.to_string(), 200));
            let kept = store.lock();
            assert!(kept.n_bytes <= 1_000, "{} bytes", kept.n_bytes);
            let counted: usize = kept.responses.iter().map(|r| r.n_bytes()).sum();
            assert_eq!(kept.n_bytes, counted);
        }
        assert_eq!(ids(&store), ["47", "48", "49"]);
        store.insert(response("large", 900));
        assert_eq!(ids(&store), ["large"], "it takes the place of all others");
        store.insert(response("too large", 1_000));
        assert_eq!(ids(&store), ["large"], "what fits nowhere drives nothing out");
    }

    #[test]
    fn what_is_removed_makes_room() {
        let store = Store::new(10, 1_000);
        store.insert(response("a", 100));
        store.insert(response("b", 100));
        assert!(store.remove("a") && !store.remove("a"));
        assert!(store.remove("b"));
        assert_eq!(store.lock().n_bytes, 0);
    }

    #[test]
    fn items_are_found_by_their_ids() {
        let store = Store::new(10, 1_000);
        store.insert(response("a", 5));
        store.insert(response("b", 6));
        let found = store.items(&HashSet::from(["item_of_b", "nowhere"]));
        assert_eq!(found.len(), 1);
        assert_eq!(found["item_of_b"].json.len(), 6);
    }
}
