//! The gated activation in f64.

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Returns silu(gate) * up.
#[must_use]
pub fn forward(gate: &[f64], up: &[f64]) -> Vec<f64> {
    let pairs = gate.iter().zip(up);
    pairs.map(|(g, u)| g * sigmoid(*g) * u).collect()
}

/// Returns the gradients of gate and up from that of the result.
#[must_use]
pub fn backward(d_act: &[f64], gate: &[f64], up: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let triples = d_act.iter().zip(gate).zip(up);
    triples
        .map(|((d, g), u)| {
            let s = sigmoid(*g);
            (d * u * s * (1.0 + g * (1.0 - s)), d * g * s)
        })
        .unzip()
}
