//! Sums over tokens, by the formula: the order does not matter for an oracle.

/// Returns `gradient (rank, width) = scale * sum_t left[t] (rank) right[t] (width)`.
pub fn outer(left: &[f64], rank: usize, right: &[f64], width: usize, scale: f64) -> Vec<f64> {
    let mut gradient = vec![0.0; rank * width];
    for (left, right) in left.chunks_exact(rank).zip(right.chunks_exact(width)) {
        for (left, gradient) in left.iter().zip(gradient.chunks_exact_mut(width)) {
            for (right, gradient) in right.iter().zip(gradient) {
                *gradient += scale * left * right;
            }
        }
    }
    gradient
}

/// Returns `gradient (width) = sum_t values[t] * factors[t]`.
pub fn columns(values: &[f64], factors: &[f64], width: usize) -> Vec<f64> {
    let mut gradient = vec![0.0; width];
    let rows = values.chunks_exact(width).zip(factors.chunks_exact(width));
    for (values, factors) in rows {
        for ((gradient, value), factor) in gradient.iter_mut().zip(values).zip(factors) {
            *gradient += value * factor;
        }
    }
    gradient
}
