//! Small buffers share chunks of device memory. Plain bookkeeping of addresses; knows no driver.

use std::ops::Range;

/// Alignment and granularity of pooled buffers.
const ALIGN_BYTES: usize = 256;

/// The chunks and what is free in them.
#[derive(Debug, Default)]
pub(super) struct Pool {
    chunks: Vec<Chunk>,
}

#[derive(Debug)]
struct Chunk {
    base: u64,
    len: usize,
    /// In order, never adjacent, never empty.
    free: Vec<Range<usize>>,
}

impl Chunk {
    fn is_empty(&self) -> bool {
        self.free.first() == Some(&(0..self.len))
    }
}

impl Pool {
    /// Memory of `len` bytes, from the first place where it fits.
    pub(super) fn take(&mut self, len: usize) -> Option<u64> {
        let len = len.next_multiple_of(ALIGN_BYTES);
        for chunk in &mut self.chunks {
            let Some(idx) = chunk.free.iter().position(|range| range.len() >= len) else {
                continue;
            };
            let start = chunk.free[idx].start;
            chunk.free[idx].start += len;
            if chunk.free[idx].is_empty() {
                chunk.free.remove(idx);
            }
            return Some(chunk.base + start as u64);
        }
        None
    }

    /// Takes back what [`Pool::take`] gave for the same length. Returns a chunk to be freed: one
    /// that is empty while another is empty too, so that a buffer that comes and goes does not
    /// allocate a chunk each time.
    pub(super) fn give(&mut self, address: u64, len: usize) -> Option<u64> {
        let len = len.next_multiple_of(ALIGN_BYTES);
        let owns = |chunk: &Chunk| {
            address.checked_sub(chunk.base).is_some_and(|offset| offset < chunk.len as u64)
        };
        let idx = self.chunks.iter().position(owns).expect("the pool made this address");
        let chunk = &mut self.chunks[idx];
        let start = usize::try_from(address - chunk.base).expect("an offset in a chunk");
        let at = chunk.free.partition_point(|range| range.start < start);
        chunk.free.insert(at, start..start + len);
        if at + 1 < chunk.free.len() && chunk.free[at].end == chunk.free[at + 1].start {
            chunk.free[at].end = chunk.free.remove(at + 1).end;
        }
        if at > 0 && chunk.free[at - 1].end == chunk.free[at].start {
            chunk.free[at - 1].end = chunk.free.remove(at).end;
        }
        let n_empty = self.chunks.iter().filter(|chunk| chunk.is_empty()).count();
        (n_empty > 1 && self.chunks[idx].is_empty()).then(|| self.chunks.remove(idx).base)
    }

    /// Adds a chunk, aligned as the driver aligns.
    pub(super) fn add(&mut self, base: u64, len: usize) {
        self.chunks.push(Chunk { base, len, free: std::iter::once(0..len).collect() });
    }

    /// Bases of all chunks.
    pub(super) fn chunks(&self) -> impl Iterator<Item = u64> {
        self.chunks.iter().map(|chunk| chunk.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_apart() {
        let mut pool = Pool::default();
        pool.add(0x10000, 4096);
        let a = pool.take(1).expect("room");
        let b = pool.take(257).expect("room");
        let c = pool.take(256).expect("room");
        assert_eq!([a, b, c], [0x10000, 0x10100, 0x10300]);
        assert_eq!(pool.take(4096), None);
    }

    #[test]
    fn freed_neighbours_become_one() {
        let mut pool = Pool::default();
        pool.add(0, 1024);
        let all: Vec<u64> = (0..4).map(|_| pool.take(256).expect("room")).collect();
        assert_eq!(pool.take(1), None);
        for address in [all[2], all[0], all[1]] {
            assert_eq!(pool.give(address, 256), None);
        }
        assert_eq!(pool.take(768), Some(0));
    }

    #[test]
    fn one_empty_chunk_is_kept() {
        let mut pool = Pool::default();
        pool.add(0, 1024);
        pool.add(0x10000, 1024);
        let a = pool.take(1024).expect("room");
        let b = pool.take(1024).expect("room");
        assert_eq!(pool.give(a, 1024), None);
        assert_eq!(pool.give(b, 1024), Some(b));
        assert_eq!(pool.chunks().collect::<Vec<_>>(), [a]);
    }

    #[test]
    fn any_order_of_taking_and_giving_ends_whole() {
        // A linear congruential generator: the order is the same on every run.
        let mut seed = 7u64;
        let mut random = |n: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(seed >> 33).expect("31 bits") % n
        };
        let mut pool = Pool::default();
        pool.add(1 << 20, 1 << 16);
        let mut held: Vec<(u64, usize)> = Vec::new();
        for _ in 0..2000 {
            let len = 1 + random(3000);
            if random(2) == 0
                && let Some(address) = pool.take(len)
            {
                for (other, other_len) in &held {
                    let apart =
                        address + len as u64 <= *other || other + *other_len as u64 <= address;
                    assert!(apart, "{address} + {len} meets {other} + {other_len}");
                }
                held.push((address, len));
            } else if !held.is_empty() {
                let (address, len) = held.swap_remove(random(held.len()));
                pool.give(address, len);
            }
        }
        for (address, len) in held {
            pool.give(address, len);
        }
        assert_eq!(pool.take(1 << 16), Some(1 << 20));
    }
}
