//! Low-rank products of adapters over row ranges: `low = scale * x P^T` ([`shrink`]) and `y += scale * low P` ([`grow`]).
//!
//! `P` is `(rank, width)`: the `A` of LoRA, or its `B` transposed. Canonical order: a dot product along `width` puts
//! element `i` into lane `i % 16` as a chain of fused multiply-adds and then folds the lanes (8, 4, 2, 1); an element of
//! `y` is a chain of fused multiply-adds onto what it holds, over the rank from 0 upward, of `scale * low` and `P`.

use std::ops::Range;

use crate::cpu::Cpu;
use crate::cpu::disjoint::DisjointMut;
use crate::cpu::micro::{self, Strided};
use crate::cpu::scratch;

/// One adapter's matrix and the rows it serves.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// Rows of `x` or `y` that it serves.
    pub rows: Range<usize>,
    /// Rank of the adapter, from 1.
    pub rank: usize,
    /// `P (rank, width)`.
    pub matrix: &'a [f32],
    /// Factor of the product.
    pub scale: f32,
    /// Where its `(rows, rank)` starts in the low buffer.
    pub low: usize,
}

impl Part<'_> {
    /// Returns where its row `row` (counted from its first) starts in the low buffer.
    fn low_at(&self, row: usize) -> usize {
        self.low + row * self.rank
    }
}

/// Rows that are worked on at once: small enough to stay in the first-level cache with a low-rank matrix.
const ROWS: usize = 48;

/// Multiply-adds that are worth a task of their own.
const WORK: usize = 1 << 19;

/// Computes `low_i (rows, rank) = scale * x_i (rows, width) P_i^T` for each part.
///
/// # Panics
/// When the shapes do not fit, or two parts share a place in the low buffer.
pub fn shrink(cpu: &Cpu, parts: &[Part<'_>], x: &[f32], width: usize, low: &mut [f32]) {
    check(parts, x.len(), width, low.len());
    disjoint(
        parts
            .iter()
            .map(|part| part.low..part.low_at(part.rows.len())),
        "low values",
    );
    let low = DisjointMut::new(low);
    for_each_piece(cpu, parts, width, |part, rows| {
        let x = &x[(part.rows.start + rows.start) * width..(part.rows.start + rows.end) * width];
        let mut low = low.part(part.low_at(rows.start)..part.low_at(rows.end));
        micro::dots(cpu.isa(), width, x, part.matrix, part.scale, &mut low);
    });
}

/// Adds `scale * low_i (rows, rank) P_i` to `y_i (rows, width)` for each part.
///
/// # Panics
/// When the shapes do not fit, or two parts share a row.
pub fn grow(cpu: &Cpu, parts: &[Part<'_>], low: &[f32], y: &mut [f32], width: usize) {
    check(parts, y.len(), width, low.len());
    disjoint(parts.iter().map(|part| part.rows.clone()), "rows");
    let y = DisjointMut::matrix(y, width);
    for_each_piece(cpu, parts, width, |part, rows| {
        let mut y = y.rows(part.rows.start + rows.start..part.rows.start + rows.end);
        let low = &low[part.low_at(rows.start)..part.low_at(rows.end)];
        scratch::with(low.len(), |scaled| {
            for (scaled, low) in scaled.iter_mut().zip(low) {
                *scaled = part.scale * low;
            }
            // Few rows at a time meet all columns, so that `y` is read and written row by row.
            let (strip, rank) = (micro::MOST_ROWS, part.rank);
            for (scaled, y) in scaled.chunks(strip * rank).zip(y.chunks_mut(strip * width)) {
                let left = Strided {
                    slice: scaled,
                    row: rank,
                    column: 1,
                };
                let rows = y.len() / width;
                micro::tile(
                    cpu.isa(),
                    rows,
                    width,
                    rank,
                    left,
                    part.matrix,
                    width,
                    y,
                    width,
                    true,
                );
            }
        });
    });
}

/// Runs `f` for pieces of at most [`ROWS`] rows of each part, on all threads; many small pieces share a task.
fn for_each_piece(
    cpu: &Cpu,
    parts: &[Part<'_>],
    width: usize,
    f: impl Fn(&Part<'_>, Range<usize>) + Sync,
) {
    let mut pieces: Vec<(&Part<'_>, Range<usize>)> = Vec::new();
    // The pieces of task `t` are `tasks[t]..tasks[t + 1]`.
    let mut tasks = vec![0];
    let mut work = 0;
    for part in parts {
        for start in (0..part.rows.len()).step_by(ROWS) {
            let rows = start..(start + ROWS).min(part.rows.len());
            work += rows.len() * part.rank * width;
            pieces.push((part, rows));
            if work >= WORK {
                tasks.push(pieces.len());
                work = 0;
            }
        }
    }
    tasks.push(pieces.len());
    cpu.for_each(tasks.len() - 1, |task| {
        for (part, rows) in &pieces[tasks[task]..tasks[task + 1]] {
            f(part, rows.clone());
        }
    });
}

fn check(parts: &[Part<'_>], values: usize, width: usize, low: usize) {
    assert!(
        width > 0 && values.is_multiple_of(width),
        "{values} values are not a whole number of rows of {width}"
    );
    let rows = values / width;
    for part in parts {
        let (first, end) = (part.rows.start, part.rows.end);
        assert!(part.rank > 0, "the part of rows {first}..{end} has rank 0");
        assert_eq!(
            part.matrix.len(),
            part.rank * width,
            "the matrix of rows {first}..{end} is not ({}, {width})",
            part.rank
        );
        assert!(first <= end && end <= rows, "rows {first}..{end} of {rows}");
        let low_end = part.low_at(part.rows.len());
        assert!(
            low_end <= low,
            "rows {first}..{end} end at {low_end} of {low} low values"
        );
    }
}

/// Panics when two ranges overlap: which part came first would then depend on the threads.
fn disjoint(ranges: impl Iterator<Item = Range<usize>>, name: &str) {
    let mut ranges: Vec<Range<usize>> = ranges.filter(|range| !range.is_empty()).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    for pair in ranges.windows(2) {
        let [one, other] = pair else { continue };
        assert!(
            one.end <= other.start,
            "{name} {one:?} and {other:?} of two parts overlap"
        );
    }
}

#[cfg(test)]
mod tests;
