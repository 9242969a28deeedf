//! Rotary positions, half-split: of a head, element i and i + head_dim / 2 turn by position * frequency i.
//!
//! (u, v) becomes (u cos - v sin, v cos + u sin); the inverse, which is also the reverse of the gradient, turns back.
//! Cosines and sines are computed in f64 and rounded once.

use crate::cpu::Cpu;
use crate::cpu::disjoint::DisjointMut;
use crate::cpu::isa::isa_dispatch;

/// Rows a task works on.
const TASK: usize = 32;

/// Cosines and sines by position, made on demand.
#[derive(Clone, Debug)]
pub struct RopeTable {
    inverse_frequencies: Vec<f64>,
    /// `(positions, head_dim)`: the cosines of a position, then its sines.
    values: Vec<f32>,
}

impl RopeTable {
    /// A table for these frequencies (head_dim / 2 of them) and so many positions.
    #[must_use]
    pub fn new(inverse_frequencies: &[f64], positions: usize) -> Self {
        let inverse_frequencies = inverse_frequencies.to_vec();
        let mut table = Self { inverse_frequencies, values: Vec::new() };
        table.ensure(positions);
        table
    }

    /// Positions held.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.values.len() / self.head_dim()
    }

    /// Grows to at least so many positions.
    pub fn ensure(&mut self, positions: usize) {
        for position in self.positions()..positions {
            let angles = self.inverse_frequencies.iter().map(|f| position as f64 * f);
            let (mut cosines, sines): (Vec<f32>, Vec<f32>) =
                angles.map(|a| (a.cos() as f32, a.sin() as f32)).unzip();
            cosines.extend(sines);
            self.values.extend(cosines);
        }
    }

    fn head_dim(&self) -> usize {
        2 * self.inverse_frequencies.len()
    }
}

/// Turns x `(rows, heads * head_dim)` in place by `positions` `(rows)`, or back when `inverse`.
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
        return;
    }
    assert_eq!(head_dim, table.head_dim(), "frequencies of another head width");
    let width = x.len() / rows;
    assert!(
        x.len() == rows * width && width.is_multiple_of(head_dim),
        "{} values are not {rows} rows of heads of {head_dim}",
        x.len()
    );
    let x = DisjointMut::matrix(x, width);
    cpu.for_each(rows.div_ceil(TASK), |task| {
        let range = task * TASK..((task + 1) * TASK).min(rows);
        let mut part = x.rows(range.clone());
        for (row, &position) in part.chunks_exact_mut(width).zip(&positions[range]) {
            let angles = &table.values[position as usize * head_dim..][..head_dim];
            rotate_row(cpu.isa(), row, angles, inverse);
        }
    });
}

isa_dispatch! {
    fn rotate_row(row: &mut [f32], angles: &[f32], inverse: bool) = rotate_body;
}

#[inline(always)]
fn rotate_body(row: &mut [f32], angles: &[f32], inverse: bool) {
    let half = angles.len() / 2;
    let (cosines, sines) = angles.split_at(half);
    let sign = if inverse { -1.0f32 } else { 1.0 };
    for head in row.chunks_exact_mut(angles.len()) {
        let (left, right) = head.split_at_mut(half);
        for (((u, v), cosine), sine) in left.iter_mut().zip(right).zip(cosines).zip(sines) {
            let sine = sign * sine;
            (*u, *v) = (u.mul_add(*cosine, -(*v * sine)), v.mul_add(*cosine, *u * sine));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::cpu::Isa;

    fn frequencies(head_dim: usize) -> Vec<f64> {
        (0..head_dim / 2).map(|i| 10_000f64.powf(-2.0 * i as f64 / head_dim as f64)).collect()
    }

    #[test]
    fn turns_by_the_angle_and_back() {
        let cpu = Cpu::new(2).unwrap();
        for head_dim in [2, 8, 64, 80] {
            let table = RopeTable::new(&frequencies(head_dim), 300);
            let positions: Vec<u32> = (0..50).map(|i| i * 299 / 49).collect();
            let before: Vec<f32> =
                (0..50 * 3 * head_dim).map(|i| ((i * 13 % 101) as f32 - 50.0) * 0.02).collect();
            let mut x = before.clone();
            rotate(&cpu, &table, &positions, &mut x, head_dim, false);
            let (row, head, i) = (37, 2, head_dim / 2 - 1);
            let at = (row * 3 + head) * head_dim + i;
            let angle = f64::from(positions[row]) * frequencies(head_dim)[i];
            let (u, v) = (f64::from(before[at]), f64::from(before[at + head_dim / 2]));
            assert!((f64::from(x[at]) - (u * angle.cos() - v * angle.sin())).abs() < 1e-6);
            rotate(&cpu, &table, &positions, &mut x, head_dim, true);
            assert!(x.iter().zip(&before).all(|(a, b)| (a - b).abs() < 1e-5));
        }
    }

    #[test]
    fn a_row_does_not_see_rows_threads_or_instructions() {
        let table = RopeTable::new(&frequencies(64), 100);
        let positions: Vec<u32> = (0..77).collect();
        let before: Vec<f32> = (0..77 * 128).map(|i| ((i * 29 % 211) as f32 - 105.0) * 0.01).collect();
        let mut want = before.clone();
        let plain = Cpu::with_isa(1, Isa::portable()).unwrap();
        rotate(&plain, &table, &positions, &mut want, 64, false);
        for isa in Isa::available() {
            let cpu = Cpu::with_isa(2, isa).unwrap();
            let mut all = before.clone();
            rotate(&cpu, &table, &positions, &mut all, 64, false);
            let mut one = before[40 * 128..41 * 128].to_vec();
            rotate(&cpu, &table, &[40], &mut one, 64, false);
            let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert!(bits(&all) == bits(&want), "{isa:?}");
            assert!(bits(&one) == bits(&want[40 * 128..41 * 128]), "{isa:?}");
        }
    }
}
