//! The functions between linear layers, with their slopes.

use shared::job::NonLinearity;

use super::matrix::Matrix;

/// x sigmoid(x).
#[must_use]
pub fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// The slope of [`silu`]: s + x s (1 - s) with s = sigmoid(x).
#[must_use]
pub fn silu_slope(x: f64) -> f64 {
    let s = 1.0 / (1.0 + (-x).exp());
    s + x * s * (1.0 - s)
}

/// The function of a bottleneck.
#[must_use]
pub fn apply(kind: NonLinearity, x: f64) -> f64 {
    match kind {
        NonLinearity::Relu => x.max(0.0),
        NonLinearity::Gelu => x * normal_below(x),
        NonLinearity::Silu => silu(x),
    }
}

/// Its slope.
#[must_use]
pub fn slope(kind: NonLinearity, x: f64) -> f64 {
    match kind {
        NonLinearity::Relu => f64::from(u8::from(x > 0.0)),
        // d (x Phi(x)) = Phi(x) + x phi(x).
        NonLinearity::Gelu => normal_below(x) + x * normal_density(x),
        NonLinearity::Silu => silu_slope(x),
    }
}

/// SwiGLU: silu(gate) * up.
#[must_use]
pub fn swiglu(gate: &Matrix, up: &Matrix) -> Matrix {
    gate.map(silu).products(up)
}

/// The gradients of gate and up from that of [`swiglu`].
#[must_use]
pub fn swiglu_backward(gate: &Matrix, up: &Matrix, dy: &Matrix) -> (Matrix, Matrix) {
    let d_gate = dy.products(up).products(&gate.map(silu_slope));
    let d_up = dy.products(&gate.map(silu));
    (d_gate, d_up)
}

fn normal_density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// Phi(x), the share of the standard normal below x.
///
/// Near zero 1/2 + phi(x) (x + x^3/3 + x^5/15 + ...), whose terms are all of one sign; in the tail phi(x) over the
/// continued fraction x + 1/(x + 2/(x + 3/(x + ...))).
fn normal_below(x: f64) -> f64 {
    if x.abs() > 6.0 {
        let mut fraction = x.abs();
        for k in (1..=40).rev() {
            fraction = x.abs() + f64::from(k) / fraction;
        }
        let tail = normal_density(x) / fraction;
        return if x > 0.0 { 1.0 - tail } else { tail };
    }
    let (mut term, mut sum, mut k) = (x, x, 1.0);
    while term.abs() > 1e-18 {
        k += 2.0;
        term *= x * x / k;
        sum += term;
    }
    0.5 + normal_density(x) * sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::differences::{assert_gradient, random};

    #[test]
    fn the_normal_distribution_is_the_known_one() {
        for (x, share) in [
            (0.0, 0.5),
            (1.0, 0.841_344_746_068_542_9),
            (-2.0, 0.022_750_131_948_179_21),
            (-7.0, 1.279_812_543_885_835e-12),
        ] {
            assert!((normal_below(x) - share).abs() < 1e-14, "{x}");
        }
    }

    #[test]
    fn the_slopes_are_slopes() {
        let (x, dy) = (random(4, 4, 1), random(4, 4, 2));
        for kind in [NonLinearity::Relu, NonLinearity::Gelu, NonLinearity::Silu] {
            let dx = x.map(|x| slope(kind, x)).products(&dy);
            assert_gradient(&x, &dx, &dy, |x| x.map(|x| apply(kind, x)));
        }
    }

    #[test]
    fn swiglu_reverses_into_both_inputs() {
        let (gate, up, dy) = (random(3, 5, 1), random(3, 5, 2), random(3, 5, 3));
        let (d_gate, d_up) = swiglu_backward(&gate, &up, &dy);
        assert_gradient(&gate, &d_gate, &dy, |gate| swiglu(gate, &up));
        assert_gradient(&up, &d_up, &dy, |up| swiglu(&gate, up));
    }
}
