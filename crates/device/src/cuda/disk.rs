//! Compiled kernels on disk, under a key of all that went into them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

/// First word of a file; the number changes with the layout.
const MAGIC: &str = "lily-cubin-1";

/// A hash of 128 bits: FNV-1a. Nobody gains from a collision, and by chance there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key(u128);

impl Key {
    pub(super) fn new(parts: &[&str]) -> Self {
        let mut key = Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        for part in parts {
            key.add(part.as_bytes());
            // A byte that is in no UTF-8 text ends a part.
            key.add(&[0xff]);
        }
        key
    }

    fn of(bytes: &[u8]) -> Self {
        let mut key = Self::new(&[]);
        key.add(bytes);
        key
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        }
    }
}

/// A folder of compiled kernels, which processes may share. It only saves time: whatever goes
/// wrong with it is as if it were empty.
#[derive(Debug)]
pub(super) struct Cache {
    dir: PathBuf,
}

impl Cache {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    fn path(&self, key: Key) -> PathBuf {
        self.dir.join(format!("{:032x}.cubin", key.0))
    }

    /// What was written under `key`, if it is whole.
    pub(super) fn read(&self, key: Key) -> Option<Vec<u8>> {
        let bytes = fs::read(self.path(key)).ok()?;
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let content = bytes.get(end + 1..)?;
        (bytes[..end] == *header(content).as_bytes()).then(|| content.to_vec())
    }

    /// Writes a file of another name and renames it, so that readers see all of it or nothing.
    pub(super) fn write(&self, key: Key, content: &[u8]) {
        static WRITES: AtomicU64 = AtomicU64::new(0);
        let n = WRITES.fetch_add(1, Ordering::Relaxed);
        let part = self.dir.join(format!("{:032x}.{}-{n}.part", key.0, process::id()));
        let mut bytes = header(content).into_bytes();
        bytes.push(b'\n');
        bytes.extend_from_slice(content);
        let written = fs::create_dir_all(&self.dir)
            .and_then(|()| fs::write(&part, bytes))
            .and_then(|()| fs::rename(&part, self.path(key)));
        if written.is_err() {
            let _ = fs::remove_file(&part);
        }
    }
}

fn header(content: &[u8]) -> String {
    format!("{MAGIC} {} {:032x}", content.len(), Key::of(content).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(name: &str) -> Cache {
        let dir = std::env::temp_dir().join(format!("lily-disk-{name}-{}", process::id()));
        let _ = fs::remove_dir_all(&dir);
        Cache::new(&dir)
    }

    #[test]
    fn what_is_written_is_read() {
        let cache = cache("round-trip");
        let (a, b) = (Key::new(&["a"]), Key::new(&["b"]));
        cache.write(a, b"code\nof a");
        assert_eq!(cache.read(a).as_deref(), Some(&b"code\nof a"[..]));
        assert_eq!(cache.read(b), None);
        assert_eq!(fs::read_dir(&cache.dir).expect("a folder").count(), 1);
        fs::remove_dir_all(&cache.dir).expect("removable");
    }

    #[test]
    fn a_damaged_file_is_as_none() {
        let cache = cache("damage");
        let key = Key::new(&["a"]);
        cache.write(key, b"some machine code");
        let whole = fs::read(cache.path(key)).expect("written");
        for n in 0..whole.len() {
            fs::write(cache.path(key), &whole[..n]).expect("writable");
            assert_eq!(cache.read(key), None, "cut at {n}");
        }
        let mut flipped = whole;
        *flipped.last_mut().expect("not empty") ^= 1;
        fs::write(cache.path(key), flipped).expect("writable");
        assert_eq!(cache.read(key), None);
        fs::remove_dir_all(&cache.dir).expect("removable");
    }

    #[test]
    fn keys_know_where_parts_end() {
        assert_ne!(Key::new(&["ab", "c"]), Key::new(&["a", "bc"]));
        assert_ne!(Key::new(&["a"]), Key::new(&["a", ""]));
        // The published test vector of FNV-1a for "a".
        assert_eq!(Key::of(b"a").0, 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }
}
