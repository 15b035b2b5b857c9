//! OS threads that run the threadgroups of a dispatch together with the caller.

use super::ffi::{RunFn, SimDispatch};
use super::region::Region;
use crate::DeviceError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// A dispatch that is small enough runs on the caller alone: waking others costs more.
const THREADS_ALONE: u64 = 512;

#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    own: Region,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    finished: Condvar,
}

#[derive(Debug, Default)]
struct State {
    job: Option<Job>,
    /// Counts jobs, so that a helper takes each once.
    turn: u64,
    busy: usize,
    threads: usize,
    failed: Option<String>,
    end: bool,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    run: RunFn,
    dispatch: *mut SimDispatch,
}

// SAFETY: the run-time changes a dispatch by atomic operations only, and `Pool::run` keeps it alive
// until every helper has returned from it.
unsafe impl Send for Job {}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// `threads` includes the caller's.
    pub(super) fn new(threads: usize) -> Result<Self, DeviceError> {
        let mut pool = Self { shared: Arc::default(), helpers: Vec::new(), own: Region::new()? };
        for n in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let region = Region::new()?;
            let spawned = std::thread::Builder::new()
                .name(format!("sim-{n}"))
                .spawn(move || help(&shared, region));
            pool.helpers.push(spawned.map_err(|error| DeviceError::Driver {
                device: "sim",
                call: "spawn",
                reason: error.to_string(),
            })?);
        }
        Ok(pool)
    }

    /// Runs all threadgroups of a dispatch.
    pub(super) fn run(
        &mut self,
        run: RunFn,
        dispatch: &mut SimDispatch,
    ) -> Result<(), DeviceError> {
        let threads = dispatch.threads as usize;
        let groups: u64 = dispatch.groups.iter().map(|n| u64::from(*n)).product();
        self.own.grow(threads)?;
        let dispatch: *mut SimDispatch = dispatch;
        let together =
            groups > 1 && groups * threads as u64 > THREADS_ALONE && !self.helpers.is_empty();
        if together {
            let mut state = self.shared.lock();
            state.job = Some(Job { run, dispatch });
            state.turn += 1;
            state.busy = self.helpers.len();
            state.threads = threads;
            self.shared.changed.notify_all();
        }
        // SAFETY: the region has a stack per thread, and `dispatch` lives until the end of this
        // function, as does everything that it points to.
        unsafe { run(self.own.as_ptr(), dispatch) };
        if !together {
            return Ok(());
        }
        let mut state = self.shared.lock();
        while state.busy > 0 {
            state = self.shared.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.job = None;
        match state.failed.take() {
            Some(reason) => Err(DeviceError::Driver { device: "sim", call: "stacks", reason }),
            None => Ok(()),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().end = true;
        self.shared.changed.notify_all();
        for helper in self.helpers.drain(..) {
            // A helper that panicked has said so already.
            let _ = helper.join();
        }
    }
}

fn help(shared: &Shared, mut region: Region) {
    let mut turn = 0;
    let mut state = shared.lock();
    loop {
        if state.end {
            return;
        }
        let job = match state.job {
            Some(job) if state.turn != turn => job,
            _ => {
                state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
        };
        turn = state.turn;
        let threads = state.threads;
        drop(state);
        let grown = region.grow(threads);
        if grown.is_ok() {
            // SAFETY: the region has a stack per thread; the dispatch is alive as long as `busy`
            // counts this thread.
            unsafe { (job.run)(region.as_ptr(), job.dispatch) };
        }
        state = shared.lock();
        if let Err(error) = grown {
            state.failed = Some(error.to_string());
        }
        state.busy -= 1;
        if state.busy == 0 {
            shared.finished.notify_all();
        }
    }
}
