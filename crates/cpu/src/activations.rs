//! Activations prepared for a matrix product.

use crate::Pool;
use crate::buffer::AlignedBytes;
use crate::simd::dispatched;
use crate::split::Split;

/// Values that share a scale when activations are rounded to 8 bits.
pub(crate) const BLOCK: usize = 64;
/// Granularity of the sums, so that weights in groups of 32 find theirs.
pub(crate) const SUM_BLOCK: usize = 32;
/// Two blocks: the unit of nibble order.
const PAIR: usize = 2 * BLOCK;

/// The arithmetic of products with quantised weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// f32: the reference.
    F32,
    /// Activations rounded to 8 bits in blocks of 64, integer products inside a block, f32 across.
    /// Products with bf16, f16 and f32 weights stay in f32.
    Int8,
}

/// `[n_tokens, cols]` activations, in f32 and, for [`Precision::Int8`], as 8-bit codes too.
#[derive(Debug)]
pub struct Activations {
    precision: Precision,
    n_tokens: usize,
    cols: usize,
    x: Vec<f32>,
    /// 8-bit codes in the order of the columns.
    natural: AlignedBytes,
    /// The same with, in each run of 128, the even positions first and then the odd ones: the order
    /// in which the low and the high nibbles of 64 bytes of 4-bit weights come. Only where 128
    /// divides the width.
    nibbles: AlignedBytes,
    /// `[n_tokens, cols / BLOCK]`
    scales: Vec<f32>,
    /// `scale * sum of codes`, `[n_tokens, cols / SUM_BLOCK]`: exactly the sum of the rounded
    /// values, up to the rounding of this product.
    sums: Vec<f32>,
    /// The same per block, `[n_tokens, cols / BLOCK]`.
    block_sums: Vec<f32>,
}

/// One token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) natural: &'a [i8],
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "for the VNNI kernels"))]
    pub(crate) nibbles: &'a [i8],
    pub(crate) scales: &'a [f32],
    pub(crate) sums: &'a [f32],
    pub(crate) block_sums: &'a [f32],
}

impl Activations {
    /// No tokens yet.
    pub fn new(precision: Precision) -> Self {
        Self {
            precision,
            n_tokens: 0,
            cols: 0,
            x: Vec::new(),
            natural: AlignedBytes::default(),
            nibbles: AlignedBytes::default(),
            scales: Vec::new(),
            sums: Vec::new(),
            block_sums: Vec::new(),
        }
    }

    /// Takes `[n_tokens, cols]` values. Memory is kept from call to call.
    pub fn set(&mut self, pool: &Pool, x: &[f32], n_tokens: usize, cols: usize) {
        assert_eq!(x.len(), n_tokens * cols, "activations are [n_tokens, cols]");
        self.n_tokens = n_tokens;
        self.cols = cols;
        self.x.clear();
        self.x.extend_from_slice(x);
        self.quantize(pool);
    }

    /// Resizes to `[n_tokens, cols]` and returns the values to be written before
    /// [`Activations::quantize`].
    pub(crate) fn reshape(&mut self, n_tokens: usize, cols: usize) -> &mut [f32] {
        self.n_tokens = n_tokens;
        self.cols = cols;
        self.x.resize(n_tokens * cols, 0.0);
        &mut self.x
    }

    /// Rounds the f32 values, where blocks divide the width: no quantised matrix has another.
    pub(crate) fn quantize(&mut self, pool: &Pool) {
        if !self.has_codes() {
            return;
        }
        let (n, cols) = (self.n_tokens, self.cols);
        let (n_blocks, n_sums) = (cols / BLOCK, cols / SUM_BLOCK);
        self.natural.resize(n * cols);
        self.nibbles.resize(n * cols);
        self.scales.resize(n * n_blocks, 0.0);
        self.sums.resize(n * n_sums, 0.0);
        self.block_sums.resize(n * n_blocks, 0.0);
        let x = &self.x;
        let natural = Split::new(self.natural.as_mut_slice());
        let nibbles = Split::new(self.nibbles.as_mut_slice());
        let scales = Split::new(&mut self.scales);
        let sums = Split::new(&mut self.sums);
        let block_sums = Split::new(&mut self.block_sums);
        let token = |t: usize| {
            // SAFETY: every token has rows of its own, and each is visited once.
            let natural = unsafe { natural.part(t * cols..(t + 1) * cols) };
            // SAFETY: as above.
            let nibbles = unsafe { nibbles.part(t * cols..(t + 1) * cols) };
            // SAFETY: as above.
            let scales = unsafe { scales.part(t * n_blocks..(t + 1) * n_blocks) };
            // SAFETY: as above.
            let sums = unsafe { sums.part(t * n_sums..(t + 1) * n_sums) };
            // SAFETY: as above.
            let block_sums = unsafe { block_sums.part(t * n_blocks..(t + 1) * n_blocks) };
            quantize_row(&x[t * cols..(t + 1) * cols], natural, scales, sums);
            for (block, pair) in block_sums.iter_mut().zip(sums.chunks_exact(2)) {
                *block = pair[0] + pair[1];
            }
            if cols.is_multiple_of(PAIR) {
                to_nibble_order(natural, nibbles);
            }
        };
        // A row takes a microsecond or two: not worth a thread by itself.
        let tokens_per_task = 8;
        pool.run(n.div_ceil(tokens_per_task), &|task| {
            (task * tokens_per_task..((task + 1) * tokens_per_task).min(n)).for_each(&token);
        });
    }

    /// The values, `[n_tokens, cols]`.
    pub fn f32(&self) -> &[f32] {
        &self.x
    }

    /// Rows.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The arithmetic chosen when this was made.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Whether 8-bit codes are kept at this width.
    pub(crate) fn has_codes(&self) -> bool {
        self.precision == Precision::Int8 && self.cols.is_multiple_of(BLOCK)
    }

    pub(crate) fn token(&self, t: usize) -> Token<'_> {
        let (cols, codes) = (self.cols, self.has_codes());
        let (n_blocks, n_sums) = if codes { (cols / BLOCK, cols / SUM_BLOCK) } else { (0, 0) };
        let n_codes = if codes { cols } else { 0 };
        Token {
            x: &self.x[t * cols..(t + 1) * cols],
            natural: as_i8(&self.natural.as_slice()[t * n_codes..(t + 1) * n_codes]),
            nibbles: as_i8(&self.nibbles.as_slice()[t * n_codes..(t + 1) * n_codes]),
            scales: &self.scales[t * n_blocks..(t + 1) * n_blocks],
            sums: &self.sums[t * n_sums..(t + 1) * n_sums],
            block_sums: &self.block_sums[t * n_blocks..(t + 1) * n_blocks],
        }
    }
}

fn as_i8(bytes: &[u8]) -> &[i8] {
    // SAFETY: `u8` and `i8` have the same layout and every pattern is valid for both.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
}

dispatched! {
    /// Codes `round(x / scale)` with `scale = max |x| / 127` per block. A NaN or an infinity in a
    /// block makes its scale NaN, so that it is not lost.
    fn quantize_row(
        x: &[f32],
        codes: &mut [u8],
        scales: &mut [f32],
        sums: &mut [f32]
    ) = quantize_row_body
}

#[inline(always)]
fn quantize_row_body<S: crate::simd::Lanes>(
    _lanes: S,
    x: &[f32],
    codes: &mut [u8],
    scales: &mut [f32],
    sums: &mut [f32],
) {
    let blocks = x.as_chunks::<BLOCK>().0.iter().zip(codes.as_chunks_mut::<BLOCK>().0);
    let outputs = scales.iter_mut().zip(sums.as_chunks_mut::<2>().0);
    for ((x, codes), (scale, sums)) in blocks.zip(outputs) {
        let mut largest = [0.0_f32; 16];
        let mut poison = [0.0_f32; 16];
        for part in x.as_chunks::<16>().0 {
            for i in 0..16 {
                largest[i] = if part[i].abs() > largest[i] { part[i].abs() } else { largest[i] };
                poison[i] += part[i] * 0.0;
            }
        }
        let largest = largest.iter().fold(0.0_f32, |a, &b| if b > a { b } else { a });
        let poison: f32 = poison.iter().sum();
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        *scale = largest / 127.0 + poison;
        for (half, sum) in sums.iter_mut().enumerate() {
            let mut total = 0_i32;
            for i in half * SUM_BLOCK..(half + 1) * SUM_BLOCK {
                // The magic number leaves the integer in the low mantissa bits: |x| <= 127.
                let rounded = x[i] * inverse + 12_582_912.0;
                #[expect(clippy::cast_possible_truncation, reason = "the low byte is the code")]
                let code = rounded.to_bits() as u8;
                codes[i] = code;
                total += i32::from(code.cast_signed());
            }
            *sum = total as f32 * *scale;
        }
    }
}

/// See [`Activations::nibbles`].
fn to_nibble_order(natural: &[u8], nibbles: &mut [u8]) {
    for (from, to) in natural.as_chunks::<PAIR>().0.iter().zip(nibbles.as_chunks_mut::<PAIR>().0) {
        for i in 0..BLOCK {
            to[i] = from[2 * i];
            to[BLOCK + i] = from[2 * i + 1];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_within_half_a_step() {
        let pool = Pool::new(2);
        let (n, cols) = (13, 384);
        let x: Vec<f32> = (0..n * cols)
            .map(|i| ((i * 7919 % 1000) as f32 - 500.0) * (1 + i % 5) as f32)
            .collect();
        let mut activations = Activations::new(Precision::Int8);
        activations.set(&pool, &x, n, cols);
        for t in 0..n {
            let token = activations.token(t);
            for (i, &x) in token.x.iter().enumerate() {
                let scale = token.scales[i / BLOCK];
                let rounded = f32::from(token.natural[i]) * scale;
                assert!((x - rounded).abs() <= scale * 0.5001, "{x} became {rounded}");
                let place = i / 128 * 128 + i % 128 / 2 + i % 2 * 64;
                assert_eq!(token.nibbles[place], token.natural[i]);
            }
            for (i, &sum) in token.sums.iter().enumerate() {
                let codes = &token.natural[i * SUM_BLOCK..(i + 1) * SUM_BLOCK];
                let total: i32 = codes.iter().map(|&code| i32::from(code)).sum();
                assert_eq!(sum.to_bits(), (total as f32 * token.scales[i / 2]).to_bits());
            }
        }
    }

    #[test]
    fn zeros_stay_zero_and_nan_is_not_lost() {
        let pool = Pool::new(1);
        let mut x = vec![0.0; 128];
        let mut activations = Activations::new(Precision::Int8);
        activations.set(&pool, &x, 1, 128);
        assert!(activations.token(0).natural.iter().all(|&code| code == 0));
        assert!(activations.token(0).scales.iter().all(|&scale| scale == 0.0));
        for bad in [f32::NAN, f32::INFINITY] {
            x[70] = bad;
            activations.set(&pool, &x, 1, 128);
            assert_eq!(activations.token(0).scales[0].to_bits(), 0.0_f32.to_bits());
            assert!(activations.token(0).scales[1].is_nan());
        }
    }
}
