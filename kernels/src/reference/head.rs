//! Loss of labelled rows and its gradients, by the formula.

use super::{block_sum, linear, thin};

/// The numbers that the head computes with.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// `W (vocab, hidden)`.
    pub weight: &'a [f64],
    /// Inputs of the head.
    pub hidden: usize,
    /// `A (rank, hidden)`, empty without an adapter.
    pub a: &'a [f64],
    /// `B^T (rank, vocab)`, empty without an adapter.
    pub b: &'a [f64],
    /// Factor of the adapter.
    pub scale: f64,
}

/// What the head makes of rows.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// Negative log-likelihood of each target.
    pub loss: Vec<f64>,
    /// Whether no token is more likely than the target, and none before it as likely.
    pub correct: Vec<bool>,
    /// Gradient of the rows, of the sum of coefficient times loss.
    pub dx: Vec<f64>,
    /// Gradient of `A`.
    pub da: Vec<f64>,
    /// Gradient of `B^T`.
    pub db: Vec<f64>,
}

impl Head<'_> {
    /// Computes everything for the rows `x`.
    pub fn run(&self, x: &[f64], targets: &[u32], coefficients: &[f64]) -> Made {
        let (hidden, vocab) = (self.hidden, self.weight.len() / self.hidden);
        let rank = self.a.len() / hidden;
        let low = match rank {
            0 => Vec::new(),
            _ => thin::shrink(x, self.a, hidden, 1.0),
        };
        let mut logits = linear::forward(x, self.weight, hidden);
        if rank > 0 {
            thin::grow(&low, self.b, vocab, self.scale, &mut logits);
        }
        let mut made = Made::default();
        for ((row, &target), coefficient) in logits
            .chunks_exact_mut(vocab)
            .zip(targets)
            .zip(coefficients)
        {
            let target = target as usize;
            let best = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row.iter().map(|logit| (logit - best).exp()).sum();
            made.loss.push(sum.ln() + best - row[target]);
            made.correct
                .push(row.iter().position(|&logit| logit == best) == Some(target));
            for logit in row.iter_mut() {
                *logit = coefficient * (*logit - best).exp() / sum;
            }
            row[target] -= coefficient;
        }
        made.dx = linear::backward(&logits, self.weight, hidden);
        if rank > 0 {
            let d_low = low_gradient(&logits, self.b, vocab, self.scale);
            thin::grow(&d_low, self.a, hidden, 1.0, &mut made.dx);
            made.da = block_sum::outer(&d_low, rank, x, hidden, 1.0);
            made.db = block_sum::outer(&low, rank, &logits, vocab, self.scale);
        }
        made
    }
}

/// Returns the gradient of `low` from that of the logits.
fn low_gradient(logits: &[f64], b: &[f64], vocab: usize, scale: f64) -> Vec<f64> {
    thin::shrink(logits, b, vocab, scale)
}
