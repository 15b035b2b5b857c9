//! Rotary position embedding.

use std::sync::OnceLock;

/// Positions computed at a time.
const BLOCK: usize = 256;
/// Positions beyond the 1,010,000 that the model can be stretched to are a caller's mistake.
const MAX_POSITIONS: usize = 1 << 20;

/// Cosines and sines of `position * theta^(-2j / rotary_dim)`, computed in f64 when first used and
/// kept.
#[derive(Debug)]
pub struct RopeTable {
    half: usize,
    inv_freq: Vec<f64>,
    /// `[BLOCK, 2, half]` each: the cosines of a position, then its sines.
    blocks: Box<[OnceLock<Box<[f32]>>]>,
}

impl RopeTable {
    /// A table for the first `rotary_dim` values of each head.
    pub fn new(rotary_dim: usize, theta: f64) -> Self {
        assert!(rotary_dim.is_multiple_of(2), "rotary values come in pairs");
        let half = rotary_dim / 2;
        let exponent = |j: usize| -2.0 * j as f64 / rotary_dim as f64;
        let inv_freq = (0..half).map(|j| theta.powf(exponent(j))).collect();
        let blocks = (0..MAX_POSITIONS / BLOCK).map(|_| OnceLock::new()).collect();
        Self { half, inv_freq, blocks }
    }

    /// Number of values of a head that turn with the position.
    pub fn rotary_dim(&self) -> usize {
        2 * self.half
    }

    /// Rotates the pairs `(j, j + rotary_dim / 2)` of one head.
    #[inline(always)]
    pub(crate) fn rotate(&self, position: usize, head: &mut [f32]) {
        let (cos, sin) = self.cos_sin(position);
        let (a, b) = head[..2 * self.half].split_at_mut(self.half);
        for (((a, b), cos), sin) in a.iter_mut().zip(b).zip(cos).zip(sin) {
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }

    fn cos_sin(&self, position: usize) -> (&[f32], &[f32]) {
        assert!(position < MAX_POSITIONS, "position {position} is past the last one, 2^20 - 1");
        let block = self.blocks[position / BLOCK].get_or_init(|| self.block(position / BLOCK));
        let row = position % BLOCK * 2 * self.half;
        block[row..row + 2 * self.half].split_at(self.half)
    }

    #[cold]
    fn block(&self, index: usize) -> Box<[f32]> {
        let positions = index * BLOCK..(index + 1) * BLOCK;
        let row = |position: usize| {
            let angles = self.inv_freq.iter().map(move |inv_freq| position as f64 * inv_freq);
            angles.clone().map(f64::cos).chain(angles.map(f64::sin))
        };
        #[expect(clippy::cast_possible_truncation, reason = "the table is f32, rounded once")]
        positions.flat_map(row).map(|value| value as f32).collect()
    }
}
