//! Identifiers of answers, calls and requests: unique, but no secret.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// `prefix` and 24 hexadecimal digits.
#[derive(Debug)]
pub(crate) struct Ids {
    /// Two keys that the standard library draws at random.
    keys: [RandomState; 2],
    count: AtomicU64,
}

impl Ids {
    pub(crate) fn new() -> Self {
        Self { keys: [RandomState::new(), RandomState::new()], count: AtomicU64::new(0) }
    }

    pub(crate) fn next(&self, prefix: &str) -> String {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let [high, low] = [self.keys[0].hash_one(count), self.keys[1].hash_one(count)];
        format!("{prefix}{high:016x}{:08x}", low >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ() {
        let (a, b) = (Ids::new(), Ids::new());
        let mut all: Vec<_> = (0..100).flat_map(|_| [a.next("x-"), b.next("x-")]).collect();
        assert!(all.iter().all(|id| id.len() == 26));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 200);
    }
}
