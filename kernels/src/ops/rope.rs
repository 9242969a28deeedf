//! Rotary positions, half-split: of a head, element i and i + head_dim / 2 turn by position * frequency i.
//!
//! (u, v) becomes (u cos - v sin, v cos + u sin); the inverse, which is also the reverse of the gradient, turns back.
//! Cosines and sines are computed in `f64`, the same on every machine, and rounded once.

use crate::cpu::angle::sin_cos;
use crate::cpu::disjoint::DisjointMut;
use crate::cpu::{Cpu, rope as fast};

/// Elements a task works on.
const TASK: usize = 1 << 14;

/// Holds cosines and sines by position, made on demand.
#[derive(Clone, Debug)]
pub struct RopeTable {
    inverse_frequencies: Vec<f64>,
    /// `(positions, head_dim)`: the cosines of a position, then its sines.
    values: Vec<f32>,
}

impl RopeTable {
    /// Makes a table for these frequencies (head_dim / 2 of them, in radians a position) and so many positions.
    ///
    /// # Panics
    /// When there is no frequency.
    #[must_use]
    pub fn new(inverse_frequencies: &[f64], positions: usize) -> Self {
        assert!(!inverse_frequencies.is_empty(), "a head without width");
        let inverse_frequencies = inverse_frequencies.to_vec();
        let values = Vec::new();
        let mut table = Self {
            inverse_frequencies,
            values,
        };
        table.ensure(positions);
        table
    }

    /// Returns the number of positions held.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.values.len() / self.head_dim()
    }

    /// Returns the width of the heads that it turns.
    #[must_use]
    pub fn head_dim(&self) -> usize {
        2 * self.inverse_frequencies.len()
    }

    /// Grows to at least so many positions.
    pub fn ensure(&mut self, positions: usize) {
        let held = self.positions();
        let missing = positions.saturating_sub(held);
        self.values.reserve(missing * self.head_dim());
        for position in held..positions {
            #[expect(clippy::cast_precision_loss, reason = "positions are below 2^53")]
            let position = position as f64;
            let angles = self
                .inverse_frequencies
                .iter()
                .map(|f| sin_cos(position * f));
            #[expect(clippy::cast_possible_truncation, reason = "the one rounding")]
            let (sines, cosines): (Vec<f32>, Vec<f32>) = angles
                .map(|(sine, cosine)| (sine as f32, cosine as f32))
                .unzip();
            self.values.extend(cosines);
            self.values.extend(sines);
        }
    }
}

/// Turns `x (rows, heads * head_dim)` in place by `positions (rows)`, or back when `inverse`.
///
/// # Panics
/// When shapes do not fit or a position is not in the table.
pub fn rotate(
    cpu: &Cpu,
    table: &RopeTable,
    positions: &[u32],
    x: &mut [f32],
    head_dim: usize,
    inverse: bool,
) {
    let rows = positions.len();
    if rows == 0 {
        assert!(x.is_empty(), "{} values in no row", x.len());
        return;
    }
    let width = x.len() / rows;
    assert_eq!(
        head_dim,
        table.head_dim(),
        "frequencies of another head width"
    );
    assert!(
        x.len() == rows * width && width > 0 && width.is_multiple_of(head_dim),
        "{} values are not {rows} rows of heads of {head_dim}",
        x.len()
    );
    let last = positions
        .iter()
        .fold(0, |most, &position| most.max(position));
    assert!(
        (last as usize) < table.positions(),
        "position {last} is beyond the table of {}: ensure it before",
        table.positions()
    );
    let step = (TASK / width).max(1);
    let x = DisjointMut::matrix(x, width);
    cpu.for_each(rows.div_ceil(step), |task| {
        let range = task * step..((task + 1) * step).min(rows);
        let mut part = x.rows(range.clone());
        let positions = &positions[range];
        fast::rotate(
            cpu.isa(),
            &mut part,
            positions,
            &table.values,
            head_dim,
            inverse,
        );
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::cpu::Isa;
    use crate::reference::rope as reference;
    use crate::testing::{Operation, assert_close, bits, numbers, wide};

    fn frequencies(head_dim: usize) -> Vec<f64> {
        let half = i32::try_from(head_dim / 2).unwrap();
        (0..half)
            .map(|i| 10_000f64.powf(-f64::from(i) / f64::from(half)))
            .collect()
    }

    #[test]
    fn turns_like_the_reference_and_back() {
        let cpu = Cpu::new(2).unwrap();
        for head_dim in [2, 8, 64, 80] {
            let frequencies = frequencies(head_dim);
            let table = RopeTable::new(&frequencies, 30_000);
            let positions: Vec<u32> = (0..50).map(|i| i * 29_999 / 49).collect();
            let before = numbers(50 * 3 * head_dim, 1);
            let mut x = before.clone();
            rotate(&cpu, &table, &positions, &mut x, head_dim, false);
            let want = reference::rotate(&wide(&before), &positions, &frequencies, 1.0);
            assert_close(Operation::Rope, "turned", &x, &want);
            let turned = wide(&x);
            rotate(&cpu, &table, &positions, &mut x, head_dim, true);
            let want = reference::rotate(&turned, &positions, &frequencies, -1.0);
            assert_close(Operation::Rope, "turned back", &x, &want);
            for (x, before) in x.iter().zip(&before) {
                assert!((x - before).abs() < 3e-7);
            }
        }
    }

    #[test]
    fn a_row_does_not_see_rows_threads_or_instructions() {
        let mut table = RopeTable::new(&frequencies(64), 3);
        table.ensure(1000);
        let positions: Vec<u32> = (0..300).map(|i| i * 7 % 1000).collect();
        let before = numbers(300 * 128, 2);
        let mut want = before.clone();
        let plain = Cpu::with_isa(1, Isa::portable()).unwrap();
        rotate(&plain, &table, &positions, &mut want, 64, false);
        for isa in Isa::available() {
            let cpu = Cpu::with_isa(2, isa).unwrap();
            let mut all = before.clone();
            rotate(&cpu, &table, &positions, &mut all, 64, false);
            assert!(bits(&all) == bits(&want), "{isa}");
            let cells = 140 * 128..141 * 128;
            let mut one = before[cells.clone()].to_vec();
            rotate(&cpu, &table, &positions[140..141], &mut one, 64, false);
            assert!(bits(&one) == bits(&want[cells]), "{isa}");
        }
    }

    #[test]
    #[should_panic(expected = "position 5 is beyond the table of 5")]
    fn a_position_beyond_the_table_panics() {
        let table = RopeTable::new(&[1.0], 5);
        rotate(&Cpu::new(1).unwrap(), &table, &[5], &mut [0.0; 2], 2, false);
    }
}
