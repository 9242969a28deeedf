//! Rotary positions in f64, half-split.

/// Turns each head of `x (rows, heads * head_dim)` by position times frequency; `sign` is -1.0 to turn back.
#[must_use]
pub fn rotate(x: &[f64], positions: &[u32], inverse_frequencies: &[f64], sign: f64) -> Vec<f64> {
    let half = inverse_frequencies.len();
    let width = x.len() / positions.len();
    let mut y = x.to_vec();
    for (row, &position) in positions.iter().enumerate() {
        for head in 0..width / (2 * half) {
            for (i, frequency) in inverse_frequencies.iter().enumerate() {
                let angle = sign * f64::from(position) * frequency;
                let at = row * width + head * 2 * half + i;
                y[at] = x[at] * angle.cos() - x[at + half] * angle.sin();
                y[at + half] = x[at + half] * angle.cos() + x[at] * angle.sin();
            }
        }
    }
    y
}
