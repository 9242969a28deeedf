//! Products with a low-rank matrix `(rank, width)`, by the formula.

/// Returns `low (rows, rank) = scale * x (rows, width) P^T`.
pub fn shrink(x: &[f64], matrix: &[f64], width: usize, scale: f64) -> Vec<f64> {
    let mut low = Vec::new();
    for x in x.chunks_exact(width) {
        for p in matrix.chunks_exact(width) {
            low.push(scale * x.iter().zip(p).map(|(x, p)| x * p).sum::<f64>());
        }
    }
    low
}

/// Adds `scale * low (rows, rank) P` to `y (rows, width)`.
pub fn grow(low: &[f64], matrix: &[f64], width: usize, scale: f64, y: &mut [f64]) {
    let rank = matrix.len() / width;
    for (y, low) in y.chunks_exact_mut(width).zip(low.chunks_exact(rank)) {
        for (p, low) in matrix.chunks_exact(width).zip(low) {
            for (y, p) in y.iter_mut().zip(p) {
                *y += scale * low * p;
            }
        }
    }
}
