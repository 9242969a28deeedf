//! Products with a frozen weight `W (out, in)`: `y = x W^T` forward, `dx = dy W` backward.
//!
//! Canonical order: each element is one chain of fused multiply-adds from zero, over the inputs from 0 upward forward
//! and over the outputs from 0 upward backward. The stored weight is expanded panel by panel, never as a whole, so that
//! a weight of any format gives the bits of its numbers.

use crate::cpu::Cpu;
use crate::cpu::disjoint::{DisjointMut, Tile};
use crate::cpu::expand::{self, PANEL};
use crate::cpu::micro::{self, Strided};
use crate::cpu::scratch;
use crate::weight::Weight;

/// Longest run along the reduction that is expanded at once.
const DEPTH: usize = 512;

/// Computes `y (m, out) = x (m, in) W^T`.
///
/// # Panics
/// When the shapes do not fit.
pub fn forward(cpu: &Cpu, x: &[f32], w: &Weight, y: &mut [f32]) {
    forward_many(cpu, x, &mut [(w, y)]);
}

/// Computes `y_i (m, out_i) = x (m, in) W_i^T` for several weights of the same input.
///
/// # Panics
/// When the shapes do not fit.
pub fn forward_many(cpu: &Cpu, x: &[f32], products: &mut [(&Weight, &mut [f32])]) {
    for (w, y) in products {
        let rows = rows_of(x, w.cols(), "x");
        assert_eq!(rows, rows_of(y, w.rows(), "y"), "rows of x and y");
        let y = DisjointMut::matrix(y, w.rows());
        cpu.for_each(w.rows().div_ceil(PANEL), |task| {
            let columns = task * PANEL..(task * PANEL + PANEL).min(w.rows());
            let mut y = y.tile(0..rows, columns.clone());
            scratch::with(DEPTH * PANEL, |panel| {
                for start in (0..w.cols()).step_by(DEPTH) {
                    let depth = start..(start + DEPTH).min(w.cols());
                    expand::transposed(w, columns.clone(), depth.clone(), panel);
                    multiply(cpu, x, w.cols(), depth, panel, &mut y, start > 0);
                }
            });
        });
    }
}

/// Computes `dx (m, in) = dy (m, out) W`, or adds it when accumulating.
///
/// # Panics
/// When the shapes do not fit.
pub fn backward(cpu: &Cpu, dy: &[f32], w: &Weight, dx: &mut [f32], accumulate: bool) {
    backward_many(cpu, &[(dy, w)], dx, accumulate);
}

/// Computes `dx (m, in) = sum_i dy_i (m, out_i) W_i`, or adds it when accumulating; chained in the order of the list.
///
/// # Panics
/// When the shapes do not fit.
pub fn backward_many(cpu: &Cpu, parts: &[(&[f32], &Weight)], dx: &mut [f32], accumulate: bool) {
    let Some((_, first)) = parts.first() else {
        return;
    };
    let width = first.cols();
    let rows = rows_of(dx, width, "dx");
    for (dy, w) in parts {
        assert_eq!(w.cols(), width, "inputs of the weights");
        assert_eq!(rows_of(dy, w.rows(), "dy"), rows, "rows of dy and dx");
    }
    let dx = DisjointMut::matrix(dx, width);
    cpu.for_each(width.div_ceil(PANEL), |task| {
        let columns = task * PANEL..(task * PANEL + PANEL).min(width);
        let mut dx = dx.tile(0..rows, columns.clone());
        scratch::with(DEPTH * PANEL, |panel| {
            let mut accumulate = accumulate;
            for (dy, w) in parts {
                for start in (0..w.rows()).step_by(DEPTH) {
                    let depth = start..(start + DEPTH).min(w.rows());
                    expand::rows(w, depth.clone(), columns.clone(), panel);
                    multiply(cpu, dy, w.rows(), depth, panel, &mut dx, accumulate);
                    accumulate = true;
                }
            }
        });
    });
}

fn multiply(
    cpu: &Cpu,
    x: &[f32],
    width: usize,
    depth: std::ops::Range<usize>,
    panel: &[f32],
    y: &mut Tile<'_, f32>,
    accumulate: bool,
) {
    for row in 0..y.rows() {
        let a = Strided {
            slice: &x[row * width + depth.start..row * width + depth.end],
            row: width,
            column: 1,
        };
        let n = y.columns();
        micro::tile(
            cpu.isa(),
            1,
            n,
            depth.len(),
            a,
            panel,
            PANEL,
            y.row(row),
            n,
            accumulate,
        );
    }
}

/// Returns how many rows of `width` a slice holds.
fn rows_of(slice: &[f32], width: usize, name: &str) -> usize {
    assert!(
        slice.len().is_multiple_of(width),
        "{name} has {} values, not a whole number of rows of {width}",
        slice.len()
    );
    slice.len() / width
}
