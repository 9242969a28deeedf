//! Operations on each element, row by row: sums, biases, scales, activations, finite checks.

use crate::cpu::disjoint::DisjointMut;
use crate::cpu::{Cpu, Isa, elementwise as fast};

/// Elements a task works on: large enough to hide its start, small enough to share.
const TASK: usize = 1 << 14;

/// The function between the layers of a bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// max(x, 0).
    Relu,
    /// x Phi(x), with the exact normal distribution.
    Gelu,
    /// x / (1 + e^-x).
    Silu,
    /// The hyperbolic tangent.
    Tanh,
}

impl Activation {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Relu, Self::Gelu, Self::Silu, Self::Tanh];

    /// Returns its name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::Gelu => "gelu",
            Self::Silu => "silu",
            Self::Tanh => "tanh",
        }
    }
}

/// Splits a `(rows, width)` matrix into tasks of whole rows.
fn each_rows(cpu: &Cpu, y: &mut [f32], width: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    assert!(
        width > 0 && y.len().is_multiple_of(width),
        "{} values are not whole rows of {width}",
        y.len()
    );
    let rows = y.len() / width;
    let step = (TASK / width).max(1);
    let y = DisjointMut::matrix(y, width);
    cpu.for_each(rows.div_ceil(step), |task| {
        let first = task * step;
        let mut part = y.rows(first..(first + step).min(rows));
        f(first * width, &mut part);
    });
}

/// Adds `x` to `y`, element by element.
///
/// # Panics
/// When the lengths differ.
pub fn add(cpu: &Cpu, y: &mut [f32], x: &[f32]) {
    assert_eq!(y.len(), x.len(), "a sum of different lengths");
    each_rows(cpu, y, 1, |at, y| {
        fast::add(cpu.isa(), y, &x[at..at + y.len()]);
    });
}

/// Adds `bias (width)` to every row of `y (rows, width)`.
///
/// # Panics
/// When `y` is not whole rows.
pub fn add_bias(cpu: &Cpu, y: &mut [f32], bias: &[f32]) {
    each_rows(cpu, y, bias.len(), |_, y| {
        fast::add_rows(cpu.isa(), y, bias);
    });
}

/// Multiplies every row of `y (rows, width)` by `scale (width)`.
///
/// # Panics
/// When `y` is not whole rows.
pub fn scale_columns(cpu: &Cpu, y: &mut [f32], scale: &[f32]) {
    each_rows(cpu, y, scale.len(), |_, y| {
        fast::scale_rows(cpu.isa(), y, scale);
    });
}

/// Applies the function to every element.
pub fn activate(cpu: &Cpu, function: Activation, x: &mut [f32]) {
    let run: fn(Isa, &mut [f32]) = match function {
        Activation::Relu => fast::relu,
        Activation::Gelu => fast::gelu,
        Activation::Silu => fast::silu,
        Activation::Tanh => fast::tanh,
    };
    each_rows(cpu, x, 1, |_, x| run(cpu.isa(), x));
}

/// Multiplies `d` by the function's derivative at `x`.
///
/// # Panics
/// When the lengths differ.
pub fn activate_backward(cpu: &Cpu, function: Activation, x: &[f32], d: &mut [f32]) {
    assert_eq!(x.len(), d.len(), "a gradient of another length");
    let run: fn(Isa, &[f32], &mut [f32]) = match function {
        Activation::Relu => fast::relu_backward,
        Activation::Gelu => fast::gelu_backward,
        Activation::Silu => fast::silu_backward,
        Activation::Tanh => fast::tanh_backward,
    };
    each_rows(cpu, d, 1, |at, d| run(cpu.isa(), &x[at..at + d.len()], d));
}

/// Returns the index of the first value that is not finite.
#[must_use]
pub fn first_non_finite(x: &[f32]) -> Option<usize> {
    let found = x.chunks(TASK).position(|part| !all_finite(part))? * TASK;
    let at = x[found..].iter().position(|value| !value.is_finite());
    at.map(|at| found + at)
}

/// Says whether every value is finite.
#[must_use]
pub fn all_finite(x: &[f32]) -> bool {
    fast::finite(Isa::best(), x)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::reference::elementwise as reference;
    use crate::testing::{Operation, assert_close, bits, numbers, wide};

    #[test]
    fn activations_are_those_of_the_reference() {
        let cpu = Cpu::new(2).unwrap();
        for scale in [0.5, 3.0, 12.0] {
            let x: Vec<f32> = numbers(40_000, 1).iter().map(|x| x * scale).collect();
            let d_y = numbers(40_000, 2);
            for function in Activation::ALL {
                let (mut y, mut d) = (x.clone(), d_y.clone());
                activate(&cpu, function, &mut y);
                activate_backward(&cpu, function, &x, &mut d);
                let value = |x: f64| reference::value(function, x);
                let want: Vec<f64> = wide(&x).into_iter().map(value).collect();
                assert_close(Operation::Activation, function.name(), &y, &want);
                let slope = |(x, d): (f64, f64)| d * reference::derivative(function, x);
                let pairs = wide(&x).into_iter().zip(wide(&d_y));
                let want: Vec<f64> = pairs.map(slope).collect();
                assert_close(Operation::Activation, function.name(), &d, &want);
            }
        }
    }

    #[test]
    fn rows_are_biased_and_scaled() {
        let cpu = Cpu::new(2).unwrap();
        let mut y = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        add_bias(&cpu, &mut y, &[10.0, 20.0, 30.0]);
        assert_eq!(y, [11.0, 22.0, 33.0, 14.0, 25.0, 36.0]);
        scale_columns(&cpu, &mut y, &[1.0, 0.5, -1.0]);
        assert_eq!(y, [11.0, 11.0, -33.0, 14.0, 12.5, -36.0]);
        add(&cpu, &mut y, &[1.0; 6]);
        assert_eq!(y, [12.0, 12.0, -32.0, 15.0, 13.5, -35.0]);
        add(&cpu, &mut [], &[]);
        activate(&cpu, Activation::Gelu, &mut []);
    }

    #[test]
    fn every_instruction_set_and_thread_count_gives_the_same_bits() {
        let x: Vec<f32> = numbers(40_000, 3).iter().map(|x| x * 10.0).collect();
        let run = |cpu: &Cpu| {
            let (mut y, mut d) = (x.clone(), x.clone());
            for function in Activation::ALL {
                activate(cpu, function, &mut y);
                activate_backward(cpu, function, &x, &mut d);
                add(cpu, &mut y, &d);
            }
            scale_columns(cpu, &mut y, &x[..100]);
            add_bias(cpu, &mut y, &x[..50]);
            bits(&y)
        };
        let first = run(&Cpu::with_isa(1, Isa::portable()).unwrap());
        for isa in Isa::available() {
            for threads in [1, 2, 3] {
                let cpu = Cpu::with_isa(threads, isa).unwrap();
                assert!(run(&cpu) == first, "{isa} {threads}");
            }
        }
    }

    #[test]
    fn no_number_is_hidden_by_an_activation() {
        let cpu = Cpu::new(1).unwrap();
        for function in Activation::ALL {
            let mut x = [1.0, f32::NAN];
            activate(&cpu, function, &mut x);
            assert!(x[0].is_finite() && x[1].is_nan(), "{function:?}");
            let mut d = [1.0, 1.0, f32::NAN];
            activate_backward(&cpu, function, &[1e30, -1e30, 1.0], &mut d);
            assert!(d[0].is_finite() && d[1].is_finite() && d[2].is_nan());
        }
    }

    #[test]
    fn the_first_bad_value_is_found() {
        let mut x = vec![1.0f32; 50_000];
        assert_eq!(first_non_finite(&x), None);
        x[40_001] = f32::NEG_INFINITY;
        x[33_333] = f32::NAN;
        assert_eq!(first_non_finite(&x), Some(33_333));
        assert!(all_finite(&[f32::MAX, -0.0, 1e-45]));
        assert!(all_finite(&[]));
    }
}
