//! Root-mean-square norm in f64.

/// y = x / sqrt(mean(x^2) + eps) * w, for rows of `weight.len()`.
#[must_use]
pub fn forward(x: &[f64], weight: &[f64], eps: f64) -> Vec<f64> {
    let width = weight.len();
    let mut y = Vec::with_capacity(x.len());
    for x in x.chunks(width) {
        let root = inverse_root(x, eps);
        y.extend(x.iter().zip(weight).map(|(x, w)| x * root * w));
    }
    y
}

/// Gradient of x from that of y.
#[must_use]
pub fn backward(dy: &[f64], x: &[f64], weight: &[f64], eps: f64) -> Vec<f64> {
    let width = weight.len();
    let mut dx = Vec::with_capacity(x.len());
    for (dy, x) in dy.chunks(width).zip(x.chunks(width)) {
        let root = inverse_root(x, eps);
        let along: f64 = dy
            .iter()
            .zip(weight)
            .zip(x)
            .map(|((d, w), x)| d * w * x)
            .sum();
        let factor = along / width as f64 * root.powi(3);
        dx.extend(
            dy.iter()
                .zip(weight)
                .zip(x)
                .map(|((d, w), x)| d * w * root - x * factor),
        );
    }
    dx
}

/// No number when the squares of the row are too large for one.
fn inverse_root(x: &[f64], eps: f64) -> f64 {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    if mean.is_infinite() {
        f64::NAN
    } else {
        1.0 / (mean + eps).sqrt()
    }
}
