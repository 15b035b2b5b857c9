//! Two distributions over the vocabulary, position by position.

use lily_model::TokenId;

/// Log-probability of `token`, natural logarithm.
pub(super) fn log_probability(row: &[f32], token: TokenId) -> f64 {
    f64::from(row[token as usize]) - log_sum_exp(row)
}

fn log_sum_exp(row: &[f32]) -> f64 {
    let max = row.iter().fold(f32::NEG_INFINITY, |max, &x| max.max(x));
    let sum: f64 = row.iter().map(|&x| f64::from(x - max).exp()).sum();
    f64::from(max) + sum.ln()
}

/// What was seen so far.
#[derive(Default)]
pub(super) struct Comparison {
    top1: u64,
    top5: u64,
    /// KL divergence of each position from the reference, in nats.
    kl: Vec<f64>,
}

/// Shares and divergences over all positions.
#[derive(Debug)]
pub(super) struct Agreement {
    pub(super) n: usize,
    /// Positions with the same most likely token.
    pub(super) top1: f64,
    /// Positions whose most likely token is among the reference's five.
    pub(super) top5: f64,
    pub(super) kl_mean: f64,
    pub(super) kl_p99: f64,
    pub(super) kl_max: f64,
}

impl Comparison {
    pub(super) fn add(&mut self, reference: &[f32], row: &[f32]) {
        let (a, b) = (log_sum_exp(reference), log_sum_exp(row));
        let kl = reference
            .iter()
            .zip(row)
            .map(|(&p, &q)| {
                let (p, q) = (f64::from(p) - a, f64::from(q) - b);
                p.exp() * (p - q)
            })
            .sum();
        self.kl.push(kl);
        let best = argmax(row);
        self.top1 += u64::from(argmax(reference) == best);
        let better = reference.iter().filter(|&&x| x > reference[best]).count();
        self.top5 += u64::from(better < 5);
    }

    /// # Panics
    /// If nothing was added.
    pub(super) fn result(mut self) -> Agreement {
        let n = self.kl.len();
        assert!(n > 0, "an agreement needs a position");
        self.kl.sort_by(f64::total_cmp);
        Agreement {
            n,
            top1: self.top1 as f64 / n as f64,
            top5: self.top5 as f64 / n as f64,
            kl_mean: self.kl.iter().sum::<f64>() / n as f64,
            kl_p99: self.kl[(n * 99 / 100).min(n - 1)],
            kl_max: self.kl[n - 1],
        }
    }
}

/// The first of the largest.
fn argmax(row: &[f32]) -> usize {
    let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]).then(b.cmp(&a)));
    best.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uniform_row_is_worth_the_logarithm_of_its_length() {
        let row = [700.0; 8];
        assert!((log_probability(&row, 3) + 8_f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn agreement_is_counted_and_divergence_measured() {
        let mut comparison = Comparison::default();
        let reference = [3.0, 2.0, 1.0, 0.0, -1.0, -2.0, -3.0];
        comparison.add(&reference, &reference);
        // Its best is the reference's second, then its sixth.
        comparison.add(&reference, &[2.0, 3.0, 1.0, 0.0, -1.0, -2.0, -3.0]);
        comparison.add(&reference, &[3.0, 2.0, 1.0, 0.0, -1.0, 9.0, -3.0]);
        let result = comparison.result();
        assert_eq!(result.n, 3);
        assert!((result.top1 - 1.0 / 3.0).abs() < 1e-12);
        assert!((result.top5 - 2.0 / 3.0).abs() < 1e-12);
        assert!(result.kl_max > result.kl_mean && result.kl_mean > 0.0);
    }

    #[test]
    fn divergence_follows_its_formula() {
        let mut comparison = Comparison::default();
        // Probabilities 3/4, 1/4 against 1/2, 1/2.
        comparison.add(&[3_f32.ln(), 0.0], &[1.0, 1.0]);
        let expected = 0.75 * 1.5_f64.ln() + 0.25 * 0.5_f64.ln();
        assert!((comparison.result().kl_mean - expected).abs() < 1e-7);
    }
}
