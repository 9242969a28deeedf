#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;
use crate::cpu::Cpu;
use crate::cpu::disjoint::DisjointMut;
use crate::testing::numbers;

/// The canonical order, written down.
fn chain(k: usize, start: f32, a: impl Fn(usize) -> f32, b: impl Fn(usize) -> f32) -> f32 {
    (0..k).fold(start, |sum, step| a(step).mul_add(b(step), sum))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_element_is_the_canonical_chain(
        m in 1usize..40, n in 1usize..80, k in 0usize..70, gap in 0usize..3, turned: bool, accumulate: bool, seed: u64,
    ) {
        let (row, column) = if turned { (1, m + gap) } else { (k + gap, 1) };
        let (ldb, ldc) = (n + gap, n + 2 * gap);
        let a = numbers(m * row.max(1) + k * column.max(1), seed);
        let b = numbers(k * ldb, seed + 1);
        let start = numbers(m * ldc, seed + 2);
        for isa in Isa::available() {
            let mut c = start.clone();
            tile(isa, m, n, k, Strided { slice: &a, row, column }, &b, ldb, &mut c, ldc, accumulate);
            for i in 0..m {
                for j in 0..ldc {
                    let found = c[i * ldc + j];
                    let before = start[i * ldc + j];
                    let wanted = if j >= n {
                        before
                    } else {
                        let from = if accumulate { before } else { 0.0 };
                        chain(k, from, |s| a[i * row + s * column], |s| b[s * ldb + j])
                    };
                    prop_assert_eq!(found.to_bits(), wanted.to_bits(), "{} {} {}", isa, i, j);
                }
            }
        }
    }

    #[test]
    fn panels_are_the_same_product(m in 1usize..90, n in 1usize..100, k in 1usize..50, accumulate: bool, seed: u64) {
        let a = numbers(m * k, seed);
        let count = n.div_ceil(PANEL);
        let b = numbers(count * k * PANEL, seed + 1);
        let start = numbers(m * (n + 5), seed + 2);
        for (isa, packs) in Isa::available().into_iter().flat_map(|isa| [(isa, false), (isa, true)]) {
            if packs && strip::strips(isa).packed.is_empty() {
                continue;
            }
            let mut c = start.clone();
            let shared = DisjointMut::matrix(&mut c, n + 5);
            let mut space = vec![f32::NAN; a.len()];
            let left = if packs {
                let cpu = Cpu::with_isa(1, isa).unwrap();
                Left::Packed(Packed::new(&cpu, &a, k, 0..k, &mut space))
            } else {
                Left::Strided(Strided { slice: &a, row: k, column: 1 })
            };
            panels(isa, k, left, &b, &mut shared.tile(0..m, 3..n + 3), accumulate);
            for i in 0..m {
                for j in 0..n + 5 {
                    let before = start[i * (n + 5) + j];
                    let wanted = if (3..n + 3).contains(&j) {
                        let (panel, column) = ((j - 3) / PANEL, (j - 3) % PANEL);
                        let from = if accumulate { before } else { 0.0 };
                        chain(k, from, |s| a[i * k + s], |s| b[(panel * k + s) * PANEL + column])
                    } else {
                        before
                    };
                    prop_assert_eq!(c[i * (n + 5) + j].to_bits(), wanted.to_bits());
                }
            }
        }
    }
}

#[test]
fn cuts_are_even_and_whole() {
    for rows in 0..100 {
        let cuts: Vec<_> = even_cuts(rows, 12).collect();
        assert_eq!(cuts.len(), rows.div_ceil(12));
        assert_eq!(cuts.iter().map(|cut| cut.len()).sum::<usize>(), rows);
        assert!(cuts.iter().all(|cut| (1..=12).contains(&cut.len())));
    }
}

#[test]
#[should_panic(expected = "right matrix")]
fn a_short_right_matrix_panics() {
    let a = Strided {
        slice: &[1.0; 4],
        row: 2,
        column: 1,
    };
    tile(
        Isa::best(),
        2,
        3,
        2,
        a,
        &[1.0; 5],
        3,
        &mut [0.0; 6],
        3,
        false,
    );
}
