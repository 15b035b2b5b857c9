//! The requests in progress, for those who look at the server.

use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// All requests in progress, in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct Active {
    requests: Mutex<Requests>,
}

#[derive(Debug, Default)]
struct Requests {
    n_ever: u64,
    by_number: BTreeMap<u64, Arc<Progress>>,
}

/// How far a request is.
#[derive(Debug)]
struct Progress {
    request: String,
    arrived: Instant,
    choices: usize,
    stream: bool,
    prompt_tokens: AtomicUsize,
    generated_tokens: AtomicUsize,
}

/// A request's place among them; dropping it removes it.
#[derive(Debug)]
pub(crate) struct Place {
    active: Arc<Active>,
    number: u64,
    progress: Arc<Progress>,
}

/// A request as it is shown.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    request: String,
    age_s: f64,
    choices: usize,
    stream: bool,
    /// `waiting` for its prompt to be computed, or `writing`.
    state: &'static str,
    /// 0 while waiting.
    prompt_tokens: usize,
    generated_tokens: usize,
}

impl Active {
    pub(crate) fn enter(
        self: &Arc<Self>,
        request: String,
        arrived: Instant,
        choices: usize,
        stream: bool,
    ) -> Place {
        let (prompt_tokens, generated_tokens) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let progress = Arc::new(Progress {
            request,
            arrived,
            choices,
            stream,
            prompt_tokens,
            generated_tokens,
        });
        let mut requests = self.lock();
        let number = requests.n_ever;
        requests.n_ever += 1;
        requests.by_number.insert(number, Arc::clone(&progress));
        Place { active: Arc::clone(self), number, progress }
    }

    pub(crate) fn list(&self) -> Vec<Shown> {
        let all: Vec<_> = self.lock().by_number.values().cloned().collect();
        all.into_iter()
            .map(|p| {
                let prompt_tokens = p.prompt_tokens.load(Ordering::Relaxed);
                Shown {
                    request: p.request.clone(),
                    age_s: (p.arrived.elapsed().as_secs_f64() * 1e3).round() / 1e3,
                    choices: p.choices,
                    stream: p.stream,
                    state: if prompt_tokens == 0 { "waiting" } else { "writing" },
                    prompt_tokens,
                    generated_tokens: p.generated_tokens.load(Ordering::Relaxed),
                }
            })
            .collect()
    }

    /// Nothing that panics happens under this lock.
    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub(crate) fn opened(&self, prompt_tokens: usize) {
        self.progress.prompt_tokens.store(prompt_tokens, Ordering::Relaxed);
    }

    pub(crate) fn step(&self) {
        self.progress.generated_tokens.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.active.lock().by_number.remove(&self.number);
    }
}
