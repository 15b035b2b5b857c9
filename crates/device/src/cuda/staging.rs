//! Page-locked host memory through which bytes go to the GPU and come back, at the speed of the bus
//! and without waiting for it.

use super::driver::{Failure, Opaque};
use super::gpu::Gpu;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;

/// Copies of at least this size are spread over threads: one thread fills page-locked memory at
/// less than half the speed of the bus, and waits for page faults of mapped files.
const PARALLEL_BYTES_MIN: usize = 4 << 20;
const COPY_THREADS_MAX: usize = 8;

/// A ring of slots of equal size.
#[derive(Debug)]
pub(super) struct Staging {
    gpu: Arc<Gpu>,
    base: NonNull<u8>,
    slot_bytes: usize,
    /// One a slot: its last copy is done.
    done: Vec<Opaque>,
    next: usize,
}

// SAFETY: the memory belongs to this value alone, and CUDA's handles may go to any thread.
unsafe impl Send for Staging {}

impl Staging {
    /// `n` slots of `slot_bytes`.
    pub(super) fn new(gpu: &Arc<Gpu>, n: usize, slot_bytes: usize) -> Result<Self, Failure> {
        let base = gpu.driver.host_alloc(n * slot_bytes)?;
        let mut staging =
            Self { gpu: Arc::clone(gpu), base, slot_bytes, done: Vec::new(), next: 0 };
        for _ in 0..n {
            staging.done.push(gpu.driver.event_create()?);
        }
        Ok(staging)
    }

    /// Largest copy that needs one slot only.
    pub(super) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Copies `bytes` to device memory, on the stream. Returns once `bytes` are no longer needed.
    pub(super) fn send(&mut self, dst: u64, bytes: &[u8]) -> Result<(), Failure> {
        let mut at = dst;
        for chunk in bytes.chunks(self.slot_bytes) {
            let slot = self.take_slot()?;
            copy(chunk, self.slot_mut(slot, chunk.len()));
            let src = self.slot_address(slot);
            // SAFETY: the slot is used again only after its event; `dst` holds all of `bytes`,
            // which the caller has checked.
            unsafe { self.gpu.driver.copy_to_device(at, src, chunk.len(), self.gpu.stream) }?;
            self.gpu.driver.event_record(self.done[slot], self.gpu.stream)?;
            at += chunk.len() as u64;
        }
        Ok(())
    }

    /// Copies device memory to `out`, after everything on the stream.
    pub(super) fn receive(&mut self, src: u64, out: &mut [u8]) -> Result<(), Failure> {
        let len = out.len();
        let mut pending: Option<(usize, Range<usize>)> = None;
        for start in (0..len).step_by(self.slot_bytes) {
            let range = start..len.min(start + self.slot_bytes);
            let slot = self.take_slot()?;
            let dst = self.slot_address(slot);
            let at = src + start as u64;
            // SAFETY: the slot is read only after its event; `src` is at least as long as `out`,
            // which the caller has checked.
            unsafe { self.gpu.driver.copy_to_host(dst, at, range.len(), self.gpu.stream) }?;
            self.gpu.driver.event_record(self.done[slot], self.gpu.stream)?;
            // While this one is on its way, the one before is taken out.
            if let Some((slot, range)) = pending.replace((slot, range)) {
                self.take_out(slot, &mut out[range])?;
            }
        }
        match pending {
            Some((slot, range)) => self.take_out(slot, &mut out[range]),
            None => Ok(()),
        }
    }

    fn take_out(&mut self, slot: usize, out: &mut [u8]) -> Result<(), Failure> {
        self.gpu.driver.event_wait(self.done[slot])?;
        copy(self.slot_mut(slot, out.len()), out);
        Ok(())
    }

    /// The next slot, once its last copy is done.
    fn take_slot(&mut self) -> Result<usize, Failure> {
        let slot = self.next;
        self.next = (self.next + 1) % self.done.len();
        self.gpu.driver.event_wait(self.done[slot])?;
        Ok(slot)
    }

    fn slot_address(&self, slot: usize) -> NonNull<u8> {
        // SAFETY: the allocation has room for all slots.
        unsafe { self.base.add(slot * self.slot_bytes) }
    }

    fn slot_mut(&mut self, slot: usize, len: usize) -> &mut [u8] {
        assert!(len <= self.slot_bytes, "{len} bytes in a slot of {}", self.slot_bytes);
        let address = self.slot_address(slot).as_ptr();
        // SAFETY: the slot has these bytes, which the driver gave as zeros or a copy filled, and no
        // copy is on its way, as its event was waited for.
        unsafe { std::slice::from_raw_parts_mut(address, len) }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // A lost context has stopped its copies already.
        let _ = self.gpu.bind();
        let _ = self.gpu.driver.stream_wait(self.gpu.stream);
        for event in self.done.drain(..) {
            let _ = self.gpu.driver.event_destroy(event);
        }
        let _ = self.gpu.driver.host_free(self.base);
    }
}

/// `dst = src`, on several threads if that pays.
fn copy(src: &[u8], dst: &mut [u8]) {
    if src.len() < PARALLEL_BYTES_MIN {
        dst.copy_from_slice(src);
        return;
    }
    let n_threads = thread::available_parallelism().map_or(1, |n| n.get().min(COPY_THREADS_MAX));
    let part = src.len().div_ceil(n_threads);
    thread::scope(|scope| {
        for (src, dst) in src.chunks(part).zip(dst.chunks_mut(part)) {
            scope.spawn(move || dst.copy_from_slice(src));
        }
    });
}
