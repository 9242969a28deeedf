//! Norms of the rows of an adapted weight: what `DoRA` divides by.
//!
//! `norms[o] = || W[o] + scale * sum_r B^T[r][o] A[r] ||_2` over the inputs; `A (rank, in)`, `B^T (rank, out)`. The adapted
//! weight is made a row at a time and never kept.
//!
//! Canonical order: each number of the row is a chain of fused multiply-adds onto the stored number, over the rank from
//! 0 upward, of `scale * B^T` and `A`; squares go into lane `i % 16` as chains and the lanes are folded (8, 4, 2, 1).

use std::ops::Range;

use crate::cpu::Cpu;
use crate::cpu::disjoint::DisjointMut;
use crate::cpu::isa::isa_dispatch;
use crate::cpu::math;
use crate::cpu::rows;
use crate::cpu::scratch;
use crate::weight::{Stored, Weight};

/// Rows of a task.
const TASK: usize = 32;

/// Writes the norm of each row of `W + scale * (B A)` to `norms` (out).
///
/// # Panics
/// When the shapes do not fit.
pub fn row_norms(
    cpu: &Cpu,
    weight: &Weight,
    a: &[f32],
    b: &[f32],
    rank: usize,
    scale: f32,
    norms: &mut [f32],
) {
    let (outputs, inputs) = (weight.rows(), weight.cols());
    assert_eq!(a.len(), rank * inputs, "A of rank {rank}");
    assert_eq!(b.len(), rank * outputs, "B of rank {rank}");
    assert_eq!(norms.len(), outputs, "norms");
    let norms = DisjointMut::new(norms);
    cpu.for_each(outputs.div_ceil(TASK), |task| {
        let range = task * TASK..outputs.min((task + 1) * TASK);
        let mut norms = norms.part(range.clone());
        scratch::with(inputs, |row| {
            let low = Low {
                a,
                b,
                outputs,
                scale,
            };
            norms_part(cpu.isa(), weight.stored(), range, low, row, &mut norms);
        });
    });
}

/// The low-rank part.
#[derive(Clone, Copy)]
struct Low<'a> {
    a: &'a [f32],
    b: &'a [f32],
    outputs: usize,
    scale: f32,
}

isa_dispatch! {
    fn norms_part(stored: Stored<'_>, range: Range<usize>, low: Low<'_>, row: &mut [f32], norms: &mut [f32]) =
        norms_body;
}

#[inline(always)]
fn norms_body(
    stored: Stored<'_>,
    range: Range<usize>,
    low: Low<'_>,
    row: &mut [f32],
    norms: &mut [f32],
) {
    let inputs = row.len();
    for (output, norm) in range.zip(norms) {
        rows::expand_body(stored, output..output + 1, inputs, row, inputs);
        for (a, b) in low
            .a
            .chunks_exact(inputs)
            .zip(low.b.chunks_exact(low.outputs))
        {
            let factor = low.scale * b[output];
            for (w, a) in row.iter_mut().zip(a) {
                *w = factor.mul_add(*a, *w);
            }
        }
        *norm = math::dot(row, row).sqrt();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;
    use crate::cpu::Isa;
    use crate::reference;
    use crate::testing::{bits, numbers, weight, wide};
    use crate::weight::Format;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn norms_are_near_the_reference_on_every_path(
            format in prop_oneof![Just(Format::F32), Just(Format::Bf16), Just(Format::Q8_0), Just(Format::Q4_1)],
            outputs in 1..70usize,
            blocks in 1..5usize,
            rank in 0..20usize,
            threads in 1..3usize,
        ) {
            let inputs = 32 * blocks;
            let w = weight(format, outputs, inputs, 1);
            let (a, b) = (numbers(rank * inputs, 2), numbers(rank * outputs, 3));
            let wanted = reference::dora::row_norms(&wide(&w.to_f32()), &wide(&a), &wide(&b), inputs, 0.7);
            let mut first = None;
            for isa in Isa::available() {
                let cpu = Cpu::with_isa(threads, isa).unwrap();
                let mut norms = vec![f32::NAN; outputs];
                row_norms(&cpu, &w, &a, &b, rank, 0.7, &mut norms);
                for (found, wanted) in norms.iter().zip(&wanted) {
                    prop_assert!((f64::from(*found) - wanted).abs() <= 2e-6 * wanted, "{found} {wanted}");
                }
                let found = bits(&norms);
                prop_assert_eq!(first.get_or_insert_with(|| found.clone()), &found);
            }
        }
    }

    #[test]
    fn three_four_five() {
        let cpu = Cpu::new(1).unwrap();
        let w = Weight::from_f32(2, 2, vec![3.0, 0.0, 0.0, 1.0]);
        let mut norms = [0.0; 2];
        row_norms(&cpu, &w, &[0.0, 2.0], &[1.0, 0.0], 1, 2.0, &mut norms);
        assert_eq!(norms, [5.0, 1.0]);
    }
}
