//! AVX-512 VNNI: unsigned codes times signed activations, four products per lane and instruction.

use super::portable;
use super::tile::{Method, RowTile, TileScratch, blocks_per_group};
use crate::activations::{BLOCK, Token};
use lily_weights::quant::affine::words_per_row;
use lily_weights::{Affine, Half};
#[allow(clippy::wildcard_imports, reason = "the names carry their prefix")]
use std::arch::x86_64::*;
use std::sync::OnceLock;

/// Rows of a panel: the lanes of a vector.
const PANEL: usize = 16;
/// How far ahead of the reader weights are fetched into the second-level cache. The first level
/// has too few miss buffers for the latency of memory, so fetching into it does not help: measured
/// on Zen 4 (two cores, 4-bit rows, weights larger than the last cache): no prefetch 22 GB/s,
/// into the first level 20, into the second 44 at 4 KiB and 49 at 8 KiB ahead and beyond.
const AHEAD: usize = 8 << 10;

/// Proof that the machine has the instructions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vnni(());

impl Vnni {
    pub(super) fn detect() -> Option<Self> {
        static HAS: OnceLock<bool> = OnceLock::new();
        let has = HAS.get_or_init(|| {
            is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni")
        });
        has.then_some(Self(()))
    }

    /// See [`RowTile::product`].
    #[expect(clippy::unused_self, reason = "the proof that the instructions are there")]
    pub(super) fn product(self, tile: &RowTile<'_>, w: &Affine<'_>, scratch: &mut TileScratch) {
        let cols = tile.weight.cols;
        match (tile.method, w.bits, w.scales, w.biases) {
            // SAFETY: `self` proves the features.
            (Method::Panel, ..) if w.group >= BLOCK => unsafe { panels(tile, w, scratch) },
            (Method::Vector, 4, Half::Bf16(scales), Half::Bf16(biases))
                if w.group == BLOCK && cols.is_multiple_of(2 * BLOCK) =>
            {
                let rows =
                    Rows { codes: bytes(w.codes), scales: bits(scales), biases: bits(biases) };
                // SAFETY: `self` proves the features.
                unsafe { vectors::<4>(tile, &rows, scratch) }
            }
            (Method::Vector, 8, Half::Bf16(scales), Half::Bf16(biases)) if w.group == BLOCK => {
                let rows =
                    Rows { codes: bytes(w.codes), scales: bits(scales), biases: bits(biases) };
                // SAFETY: `self` proves the features.
                unsafe { vectors::<8>(tile, &rows, scratch) }
            }
            _ => tile.each_row(scratch, |row, scratch| {
                portable::prepare_row(w, row, cols, scratch);
                portable::dot
            }),
        }
    }
}

fn bytes(words: &[u32]) -> &[u8] {
    // SAFETY: words are plain bytes, four each.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 4) }
}

fn bits(x: &[half::bf16]) -> &[u16] {
    // SAFETY: bf16 is a transparent wrapper of its 16 bits.
    unsafe { std::slice::from_raw_parts(x.as_ptr().cast(), x.len()) }
}

/// A matrix in groups of 64 with bf16 scales.
struct Rows<'a> {
    codes: &'a [u8],
    scales: &'a [u16],
    biases: &'a [u16],
}

/// Every row with every token, weights read once.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn vectors<const BITS: usize>(tile: &RowTile<'_>, w: &Rows<'_>, scratch: &mut TileScratch) {
    let cols = tile.weight.cols;
    let (row_bytes, n_blocks) = (cols * BITS / 8, cols / BLOCK);
    let n_rows = tile.rows.len();
    prefetch(&w.codes[tile.rows.start * row_bytes..], AHEAD.min(n_rows * row_bytes));
    for (i, row) in tile.rows.clone().enumerate() {
        let codes = &w.codes[row * row_bytes..(row + 1) * row_bytes];
        let groups = row * n_blocks..(row + 1) * n_blocks;
        let (scales, biases) = (&w.scales[groups.clone()], &w.biases[groups]);
        prefetch_line(scales, AHEAD / 16);
        prefetch_line(biases, AHEAD / 16);
        for (t, &token) in tile.tokens.iter().enumerate() {
            let token = tile.x.token(token as usize);
            let value = match (BITS, t) {
                (4, 0) => dot4::<true>(codes, scales, biases, &token),
                (4, _) => dot4::<false>(codes, scales, biases, &token),
                (_, 0) => dot8::<true>(codes, scales, biases, &token),
                (_, _) => dot8::<false>(codes, scales, biases, &token),
            };
            scratch.tile[t * n_rows + i] = value;
        }
    }
}

/// Fetches the first `len` bytes of a slice, or as many as it has, into the second-level cache.
fn prefetch(from: &[u8], len: usize) {
    for line in from[..len.min(from.len())].chunks(64) {
        // SAFETY: prefetching has no effect on memory, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
    }
}

/// Fetches the line `ahead` bytes after the start of a slice, which may lie behind its end.
fn prefetch_line<T>(from: &[T], ahead: usize) {
    let address = from.as_ptr().cast::<i8>().wrapping_add(ahead);
    // SAFETY: prefetching has no effect on memory, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(address) };
}

/// bf16 values of up to 16 groups in f32; lanes beyond `mask` are 0.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn load_bf16(from: &[u16], mask: __mmask16) -> __m512 {
    // SAFETY: only the lanes of the mask are read, and callers pass the mask of `from`'s length.
    let half = unsafe { _mm256_maskz_loadu_epi16(mask, from.as_ptr().cast()) };
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(half)))
}

/// f32 values of up to 16 groups; lanes beyond `mask` are 0.
#[target_feature(enable = "avx512f")]
fn load_f32(from: &[f32], mask: __mmask16) -> __m512 {
    // SAFETY: only the lanes of the mask are read, and callers pass the mask of `from`'s length.
    unsafe { _mm512_maskz_loadu_ps(mask, from.as_ptr()) }
}

/// 64 bytes at `at`.
#[target_feature(enable = "avx512f")]
fn load_line<T>(from: &[T], at: usize) -> __m512i {
    debug_assert!(size_of::<T>() == 1 && at + 64 <= from.len());
    // SAFETY: the kernels below assert the lengths of their slices before they loop.
    let address = unsafe { from.as_ptr().add(at) };
    // SAFETY: as above; the load may be unaligned.
    unsafe { _mm512_loadu_si512(address.cast()) }
}

/// The mask of the first `n` lanes, at most 16.
fn first_lanes(n: usize) -> __mmask16 {
    if n >= 16 { !0 } else { (1 << n) - 1 }
}

/// A row of 4-bit codes times a token in nibble order. 64 bytes of codes are two groups: their low
/// nibbles are the even positions, their high nibbles the odd ones.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn dot4<const PREFETCH: bool>(
    codes: &[u8],
    scales: &[u16],
    biases: &[u16],
    token: &Token<'_>,
) -> f32 {
    let n_blocks = scales.len();
    assert!(codes.len() == n_blocks * 32 && biases.len() == n_blocks, "one row of each");
    assert!(token.nibbles.len() == n_blocks * 64, "a token has a code per column");
    assert!(token.scales.len() == n_blocks && token.block_sums.len() == n_blocks);
    let nibble = _mm512_set1_epi8(15);
    // Lanes 0 to 7 take the first group of a pair, 8 to 15 the second.
    let pair = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    let two = _mm512_set1_epi32(2);
    let mut acc = _mm512_setzero_ps();
    let mut bias_acc = _mm512_setzero_ps();
    for first in (0..n_blocks).step_by(16) {
        let n = (n_blocks - first).min(16);
        let mask = first_lanes(n);
        let scale = _mm512_mul_ps(
            load_bf16(&scales[first..], mask),
            load_f32(&token.scales[first..], mask),
        );
        let sums = load_f32(&token.block_sums[first..], mask);
        bias_acc = _mm512_fmadd_ps(load_bf16(&biases[first..], mask), sums, bias_acc);
        let mut lanes = pair;
        for block in (first..first + n).step_by(2) {
            let packed = load_line(codes, block * 32);
            if PREFETCH {
                prefetch_line(&codes[block * 32..], AHEAD);
            }
            let even = _mm512_and_si512(packed, nibble);
            let odd = _mm512_and_si512(_mm512_srli_epi16::<4>(packed), nibble);
            let x_even = load_line(token.nibbles, block * 64);
            let x_odd = load_line(token.nibbles, block * 64 + 64);
            let dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), even, x_even);
            let dot = _mm512_dpbusd_epi32(dot, odd, x_odd);
            let scale = _mm512_permutexvar_ps(lanes, scale);
            acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, acc);
            lanes = _mm512_add_epi32(lanes, two);
        }
    }
    _mm512_reduce_add_ps(_mm512_add_ps(acc, bias_acc))
}

/// A row of 8-bit codes times a token in natural order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn dot8<const PREFETCH: bool>(
    codes: &[u8],
    scales: &[u16],
    biases: &[u16],
    token: &Token<'_>,
) -> f32 {
    let n_blocks = scales.len();
    assert!(codes.len() == n_blocks * 64 && biases.len() == n_blocks, "one row of each");
    assert!(token.natural.len() == n_blocks * 64, "a token has a code per column");
    assert!(token.scales.len() == n_blocks && token.block_sums.len() == n_blocks);
    let one = _mm512_set1_epi32(1);
    let mut acc = _mm512_setzero_ps();
    let mut bias_acc = _mm512_setzero_ps();
    for first in (0..n_blocks).step_by(16) {
        let n = (n_blocks - first).min(16);
        let mask = first_lanes(n);
        let scale = _mm512_mul_ps(
            load_bf16(&scales[first..], mask),
            load_f32(&token.scales[first..], mask),
        );
        let sums = load_f32(&token.block_sums[first..], mask);
        bias_acc = _mm512_fmadd_ps(load_bf16(&biases[first..], mask), sums, bias_acc);
        let mut lane = _mm512_setzero_si512();
        for block in first..first + n {
            if PREFETCH {
                prefetch_line(&codes[block * 64..], AHEAD);
            }
            let w = load_line(codes, block * 64);
            let x = load_line(token.natural, block * 64);
            let dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, x);
            let scale = _mm512_permutexvar_ps(lane, scale);
            acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, acc);
            lane = _mm512_add_epi32(lane, one);
        }
    }
    _mm512_reduce_add_ps(_mm512_add_ps(acc, bias_acc))
}

/// All rows of a tile, 16 at a time, unpacked once for all tokens.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn panels(tile: &RowTile<'_>, w: &Affine<'_>, scratch: &mut TileScratch) {
    let cols = tile.weight.cols;
    let n_blocks = cols / BLOCK;
    let nibbles = w.bits == 4 && cols.is_multiple_of(2 * BLOCK);
    scratch.panel.resize(PANEL * cols);
    for first in tile.rows.clone().step_by(PANEL) {
        let n = (tile.rows.end - first).min(PANEL);
        scale_panel(w, first, n, n_blocks, scratch);
        if nibbles {
            let row_bytes = cols / 2;
            fill_nibbles(&bytes(w.codes)[first * row_bytes..], row_bytes, n, scratch);
            multiply_panel::<true>(tile, first, n, n_blocks, scratch);
        } else {
            unpack_rows(w, first, n, cols, scratch);
            fill_natural(cols, n, scratch);
            multiply_panel::<false>(tile, first, n, n_blocks, scratch);
        }
    }
}

/// Scales and biases of `n` rows as `[n_blocks, 16]`; missing rows get zeros.
fn scale_panel(w: &Affine<'_>, first: usize, n: usize, n_blocks: usize, scratch: &mut TileScratch) {
    scratch.scales.clear();
    scratch.scales.resize(n_blocks * PANEL, 0.0);
    scratch.biases.clear();
    scratch.biases.resize(n_blocks * PANEL, 0.0);
    let per_group = blocks_per_group(w.group);
    let n_groups = n_blocks / per_group;
    for lane in 0..n {
        for block in 0..n_blocks {
            let group = (first + lane) * n_groups + block / per_group;
            scratch.scales[block * PANEL + lane] = w.scales.get(group);
            scratch.biases[block * PANEL + lane] = w.biases.get(group);
        }
    }
}

/// Offsets of `n` rows, the last one repeated in the lanes beyond.
#[target_feature(enable = "avx512f")]
fn row_offsets(row_bytes: usize, n: usize) -> __m512i {
    let stride = i32::try_from(row_bytes).expect("a row has less than 2 GB");
    let last = i32::try_from(n - 1).expect("a panel has 16 rows");
    let lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    let lanes = _mm512_min_epi32(lanes, _mm512_set1_epi32(last));
    _mm512_mullo_epi32(lanes, _mm512_set1_epi32(stride))
}

/// Low and high nibbles of `n` rows as `[n_blocks, 16 words, 16 rows]`: per block first the eight
/// words of even positions, then those of odd ones.
#[target_feature(enable = "avx512f,avx512bw")]
fn fill_nibbles(codes: &[u8], row_bytes: usize, n: usize, scratch: &mut TileScratch) {
    let panel = scratch.panel.as_mut_slice();
    assert!(codes.len() >= n * row_bytes && panel.len() == row_bytes * 2 * PANEL);
    let offsets = row_offsets(row_bytes, n);
    let nibble = _mm512_set1_epi8(15);
    for (block, to) in panel.chunks_exact_mut(BLOCK * PANEL).enumerate() {
        if block.is_multiple_of(2) {
            for row in PANEL..2 * PANEL {
                prefetch_line(&codes[block * 32..], row * row_bytes);
            }
        }
        let (even, odd) = to.split_at_mut(8 * 64);
        let words = even.chunks_exact_mut(64).zip(odd.chunks_exact_mut(64));
        for (word, (even, odd)) in words.enumerate() {
            let from = codes[block * 32 + word * 4..].as_ptr();
            // SAFETY: every offset is that of one of the `n` rows asserted above, and the word
            // lies inside a row.
            let packed = unsafe { _mm512_i32gather_epi32::<1>(offsets, from.cast()) };
            store_line(even, _mm512_and_si512(packed, nibble));
            store_line(odd, _mm512_and_si512(_mm512_srli_epi16::<4>(packed), nibble));
        }
    }
}

#[target_feature(enable = "avx512f")]
fn store_line(to: &mut [u8], v: __m512i) {
    assert_eq!(to.len(), 64);
    // SAFETY: the slice has 64 bytes.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), v) };
}

/// One byte per code, `[n, cols]`.
fn unpack_rows(w: &Affine<'_>, first: usize, n: usize, cols: usize, scratch: &mut TileScratch) {
    scratch.codes.resize(PANEL * cols);
    let words = words_per_row(cols, w.bits);
    for (lane, row) in scratch.codes.as_mut_slice().chunks_exact_mut(cols).take(n).enumerate() {
        let row_words = &w.codes[(first + lane) * words..(first + lane + 1) * words];
        if w.bits == 8 {
            row.copy_from_slice(bytes(row_words));
        } else {
            lily_weights::quant::affine::unpack_codes(row_words, w.bits, row);
        }
    }
}

/// Unpacked rows as `[cols / 4 words, 16 rows]`.
#[target_feature(enable = "avx512f")]
fn fill_natural(cols: usize, n: usize, scratch: &mut TileScratch) {
    let codes = scratch.codes.as_slice();
    let panel = scratch.panel.as_mut_slice();
    assert!(codes.len() >= n * cols && panel.len() == cols * PANEL);
    let offsets = row_offsets(cols, n);
    for (word, to) in panel.chunks_exact_mut(64).enumerate() {
        let from = codes[word * 4..].as_ptr();
        // SAFETY: every offset is that of one of the `n` rows asserted above, and the word lies
        // inside a row.
        let v = unsafe { _mm512_i32gather_epi32::<1>(offsets, from.cast()) };
        store_line(to, v);
    }
}

/// The panel of `n` rows from `first` times every token of the tile.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn multiply_panel<const NIBBLES: bool>(
    tile: &RowTile<'_>,
    first: usize,
    n: usize,
    n_blocks: usize,
    scratch: &mut TileScratch,
) {
    let TileScratch { tile: out, panel, scales, biases, .. } = scratch;
    let (panel, n_rows) = (panel.as_slice(), tile.rows.len());
    let lane0 = first - tile.rows.start;
    let mask = first_lanes(n);
    let mut t = 0;
    macro_rules! tokens {
        ($n:literal) => {
            while tile.tokens.len() - t >= $n {
                let tokens: [Token<'_>; $n] =
                    std::array::from_fn(|i| tile.x.token(tile.tokens[t + i] as usize));
                let sums = multiply::<$n, NIBBLES>(panel, scales, biases, n_blocks, &tokens);
                for (i, sum) in sums.into_iter().enumerate() {
                    let to = &mut out[(t + i) * n_rows + lane0..][..n];
                    // SAFETY: the mask has as many lanes as the slice has elements.
                    unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), mask, sum) };
                }
                t += $n;
            }
        };
    }
    tokens!(8);
    tokens!(4);
    tokens!(2);
    tokens!(1);
}

/// 16 rows times `N` tokens. Each token's sums are the same whatever `N` is.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn multiply<const N: usize, const NIBBLES: bool>(
    panel: &[u8],
    scales: &[f32],
    biases: &[f32],
    n_blocks: usize,
    tokens: &[Token<'_>; N],
) -> [__m512; N] {
    assert!(panel.len() >= n_blocks * BLOCK * PANEL);
    assert!(scales.len() >= n_blocks * PANEL && biases.len() >= n_blocks * PANEL);
    for token in tokens {
        let codes = if NIBBLES { token.nibbles } else { token.natural };
        assert!(codes.len() == n_blocks * BLOCK);
        assert!(token.scales.len() == n_blocks && token.block_sums.len() == n_blocks);
    }
    let mut acc = [_mm512_setzero_ps(); N];
    for block in 0..n_blocks {
        let mut dots = [_mm512_setzero_si512(); N];
        for word in 0..BLOCK / 4 {
            let w = load_line(panel, (block * (BLOCK / 4) + word) * 64);
            let at = if NIBBLES {
                block / 2 * 128 + block % 2 * 32 + word % 8 * 4 + word / 8 * 64
            } else {
                block * BLOCK + word * 4
            };
            for (dot, token) in dots.iter_mut().zip(tokens) {
                let codes = if NIBBLES { token.nibbles } else { token.natural };
                // SAFETY: `at + 4` is at most the length asserted above.
                let address = unsafe { codes.as_ptr().add(at) };
                // SAFETY: as above; the read may be unaligned.
                let x = unsafe { address.cast::<i32>().read_unaligned() };
                *dot = _mm512_dpbusd_epi32(*dot, w, _mm512_set1_epi32(x));
            }
        }
        let scale = load_f32(&scales[block * PANEL..], !0);
        let bias = load_f32(&biases[block * PANEL..], !0);
        for ((acc, dot), token) in acc.iter_mut().zip(dots).zip(tokens) {
            let scaled =
                _mm512_mul_ps(_mm512_cvtepi32_ps(dot), _mm512_set1_ps(token.scales[block]));
            *acc = _mm512_fmadd_ps(scaled, scale, *acc);
            *acc = _mm512_fmadd_ps(bias, _mm512_set1_ps(token.block_sums[block]), *acc);
        }
    }
    acc
}
