//! The loss of one sequence: row t predicts label t + 1; labels below zero do not count.
//!
//! nll = ln(sum exp(z)) - z_label, and d nll / dz = softmax(z) - one-hot(label).

use super::matrix::Matrix;

/// Loss of one sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SequenceLoss {
    /// Sum of the negative log-likelihoods.
    pub sum: f64,
    /// Number of tokens that count.
    pub tokens: u64,
}

/// The label that row `t` should predict, if it counts.
fn target(labels: &[i32], t: usize) -> Option<usize> {
    labels
        .get(t + 1)
        .and_then(|&label| usize::try_from(label).ok())
}

/// Negative log-likelihood of each token that counts, in order.
#[must_use]
pub fn token_losses(logits: &Matrix, labels: &[i32]) -> Vec<f64> {
    let rows = (0..logits.rows).filter_map(|t| Some((logits.row(t), target(labels, t)?)));
    rows.map(|(row, label)| log_sum_exp(row) - row[label])
        .collect()
}

/// The loss of a sequence.
#[must_use]
pub fn loss(logits: &Matrix, labels: &[i32]) -> SequenceLoss {
    let losses = token_losses(logits, labels);
    SequenceLoss {
        sum: losses.iter().sum(),
        tokens: losses.len() as u64,
    }
}

/// The gradient of `weight` times the sum of the losses.
#[must_use]
pub fn backward(logits: &Matrix, labels: &[i32], weight: f64) -> Matrix {
    let mut gradient = Matrix::zeros(logits.rows, logits.columns);
    for t in 0..logits.rows {
        let Some(label) = target(labels, t) else {
            continue;
        };
        let total = log_sum_exp(logits.row(t));
        let d_row = gradient.row_mut(t);
        for (d, z) in d_row.iter_mut().zip(logits.row(t)) {
            *d = weight * (z - total).exp();
        }
        d_row[label] -= weight;
    }
    gradient
}

fn log_sum_exp(row: &[f64]) -> f64 {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|z| (z - largest).exp()).sum();
    largest + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::differences::{assert_gradient, random};

    #[test]
    fn the_gradient_is_the_slope_and_unlabelled_rows_have_none() {
        let logits = random(4, 5, 1);
        let labels = [3, -100, 2, 0];
        let gradient = backward(&logits, &labels, 0.5);
        assert!(
            gradient
                .row(0)
                .iter()
                .chain(gradient.row(3))
                .all(|&d| d == 0.0)
        );
        let one = Matrix::new(1, 1, vec![0.5]);
        assert_gradient(&logits, &gradient, &one, |logits| {
            Matrix::new(1, 1, vec![loss(logits, &labels).sum])
        });
        assert_eq!(loss(&logits, &labels).tokens, 2);
    }
}
