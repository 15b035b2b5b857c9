//! Vectors of f32 for the loops that are not matrix products.
//!
//! A kernel is one generic, always inlined function over [`Lanes`]; [`dispatched`] compiles it for
//! each instruction set and picks one at run time. [`Portable`] is the reference: the same code
//! over arrays. It is also what `AArch64` runs, where NEON is always on and the compiler turns the
//! array operations into it.

#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

/// A pair of bf16 values in each of 16 words: the even one in the low half, the odd one above.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Bf16Line(pub(crate) [u32; 16]);

/// 16 even values, then 16 odd values: the f32 counterpart of [`Bf16Line`].
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct F32Line(pub(crate) [f32; 32]);

/// The vector operations of one instruction set. A value of the type proves that the machine has
/// it, so the methods are safe.
pub(crate) trait Lanes: Copy {
    /// A vector of [`Self::N`] lanes.
    type V: Copy;
    /// Vector `i` of both rows of a [`Bf16Line`].
    type Bf16: Copy;
    /// Two left operands, for the even and the odd row of a [`Bf16Line`], in every lane.
    type Bf16Pair: Copy;
    /// Lanes of a vector; divides 16.
    const N: usize;

    fn splat(self, x: f32) -> Self::V;
    /// The first `N` values of a slice.
    fn load(self, from: &[f32]) -> Self::V;
    fn store(self, v: Self::V, to: &mut [f32]);
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// The smaller; `b` if either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// The larger; `b` if either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, fused where the machine can.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The nearest integer, ties to even, for `|v| < 2^22`.
    fn round(self, v: Self::V) -> Self::V;
    /// `v * 2^n` for integral `n` in -127..=127, where `2^-127` counts as 0.
    fn scale_pow2(self, v: Self::V, n: Self::V) -> Self::V;
    /// The sum of all lanes.
    fn sum(self, v: Self::V) -> f32;
    /// The largest lane.
    fn largest(self, v: Self::V) -> f32;
    /// Vector `i` of both rows of a line.
    fn load_bf16(self, line: &Bf16Line, i: usize) -> Self::Bf16;
    /// Operands `2 j` and `2 j + 1` of a row that went through `pack_bf16`; `at` reads a value.
    fn bf16_pair(self, at: impl Fn(usize) -> f32, j: usize) -> Self::Bf16Pair;
    /// `c` plus the products with the even row and the odd row.
    fn mul_add_bf16(self, a: Self::Bf16Pair, b: Self::Bf16, c: Self::V) -> Self::V;

    /// Asks for a value to be brought into the second-level cache.
    #[inline(always)]
    fn prefetch<T>(self, _value: &T) {}

    /// Brings a row of left operands, a multiple of 16 of them, to the form that `bf16_pair` reads.
    #[inline(always)]
    fn pack_bf16(self, _row: &mut [f32]) {}

    /// Columns of the row-major `[N, 4]` at the start of a slice.
    #[inline(always)]
    fn load_transposed4(self, from: &[f32]) -> [Self::V; 4] {
        let column = |j: usize| {
            let mut lanes = [0.0; 16];
            for (lane, row) in lanes.iter_mut().zip(from[..4 * Self::N].chunks_exact(4)) {
                *lane = row[j];
            }
            self.load(&lanes)
        };
        [column(0), column(1), column(2), column(3)]
    }
}

/// A cache line or two with two rows of 16 columns, an even row and an odd one.
pub(crate) trait Line: Copy + Send + Sync {
    /// All values zero.
    const ZERO: Self;

    /// Vector `i` of both rows.
    type Loaded<S: Lanes>: Copy;
    /// Two left operands, for the even and the odd row, in every lane.
    type Pair<S: Lanes>: Copy;

    fn load<S: Lanes>(&self, s: S, i: usize) -> Self::Loaded<S>;
    /// Operands `2 j` and `2 j + 1` of a row that went through `pack`; `at` reads a value.
    fn pair<S: Lanes>(s: S, at: impl Fn(usize) -> f32, j: usize) -> Self::Pair<S>;
    /// `c` plus the products with the even row and the odd row.
    fn mul_add<S: Lanes>(s: S, a: Self::Pair<S>, b: Self::Loaded<S>, c: S::V) -> S::V;
    /// Brings a row of left operands, a multiple of 16 of them, to the form that `pair` reads.
    fn pack<S: Lanes>(s: S, row: &mut [f32]);
    /// Writes a column.
    fn set(&mut self, column: usize, even: f32, odd: f32);
    /// Writes the lower half of a column.
    fn set_odd(&mut self, column: usize, odd: f32);
}

impl Line for Bf16Line {
    const ZERO: Self = Self([0; 16]);

    type Loaded<S: Lanes> = S::Bf16;
    type Pair<S: Lanes> = S::Bf16Pair;

    #[inline(always)]
    fn load<S: Lanes>(&self, s: S, i: usize) -> S::Bf16 {
        s.load_bf16(self, i)
    }
    #[inline(always)]
    fn pair<S: Lanes>(s: S, at: impl Fn(usize) -> f32, j: usize) -> S::Bf16Pair {
        s.bf16_pair(at, j)
    }
    #[inline(always)]
    fn mul_add<S: Lanes>(s: S, a: S::Bf16Pair, b: S::Bf16, c: S::V) -> S::V {
        s.mul_add_bf16(a, b, c)
    }
    #[inline(always)]
    fn pack<S: Lanes>(s: S, row: &mut [f32]) {
        s.pack_bf16(row);
    }
    #[inline(always)]
    fn set(&mut self, column: usize, even: f32, odd: f32) {
        self.0[column] = bf16_bits(even) | bf16_bits(odd) << 16;
    }
    #[inline(always)]
    fn set_odd(&mut self, column: usize, odd: f32) {
        self.0[column] = self.0[column] & 0xffff | bf16_bits(odd) << 16;
    }
}

impl Line for F32Line {
    const ZERO: Self = Self([0.0; 32]);

    type Loaded<S: Lanes> = (S::V, S::V);
    type Pair<S: Lanes> = (S::V, S::V);

    #[inline(always)]
    fn load<S: Lanes>(&self, s: S, i: usize) -> (S::V, S::V) {
        (s.load(&self.0[i * S::N..]), s.load(&self.0[16 + i * S::N..]))
    }
    #[inline(always)]
    fn pair<S: Lanes>(s: S, at: impl Fn(usize) -> f32, j: usize) -> (S::V, S::V) {
        splat_pair(s, at, j)
    }
    #[inline(always)]
    fn mul_add<S: Lanes>(s: S, a: (S::V, S::V), b: (S::V, S::V), c: S::V) -> S::V {
        mul_add_pair(s, a, b, c)
    }
    #[inline(always)]
    fn pack<S: Lanes>(_: S, _: &mut [f32]) {}
    #[inline(always)]
    fn set(&mut self, column: usize, even: f32, odd: f32) {
        self.0[column] = even;
        self.0[16 + column] = odd;
    }
    #[inline(always)]
    fn set_odd(&mut self, column: usize, odd: f32) {
        self.0[16 + column] = odd;
    }
}

#[inline(always)]
fn splat_pair<S: Lanes>(s: S, at: impl Fn(usize) -> f32, j: usize) -> (S::V, S::V) {
    (s.splat(at(2 * j)), s.splat(at(2 * j + 1)))
}

#[inline(always)]
fn mul_add_pair<S: Lanes>(s: S, a: (S::V, S::V), b: (S::V, S::V), c: S::V) -> S::V {
    s.mul_add(a.1, b.1, s.mul_add(a.0, b.0, c))
}

/// The nearest bf16, ties to even, in the low half. Without the branches of a general conversion,
/// so that loops over it become vectors.
#[inline(always)]
fn bf16_bits(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    let quiet = bits >> 16 | 0x40;
    if x.is_nan() { quiet } else { rounded }
}

/// Lanes of [`Portable`]: two NEON registers, and what SSE2 does in two steps.
const PORTABLE: usize = 8;

/// Arrays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> [f32; PORTABLE] {
    std::array::from_fn(f)
}

impl Lanes for Portable {
    type V = [f32; PORTABLE];
    type Bf16 = (Self::V, Self::V);
    type Bf16Pair = (Self::V, Self::V);
    const N: usize = PORTABLE;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; PORTABLE]
    }
    #[inline(always)]
    fn load(self, from: &[f32]) -> Self::V {
        *from.first_chunk().expect("a vector is loaded from at least N values")
    }
    #[inline(always)]
    fn store(self, v: Self::V, to: &mut [f32]) {
        *to.first_chunk_mut().expect("a vector is stored into at least N values") = v;
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // Without the instruction `mul_add` is a library call.
        if cfg!(target_arch = "aarch64") {
            each(|i| a[i].mul_add(b[i], c[i]))
        } else {
            each(|i| a[i] * b[i] + c[i])
        }
    }
    #[inline(always)]
    fn round(self, v: Self::V) -> Self::V {
        // 1.5 * 2^23: the sum has no fraction bits left.
        const MAGIC: f32 = 12_582_912.0;
        each(|i| (v[i] + MAGIC) - MAGIC)
    }
    #[inline(always)]
    fn scale_pow2(self, v: Self::V, n: Self::V) -> Self::V {
        // The low bits of 1.5 * 2^23 + 127 + n are the biased exponent of 2^n.
        const MAGIC: f32 = 12_582_912.0 + 127.0;
        each(|i| v[i] * f32::from_bits((n[i] + MAGIC).to_bits() << 23))
    }
    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        let [a, b, c, d, e, f, g, h] = v;
        ((a + e) + (c + g)) + ((b + f) + (d + h))
    }
    #[inline(always)]
    fn largest(self, v: Self::V) -> f32 {
        v.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
    #[inline(always)]
    fn bf16_pair(self, at: impl Fn(usize) -> f32, j: usize) -> Self::Bf16Pair {
        splat_pair(self, at, j)
    }
    #[inline(always)]
    fn mul_add_bf16(self, a: Self::Bf16Pair, b: Self::Bf16, c: Self::V) -> Self::V {
        mul_add_pair(self, a, b, c)
    }
    #[inline(always)]
    fn load_bf16(self, line: &Bf16Line, i: usize) -> Self::Bf16 {
        let words = &line.0[i * PORTABLE..(i + 1) * PORTABLE];
        let even = each(|j| f32::from_bits(words[j] << 16));
        (even, each(|j| f32::from_bits(words[j] & 0xffff_0000)))
    }
}

/// Compiles a kernel for every instruction set and names the function that picks the best one.
///
/// `dispatched! { fn name(args) -> Out = body }` defines `name(args)`, which calls
/// `body(lanes, args)`.
macro_rules! dispatched {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident $(<$generic:ident: $bound:path>)? ($($arg:ident: $ty:ty),* $(,)?)
            $(-> $out:ty)? = $body:path
    ) => {
        $(#[$meta])*
        $vis fn $name $(<$generic: $bound>)? ($($arg: $ty),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
                fn avx512 $(<$generic: $bound>)? (lanes: $crate::simd::Avx512<false>, $($arg: $ty),*) $(-> $out)? {
                    $body(lanes, $($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2 $(<$generic: $bound>)? (lanes: $crate::simd::Avx2, $($arg: $ty),*) $(-> $out)? {
                    $body(lanes, $($arg),*)
                }
                if let Some(lanes) = $crate::simd::Avx512::<false>::detect() {
                    // SAFETY: the value proves that the machine has the features.
                    return unsafe { avx512(lanes, $($arg),*) };
                }
                if let Some(lanes) = $crate::simd::Avx2::detect() {
                    // SAFETY: the value proves that the machine has the features.
                    return unsafe { avx2(lanes, $($arg),*) };
                }
            }
            $body($crate::simd::Portable, $($arg),*)
        }
    };
}
pub(crate) use dispatched;
