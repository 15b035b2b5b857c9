//! Memory that the tasks of one fork-join share.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// A slice that tasks write to in disjoint parts, such as the columns of a head.
pub(crate) struct Split<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: the only access is through `part`, whose callers keep the parts disjoint.
unsafe impl<T: Send> Sync for Split<'_, T> {}

impl<'a, T> Split<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// The values of a range.
    ///
    /// # Safety
    /// No value of the range may be part of another slice that is alive.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the caller keeps the parts disjoint")]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "a part lies in its slice");
        // SAFETY: the range is inside the slice, as just checked.
        let start = unsafe { self.start.add(range.start) };
        // SAFETY: in bounds, borrowed for `'a`, and unaliased by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(start, range.len()) }
    }
}

/// Buffers for tasks: as many as ever ran at once, reused from call to call.
#[derive(Debug, Default)]
pub(crate) struct Workspaces<W>(Mutex<Vec<W>>);

impl<W: Default> Workspaces<W> {
    /// Lends one to `task`.
    pub(crate) fn with<R>(&self, task: impl FnOnce(&mut W) -> R) -> R {
        let idle = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let mut workspace = taken.unwrap_or_default();
        let result = task(&mut workspace);
        idle().push(workspace);
        result
    }
}
