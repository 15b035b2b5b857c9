//! MLX affine quantisation: `w = scale * code + bias` over groups of consecutive inputs.
//!
//! Codes of 2, 4 and 8 bits fill 32-bit words from the lowest bits up; codes of 3, 5 and 6 bits form
//! one little-endian bit stream. Both are the same rule: code `i` starts at bit `i * bits` of the
//! row, and a row is a whole number of words.

use crate::Affine;

/// Widths that MLX writes.
pub const BITS: [u8; 6] = [2, 3, 4, 5, 6, 8];
/// Group sizes that MLX writes.
pub const GROUPS: [usize; 3] = [32, 64, 128];

/// 32-bit words of a row of `cols` codes.
pub fn words_per_row(cols: usize, bits: u8) -> usize {
    cols * usize::from(bits) / 32
}

/// Unpacks codes of one row, one per byte. `out.len()` codes are read from the start of `words`.
pub fn unpack_codes(words: &[u32], bits: u8, out: &mut [u8]) {
    let mask = (1_u32 << bits) - 1;
    match bits {
        2 | 4 | 8 => {
            let per_word = 32 / usize::from(bits);
            for (codes, &word) in out.chunks_mut(per_word).zip(words) {
                for (i, code) in codes.iter_mut().enumerate() {
                    *code = low_byte(word >> (i * usize::from(bits)) & mask);
                }
            }
        }
        _ => {
            for (i, code) in out.iter_mut().enumerate() {
                let bit = i * usize::from(bits);
                let (word, shift) = (bit / 32, bit % 32);
                let low = words[word] >> shift;
                let high = if shift + usize::from(bits) > 32 {
                    words[word + 1] << (32 - shift)
                } else {
                    0
                };
                *code = low_byte((low | high) & mask);
            }
        }
    }
}

fn low_byte(x: u32) -> u8 {
    x.to_le_bytes()[0]
}

/// Row `row` of a matrix of `cols` columns in f32: the reference decode.
pub fn dequantize_row(x: &Affine<'_>, row: usize, cols: usize, out: &mut [f32]) {
    let words = words_per_row(cols, x.bits);
    let row_words = &x.codes[row * words..(row + 1) * words];
    let group_words = words_per_row(x.group, x.bits);
    let mut codes = [0_u8; 128];
    let first_group = row * (cols / x.group);
    for (g, out) in out.chunks_exact_mut(x.group).enumerate() {
        let codes = &mut codes[..x.group];
        unpack_codes(&row_words[g * group_words..(g + 1) * group_words], x.bits, codes);
        let scale = x.scales.get(first_group + g);
        let bias = x.biases.get(first_group + g);
        for (out, &code) in out.iter_mut().zip(&*codes) {
            *out = scale * f32::from(code) + bias;
        }
    }
}

/// A group encoded: f32 scale and bias, to be stored in the checkpoint's dtype, and its codes.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedGroup {
    /// May be negative.
    pub scale: f32,
    /// The group's extreme of larger magnitude, or 0.
    pub bias: f32,
    /// One code per input.
    pub codes: Vec<u8>,
}

/// Encodes one group as MLX does: the extreme of larger magnitude becomes exactly representable,
/// with the sign of the scale chosen so that it sits at the end of the range that holds code 0.
///
/// # Source
/// `tests/golden/to_mlx.py`, which equals `mx.quantize` bit for bit.
pub fn encode_group(w: &[f32], bits: u8) -> EncodedGroup {
    let (lo, hi) =
        w.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(lo, hi), &x| (lo.min(x), hi.max(x)));
    let top = f32::from((1_u16 << bits) - 1);
    let negative = lo.abs() > hi.abs();
    let mut scale = ((hi - lo) / top).max(1e-7);
    if !negative {
        scale = -scale;
    }
    let edge = if negative { lo } else { hi };
    let q0 = (edge / scale).round_ties_even();
    let mut bias = 0.0;
    if q0 != 0.0 {
        scale = edge / q0;
        bias = edge;
    }
    let codes = w
        .iter()
        .map(|&x| {
            let code = ((x - bias) / scale).round_ties_even().clamp(0.0, top);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
            let code = code as u8;
            code
        })
        .collect();
    EncodedGroup { scale, bias, codes }
}

/// A row encoded: its packed codes, and an f32 scale and bias per group.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedRow {
    /// [`words_per_row`] words.
    pub codes: Vec<u32>,
    /// One per group; to be stored in the checkpoint's dtype.
    pub scales: Vec<f32>,
    /// One per group.
    pub biases: Vec<f32>,
}

/// Encodes one row, group by group.
///
/// # Panics
/// If `group` does not divide the row.
pub fn quantize_row(w: &[f32], bits: u8, group: usize) -> EncodedRow {
    assert!(w.len().is_multiple_of(group), "groups of {group} divide a row of {}", w.len());
    let mut codes = Vec::with_capacity(w.len());
    let (mut scales, mut biases) = (Vec::new(), Vec::new());
    for values in w.chunks_exact(group) {
        let encoded = encode_group(values, bits);
        codes.extend(encoded.codes);
        scales.push(encoded.scale);
        biases.push(encoded.bias);
    }
    EncodedRow { codes: pack_codes(&codes, bits), scales, biases }
}

/// Packs codes of one row into words, the inverse of [`unpack_codes`].
pub fn pack_codes(codes: &[u8], bits: u8) -> Vec<u32> {
    let mut words = vec![0_u32; words_per_row(codes.len(), bits)];
    for (i, &code) in codes.iter().enumerate() {
        let bit = i * usize::from(bits);
        let (word, shift) = (bit / 32, bit % 32);
        words[word] |= u32::from(code) << shift;
        if shift + usize::from(bits) > 32 {
            words[word + 1] |= u32::from(code) >> (32 - shift);
        }
    }
    words
}
