//! Dropout on the input of a low-rank pair: which elements fall is a function of who, when and where.
//!
//! Element e (row in its sequence * width + column) of site (layer * 7 + projection; the LM head follows the last
//! layer), sequence number n of a step, falls where the keyed uniform number is below the share; the others are
//! multiplied by 1 / (1 - share).

use shared::random::{Domain, Stream};

use super::matrix::Matrix;

/// Whose numbers are drawn, and for which sequence of which step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The job's seed.
    pub seed: u64,
    /// Optimizer steps taken before.
    pub step: u32,
    /// Number of the sequence within the step.
    pub sequence: u32,
}

/// The factor of every element of `(rows, width)`.
#[must_use]
pub fn factors(draw: Draw, site: u32, share: f64, rows: usize, width: usize) -> Matrix {
    let stream = Stream::new(draw.seed, Domain::Dropout, [site, draw.sequence, draw.step]);
    let kept = 1.0 / (1.0 - share);
    let values = (0..rows * width).map(|element| {
        let falls = f64::from(stream.uniform(element as u32)) < share;
        if falls { 0.0 } else { kept }
    });
    Matrix::new(rows, width, values.collect())
}
