//! AVX-512 and AVX2.

use super::{Bf16Line, Lanes, mul_add_pair, splat_pair};
#[allow(clippy::wildcard_imports, reason = "the names carry their prefix")]
use std::arch::x86_64::*;

/// AVX-512 F, VL, BW, DQ, and with `BF16` also that extension, whose products of bf16 are
/// twice as fast as those of f32.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512<const BF16: bool>(());

/// AVX2 and FMA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl<const BF16: bool> Avx512<BF16> {
    #[inline]
    pub(crate) fn detect() -> Option<Self> {
        #[cfg(test)]
        if super::tests::limit() < super::tests::Limit::Avx512 {
            return None;
        }
        let found = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && Avx2::detect().is_some()
            && (!BF16 || is_x86_feature_detected!("avx512bf16"));
        found.then_some(Self(()))
    }
}

impl Avx2 {
    #[inline]
    pub(crate) fn detect() -> Option<Self> {
        #[cfg(test)]
        if super::tests::limit() < super::tests::Limit::Avx2 {
            return None;
        }
        let found = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        found.then_some(Self(()))
    }
}

/// Defines methods whose bodies are one intrinsic each.
macro_rules! intrinsics {
    ($($name:ident($($arg:ident),*) = $body:expr;)*) => {
        $(#[inline(always)]
        fn $name(self, $($arg: Self::V),*) -> Self::V {
            // SAFETY: a value of this type exists only where its features were detected.
            unsafe { $body }
        })*
    };
}

impl<const BF16: bool> Lanes for Avx512<BF16> {
    type V = __m512;
    // With the extension the first of a pair holds everything.
    type Bf16 = (Self::V, Self::V);
    type Bf16Pair = (Self::V, Self::V);
    const N: usize = 16;

    intrinsics! {
        add(a, b) = _mm512_add_ps(a, b);
        sub(a, b) = _mm512_sub_ps(a, b);
        mul(a, b) = _mm512_mul_ps(a, b);
        div(a, b) = _mm512_div_ps(a, b);
        min(a, b) = _mm512_min_ps(a, b);
        max(a, b) = _mm512_max_ps(a, b);
        mul_add(a, b, c) = _mm512_fmadd_ps(a, b, c);
        round(v) = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v);
    }
    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: a value of this type exists only where its features were detected.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    fn load(self, from: &[f32]) -> __m512 {
        let from: &[f32; 16] = from.first_chunk().expect("a load has at least N values");
        // SAFETY: detected as above; the array has 16 values.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }
    #[inline(always)]
    fn store(self, v: __m512, to: &mut [f32]) {
        let to: &mut [f32; 16] = to.first_chunk_mut().expect("a store has at least N values");
        // SAFETY: detected as above; the array has 16 values.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), v) };
    }
    #[inline(always)]
    fn scale_pow2(self, v: __m512, n: __m512) -> __m512 {
        let lowest = self.splat(-126.0);
        // SAFETY: a value of this type exists only where its features were detected.
        let normal = unsafe { _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(n, lowest) };
        // SAFETY: as above.
        unsafe { _mm512_maskz_scalef_ps(normal, v, n) }
    }
    #[inline(always)]
    fn prefetch<T>(self, value: &T) {
        let address = std::ptr::from_ref(value).cast();
        // SAFETY: a prefetch reads nothing, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address) };
    }
    #[inline(always)]
    fn sum(self, v: __m512) -> f32 {
        // SAFETY: a value of this type exists only where its features were detected.
        unsafe { _mm512_reduce_add_ps(v) }
    }
    #[inline(always)]
    fn largest(self, v: __m512) -> f32 {
        // SAFETY: a value of this type exists only where its features were detected.
        unsafe { _mm512_reduce_max_ps(v) }
    }
    #[inline(always)]
    fn load_transposed4(self, from: &[f32]) -> [__m512; 4] {
        let vector = |i: usize| self.load(&from[16 * i..]);
        // Columns 0 and 1, then 2 and 3, of the 8 rows in two vectors.
        let [front, back] = [0, 2].map(|j| {
            // SAFETY: a value of this type exists only where its features were detected.
            unsafe {
                _mm512_setr_epi32(
                    j,
                    j + 4,
                    j + 8,
                    j + 12,
                    j + 16,
                    j + 20,
                    j + 24,
                    j + 28,
                    j + 1,
                    j + 5,
                    j + 9,
                    j + 13,
                    j + 17,
                    j + 21,
                    j + 25,
                    j + 29,
                )
            }
        });
        let pick = |a, index, b| {
            // SAFETY: a value of this type exists only where its features were detected.
            unsafe { _mm512_permutex2var_ps(a, index, b) }
        };
        let [a, b, c, d] = [vector(0), vector(1), vector(2), vector(3)];
        let low = |x, y| {
            // SAFETY: a value of this type exists only where its features were detected.
            unsafe { _mm512_shuffle_f32x4::<0x44>(x, y) }
        };
        let high = |x, y| {
            // SAFETY: a value of this type exists only where its features were detected.
            unsafe { _mm512_shuffle_f32x4::<0xee>(x, y) }
        };
        let (ab, cd) = (pick(a, front, b), pick(c, front, d));
        let (ab2, cd2) = (pick(a, back, b), pick(c, back, d));
        [low(ab, cd), high(ab, cd), low(ab2, cd2), high(ab2, cd2)]
    }
    #[inline(always)]
    fn load_bf16(self, line: &Bf16Line, _: usize) -> Self::Bf16 {
        // SAFETY: detected as above; a line has 16 words and is aligned to 64 bytes.
        let words = unsafe { _mm512_load_si512(line.0.as_ptr().cast()) };
        if BF16 {
            // SAFETY: a value of this type exists only where its features were detected.
            return (unsafe { _mm512_castsi512_ps(words) }, self.splat(0.0));
        }
        // SAFETY: a value of this type exists only where its features were detected.
        let even = unsafe { _mm512_slli_epi32::<16>(words) };
        // SAFETY: as above.
        let upper = unsafe { _mm512_set1_epi32(0xffff_0000_u32.cast_signed()) };
        // SAFETY: as above.
        let odd = unsafe { _mm512_and_si512(words, upper) };
        // SAFETY: as above.
        let even = unsafe { _mm512_castsi512_ps(even) };
        // SAFETY: as above.
        (even, unsafe { _mm512_castsi512_ps(odd) })
    }
    #[inline(always)]
    fn bf16_pair(self, at: impl Fn(usize) -> f32, j: usize) -> Self::Bf16Pair {
        if BF16 { (self.splat(at(j)), self.splat(0.0)) } else { splat_pair(self, at, j) }
    }
    #[inline(always)]
    fn mul_add_bf16(self, a: Self::Bf16Pair, b: Self::Bf16, c: __m512) -> __m512 {
        if BF16 {
            // SAFETY: both are 512 bits without invalid values.
            let a: __m512bh = unsafe { std::mem::transmute(a.0) };
            // SAFETY: as above.
            let b: __m512bh = unsafe { std::mem::transmute(b.0) };
            // SAFETY: with BF16 a value exists only where the extension was detected.
            unsafe { _mm512_dpbf16_ps(c, a, b) }
        } else {
            mul_add_pair(self, a, b, c)
        }
    }
    #[inline(always)]
    fn pack_bf16(self, row: &mut [f32]) {
        if BF16 {
            for i in (0..row.len()).step_by(32) {
                let low = self.load(&row[i..]);
                let high = &row[i + 16..];
                let high = if high.is_empty() { self.splat(0.0) } else { self.load(high) };
                // SAFETY: with BF16 a value exists only where the extension was detected.
                let packed = unsafe { _mm512_cvtne2ps_pbh(high, low) };
                // SAFETY: both are 512 bits without invalid values.
                let packed: __m512 = unsafe { std::mem::transmute(packed) };
                self.store(packed, &mut row[i / 2..]);
            }
        }
    }
}

impl Lanes for Avx2 {
    type V = __m256;
    type Bf16 = (Self::V, Self::V);
    type Bf16Pair = (Self::V, Self::V);
    const N: usize = 8;

    intrinsics! {
        add(a, b) = _mm256_add_ps(a, b);
        sub(a, b) = _mm256_sub_ps(a, b);
        mul(a, b) = _mm256_mul_ps(a, b);
        div(a, b) = _mm256_div_ps(a, b);
        min(a, b) = _mm256_min_ps(a, b);
        max(a, b) = _mm256_max_ps(a, b);
        mul_add(a, b, c) = _mm256_fmadd_ps(a, b, c);
        round(v) = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v);
    }
    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        // SAFETY: a value of this type exists only where its features were detected.
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    fn load(self, from: &[f32]) -> __m256 {
        let from: &[f32; 8] = from.first_chunk().expect("a load has at least N values");
        // SAFETY: detected as above; the array has 8 values.
        unsafe { _mm256_loadu_ps(from.as_ptr()) }
    }
    #[inline(always)]
    fn store(self, v: __m256, to: &mut [f32]) {
        let to: &mut [f32; 8] = to.first_chunk_mut().expect("a store has at least N values");
        // SAFETY: detected as above; the array has 8 values.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), v) };
    }
    #[inline(always)]
    fn scale_pow2(self, v: __m256, n: __m256) -> __m256 {
        // SAFETY: a value of this type exists only where its features were detected.
        let n = unsafe { _mm256_cvtps_epi32(n) };
        // SAFETY: as above.
        let bias = unsafe { _mm256_set1_epi32(127) };
        // SAFETY: as above.
        let biased = unsafe { _mm256_add_epi32(n, bias) };
        // SAFETY: as above.
        let bits = unsafe { _mm256_slli_epi32::<23>(biased) };
        // SAFETY: as above.
        self.mul(v, unsafe { _mm256_castsi256_ps(bits) })
    }
    #[inline(always)]
    fn prefetch<T>(self, value: &T) {
        let address = std::ptr::from_ref(value).cast();
        // SAFETY: a prefetch reads nothing, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address) };
    }
    #[inline(always)]
    fn sum(self, v: __m256) -> f32 {
        let mut lanes = [0.0; 8];
        self.store(v, &mut lanes);
        let [a, b, c, d, e, f, g, h] = lanes;
        ((a + e) + (c + g)) + ((b + f) + (d + h))
    }
    #[inline(always)]
    fn largest(self, v: __m256) -> f32 {
        let mut lanes = [0.0; 8];
        self.store(v, &mut lanes);
        lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
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
        let words: &[u32; 8] = line.0[i * 8..].first_chunk().expect("a line has 16 words");
        // SAFETY: detected as above; the array has 8 words.
        let words = unsafe { _mm256_loadu_si256(words.as_ptr().cast()) };
        // SAFETY: a value of this type exists only where its features were detected.
        let even = unsafe { _mm256_slli_epi32::<16>(words) };
        // SAFETY: as above.
        let upper = unsafe { _mm256_set1_epi32(0xffff_0000_u32.cast_signed()) };
        // SAFETY: as above.
        let odd = unsafe { _mm256_and_si256(words, upper) };
        // SAFETY: as above.
        let even = unsafe { _mm256_castsi256_ps(even) };
        // SAFETY: as above.
        (even, unsafe { _mm256_castsi256_ps(odd) })
    }
}
