//! Buffers, and what is known about their bytes: which are defined, and who touched them last.

use super::ffi::SimCell;
use crate::{HostBytes, Memory};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::any::Any;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// NaN as f32, bf16 and f16; far outside as an index.
const UNDEFINED: u8 = 0xff;

/// What `defined` looks like where everything is.
const ALL_DEFINED: [u8; 1024] = [0xf; 1024];

/// Zeroed memory that C++ reads and writes.
#[derive(Debug)]
struct Raw {
    ptr: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain bytes. Kernels and the functions below touch them while the device is locked; the
// run-time orders its own threads.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

impl Raw {
    fn zeroed(len: usize) -> Self {
        let layout = Layout::from_size_align(len.max(1), 256).expect("a length below isize::MAX");
        // SAFETY: the layout is not empty.
        let ptr = unsafe { alloc_zeroed(layout) };
        let ptr = NonNull::new(ptr).unwrap_or_else(|| handle_alloc_error(layout));
        Self { ptr, layout }
    }

    fn range(&self, range: &Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.layout.size(), "inside the memory");
        self.ptr.as_ptr().wrapping_add(range.start)
    }

    fn fill(&self, range: &Range<usize>, byte: u8) {
        // SAFETY: `range` checks the bounds; the device's lock keeps others away.
        unsafe { self.range(range).write_bytes(byte, range.len()) };
    }

    fn byte(&self, idx: usize) -> u8 {
        // SAFETY: as in `fill`.
        unsafe { self.range(&(idx..idx + 1)).read() }
    }

    fn or(&self, idx: usize, bits: u8) {
        let byte = self.byte(idx);
        self.fill(&(idx..idx + 1), byte | bits);
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: made by `zeroed` with this layout.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) };
    }
}

#[derive(Debug)]
enum Bytes {
    Own(Raw),
    Host(HostBytes),
}

/// The memory behind a buffer of the simulator.
#[derive(Debug)]
pub(super) struct SimMemory {
    label: String,
    len: usize,
    bytes: Bytes,
    /// One byte for four, whose low bits say which are defined; none where all are.
    defined: Option<Raw>,
    /// Whether all are: the answer for weights, which are bound in every dispatch.
    complete: AtomicBool,
    cells: OnceLock<Raw>,
    account: Account,
}

/// Bytes that count against the limit of a device until this goes.
#[derive(Debug)]
pub(super) struct Account {
    used: Arc<AtomicU64>,
    bytes: u64,
}

impl Account {
    /// Books `bytes`, or says how many are left.
    pub(super) fn open(used: &Arc<AtomicU64>, bytes: u64, limit: u64) -> Result<Self, u64> {
        let booked = used.try_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= limit)
        });
        match booked {
            Ok(_) => Ok(Self { used: Arc::clone(used), bytes }),
            Err(used) => Err(limit - used),
        }
    }

    pub(super) fn is_of(&self, used: &Arc<AtomicU64>) -> bool {
        Arc::ptr_eq(&self.used, used)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl SimMemory {
    /// Undefined memory; `checked` keeps track of it.
    pub(super) fn undefined(len: usize, label: &str, checked: bool, account: Account) -> Self {
        let bytes = Raw::zeroed(len);
        bytes.fill(&(0..len), UNDEFINED);
        let defined = checked.then(|| Raw::zeroed(len.div_ceil(4)));
        Self {
            label: label.to_owned(),
            len,
            bytes: Bytes::Own(bytes),
            defined,
            complete: AtomicBool::new(false),
            cells: OnceLock::new(),
            account,
        }
    }

    /// Memory of the host, shared.
    pub(super) fn shared(bytes: &HostBytes, label: &str, account: Account) -> Self {
        Self {
            label: label.to_owned(),
            len: bytes.as_slice().len(),
            bytes: Bytes::Host(bytes.clone()),
            defined: None,
            complete: AtomicBool::new(true),
            cells: OnceLock::new(),
            account,
        }
    }

    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    /// Whether kernels may write.
    pub(super) fn is_writable(&self) -> bool {
        matches!(self.bytes, Bytes::Own(_))
    }

    pub(super) fn as_ptr(&self) -> *mut u8 {
        match &self.bytes {
            Bytes::Own(raw) => raw.ptr.as_ptr(),
            Bytes::Host(bytes) => bytes.as_slice().as_ptr().cast_mut(),
        }
    }

    fn own(&self) -> &Raw {
        match &self.bytes {
            Bytes::Own(raw) => raw,
            Bytes::Host(_) => panic!("{} is memory of the host", self.label),
        }
    }

    /// Copies to `range.start` and on.
    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        let range = at..at + bytes.len();
        let to = self.own().range(&range);
        // SAFETY: `range` checks the bounds, and a caller's slice does not overlap our memory.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        self.define(&range);
    }

    /// Copies from `at` on.
    pub(super) fn read(&self, at: usize, out: &mut [u8]) {
        match &self.bytes {
            Bytes::Own(raw) => {
                let from = raw.range(&(at..at + out.len()));
                // SAFETY: `range` checks the bounds, and a caller's slice does not overlap ours.
                unsafe { from.copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
            }
            Bytes::Host(bytes) => out.copy_from_slice(&bytes.as_slice()[at..at + out.len()]),
        }
    }

    /// Sets bytes to zero.
    pub(super) fn zero(&self, range: &Range<usize>) {
        self.own().fill(range, 0);
        self.define(range);
    }

    /// Copies `range` of `from`; undefined bytes stay so.
    pub(super) fn copy(&self, at: usize, from: &Self, range: &Range<usize>) {
        assert!(range.end <= from.len, "inside {}", from.label);
        let to = self.own().range(&(at..at + range.len()));
        let source = from.as_ptr().wrapping_add(range.start);
        // SAFETY: both ranges were checked; `copy_from` allows an overlap.
        unsafe { to.copy_from(source, range.len()) };
        if from.is_defined(range) {
            self.define(&(at..at + range.len()));
            return;
        }
        for (idx, byte) in range.clone().enumerate() {
            let to = at + idx;
            if from.is_defined(&(byte..byte + 1)) {
                self.define(&(to..to + 1));
            } else if let Some(defined) = &self.defined {
                self.complete.store(false, Ordering::Relaxed);
                let bits = defined.byte(to / 4) & !(1 << (to % 4));
                defined.fill(&(to / 4..to / 4 + 1), bits);
            }
        }
    }

    fn define(&self, range: &Range<usize>) {
        let Some(defined) = &self.defined else { return };
        if range.is_empty() {
            return;
        }
        let (first, last) = (range.start / 4, (range.end - 1) / 4);
        let head = 0xf << (range.start % 4) & 0xf;
        let tail = 0xf >> (3 - (range.end - 1) % 4);
        if first == last {
            defined.or(first, head & tail);
        } else {
            defined.or(first, head);
            defined.or(last, tail);
            defined.fill(&(first + 1..last), 0xf);
        }
    }

    /// Whether all bytes are defined.
    pub(super) fn is_defined(&self, range: &Range<usize>) -> bool {
        let Some(defined) = &self.defined else { return true };
        if range.is_empty() || self.complete.load(Ordering::Relaxed) {
            return true;
        }
        let (first, last) = (range.start / 4, (range.end - 1) / 4);
        let head: u8 = 0xf << (range.start % 4) & 0xf;
        let tail: u8 = 0xf >> (3 - (range.end - 1) % 4);
        if first == last {
            let bits = head & tail;
            return defined.byte(first) & bits == bits;
        }
        let middle = first + 1..last;
        let from = defined.range(&middle);
        // SAFETY: `range` checked the bounds; the device's lock keeps writers away.
        let middle = unsafe { std::slice::from_raw_parts(from, middle.len()) };
        let all = defined.byte(first) & head == head
            && defined.byte(last) & tail == tail
            && middle.chunks(ALL_DEFINED.len()).all(|part| part == &ALL_DEFINED[..part.len()]);
        if all && *range == (0..self.len) {
            self.complete.store(true, Ordering::Relaxed);
        }
        all
    }

    /// Which bytes are defined, for the run-time.
    pub(super) fn defined(&self) -> *mut u8 {
        self.defined.as_ref().map_or(std::ptr::null_mut(), |raw| raw.ptr.as_ptr())
    }

    /// Who touched what, for the run-time; made at the first call.
    pub(super) fn cells(&self) -> *mut SimCell {
        let raw =
            self.cells.get_or_init(|| Raw::zeroed(self.len.div_ceil(4) * size_of::<SimCell>()));
        raw.ptr.as_ptr().cast()
    }

    /// Forgets who touched what.
    pub(super) fn clear_cells(&self) {
        if let Some(raw) = self.cells.get() {
            raw.fill(&(0..raw.layout.size()), 0);
        }
    }
}

impl Memory for SimMemory {
    fn len_bytes(&self) -> usize {
        self.len
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
