//! Products with a frozen weight `(out, in)`, by the formula.

/// Returns `y (m, out) = x (m, in) W^T`.
pub fn forward(x: &[f64], w: &[f64], inputs: usize) -> Vec<f64> {
    let mut y = Vec::new();
    for x in x.chunks_exact(inputs) {
        for w in w.chunks_exact(inputs) {
            y.push(x.iter().zip(w).map(|(x, w)| x * w).sum());
        }
    }
    y
}

/// Returns `dx (m, in) = dy (m, out) W`.
pub fn backward(dy: &[f64], w: &[f64], inputs: usize) -> Vec<f64> {
    let outputs = w.len() / inputs;
    let mut dx = Vec::new();
    for dy in dy.chunks_exact(outputs) {
        for i in 0..inputs {
            dx.push((0..outputs).map(|o| dy[o] * w[o * inputs + i]).sum());
        }
    }
    dx
}
