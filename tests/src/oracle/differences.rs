//! Central finite differences: the judge of every hand-written gradient here.

use shared::random::{Domain, Stream};

use super::matrix::Matrix;

/// Half the distance between the two points of a difference.
pub(crate) const STEP: f64 = 1e-5;

/// A matrix of normal numbers.
pub(crate) fn random(rows: usize, columns: usize, seed: u64) -> Matrix {
    let stream = Stream::new(seed, Domain::TinyModel, [0; 3]);
    let values = (0..rows * columns).map(|i| f64::from(stream.normal(i as u32)));
    Matrix::new(rows, columns, values.collect())
}

/// The slope of `function` at 0.
pub(crate) fn slope(mut function: impl FnMut(f64) -> f64) -> f64 {
    (function(STEP) - function(-STEP)) / (2.0 * STEP)
}

/// Whether a gradient is the slope, up to the error of the differences.
pub(crate) fn close(gradient: f64, slope: f64) -> bool {
    (gradient - slope).abs() <= 1e-7 * (1.0 + gradient.abs().max(slope.abs()))
}

/// Asserts that `dx` is the gradient at `x` of the sum of `dy * function(x)`.
pub(crate) fn assert_gradient(
    x: &Matrix,
    dx: &Matrix,
    dy: &Matrix,
    function: impl Fn(&Matrix) -> Matrix,
) {
    for i in 0..x.values.len() {
        let mut moved = x.clone();
        let slope = slope(|step| {
            moved.values[i] = x.values[i] + step;
            let y = function(&moved);
            y.values.iter().zip(&dy.values).map(|(y, dy)| y * dy).sum()
        });
        let gradient = dx.values[i];
        assert!(
            close(gradient, slope),
            "value {i}: gradient {gradient}, slope {slope}"
        );
    }
}
