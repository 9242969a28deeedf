//! Norms of the rows of an adapted weight, by the formula.

/// Returns `|| W[o] + scale * sum_r b[r][o] a[r] ||` for each output.
pub fn row_norms(w: &[f64], a: &[f64], b: &[f64], inputs: usize, scale: f64) -> Vec<f64> {
    let outputs = w.len() / inputs;
    let norm = |(o, w): (usize, &[f64])| {
        let mut squares = 0.0;
        for (i, w) in w.iter().enumerate() {
            let low: f64 = a
                .chunks_exact(inputs)
                .zip(b.chunks_exact(outputs))
                .map(|(a, b)| a[i] * b[o])
                .sum();
            squares += (w + scale * low).powi(2);
        }
        squares.sqrt()
    };
    w.chunks_exact(inputs).enumerate().map(norm).collect()
}
