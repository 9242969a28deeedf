//! Root-mean-square norm: y = x * r * w with r = 1 / sqrt(mean(x^2) + eps), row by row.
//!
//! Backward with the saved r: dx = r (w dy) - x r^3 mean(w dy x). Sums along a row are canonical: 16 lanes and a
//! fixed tree. The weight is frozen and has no gradient.

use crate::cpu::Cpu;
use crate::cpu::disjoint::DisjointMut;
use crate::cpu::isa::isa_dispatch;
use crate::cpu::math::{dot, sum_lanes};

/// Rows a task works on.
const TASK: usize = 16;

/// y `(rows, width)` and `inverse_root` `(rows)` from x `(rows, width)` and weight `(width)`.
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
    assert!(x.len() == rows * width && y.len() == x.len(), "x, y and roots differ in rows");
    assert_eq!(weight.len(), width, "weight of the norm");
    let (y, roots) = (DisjointMut::matrix(y, width), DisjointMut::new(inverse_root));
    cpu.for_each(rows.div_ceil(TASK), |task| {
        let range = task * TASK..((task + 1) * TASK).min(rows);
        let (mut y, mut roots) = (y.rows(range.clone()), roots.part(range.clone()));
        let x = &x[range.start * width..range.end * width];
        forward_part(cpu.isa(), x, weight, eps, &mut y, &mut roots);
    });
}

isa_dispatch! {
    fn forward_part(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32], roots: &mut [f32])
        = forward_body;
}

#[inline(always)]
fn forward_body(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32], roots: &mut [f32]) {
    let width = weight.len();
    let rows = x.chunks_exact(width).zip(y.chunks_exact_mut(width)).zip(roots);
    for ((x, y), root) in rows {
        let mean = dot(x, x) / width as f32;
        *root = 1.0 / (mean + eps).sqrt();
        for ((y, x), w) in y.iter_mut().zip(x).zip(weight) {
            *y = x * *root * w;
        }
    }
}

/// dx `(rows, width)` from dy `(rows, width)`; added to what is there when `accumulate`.
///
/// # Panics
/// When shapes do not fit.
#[expect(clippy::too_many_arguments, reason = "a reverse needs what forward saw")]
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
    assert!(x.len() == rows * width && dy.len() == x.len(), "x, dy and roots differ in rows");
    assert_eq!(dx.len(), x.len(), "x and dx differ in rows");
    assert_eq!(weight.len(), width, "weight of the norm");
    let dx = DisjointMut::matrix(dx, width);
    cpu.for_each(rows.div_ceil(TASK), |task| {
        let range = task * TASK..((task + 1) * TASK).min(rows);
        let mut dx = dx.rows(range.clone());
        let cells = range.start * width..range.end * width;
        let (dy, x, roots) = (&dy[cells.clone()], &x[cells], &inverse_root[range]);
        backward_part(cpu.isa(), dy, x, weight, roots, &mut dx, accumulate);
    });
}

isa_dispatch! {
    fn backward_part(
        dy: &[f32], x: &[f32], weight: &[f32], roots: &[f32], dx: &mut [f32], accumulate: bool,
    ) = backward_body;
}

#[inline(always)]
fn backward_body(
    dy: &[f32],
    x: &[f32],
    weight: &[f32],
    roots: &[f32],
    dx: &mut [f32],
    accumulate: bool,
) {
    let width = weight.len();
    for (row, &root) in roots.iter().enumerate() {
        let cells = row * width..(row + 1) * width;
        let (dy, x, dx) = (&dy[cells.clone()], &x[cells.clone()], &mut dx[cells]);
        let mean = weighted_dot(dy, weight, x) / width as f32;
        let factor = mean * root * root * root;
        for (((dx, dy), x), w) in dx.iter_mut().zip(dy).zip(x).zip(weight) {
            let gradient = (-factor).mul_add(*x, root * (w * dy));
            *dx = if accumulate { *dx + gradient } else { gradient };
        }
    }
}

/// Sum of (w dy) x in the canonical order.
#[inline(always)]
fn weighted_dot(dy: &[f32], weight: &[f32], x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    let (dy, dy_rest) = dy.as_chunks::<16>();
    let (weight, weight_rest) = weight.as_chunks::<16>();
    let (x, x_rest) = x.as_chunks::<16>();
    for ((dy, w), x) in dy.iter().zip(weight).zip(x) {
        for j in 0..16 {
            lanes[j] = (w[j] * dy[j]).mul_add(x[j], lanes[j]);
        }
    }
    for (j, ((dy, w), x)) in dy_rest.iter().zip(weight_rest).zip(x_rest).enumerate() {
        lanes[j] = (w * dy).mul_add(*x, lanes[j]);
    }
    sum_lanes(lanes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::cpu::Isa;
    use crate::reference::rms_norm as reference;

    fn numbers(n: usize, salt: usize) -> Vec<f32> {
        (0..n).map(|i| (((i + salt) * 7919 % 1013) as f32 - 506.0) * 0.003).collect()
    }

    #[test]
    fn agrees_with_the_reference_and_the_reference_with_differences() {
        for (rows, width) in [(1, 1), (3, 8), (5, 33), (40, 576)] {
            let (x, w, dy) = (numbers(rows * width, 1), numbers(width, 2), numbers(rows * width, 3));
            let cpu = Cpu::new(2).unwrap();
            let (mut y, mut root, mut dx) = (x.clone(), vec![0.0; rows], x.clone());
            forward(&cpu, &x, &w, 1e-5, width, &mut y, &mut root);
            backward(&cpu, &dy, &x, &w, &root, width, &mut dx, false);
            let wide = |v: &[f32]| v.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
            let (x, w, dy) = (wide(&x), wide(&w), wide(&dy));
            let want = reference::forward(&x, &w, 1e-5);
            let d_want = reference::backward(&dy, &x, &w, 1e-5);
            for i in 0..rows * width {
                assert!((f64::from(y[i]) - want[i]).abs() < 1e-5, "{rows} x {width}, y[{i}]");
                assert!((f64::from(dx[i]) - d_want[i]).abs() < 2e-4, "{rows} x {width}, dx[{i}]");
            }
            let (at, h) = (width / 2, 1e-6);
            let value = |shift: f64| {
                let mut x = x.clone();
                x[at] += shift;
                reference::forward(&x, &w, 1e-5).iter().zip(&dy).map(|(y, d)| y * d).sum::<f64>()
            };
            let difference = (value(h) - value(-h)) / (2.0 * h);
            assert!((difference - d_want[at]).abs() < 1e-6 * (1.0 + d_want[at].abs()));
        }
    }

    #[test]
    fn a_row_does_not_see_rows_threads_or_instructions() {
        let (rows, width) = (50, 100);
        let (x, w, dy) = (numbers(rows * width, 1), numbers(width, 2), numbers(rows * width, 3));
        let run = |cpu: &Cpu, range: std::ops::Range<usize>| {
            let cells = range.start * width..range.end * width;
            let (x, dy) = (&x[cells.clone()], &dy[cells]);
            let (mut y, mut root, mut dx) = (x.to_vec(), vec![0.0; range.len()], dy.to_vec());
            forward(cpu, x, &w, 1e-5, width, &mut y, &mut root);
            backward(cpu, dy, x, &w, &root, width, &mut dx, true);
            y.iter().chain(&dx).map(|v| v.to_bits()).collect::<Vec<_>>()
        };
        let all = run(&Cpu::with_isa(1, Isa::portable()).unwrap(), 0..rows);
        for isa in Isa::available() {
            let cpu = Cpu::with_isa(2, isa).unwrap();
            for row in [0, 17, 49] {
                let alone = run(&cpu, row..row + 1);
                assert!(alone[..width] == all[row * width..][..width], "{isa:?} row {row}");
                assert!(alone[width..] == all[(rows + row) * width..][..width], "{isa:?} {row}");
            }
        }
    }
}
