//! Address space for a threadgroup's fibres: state, then stacks with a guard page each.

use super::ffi::{FIRST_SLOT, REGION_BITS, SLOT_BITS, THREADS_MAX};
use crate::DeviceError;
use std::ffi::c_void;
use std::io::Error;
use std::ptr;

const REGION_BYTES: usize = 1 << REGION_BITS;
const SLOT_BYTES: usize = 1 << SLOT_BITS;
/// The largest page of the machines that we know.
const GUARD_BYTES: usize = 16 << 10;

/// Aligned to its size, so that the run-time finds it from any stack pointer in it.
#[derive(Debug)]
pub(super) struct Region {
    start: *mut u8,
    /// Stacks that can be written.
    n_stacks: usize,
}

// SAFETY: a region is plain memory; whoever owns it runs one dispatch in it at a time.
unsafe impl Send for Region {}

fn failed(call: &'static str) -> DeviceError {
    DeviceError::Driver { device: "sim", call, reason: Error::last_os_error().to_string() }
}

impl Region {
    /// Reserves the addresses; the state is zero and no stack exists yet.
    pub(super) fn new() -> Result<Self, DeviceError> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE;
        // Twice the size contains one aligned region.
        // SAFETY: a new anonymous mapping touches nothing that exists.
        let mapped =
            unsafe { libc::mmap(ptr::null_mut(), 2 * REGION_BYTES, libc::PROT_NONE, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(failed("mmap"));
        }
        let mapped = mapped.cast::<u8>();
        let before = mapped.align_offset(REGION_BYTES);
        let start = mapped.wrapping_add(before);
        if before > 0 {
            // SAFETY: the part before the region is ours and unused.
            unsafe { libc::munmap(mapped.cast(), before) };
        }
        if before < REGION_BYTES {
            let after = start.wrapping_add(REGION_BYTES);
            // SAFETY: the part after the region is ours and unused.
            unsafe { libc::munmap(after.cast(), REGION_BYTES - before) };
        }
        let region = Self { start, n_stacks: 0 };
        region.open(0, FIRST_SLOT * SLOT_BYTES)?;
        Ok(region)
    }

    fn open(&self, offset: usize, len: usize) -> Result<(), DeviceError> {
        let from = self.start.wrapping_add(offset).cast();
        // SAFETY: the range lies in the region, which only this value knows.
        let done = unsafe { libc::mprotect(from, len, libc::PROT_READ | libc::PROT_WRITE) };
        if done == 0 { Ok(()) } else { Err(failed("mprotect")) }
    }

    /// Makes stacks for `threads` fibres. The lowest page of a stack stays closed.
    pub(super) fn grow(&mut self, threads: usize) -> Result<(), DeviceError> {
        assert!(threads <= THREADS_MAX, "a threadgroup of {threads} threads");
        while self.n_stacks < threads {
            let slot = FIRST_SLOT + self.n_stacks;
            self.open(slot * SLOT_BYTES + GUARD_BYTES, SLOT_BYTES - GUARD_BYTES)?;
            self.n_stacks += 1;
        }
        Ok(())
    }

    pub(super) fn as_ptr(&self) -> *mut c_void {
        self.start.cast()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: no fibre runs, because whoever runs them borrows the region.
        unsafe { libc::munmap(self.start.cast(), REGION_BYTES) };
    }
}
