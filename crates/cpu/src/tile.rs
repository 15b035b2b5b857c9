//! Small matrix products whose operands lie in the first two cache levels.
//!
//! A block of the result stays in registers: `R` rows by `C` vectors. The left operand is
//! broadcast value by value, the right one is read as vectors.

use crate::simd::{Lanes, Line};

/// The left operand: element `(row, k)` is `values[row * row_stride + k * k_stride]`.
#[derive(Clone, Copy)]
pub(crate) struct Lhs<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) row_stride: usize,
    pub(crate) k_stride: usize,
}

impl Lhs<'_> {
    /// The operand without its first `rows` rows.
    #[inline(always)]
    fn skip(self, rows: usize) -> Self {
        Self { values: &self.values[rows * self.row_stride..], ..self }
    }

    #[inline(always)]
    fn check(self, n_rows: usize, n_k: usize) {
        let last = (n_rows - 1) * self.row_stride + (n_k - 1) * self.k_stride;
        assert!(last < self.values.len(), "the left operand has all its rows and columns");
    }

    /// # Safety
    /// `check` must have passed for more than `row` rows and more than `k` columns.
    #[inline(always)]
    unsafe fn at(self, row: usize, k: usize) -> f32 {
        // SAFETY: the index is not above the last one that `check` looked at.
        unsafe { *self.values.get_unchecked(row * self.row_stride + k * self.k_stride) }
    }
}

/// A row-major matrix of f32.
#[derive(Clone, Copy)]
pub(crate) struct Rhs<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) stride: usize,
}

/// What happens to the old values of the result.
#[derive(Clone, Copy)]
pub(crate) enum Old {
    /// They are overwritten.
    Drop,
    /// They are multiplied by this and stay in the sum.
    Scale(f32),
}

/// Rows, terms of each sum, and columns of a product.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) rows: usize,
    pub(crate) k: usize,
    pub(crate) columns: usize,
}

/// `out = old + lhs rhs`, where `out` is row-major with `out_stride` values a row.
#[inline(always)]
pub(crate) fn multiply<S: Lanes>(
    s: S,
    extent: Extent,
    lhs: Lhs<'_>,
    rhs: Rhs<'_>,
    old: Old,
    out: &mut [f32],
    out_stride: usize,
) {
    let Extent { rows, k, columns } = extent;
    assert!(columns.is_multiple_of(S::N), "columns are whole vectors");
    lhs.check(rows, k);
    // Few rows: all columns at once, so that the right operand, which may have to come from far
    // away, is read in the order of memory.
    if rows <= 8 || k == 1 {
        let mut c = 0;
        while c < columns {
            let n = if columns - c >= 8 * S::N { 8 } else { 1 };
            let mut r = 0;
            while r < rows {
                let pair = rows - r >= 2;
                let (lhs, out) = (lhs.skip(r), &mut out[r * out_stride + c..]);
                let rhs = Rhs { values: &rhs.values[c..], ..rhs };
                match (pair, n) {
                    (true, 8) => block::<S, 2, 8>(s, k, lhs, rhs, old, out, out_stride),
                    (true, _) => block::<S, 2, 1>(s, k, lhs, rhs, old, out, out_stride),
                    (false, 8) => block::<S, 1, 8>(s, k, lhs, rhs, old, out, out_stride),
                    (false, _) => block::<S, 1, 1>(s, k, lhs, rhs, old, out, out_stride),
                }
                r += if pair { 2 } else { 1 };
            }
            c += n * S::N;
        }
        return;
    }
    let mut c = 0;
    while c < columns {
        let wide = columns - c >= 2 * S::N;
        let rhs = Rhs { values: &rhs.values[c..], ..rhs };
        let mut r = 0;
        while r < rows {
            let n = match rows - r {
                8.. => 8,
                4.. => 4,
                _ => 1,
            };
            let (lhs, out) = (lhs.skip(r), &mut out[r * out_stride + c..]);
            match (n, wide) {
                (8, true) => block::<S, 8, 2>(s, k, lhs, rhs, old, out, out_stride),
                (8, false) => block::<S, 8, 1>(s, k, lhs, rhs, old, out, out_stride),
                (4, true) => block::<S, 4, 2>(s, k, lhs, rhs, old, out, out_stride),
                (4, false) => block::<S, 4, 1>(s, k, lhs, rhs, old, out, out_stride),
                (_, true) => block::<S, 1, 2>(s, k, lhs, rhs, old, out, out_stride),
                (_, false) => block::<S, 1, 1>(s, k, lhs, rhs, old, out, out_stride),
            }
            r += n;
        }
        c += if wide { 2 } else { 1 } * S::N;
    }
}

#[inline(always)]
fn block<S: Lanes, const R: usize, const C: usize>(
    s: S,
    n_k: usize,
    lhs: Lhs<'_>,
    rhs: Rhs<'_>,
    old: Old,
    out: &mut [f32],
    out_stride: usize,
) {
    lhs.check(R, n_k);
    let mut acc = [[s.splat(0.0); C]; R];
    if let Old::Scale(scale) = old {
        let scale = s.splat(scale);
        for (r, acc) in acc.iter_mut().enumerate() {
            let out = &out[r * out_stride..][..C * S::N];
            for (c, acc) in acc.iter_mut().enumerate() {
                *acc = s.mul(scale, s.load(&out[c * S::N..]));
            }
        }
    }
    for k in 0..n_k {
        let row = &rhs.values[k * rhs.stride..][..C * S::N];
        let mut b = [s.splat(0.0); C];
        for (c, b) in b.iter_mut().enumerate() {
            *b = s.load(&row[c * S::N..]);
        }
        for (r, acc) in acc.iter_mut().enumerate() {
            // SAFETY: checked above for R rows and n_k columns.
            let a = s.splat(unsafe { lhs.at(r, k) });
            for (acc, b) in acc.iter_mut().zip(b) {
                *acc = s.mul_add(a, b, *acc);
            }
        }
    }
    for (r, acc) in acc.into_iter().enumerate() {
        let out = &mut out[r * out_stride..][..C * S::N];
        for (c, acc) in acc.into_iter().enumerate() {
            s.store(acc, &mut out[c * S::N..]);
        }
    }
}

/// A right operand of [`Line`]s: pair `j` of rows, 16 columns from `16 c` on, is
/// `lines[j * k_stride + c * column_stride]`.
#[derive(Clone, Copy)]
pub(crate) struct LineRhs<'a, L> {
    pub(crate) lines: &'a [L],
    /// What will be read next, in the same order: it is fetched along the way. May be empty.
    pub(crate) ahead: &'a [L],
    pub(crate) k_stride: usize,
    pub(crate) column_stride: usize,
}

/// `out += lhs rhs` over an even number `extent.k` of terms and a multiple of 16 columns. The rows
/// of `lhs` are packed for the lines.
#[inline(always)]
pub(crate) fn multiply_lines<S: Lanes, L: Line>(
    s: S,
    extent: Extent,
    lhs: Lhs<'_>,
    rhs: LineRhs<'_, L>,
    out: &mut [f32],
    out_stride: usize,
) {
    let Extent { rows, k, columns } = extent;
    assert!(k.is_multiple_of(2), "terms come in pairs");
    assert!(columns.is_multiple_of(16), "columns are whole lines");
    let n_lines = columns / 16;
    let mut c = 0;
    while c < n_lines {
        let wide = n_lines - c >= 2;
        let mut rhs = LineRhs {
            lines: &rhs.lines[c * rhs.column_stride..],
            ahead: rhs.ahead.get(c * rhs.column_stride..).unwrap_or_default(),
            ..rhs
        };
        let mut r = 0;
        while r < rows {
            let n = match rows - r {
                8.. => 8,
                4.. => 4,
                _ => 1,
            };
            let (lhs, out) = (lhs.skip(r), &mut out[r * out_stride + 16 * c..]);
            match (n, wide) {
                (8, true) => line_block::<S, L, 8, 2>(s, k / 2, lhs, rhs, out, out_stride),
                (8, false) => line_block::<S, L, 8, 1>(s, k / 2, lhs, rhs, out, out_stride),
                (4, true) => line_block::<S, L, 4, 2>(s, k / 2, lhs, rhs, out, out_stride),
                (4, false) => line_block::<S, L, 4, 1>(s, k / 2, lhs, rhs, out, out_stride),
                (_, true) => line_block::<S, L, 1, 2>(s, k / 2, lhs, rhs, out, out_stride),
                (_, false) => line_block::<S, L, 1, 1>(s, k / 2, lhs, rhs, out, out_stride),
            }
            // Once is enough.
            rhs.ahead = &[];
            r += n;
        }
        c += if wide { 2 } else { 1 };
    }
}

#[inline(always)]
fn line_block<S: Lanes, L: Line, const R: usize, const C: usize>(
    s: S,
    n_pairs: usize,
    lhs: Lhs<'_>,
    rhs: LineRhs<'_, L>,
    out: &mut [f32],
    out_stride: usize,
) {
    lhs.check(R, 2 * n_pairs);
    for i in 0..16 / S::N {
        let mut acc = [[s.splat(0.0); C]; R];
        for (r, acc) in acc.iter_mut().enumerate() {
            for (c, acc) in acc.iter_mut().enumerate() {
                *acc = s.load(&out[r * out_stride + 16 * c + i * S::N..]);
            }
        }
        for j in 0..n_pairs {
            let b: [_; C] = std::array::from_fn(|c| {
                let at = j * rhs.k_stride + c * rhs.column_stride;
                if let Some(ahead) = rhs.ahead.get(at) {
                    s.prefetch(ahead);
                }
                rhs.lines[at].load(s, i)
            });
            for (r, acc) in acc.iter_mut().enumerate() {
                // SAFETY: checked above for R rows and 2 n_pairs columns; packing only shrinks.
                let a = L::pair(s, |k| unsafe { lhs.at(r, k) }, j);
                for (acc, b) in acc.iter_mut().zip(b) {
                    *acc = L::mul_add(s, a, b, *acc);
                }
            }
        }
        for (r, acc) in acc.into_iter().enumerate() {
            for (c, acc) in acc.into_iter().enumerate() {
                s.store(acc, &mut out[r * out_stride + 16 * c + i * S::N..]);
            }
        }
    }
}
