//! The structs and functions that host and run-time share; `kernels/shim/sim_api.h` has the same.

use std::ffi::{c_char, c_void};

/// A kernel's entry.
pub(super) type EntryFn = unsafe extern "C" fn(*const SimDispatch, *const u32, u32);
/// Runs threadgroups of a dispatch in a region until none is left.
pub(super) type RunFn = unsafe extern "C" fn(*mut c_void, *mut SimDispatch);

/// Who touched four bytes of device memory last.
#[repr(C)]
pub(super) struct SimCell {
    write: u64,
    read: u64,
    other_read: u64,
}

/// Bytes that a kernel may touch.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct SimBinding {
    pub(super) lo: usize,
    pub(super) len: usize,
    pub(super) base: usize,
    pub(super) defined: *mut u8,
    pub(super) cells: *mut SimCell,
    pub(super) name: *const c_char,
    pub(super) writable: u32,
    pub(super) kind: u32,
}

/// What went wrong, as text.
#[repr(C)]
pub(super) struct SimFault {
    pub(super) pc: usize,
    pub(super) other_stamp: u32,
    pub(super) text: [c_char; 1004],
}

/// A running dispatch.
#[repr(C)]
pub(super) struct SimDispatch {
    pub(super) kernel: EntryFn,
    pub(super) buffers: *const *mut c_void,
    pub(super) params: *const u32,
    pub(super) bindings: *const SimBinding,
    pub(super) seed: u64,
    pub(super) n_bindings: u32,
    pub(super) groups: [u32; 3],
    pub(super) threads: u32,
    pub(super) first_stamp: u32,
    pub(super) interval_stamp: u32,
    pub(super) next: u32,
    pub(super) stop: u32,
    pub(super) fault: SimFault,
}

/// Bits of a region's size.
pub(super) const REGION_BITS: u32 = 28;
/// Bits of a fibre's stack.
pub(super) const SLOT_BITS: u32 = 17;
/// Slots before the first stack.
pub(super) const FIRST_SLOT: usize = 8;
/// Threads of a threadgroup.
pub(super) const THREADS_MAX: usize = 1024;
/// Bindings of a dispatch; the run-time keeps room for threadgroup arrays beside them.
pub(super) const BUFFERS_MAX: usize = 31;
/// Stamps of threadgroups have this many bits.
pub(super) const STAMP_BITS: u32 = 28;
