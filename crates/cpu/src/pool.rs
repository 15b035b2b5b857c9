//! Fork-join over a fixed set of threads.
//!
//! A forward pass has a few hundred short parallel stages, so joining must cost about a
//! microsecond: idle workers spin for a while before they sleep. Tasks are claimed from a counter,
//! and a job waits only for workers that joined it, so a worker that lost its core to another
//! process slows a stage by at most the task it holds.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longer than the gaps between the stages of a forward pass, shorter than anyone notices.
const SPIN: Duration = Duration::from_micros(200);

/// `state` holds the number of the job in the upper half, whether it may be joined, and how many
/// workers are in it.
const OPEN: u64 = 1 << 31;
const JOINED: u64 = OPEN - 1;
const JOB_SHIFT: u32 = 32;

type Task<'a> = &'a (dyn Fn(usize) + Sync);

thread_local! {
    /// Whether this thread is inside a task: a nested job runs in place.
    static IN_TASK: Cell<bool> = const { Cell::new(false) };
}

/// A set of threads that runs one job at a time. Dropping it ends the threads.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held while a job runs.
    running: Mutex<()>,
}

#[derive(Debug)]
struct Shared {
    state: AtomicU64,
    job: UnsafeCell<Job>,
    next_task: AtomicUsize,
    n_sleeping: AtomicUsize,
    ended: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

#[derive(Clone, Copy)]
struct Job {
    /// Points to the closure of the caller of `run`, who does not return while anyone uses it.
    task: *const (dyn Fn(usize) + Sync),
    n_tasks: usize,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("n_tasks", &self.n_tasks).finish_non_exhaustive()
    }
}

// SAFETY: `job` is written only while no worker can read it (the job is closed and nobody is
// joined), and the closure behind it is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer in `job` is only followed by joined workers.
unsafe impl Send for Shared {}

impl Pool {
    /// A pool of `n_threads`, the caller of [`Pool::run`] being one of them.
    pub fn new(n_threads: usize) -> Self {
        let nothing: *const (dyn Fn(usize) + Sync) = &|_: usize| {};
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: UnsafeCell::new(Job { task: nothing, n_tasks: 0 }),
            next_task: AtomicUsize::new(0),
            n_sleeping: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            panic: Mutex::new(None),
        });
        let workers = (1..n_threads)
            .map_while(|i| {
                let shared = Arc::clone(&shared);
                // Without a thread the pool is smaller, not broken.
                let builder = thread::Builder::new().name(format!("lily-cpu-{i}"));
                builder.spawn(move || shared.work()).ok()
            })
            .collect();
        Self { shared, workers, running: Mutex::new(()) }
    }

    /// Threads, the caller's included.
    pub fn n_threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task(0..n_tasks)`, each exactly once, on any thread, and returns when all are done.
    ///
    /// # Panics
    /// With the payload of the first task that panicked, after all others are done.
    pub fn run(&self, n_tasks: usize, task: Task<'_>) {
        if n_tasks <= 1 || self.workers.is_empty() || IN_TASK.get() {
            (0..n_tasks).for_each(task);
            return;
        }
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.open(task, n_tasks, &self.workers);
        self.shared.run_tasks(task, n_tasks);
        self.shared.close();
        let panic = self.shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(running);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }

    /// Calls `f(i, chunk)` for the chunks of `data`, the last of which may be shorter.
    pub fn for_each_chunk<T: Send>(
        &self,
        data: &mut [T],
        chunk_len: usize,
        f: &(dyn Fn(usize, &mut [T]) + Sync),
    ) {
        let len = data.len();
        let split = crate::split::Split::new(data);
        self.run(len.div_ceil(chunk_len.max(1)), &|i| {
            let start = i * chunk_len;
            // SAFETY: chunks of different tasks do not overlap.
            let chunk = unsafe { split.part(start..(start + chunk_len).min(len)) };
            f(i, chunk);
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches the panics of its tasks, so joining cannot fail.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// Publishes a job and wakes who sleeps.
    fn open(&self, task: Task<'_>, n_tasks: usize, workers: &[JoinHandle<()>]) {
        // SAFETY: only the lifetime changes; `close` returns before the closure ends, and nobody
        // follows the reference after that.
        let task = unsafe {
            std::mem::transmute::<Task<'_>, &'static (dyn Fn(usize) + Sync + 'static)>(task)
        };
        // SAFETY: the last job is closed and left, so no worker reads this.
        unsafe { *self.job.get() = Job { task, n_tasks } };
        self.next_task.store(0, Ordering::Relaxed);
        let job = (self.state.load(Ordering::Relaxed) >> JOB_SHIFT).wrapping_add(1);
        self.state.store(job << JOB_SHIFT | OPEN, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.n_sleeping.load(Ordering::Relaxed) > 0 {
            for worker in workers {
                worker.thread().unpark();
            }
        }
    }

    /// Lets nobody join any more and waits for who did.
    fn close(&self) {
        let mut state = self.state.fetch_and(!OPEN, Ordering::AcqRel) & !OPEN;
        let start = Instant::now();
        while state & JOINED != 0 {
            // A worker without a core needs this one to finish its task.
            if start.elapsed() > SPIN {
                thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
            state = self.state.load(Ordering::Acquire);
        }
    }

    fn run_tasks(&self, task: Task<'_>, n_tasks: usize) {
        IN_TASK.set(true);
        loop {
            let i = self.next_task.fetch_add(1, Ordering::Relaxed);
            if i >= n_tasks {
                break;
            }
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| task(i))) {
                let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert(payload);
            }
        }
        IN_TASK.set(false);
    }

    /// The life of a worker.
    fn work(&self) {
        let mut last_job = 0;
        let mut idle_since = Instant::now();
        let mut n_spins = 0_u32;
        while !self.ended.load(Ordering::Relaxed) {
            let state = self.state.load(Ordering::Acquire);
            let job = state >> JOB_SHIFT;
            if state & OPEN != 0 && job != last_job {
                let joined = self.state.compare_exchange(
                    state,
                    state + 1,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                if joined.is_ok() {
                    last_job = job;
                    // SAFETY: joined, so the caller neither changes the job nor returns.
                    let Job { task, n_tasks } = unsafe { *self.job.get() };
                    // SAFETY: the closure lives until the caller has seen this worker leave.
                    let task = unsafe { &*task };
                    self.run_tasks(task, n_tasks);
                    self.state.fetch_sub(1, Ordering::Release);
                    idle_since = Instant::now();
                    n_spins = 0;
                }
                continue;
            }
            n_spins += 1;
            // Reading the clock is dearer than a spin.
            if !n_spins.is_multiple_of(64) || idle_since.elapsed() < SPIN {
                std::hint::spin_loop();
                continue;
            }
            self.n_sleeping.fetch_add(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            let state = self.state.load(Ordering::Acquire);
            let has_work = state & OPEN != 0 && state >> JOB_SHIFT != last_job;
            if !has_work && !self.ended.load(Ordering::SeqCst) {
                thread::park();
            }
            self.n_sleeping.fetch_sub(1, Ordering::SeqCst);
            idle_since = Instant::now();
        }
    }
}

/// Physical cores this process may use, at least 1.
///
/// Two threads of one core share its vector units, so more threads than cores only wait for each
/// other. The affinity mask and cgroup limits count through `available_parallelism`.
pub fn physical_cores() -> usize {
    let logical = thread::available_parallelism().map_or(1, usize::from);
    logical.div_ceil(threads_per_core()).max(1)
}

#[cfg(target_os = "linux")]
fn threads_per_core() -> usize {
    // "0" alone, or "0,64" or "0-1" for a core with two threads.
    let path = "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list";
    let list = std::fs::read_to_string(path).unwrap_or_default();
    list.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)? + 1)
        })
        .sum::<usize>()
        .max(1)
}

/// Apple silicon has one thread per core.
#[cfg(not(target_os = "linux"))]
fn threads_per_core() -> usize {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once() {
        for n_threads in [1, 2, 3, 8] {
            let pool = Pool::new(n_threads);
            for n_tasks in [0, 1, 2, 7, 1000] {
                let counts: Vec<AtomicUsize> = (0..n_tasks).map(|_| AtomicUsize::new(0)).collect();
                for _ in 0..50 {
                    pool.run(n_tasks, &|i| {
                        counts[i].fetch_add(1, Ordering::Relaxed);
                    });
                }
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 50));
            }
        }
    }

    #[test]
    fn sleeping_workers_wake() {
        let pool = Pool::new(2);
        let sum = AtomicUsize::new(0);
        for _ in 0..20 {
            thread::sleep(SPIN * 3);
            pool.run(2, &|i| {
                sum.fetch_add(i + 1, Ordering::Relaxed);
            });
        }
        assert_eq!(sum.load(Ordering::Relaxed), 60);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(3);
        let done = AtomicUsize::new(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.run(100, &|i| {
                assert_ne!(i, 31, "the planted panic");
                done.fetch_add(1, Ordering::Relaxed);
            });
        }));
        assert!(result.is_err());
        assert_eq!(done.load(Ordering::Relaxed), 99);
        let after = AtomicUsize::new(0);
        pool.run(10, &|_| {
            after.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(after.load(Ordering::Relaxed), 10);
    }

    #[test]
    fn chunks_cover_the_slice() {
        let pool = Pool::new(2);
        let mut data = vec![0_usize; 1003];
        pool.for_each_chunk(&mut data, 10, &|i, chunk| chunk.fill(i + 1));
        assert!(data.iter().enumerate().all(|(i, &x)| x == i / 10 + 1));
    }

    #[test]
    fn a_job_inside_a_task_runs_in_place() {
        let pool = Pool::new(2);
        let sum = AtomicUsize::new(0);
        pool.run(4, &|_| {
            pool.run(4, &|_| {
                sum.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(sum.load(Ordering::Relaxed), 16);
    }
}
