//! RMS norm over runs of `width` values: y = w * x / sqrt(mean(x^2) + eps).
//!
//! With r = 1 / sqrt(mean(x^2) + eps): dx = r * (w dy) - x * r^3 * mean(w dy x).

use super::matrix::Matrix;

/// The norm of each run of `weight.len()` values.
#[must_use]
pub fn forward(x: &Matrix, weight: &[f64], epsilon: f64) -> Matrix {
    let mut y = x.clone();
    for run in y.values.chunks_mut(weight.len()) {
        let inverse = inverse_root(run, epsilon);
        for (value, weight) in run.iter_mut().zip(weight) {
            *value *= weight * inverse;
        }
    }
    y
}

/// The gradient of the input from that of the output.
#[must_use]
pub fn backward(x: &Matrix, weight: &[f64], epsilon: f64, dy: &Matrix) -> Matrix {
    let width = weight.len();
    let mut dx = Matrix::zeros(x.rows, x.columns);
    let runs = x.values.chunks(width).zip(dy.values.chunks(width));
    for ((x, dy), dx) in runs.zip(dx.values.chunks_mut(width)) {
        let inverse = inverse_root(x, epsilon);
        let mean = (0..width).map(|i| weight[i] * dy[i] * x[i]).sum::<f64>() / width as f64;
        for i in 0..width {
            dx[i] = inverse * weight[i] * dy[i] - x[i] * inverse.powi(3) * mean;
        }
    }
    dx
}

fn inverse_root(run: &[f64], epsilon: f64) -> f64 {
    let mean = run.iter().map(|x| x * x).sum::<f64>() / run.len() as f64;
    1.0 / (mean + epsilon).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::differences::{assert_gradient, random};

    #[test]
    fn the_gradient_is_the_slope() {
        let (x, dy) = (random(3, 8, 1), random(3, 8, 2));
        for width in [8, 4] {
            let weight = random(1, width, 3).values;
            let dx = backward(&x, &weight, 1e-5, &dy);
            assert_gradient(&x, &dx, &dy, |x| forward(x, &weight, 1e-5));
        }
    }
}
