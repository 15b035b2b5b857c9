//! Byte buffers at cache-line addresses: a vector load that crosses a line costs two.

/// A cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct CacheLine([u8; 64]);

/// Bytes whose first one starts a cache line. It grows and never shrinks.
#[derive(Debug, Default)]
pub(crate) struct AlignedBytes {
    lines: Vec<CacheLine>,
    len: usize,
}

impl AlignedBytes {
    /// Sets the length; new bytes are zero, old ones are whatever they were.
    pub(crate) fn resize(&mut self, len: usize) {
        let n_lines = len.div_ceil(64);
        if n_lines > self.lines.len() {
            self.lines.resize(n_lines, CacheLine([0; 64]));
        }
        self.len = len;
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: the lines are plain bytes without padding, and `len` of them are there.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}
