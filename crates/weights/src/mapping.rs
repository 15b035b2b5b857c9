//! Read-only bytes: a mapped file, memory of our own, or a part of the program itself.

use crate::WeightsError;
use memmap2::{Mmap, MmapMut};
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Bytes that many tensors share.
#[derive(Debug)]
pub(crate) enum Mapping {
    /// A file. If it is truncated while mapped, reading it ends the process: that is documented as
    /// fatal, as it is for every program that maps files.
    File(Mmap),
    /// Memory of our own, page-aligned.
    Owned(MmapMut),
    /// Part of the program.
    Static(&'static [u8]),
}

impl Mapping {
    pub(crate) fn file(path: &Path) -> Result<Self, WeightsError> {
        let io = |source| WeightsError::Io { path: path.to_owned(), source };
        // Before opening: a pipe would wait for a writer.
        let metadata = std::fs::metadata(path).map_err(io)?;
        if !metadata.is_file() {
            return Err(io(std::io::Error::other("it is not a regular file")));
        }
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.len() == 0 {
            return Ok(Self::Static(&[]));
        }
        // SAFETY: the mapping is read-only and private to this process; the file staying as it is
        // while mapped is a condition that the documentation states.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        // Huge pages and read-ahead are wishes; a system that grants none works too.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self::File(map))
    }

    /// Zeroed memory.
    pub(crate) fn zeroed(len: usize) -> std::io::Result<MmapMut> {
        let map = MmapMut::map_anon(len.max(1))?;
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(map)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::File(map) => map,
            Self::Owned(map) => map,
            Self::Static(bytes) => bytes,
        }
    }
}

/// A range of a mapping; a cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct Bytes {
    mapping: Arc<Mapping>,
    range: Range<usize>,
}

impl Bytes {
    pub(crate) fn new(mapping: Arc<Mapping>, range: Range<usize>) -> Self {
        assert!(range.end <= mapping.bytes().len(), "a range lies inside its mapping");
        Self { mapping, range }
    }

    /// A copy in memory of our own, aligned for every element type.
    pub(crate) fn copied(bytes: &[u8]) -> std::io::Result<Self> {
        let mut map = Mapping::zeroed(bytes.len())?;
        map[..bytes.len()].copy_from_slice(bytes);
        Ok(Self::new(Arc::new(Mapping::Owned(map)), 0..bytes.len()))
    }

    /// A part of these bytes.
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        assert!(range.end <= self.len(), "a part lies inside the whole");
        let start = self.range.start;
        Self::new(Arc::clone(&self.mapping), start + range.start..start + range.end)
    }

    pub(crate) fn location(&self) -> (&Arc<Mapping>, Range<usize>) {
        (&self.mapping, self.range.clone())
    }

    pub(crate) fn len(&self) -> usize {
        self.range.len()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.mapping.bytes()[self.range.clone()]
    }
}
