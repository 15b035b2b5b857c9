//! Plain f64 implementations to compare with, and random inputs.

#![allow(dead_code, reason = "each test file uses its part")]

/// A small generator, so that a failing case is named by its seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// In `low..high`.
    pub(crate) fn uniform(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * (self.next() >> 40) as f32 / (1_u64 << 24) as f32
    }

    /// About normal with variance 1.
    pub(crate) fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.uniform(-0.5, 0.5)).sum()
    }

    pub(crate) fn normals(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| scale * self.normal()).collect()
    }

    pub(crate) fn uniforms(&mut self, n: usize, low: f32, high: f32) -> Vec<f32> {
        (0..n).map(|_| self.uniform(low, high)).collect()
    }
}

pub(crate) fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub(crate) fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

pub(crate) fn softplus(x: f64) -> f64 {
    (-x.abs()).exp().ln_1p() + x.max(0.0)
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub(crate) fn rms_norm(x: &[f64], gain: &[f64], eps: f64) -> Vec<f64> {
    let scale = 1.0 / (dot(x, x) / x.len() as f64 + eps).sqrt();
    x.iter().zip(gain).map(|(x, gain)| x * scale * gain).collect()
}

pub(crate) fn max_abs(x: &[f64]) -> f64 {
    x.iter().fold(0.0, |max, x| x.abs().max(max))
}

/// Panics if a value is further than `tolerance` from its reference, or not a number.
pub(crate) fn assert_close(what: &str, actual: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(actual.len(), expected.len(), "{what}: as many values");
    let worst = actual
        .iter()
        .zip(expected)
        .enumerate()
        .map(|(i, (&a, e))| (i, (f64::from(a) - e).abs()))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((i, error)) = worst else { return };
    assert!(
        error <= tolerance,
        "{what}: value {i} is {} instead of {}, {error:.3e} away, not within {tolerance:.3e}",
        actual[i],
        expected[i]
    );
}
