#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;
use crate::cpu::Isa;
use crate::reference;
use crate::testing::{bits, numbers, wide};

/// One processor for each instruction set and for one and three threads.
fn processors() -> Vec<Cpu> {
    let sets = Isa::available().into_iter();
    sets.flat_map(|isa| [1, 3].map(|threads| Cpu::with_isa(threads, isa).unwrap()))
        .collect()
}

/// The canonical dot product, written down.
fn dot(x: &[f32], p: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    for (i, (x, p)) in x.iter().zip(p).enumerate() {
        lanes[i % 16] = x.mul_add(*p, lanes[i % 16]);
    }
    for half in [8, 4, 2, 1] {
        for j in 0..half {
            lanes[j] += lanes[j + half];
        }
    }
    lanes[0]
}

/// A batch cut into parts, some of them empty.
#[derive(Debug)]
struct Batch {
    width: usize,
    x: Vec<f32>,
    low: Vec<f32>,
    /// `(rows, rank, scale, offset in low)`.
    parts: Vec<(Range<usize>, usize, f32, usize)>,
    matrices: Vec<Vec<f32>>,
}

impl Batch {
    /// Makes a batch of parts of the given `(rows, rank)`, with rows of nobody between them.
    fn new(width: usize, shapes: &[(usize, usize)], seed: u64) -> Self {
        let (mut row, mut low, mut parts, mut matrices) = (1, 0, Vec::new(), Vec::new());
        for (i, &(rows, rank)) in shapes.iter().enumerate() {
            let scale = [1.0, 0.3, -2.7][i % 3];
            parts.push((row..row + rows, rank, scale, low));
            matrices.push(numbers(rank * width, seed + i as u64));
            row += rows + i % 2;
            low += rows * rank;
        }
        let (x, low) = (
            numbers((row + 1) * width, seed + 100),
            numbers(low, seed + 200),
        );
        Self {
            width,
            x,
            low,
            parts,
            matrices,
        }
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let pairs = self.parts.iter().zip(&self.matrices);
        pairs
            .map(|((rows, rank, scale, low), matrix)| Part {
                rows: rows.clone(),
                rank: *rank,
                matrix,
                scale: *scale,
                low: *low,
            })
            .collect()
    }

    /// Returns what both products should be, element by element.
    fn wanted(&self) -> (Vec<f32>, Vec<f32>) {
        let (mut low, mut y) = (vec![f32::NAN; self.low.len()], self.x.clone());
        for part in self.parts() {
            for (i, row) in part.rows.clone().enumerate() {
                let place = row * self.width..(row + 1) * self.width;
                for (r, p) in part.matrix.chunks_exact(self.width).enumerate() {
                    let at = part.low + i * part.rank + r;
                    low[at] = part.scale * dot(&self.x[place.clone()], p);
                    let factor = part.scale * self.low[at];
                    for (y, p) in y[place.clone()].iter_mut().zip(p) {
                        *y = factor.mul_add(*p, *y);
                    }
                }
            }
        }
        (low, y)
    }

    fn check(&self, processors: &[Cpu]) {
        let (low_wanted, y_wanted) = self.wanted();
        for cpu in processors {
            let mut low = vec![f32::NAN; self.low.len()];
            shrink(cpu, &self.parts(), &self.x, self.width, &mut low);
            assert!(bits(&low) == bits(&low_wanted), "shrink on {cpu:?}");
            let mut y = self.x.clone();
            grow(cpu, &self.parts(), &self.low, &mut y, self.width);
            assert!(bits(&y) == bits(&y_wanted), "grow on {cpu:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_mix_of_parts_is_the_canonical_product(
        width in 1usize..150,
        shapes in prop::collection::vec((prop_oneof![Just(0usize), 1usize..4, 1usize..120], 1usize..20), 0..8),
        seed in 0u64..1000,
    ) {
        Batch::new(width, &shapes, seed).check(&processors());
    }
}

/// From nothing to thousands of rows, one after another, as skewed as can be.
///
/// Public bug: punica-ai/punica PR #35, where a grouped kernel hung on uneven segments.
#[test]
fn skewed_parts_complete() {
    let mut shapes = vec![(0, 8), (1, 64), (3000, 2), (0, 1), (1, 1)];
    shapes.extend((0..500).map(|i| (i % 3, 1 + i % 5)));
    let fast: Vec<Cpu> = [1, 2, 4].map(|threads| Cpu::new(threads).unwrap()).into();
    Batch::new(33, &shapes, 7).check(&fast);
    Batch::new(576, &[(0, 1), (129, 64), (1, 3)], 8).check(&fast);
}

#[test]
fn products_are_near_the_reference() {
    let (rows, rank, width) = (7, 5, 100);
    let (x, matrix) = (numbers(rows * width, 1), numbers(rank * width, 2));
    let part = Part {
        rows: 0..rows,
        rank,
        matrix: &matrix,
        scale: 0.7,
        low: 0,
    };
    let cpu = Cpu::new(2).unwrap();
    let mut low = vec![0.0; rows * rank];
    shrink(&cpu, std::slice::from_ref(&part), &x, width, &mut low);
    let scale = f64::from(part.scale);
    let wanted = reference::thin::shrink(&wide(&x), &wide(&matrix), width, scale);
    let near = |found: &[f32], wanted: &[f64]| {
        found
            .iter()
            .zip(wanted)
            .all(|(f, w)| (f64::from(*f) - w).abs() < 1e-5)
    };
    assert!(near(&low, &wanted));
    let (mut y, mut y_wanted) = (x.clone(), wide(&x));
    grow(&cpu, &[part], &low, &mut y, width);
    reference::thin::grow(&wide(&low), &wide(&matrix), width, scale, &mut y_wanted);
    assert!(near(&y, &y_wanted));
}

/// An adapter `y += s B A x`: the derivative by its input and by the low values, by differences.
#[test]
fn gradients_are_those_of_the_products() {
    let (rows, rank, width, outputs, scale) = (2, 3, 6, 4, 0.7);
    let (a, bt) = (
        wide(&numbers(rank * width, 1)),
        wide(&numbers(rank * outputs, 2)),
    );
    let (x, dy) = (
        wide(&numbers(rows * width, 3)),
        wide(&numbers(rows * outputs, 4)),
    );
    let loss = |x: &[f64]| -> f64 {
        let low = reference::thin::shrink(x, &a, width, scale);
        let mut y = vec![0.0; rows * outputs];
        reference::thin::grow(&low, &bt, outputs, 1.0, &mut y);
        y.iter().zip(&dy).map(|(y, dy)| y * dy).sum()
    };
    let dlow = reference::thin::shrink(&dy, &bt, outputs, scale);
    let mut dx = vec![0.0; rows * width];
    reference::thin::grow(&dlow, &a, width, 1.0, &mut dx);
    for i in 0..x.len() {
        let (mut up, mut down) = (x.clone(), x.clone());
        up[i] += 1e-5;
        down[i] -= 1e-5;
        let slope = (loss(&up) - loss(&down)) / 2e-5;
        assert!((slope - dx[i]).abs() < 1e-8, "{i}: {slope} {}", dx[i]);
    }
}

#[test]
#[should_panic(expected = "rows 0..6 and 5..7 of two parts overlap")]
fn parts_that_share_a_row_panic() {
    let matrix = [0.0; 4];
    let part = |rows, low| Part {
        rows,
        rank: 1,
        matrix: &matrix,
        scale: 1.0,
        low,
    };
    let parts = [part(5..7, 6), part(0..6, 0)];
    grow(&Cpu::new(1).unwrap(), &parts, &[0.0; 8], &mut [0.0; 40], 4);
}

#[test]
#[should_panic(expected = "low values")]
fn a_short_low_buffer_panics() {
    let part = Part {
        rows: 0..2,
        rank: 3,
        matrix: &[0.0; 12],
        scale: 1.0,
        low: 1,
    };
    shrink(&Cpu::new(1).unwrap(), &[part], &[0.0; 8], 4, &mut [0.0; 6]);
}
