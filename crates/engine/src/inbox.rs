//! What callers and the engine thread share: the bounded queue, the phase and the counters.

use crate::job::Job;
use crate::limits::RETRY_AFTER_S_MAX;
use crate::{EngineEnd, EngineError, EngineStats, SubmitError};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The queue of one engine.
#[derive(Debug)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    /// A job came, the phase changed or the thread ended.
    changed: Condvar,
    max_running: usize,
    max_queued: usize,
    pub(crate) counters: Counters,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    queue: VecDeque<Job>,
    n_running: usize,
    /// Seconds that recent requests took from admission to end.
    service_s: Option<f64>,
    /// When it was last looked for who left the queue.
    swept: Option<Instant>,
}

/// How soon those who leave the queue are let go while others are computed: their memory waits for
/// no one, since they have none yet.
const SWEEP_INTERVAL: Duration = Duration::from_millis(20);

/// What callers want of the engine; it only moves down this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Open,
    /// Finish what was accepted.
    Draining,
    /// Fail what was accepted.
    Stopping,
    /// The thread is gone.
    Ended(EngineEnd),
}

/// What the thread has to do next.
#[derive(Debug)]
pub(crate) enum Intake {
    /// Take these on; let go of those, which were cancelled or are too late.
    Work { admitted: Vec<Job>, departed: Vec<(Job, Option<EngineError>)> },
    /// End.
    End(EngineEnd),
}

/// Numbers that are read without the lock.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    n_queued: AtomicUsize,
    n_running: AtomicUsize,
    n_requests: AtomicU64,
    pub(crate) n_cancelled: AtomicU64,
    pub(crate) n_prompt_tokens: AtomicU64,
    pub(crate) n_generated_tokens: AtomicU64,
    pub(crate) prefill_ns: AtomicU64,
    pub(crate) decode_ns: AtomicU64,
    n_cache_entries: AtomicUsize,
    cache_bytes: AtomicUsize,
}

impl Inbox {
    pub(crate) fn new(max_running: usize, max_queued: usize) -> Self {
        let state = State {
            phase: Phase::Open,
            queue: VecDeque::new(),
            n_running: 0,
            service_s: None,
            swept: None,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            max_running,
            max_queued,
            counters: Counters::default(),
        }
    }

    /// Whether a request would be accepted now; asked before its prompt is rendered.
    ///
    /// # Errors
    /// [`SubmitError::Busy`] and [`SubmitError::Stopped`].
    pub(crate) fn check_open(&self) -> Result<(), SubmitError> {
        let mut state = self.lock();
        let dropped = self.check(&mut state);
        drop(state);
        dropped.map(drop)
    }

    /// Queues a job.
    ///
    /// # Errors
    /// As [`Self::check_open`].
    pub(crate) fn push(&self, job: Job) -> Result<(), SubmitError> {
        let mut state = self.lock();
        let dropped = self.check(&mut state)?;
        state.queue.push_back(job);
        self.counters.n_requests.fetch_add(1, Ordering::Relaxed);
        self.publish(&state);
        drop(state);
        self.changed.notify_all();
        drop(dropped);
        Ok(())
    }

    /// Makes room by letting go of cancelled jobs, which are returned so that they are freed
    /// outside the lock.
    fn check(&self, state: &mut State) -> Result<Vec<Job>, SubmitError> {
        if state.phase != Phase::Open {
            return Err(SubmitError::Stopped);
        }
        let has_room = |state: &State| {
            state.queue.len() + state.n_running < self.max_queued.saturating_add(self.max_running)
        };
        let mut dropped = Vec::new();
        if !has_room(state) {
            dropped.extend(remove(&mut state.queue, Job::is_cancelled));
            self.counters.n_cancelled.fetch_add(dropped.len() as u64, Ordering::Relaxed);
            self.publish(state);
        }
        if has_room(state) {
            return Ok(dropped);
        }
        let n_queued = state.queue.len();
        Err(SubmitError::Busy { n_queued, retry_after_s: self.retry_after_s(state) })
    }

    /// When all that wait have had their turn at the recent pace, in whole seconds.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to a small positive range"
    )]
    fn retry_after_s(&self, state: &State) -> u64 {
        let rounds = (state.queue.len() + 1) as f64 / self.max_running as f64;
        let seconds = state.service_s.unwrap_or(1.0) * rounds;
        seconds.ceil().clamp(1.0, RETRY_AFTER_S_MAX as f64) as u64
    }

    /// Asks for a later phase.
    pub(crate) fn advance(&self, phase: Phase) {
        let mut state = self.lock();
        state.phase = state.phase.max(phase);
        drop(state);
        self.changed.notify_all();
    }

    /// Whether what runs is to fail at once.
    pub(crate) fn is_stopping(&self) -> bool {
        self.phase() >= Phase::Stopping
    }

    pub(crate) fn phase(&self) -> Phase {
        self.lock().phase
    }

    /// Waits until the thread has ended.
    pub(crate) fn wait(&self) -> EngineEnd {
        let mut state = self.lock();
        loop {
            if let Phase::Ended(end) = state.phase {
                return end;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next things to do; waits if there are none and `idle`.
    pub(crate) fn take(&self, idle: bool, admits: bool) -> Intake {
        let mut state = self.lock();
        loop {
            if state.phase == Phase::Stopping {
                return Intake::End(EngineEnd::Stopped);
            }
            let now = Instant::now();
            let leaves = |job: &Job| job.is_cancelled() || job.deadline_error(now).is_some();
            // A long queue is not looked through for every token.
            let swept_lately = state.swept.is_some_and(|t| now - t < SWEEP_INTERVAL);
            let departed: Vec<_> = if idle || !swept_lately {
                state.swept = Some(now);
                let gone = remove(&mut state.queue, leaves).map(|job| {
                    let error = job.deadline_error(now).filter(|_| !job.is_cancelled());
                    (job, error)
                });
                gone.collect()
            } else {
                Vec::new()
            };
            let n_free = if admits { self.max_running - state.n_running } else { 0 };
            let n_admitted = n_free.min(state.queue.len());
            let admitted: Vec<Job> = state.queue.drain(..n_admitted).collect();
            state.n_running += admitted.len();
            self.publish(&state);
            if !idle || !admitted.is_empty() || !departed.is_empty() {
                return Intake::Work { admitted, departed };
            }
            if state.phase == Phase::Draining {
                return Intake::End(EngineEnd::Drained);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Puts an admitted job back to the head of the queue.
    pub(crate) fn put_back(&self, job: Job) {
        let mut state = self.lock();
        state.n_running -= 1;
        state.queue.push_front(job);
        self.publish(&state);
    }

    /// Frees the place of a job that ended after this time in it.
    pub(crate) fn release(&self, service: Duration) {
        let mut state = self.lock();
        state.n_running -= 1;
        // A moving average over about the last eight.
        let new = service.as_secs_f64();
        state.service_s = Some(state.service_s.map_or(new, |old| old + (new - old) / 8.0));
        self.publish(&state);
    }

    /// Accepts nothing more and gives up the queue.
    pub(crate) fn close(&self) -> Vec<Job> {
        let mut state = self.lock();
        state.phase = state.phase.max(Phase::Stopping);
        let queue = state.queue.drain(..).collect();
        state.n_running = 0;
        self.publish(&state);
        queue
    }

    /// The last act of the thread.
    pub(crate) fn end(&self, end: EngineEnd) {
        self.advance(Phase::Ended(end));
    }

    /// A panic elsewhere leaves the state whole: no code in here panics between two changes.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, state: &State) {
        self.counters.n_queued.store(state.queue.len(), Ordering::Relaxed);
        self.counters.n_running.store(state.n_running, Ordering::Relaxed);
    }
}

/// Takes some jobs out and keeps the order of the others.
fn remove(queue: &mut VecDeque<Job>, leaves: impl Fn(&Job) -> bool) -> impl Iterator<Item = Job> {
    let mut removed = Vec::new();
    if queue.iter().any(&leaves) {
        for job in std::mem::take(queue) {
            if leaves(&job) { removed.push(job) } else { queue.push_back(job) }
        }
    }
    removed.into_iter()
}

impl Counters {
    pub(crate) fn stats(&self) -> EngineStats {
        let seconds = |ns: &AtomicU64| ns.load(Ordering::Relaxed) as f64 / 1e9;
        EngineStats {
            n_queued: self.n_queued.load(Ordering::Relaxed),
            n_running: self.n_running.load(Ordering::Relaxed),
            n_requests: self.n_requests.load(Ordering::Relaxed),
            n_cancelled: self.n_cancelled.load(Ordering::Relaxed),
            n_prompt_tokens: self.n_prompt_tokens.load(Ordering::Relaxed),
            n_generated_tokens: self.n_generated_tokens.load(Ordering::Relaxed),
            prefill_s: seconds(&self.prefill_ns),
            decode_s: seconds(&self.decode_ns),
            n_cache_entries: self.n_cache_entries.load(Ordering::Relaxed),
            cache_bytes: self.cache_bytes.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn set_cache(&self, n_entries: usize, bytes: usize) {
        self.n_cache_entries.store(n_entries, Ordering::Relaxed);
        self.cache_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Counts a pass: its time goes to prompts and answers by their tokens.
    pub(crate) fn add_pass(&self, time: Duration, n_prompt: usize, n_decoded: usize) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (n_prompt, n_decoded) = (n_prompt as u64, n_decoded as u64);
        let n_tokens = (n_prompt + n_decoded).max(1);
        let prefill_ns = ns.saturating_mul(n_prompt) / n_tokens;
        self.prefill_ns.fetch_add(prefill_ns, Ordering::Relaxed);
        self.decode_ns.fetch_add(ns.saturating_sub(prefill_ns), Ordering::Relaxed);
        self.n_prompt_tokens.fetch_add(n_prompt, Ordering::Relaxed);
    }
}
