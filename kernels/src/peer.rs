//! The library's products that ours are measured against: the `gemm` crate, behind safe functions.
//!
//! No part of training: a measurement calls it, here beside the products it is the measure of. The library's entry
//! is unsafe, and the command line and the examples, which measure, forbid unsafe code or need not repeat it
//! (`docs/adr/0007-unsafe.md`). The bits are the library's own and depend on the number of rows and threads.

use gemm::Parallelism;

use crate::cpu::Cpu;
use crate::weight::Weight;

/// Computes `y (m, out) = x (m, in) W^T`.
///
/// # Panics
/// When the shapes do not fit, or the weight is not stored as 32-bit numbers.
pub fn forward(cpu: &Cpu, x: &[f32], w: &Weight, y: &mut [f32]) {
    let (outputs, inputs) = (w.rows(), w.cols());
    let right = Right {
        numbers: numbers(w),
        column: inputs,
        row: 1,
    };
    multiply(cpu, [inputs, outputs], x, right, y, false);
}

/// Computes `dx (m, in) = dy (m, out) W`, or adds it.
///
/// # Panics
/// When the shapes do not fit, or the weight is not stored as 32-bit numbers.
pub fn backward(cpu: &Cpu, dy: &[f32], w: &Weight, dx: &mut [f32], accumulate: bool) {
    let (outputs, inputs) = (w.rows(), w.cols());
    let right = Right {
        numbers: numbers(w),
        column: 1,
        row: inputs,
    };
    multiply(cpu, [outputs, inputs], dy, right, dx, accumulate);
}

fn numbers(w: &Weight) -> &[f32] {
    w.as_f32()
        .expect("the library multiplies 32-bit numbers: convert the weight")
}

/// The right matrix `(k, n)` and the distances of its columns and rows.
struct Right<'a> {
    numbers: &'a [f32],
    column: usize,
    row: usize,
}

/// y `(m, n)` = or += x `(m, k)` times the right matrix.
fn multiply(
    cpu: &Cpu,
    [k, n]: [usize; 2],
    x: &[f32],
    right: Right<'_>,
    y: &mut [f32],
    accumulate: bool,
) {
    let m = x.len() / k;
    assert_eq!(x.len(), m * k, "rows of x");
    assert_eq!(y.len(), m * n, "rows of y");
    assert_eq!(right.numbers.len(), k * n, "numbers of the weight");
    let parallelism = match cpu.threads() {
        1 => Parallelism::None,
        threads => Parallelism::Rayon(threads),
    };
    let stride = |count: usize| isize::try_from(count).expect("a slice is no longer than that");
    // On the threads of the pool, as ours: the library takes the pool it is called in.
    cpu.enter(|| {
        // SAFETY: x is (m, k), the right matrix (k, n) with the given distances, y (m, n): the lengths were checked
        // above, and the largest offset of each is its length - 1. Nothing else refers to y.
        #[expect(unsafe_code, reason = "the library's only entry")]
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                y.as_mut_ptr(),
                1,
                stride(n),
                accumulate,
                x.as_ptr(),
                1,
                stride(k),
                right.numbers.as_ptr(),
                stride(right.column),
                stride(right.row),
                1.0_f32,
                1.0_f32,
                false,
                false,
                false,
                parallelism,
            );
        }
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::ops::linear;

    fn numbers(len: usize, seed: usize) -> Vec<f32> {
        (0..len)
            .map(|i| ((i * 37 + seed) % 101) as f32 / 101.0 - 0.5)
            .collect()
    }

    fn assert_near(a: &[f32], b: &[f32]) {
        assert_eq!(a.len(), b.len());
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4));
    }

    #[test]
    fn both_make_the_same_products() {
        let (rows, outputs, inputs) = (7, 33, 50);
        let w = Weight::from_f32(outputs, inputs, numbers(outputs * inputs, 1));
        let (x, dy) = (numbers(rows * inputs, 2), numbers(rows * outputs, 3));
        for threads in [1, 2] {
            let cpu = Cpu::new(threads).unwrap();
            let (mut ours, mut theirs) = (vec![9.0; rows * outputs], vec![7.0; rows * outputs]);
            linear::forward(&cpu, &x, &w, &mut ours);
            forward(&cpu, &x, &w, &mut theirs);
            assert_near(&ours, &theirs);
            for accumulate in [false, true] {
                let (mut ours, mut theirs) = (x.clone(), x.clone());
                linear::backward(&cpu, &dy, &w, &mut ours, accumulate);
                backward(&cpu, &dy, &w, &mut theirs, accumulate);
                assert_near(&ours, &theirs);
            }
        }
    }

    #[test]
    #[should_panic(expected = "rows of y")]
    fn shapes_that_do_not_fit_are_refused() {
        let w = Weight::from_f32(4, 3, numbers(12, 1));
        forward(&Cpu::new(1).unwrap(), &[0.0; 6], &w, &mut [0.0; 7]);
    }
}
