//! Activations and their derivatives in f64.

use crate::ops::elementwise::Activation;

/// Returns the error function, by its series (all terms positive) up to 6, where it is 1.
#[must_use]
pub fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term.abs() > 1e-18 * sum.abs() {
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp()
}

/// Returns f(x).
#[must_use]
pub fn value(function: Activation, x: f64) -> f64 {
    match function {
        Activation::Relu => x.max(0.0),
        Activation::Gelu => x * 0.5 * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Tanh => x.tanh(),
    }
}

/// Returns f'(x).
#[must_use]
pub fn derivative(function: Activation, x: f64) -> f64 {
    match function {
        Activation::Relu => f64::from(u8::from(x > 0.0)),
        Activation::Gelu => {
            let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
            0.5 * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)) + x * density
        }
        Activation::Silu => {
            let s = 1.0 / (1.0 + (-x).exp());
            s * (1.0 + x * (1.0 - s))
        }
        Activation::Tanh => 1.0 - x.tanh().powi(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_gradient;

    #[test]
    fn the_error_function_has_known_values() {
        let known = [
            (0.0, 0.0),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (3.5, 0.999_999_256_901_627_7),
        ];
        for (x, want) in known {
            assert!((erf(x) - want).abs() < 2e-15, "erf({x}) is {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
    }

    #[test]
    fn derivatives_are_the_differences() {
        let x: Vec<f64> = (-30..30)
            .map(|step| f64::from(step) * 0.13 + 0.05)
            .collect();
        for function in Activation::ALL {
            let gradient: Vec<f64> = x.iter().map(|&x| derivative(function, x)).collect();
            check_gradient(function.name(), &x, &gradient, |x| {
                x.iter().map(|&x| value(function, x)).sum()
            });
        }
    }
}
