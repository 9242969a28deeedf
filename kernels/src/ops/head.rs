//! The end of the model: logits, the loss of labelled rows and its gradient, without a `(tokens, vocab)` array.
//!
//! For each row with target `y` and coefficient `c` (its weight over that of the optimizer step), `l = x W^T`:
//!
//! ```text
//! loss = ln(sum_j e^l_j) - l_y            dx = c * (sum_j softmax(l)_j W_j - W_y)
//! ```
//!
//! The loss is written plain, without the coefficient. [`loss_and_gradient`] does all of it in one sweep over the
//! vocabulary, a slice of the weight at a time, with the running maximum and sum of a flash softmax. With a low-rank
//! adapter on the head, `l = x W^T + scale * (x A^T) B^T`, [`loss_and_gradient_adapted`] also adds to the gradients of
//! `A (rank, hidden)` and `B^T (rank, vocab)`; for `B^T` it holds the logits of a few blocks of rows.
//!
//! Canonical order: a logit is one chain from zero over the inputs and then over the rank; slices of 96 tokens and four
//! segments of slices depend on the vocabulary alone. A row's bits do not depend on other rows.

use crate::cpu::Cpu;
use crate::cpu::head::{self as fast, Finished, Sweep};
use crate::ops::linear;
use crate::weight::Weight;

mod adapted;

pub use adapted::{AdapterSums, HeadAdapter, loss_and_gradient_adapted};

/// Rows that are swept together: a few blocks for each thread, and a bound on what is held.
const WAVE: usize = 384;

/// Labelled rows.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// `(rows, hidden)`, after the final norm.
    pub x: &'a [f32],
    /// Token that each row should predict.
    pub targets: &'a [u32],
    /// Factor of each row's gradient.
    pub coefficients: &'a [f32],
}

/// Bytes that are held at most beside arguments and results while losses and gradients of so many rows are computed; with the
/// rank of an adapter on the head, by [`loss_and_gradient_adapted`].
#[must_use]
pub fn held(rows: usize, hidden: usize, vocab: usize, rank: Option<usize>) -> usize {
    let wave = rows.min(WAVE);
    match rank {
        None => fast::held(wave, hidden),
        Some(rank) => fast::held(wave, hidden + rank) + adapted::held(rows, hidden, vocab, rank),
    }
}

/// Computes the logits `(rows, vocab)` of `x (rows, hidden)`, for sampling.
///
/// # Panics
/// When the shapes do not fit.
pub fn logits(cpu: &Cpu, x: &[f32], head: &Weight, out: &mut [f32]) {
    linear::forward(cpu, x, head, out);
}

/// Writes each row's negative log-likelihood to `loss` and whether the target is its most likely token (the first of
/// equal ones) to `correct`, and, where wanted, the gradient to `dx (rows, hidden)`.
///
/// A row that is not finite, or whose logits are not, gets a loss that is not finite.
///
/// # Panics
/// When the shapes do not fit or a target is not in the vocabulary.
pub fn loss_and_gradient(
    cpu: &Cpu,
    rows: &Rows<'_>,
    head: &Weight,
    loss: &mut [f32],
    correct: &mut [bool],
    mut dx: Option<&mut [f32]>,
) {
    let hidden = head.cols();
    check(rows, head, loss, correct, dx.as_deref());
    for start in (0..loss.len()).step_by(WAVE) {
        let wave = start..loss.len().min(start + WAVE);
        let values = wave.start * hidden..wave.end * hidden;
        let sweep = Sweep {
            head,
            x: &rows.x[values.clone()],
            targets: &rows.targets[wave.clone()],
            low: None,
        };
        let dx = dx.as_deref_mut().map(|dx| &mut dx[values]);
        let finished = sweep.run(cpu, &rows.coefficients[wave.clone()], dx, None);
        report(
            &finished,
            sweep.targets,
            &mut loss[wave.clone()],
            &mut correct[wave],
        );
    }
}

fn report(finished: &[Finished], targets: &[u32], loss: &mut [f32], correct: &mut [bool]) {
    for (row, finished) in finished.iter().enumerate() {
        loss[row] = finished.loss;
        correct[row] = finished.loss.is_finite() && finished.argmax == targets[row];
    }
}

fn check(rows: &Rows<'_>, head: &Weight, loss: &[f32], correct: &[bool], dx: Option<&[f32]>) {
    let count = rows.targets.len();
    let lengths = [rows.coefficients.len(), loss.len(), correct.len()];
    assert_eq!(
        lengths, [count; 3],
        "coefficients, losses, correct: one a row"
    );
    assert_eq!(rows.x.len(), count * head.cols(), "x of the head");
    assert!(
        dx.is_none_or(|dx| dx.len() == rows.x.len()),
        "dx of the head"
    );
    for (row, &target) in rows.targets.iter().enumerate() {
        assert!(
            (target as usize) < head.rows(),
            "target {target} of row {row} is not in a vocabulary of {}",
            head.rows()
        );
    }
}

#[cfg(test)]
mod tests;
