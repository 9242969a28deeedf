//! Root-mean-square norm: y = x * r * w with r = 1 / sqrt(mean(x^2) + eps), row by row.
//!
//! Backward with the saved r: dx = r (w dy) - x r^3 mean(w dy x). Sums along a row are canonical: 16 lanes and a
//! fixed tree. The weight is frozen and has no gradient. A row whose squares leave the range of f32 has no number for
//! r, y and dx, never zeros; its neighbours do not notice.

use crate::cpu::disjoint::DisjointMut;
use crate::cpu::{Cpu, rms_norm as fast};

/// Elements a task works on.
const TASK: usize = 1 << 14;

/// Computes `y (rows, width)` and `inverse_root (rows)` from `x (rows, width)` and `weight (width)`.
///
/// # Panics
/// When shapes do not fit.
pub fn forward(
    cpu: &Cpu,
    x: &[f32],
    weight: &[f32],
    eps: f32,
    width: usize,
    y: &mut [f32],
    inverse_root: &mut [f32],
) {
    let rows = inverse_root.len();
    assert!(
        x.len() == rows * width && y.len() == x.len(),
        "x, y and roots differ in rows of {width}"
    );
    assert!(
        width > 0 && weight.len() == width,
        "a weight of {} for a norm over {width}",
        weight.len()
    );
    let (y, roots) = (
        DisjointMut::matrix(y, width),
        DisjointMut::new(inverse_root),
    );
    let step = (TASK / width).max(1);
    cpu.for_each(rows.div_ceil(step), |task| {
        let range = task * step..((task + 1) * step).min(rows);
        let (mut y, mut roots) = (y.rows(range.clone()), roots.part(range.clone()));
        let x = &x[range.start * width..range.end * width];
        fast::forward(cpu.isa(), x, weight, eps, &mut y, &mut roots);
    });
}

/// Computes `dx (rows, width)` from `dy (rows, width)`; adds it to what is there when `accumulate`.
///
/// # Panics
/// When shapes do not fit.
#[expect(
    clippy::too_many_arguments,
    reason = "a reverse needs what forward saw"
)]
pub fn backward(
    cpu: &Cpu,
    dy: &[f32],
    x: &[f32],
    weight: &[f32],
    inverse_root: &[f32],
    width: usize,
    dx: &mut [f32],
    accumulate: bool,
) {
    let rows = inverse_root.len();
    for len in [x.len(), dy.len(), dx.len()] {
        assert_eq!(len, rows * width, "x, gradients and roots differ in rows");
    }
    assert!(
        width > 0 && weight.len() == width,
        "a weight of {} for a norm over {width}",
        weight.len()
    );
    let dx = DisjointMut::matrix(dx, width);
    let step = (TASK / width).max(1);
    cpu.for_each(rows.div_ceil(step), |task| {
        let range = task * step..((task + 1) * step).min(rows);
        let mut dx = dx.rows(range.clone());
        let cells = range.start * width..range.end * width;
        let (dy, x, roots) = (&dy[cells.clone()], &x[cells], &inverse_root[range]);
        fast::backward(cpu.isa(), dy, x, weight, roots, &mut dx, accumulate);
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::ops::Range;

    use super::*;
    use crate::cpu::Isa;
    use crate::reference::rms_norm as reference;
    use crate::testing::{Operation, assert_close, bits, check_gradient, numbers, wide};

    const EPS: f32 = 1e-5;

    #[test]
    fn agrees_with_the_reference() {
        let cpu = Cpu::new(2).unwrap();
        for (rows, width) in [(1, 1), (3, 8), (5, 33), (300, 64), (40, 576)] {
            let (x, dy) = (numbers(rows * width, 1), numbers(rows * width, 2));
            let weight = numbers(width, 3);
            let (mut y, mut root) = (x.clone(), vec![0.0; rows]);
            forward(&cpu, &x, &weight, EPS, width, &mut y, &mut root);
            let mut dx = x.clone();
            backward(&cpu, &dy, &x, &weight, &root, width, &mut dx, false);
            let mut sum = dy.clone();
            backward(&cpu, &dy, &x, &weight, &root, width, &mut sum, true);
            let (x, dy, weight) = (wide(&x), wide(&dy), wide(&weight));
            let want = reference::forward(&x, &weight, f64::from(EPS));
            assert_close(Operation::RmsNorm, "y", &y, &want);
            let mut want = reference::backward(&dy, &x, &weight, f64::from(EPS));
            if width > 1 {
                // A row of one has almost no gradient: what is left is rounding.
                assert_close(Operation::RmsNormGradient, "dx", &dx, &want);
            }
            want.iter_mut().zip(&dy).for_each(|(want, dy)| *want += dy);
            assert_close(Operation::RmsNormGradient, "dx added", &sum, &want);
        }
    }

    #[test]
    fn the_reference_agrees_with_differences() {
        for (rows, width) in [(1, 2), (3, 8), (2, 33)] {
            let (x, dy) = (
                wide(&numbers(rows * width, 1)),
                wide(&numbers(rows * width, 2)),
            );
            let weight = wide(&numbers(width, 3));
            let dx = reference::backward(&dy, &x, &weight, 1e-5);
            check_gradient("x", &x, &dx, |x| {
                let y = reference::forward(x, &weight, 1e-5);
                y.iter().zip(&dy).map(|(y, dy)| y * dy).sum()
            });
        }
    }

    #[test]
    fn a_row_that_is_too_large_to_be_squared_is_no_number_anywhere() {
        for width in [1, 15, 16, 33, 576] {
            for (large, eps) in [(3e38, EPS), (1e30, EPS), (f32::INFINITY, 0.0)] {
                let mut x = numbers(3 * width, 1);
                x[2 * width - 1] = large;
                let (weight, dy) = (numbers(width, 3), numbers(3 * width, 2));
                for isa in Isa::available() {
                    let cpu = Cpu::with_isa(1, isa).unwrap();
                    let (mut y, mut root, mut dx) = (x.clone(), vec![0.0; 3], x.clone());
                    forward(&cpu, &x, &weight, eps, width, &mut y, &mut root);
                    backward(&cpu, &dy, &x, &weight, &root, width, &mut dx, false);
                    for (row, cells) in y.chunks(width).chain(dx.chunks(width)).enumerate() {
                        let broken = cells.iter().all(|cell| cell.is_nan());
                        let sound = cells.iter().all(|cell| cell.is_finite());
                        let bad = row % 3 == 1;
                        assert!(broken == bad && sound != bad, "{isa} {width} {large} {row}");
                    }
                }
            }
        }
        let y = reference::forward(&[1e200, 1.0], &[1.0, 1.0], 0.0);
        assert!(y.iter().all(|y| y.is_nan()), "{y:?}");
        let dx = reference::backward(&[1.0, 1.0], &[1e200, 1.0], &[1.0, 1.0], 0.0);
        assert!(dx.iter().all(|dx| dx.is_nan()), "{dx:?}");
    }

    #[test]
    fn a_row_does_not_see_rows_threads_or_instructions() {
        let (rows, width) = (400, 100);
        let (x, dy) = (numbers(rows * width, 1), numbers(rows * width, 2));
        let weight = numbers(width, 3);
        let run = |cpu: &Cpu, range: Range<usize>| {
            let cells = range.start * width..range.end * width;
            let (x, dy) = (&x[cells.clone()], &dy[cells]);
            let (mut y, mut root, mut dx) = (x.to_vec(), vec![0.0; range.len()], dy.to_vec());
            forward(cpu, x, &weight, EPS, width, &mut y, &mut root);
            backward(cpu, dy, x, &weight, &root, width, &mut dx, true);
            (bits(&y), bits(&dx))
        };
        let (y, dx) = run(&Cpu::with_isa(1, Isa::portable()).unwrap(), 0..rows);
        for isa in Isa::available() {
            let cpu = Cpu::with_isa(2, isa).unwrap();
            for range in [0..1, 17..18, 399..400, 50..371] {
                let cells = range.start * width..range.end * width;
                let (some_y, some_dx) = run(&cpu, range.clone());
                assert!(some_y == y[cells.clone()], "{isa} {range:?}");
                assert!(some_dx == dx[cells], "{isa} {range:?}");
            }
        }
    }
}
