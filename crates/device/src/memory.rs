//! Device memory and views of it.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// Memory of one device. Clones share it; it is freed when the last clone goes.
#[derive(Clone, Debug)]
pub struct Buffer {
    memory: Arc<dyn Memory>,
}

/// What a device keeps behind a [`Buffer`].
pub trait Memory: Debug + Send + Sync {
    /// Length in bytes.
    fn len_bytes(&self) -> usize;
    /// What the memory is for.
    fn label(&self) -> &str;
    /// For the device that made it.
    fn as_any(&self) -> &dyn Any;
}

impl Buffer {
    /// Wraps the memory of a device.
    pub fn new(memory: Arc<dyn Memory>) -> Self {
        Self { memory }
    }

    /// Length in bytes.
    pub fn len_bytes(&self) -> usize {
        self.memory.len_bytes()
    }

    /// What the memory is for.
    pub fn label(&self) -> &str {
        self.memory.label()
    }

    /// The device's own type; `None` for memory of another device.
    pub fn downcast<T: 'static>(&self) -> Option<&T> {
        self.memory.as_any().downcast_ref()
    }

    /// A number that is equal for clones of one buffer and for nothing else alive.
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.memory).cast::<()>().addr()
    }

    /// All of it.
    pub fn all(&self) -> Slice {
        Slice { buffer: self.clone(), offset: 0, len: self.len_bytes() }
    }

    /// A part of it, in bytes.
    ///
    /// # Panics
    /// If the range is outside.
    pub fn slice(&self, range: Range<usize>) -> Slice {
        assert!(
            range.start <= range.end && range.end <= self.len_bytes(),
            "bytes {range:?} are outside {} of {} bytes",
            self.label(),
            self.len_bytes()
        );
        Slice { buffer: self.clone(), offset: range.start, len: range.len() }
    }
}

/// A part of a buffer. Kernels may touch these bytes only; the simulator checks it.
#[derive(Clone, Debug)]
pub struct Slice {
    /// The buffer.
    pub buffer: Buffer,
    /// First byte.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
}

impl From<&Buffer> for Slice {
    fn from(buffer: &Buffer) -> Self {
        buffer.all()
    }
}

impl Slice {
    /// The bytes covered.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len
    }
}

/// Bytes on the host that a device may read for as long as it likes: a mapped weight file, or part
/// of the program.
#[derive(Clone)]
pub struct HostBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
}

impl HostBytes {
    /// Shares the bytes with their owner.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        Self { owner }
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        (*self.owner).as_ref()
    }
}

impl Debug for HostBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostBytes").field("len", &self.as_slice().len()).finish_non_exhaustive()
    }
}
