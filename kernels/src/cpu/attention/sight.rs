//! What the rows of a query tile see of a key tile.

use std::ops::Range;

use super::tiles::{Keys, Queries};
use super::{STRIP, TILE};

/// Columns `from[row]..to[row]` of a key tile are seen by a row of a query tile; both grow with the row.
#[derive(Clone, Debug)]
pub(super) struct Sight {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) from: [i32; TILE],
    pub(super) to: [i32; TILE],
    /// Every row sees every column.
    whole: bool,
}

impl Sight {
    /// Every row sees every column.
    pub(super) fn whole(rows: usize, columns: usize) -> Self {
        Self {
            rows,
            columns,
            from: [0; TILE],
            to: [number(columns); TILE],
            whole: true,
        }
    }

    /// A row at position p sees keys p - window + 1 to p; `None` when no row sees any.
    pub(super) fn causal(queries: Queries, keys: &Keys<'_>, window: usize) -> Option<Self> {
        let (first, end) = (keys.first, keys.first + keys.rows);
        let last = queries.position + queries.rows - 1;
        let lowest = |position: usize| (position + 1).saturating_sub(window);
        if last < first || lowest(queries.position) >= end {
            return None;
        }
        let mut sight = Self::whole(queries.rows, keys.rows);
        if queries.position + 1 >= end && lowest(last) <= first {
            return Some(sight);
        }
        sight.whole = false;
        for row in 0..queries.rows {
            let position = queries.position + row;
            let to = (position + 1).clamp(first, end) - first;
            let from = lowest(position).clamp(first, first + to) - first;
            sight.from[row] = number(from);
            sight.to[row] = number(to);
        }
        Some(sight)
    }

    /// Repeats the one row of a sight, or all rows once.
    pub(super) fn repeated(&self, times: usize) -> Self {
        if times == 1 {
            return self.clone();
        }
        debug_assert_eq!(self.rows, 1, "only a single row is repeated");
        Self {
            rows: times,
            from: [self.from[0]; TILE],
            to: [self.to[0]; TILE],
            ..*self
        }
    }

    /// Cuts the rows into strips whose hidden columns are worth leaving out.
    pub(super) fn row_strips(&self) -> impl Iterator<Item = Range<usize>> {
        strips(self.rows, self.whole)
    }

    /// Cuts the columns likewise.
    pub(super) fn column_strips(&self) -> impl Iterator<Item = Range<usize>> {
        strips(self.columns, self.whole)
    }

    /// Returns the columns that some row of a strip sees.
    pub(super) fn columns_of(&self, rows: &Range<usize>) -> Range<usize> {
        some(index(self.from[rows.start])..index(self.to[rows.end - 1]))
    }

    /// Returns the rows that see some column of a strip.
    pub(super) fn rows_of(&self, columns: &Range<usize>) -> Range<usize> {
        if self.whole {
            return 0..self.rows;
        }
        let before = |ends: &[i32]| ends.partition_point(|&to| index(to) <= columns.start);
        let first = before(&self.to[..self.rows]);
        let not_after = |starts: &[i32]| starts.partition_point(|&from| index(from) < columns.end);
        some(first..not_after(&self.from[..self.rows]))
    }
}

fn strips(len: usize, whole: bool) -> impl Iterator<Item = Range<usize>> {
    let step = if whole { TILE } else { STRIP };
    (0..len)
        .step_by(step)
        .map(move |first| first..(first + step).min(len))
}

/// A range that holds nothing starts at 0: it may lie behind the end of what it cuts.
fn some(range: Range<usize>) -> Range<usize> {
    if range.is_empty() { 0..0 } else { range }
}

fn number(column: usize) -> i32 {
    i32::try_from(column).expect("columns of a tile are few")
}

fn index(column: i32) -> usize {
    usize::try_from(column).expect("columns are not negative")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sees keys of a tile from `first`, as a list of columns for each row.
    fn lists(position: usize, rows: usize, first: usize, window: usize) -> Vec<Vec<usize>> {
        let visible = |row| {
            let position = position + row;
            let seen = |column: &usize| {
                let key = first + column;
                key <= position && position - key < window
            };
            (0..TILE).filter(seen).collect()
        };
        (0..rows).map(visible).collect()
    }

    #[test]
    fn rows_see_what_causality_and_window_allow() {
        for window in [1, 5, 64, 70, 200, usize::MAX] {
            for (position, rows) in [(0, 1), (0, 64), (64, 64), (70, 13), (128, 1), (191, 1)] {
                for first in [0, 64, 128, 192] {
                    let queries = Queries {
                        first: 0,
                        rows,
                        position,
                    };
                    let keys = Keys {
                        index: first / TILE,
                        keys: &[],
                        values: &[],
                        first,
                        rows: TILE,
                        prefix: false,
                    };
                    let want = lists(position, rows, first, window);
                    let Some(sight) = Sight::causal(queries, &keys, window) else {
                        assert!(
                            want.iter().all(Vec::is_empty),
                            "{position} {first} {window}"
                        );
                        continue;
                    };
                    assert!(want.iter().any(|list| !list.is_empty()));
                    hold(&sight, &want);
                }
            }
        }
    }

    fn hold(sight: &Sight, want: &[Vec<usize>]) {
        for (row, want) in want.iter().enumerate() {
            let seen: Vec<usize> = (index(sight.from[row])..index(sight.to[row])).collect();
            assert_eq!(&seen, want);
            if sight.whole {
                assert_eq!(seen.len(), sight.columns);
            }
        }
        for rows in sight.row_strips() {
            let columns = sight.columns_of(&rows);
            assert!(
                want[rows]
                    .iter()
                    .flatten()
                    .all(|column| columns.contains(column))
            );
        }
        for columns in sight.column_strips() {
            let rows = sight.rows_of(&columns);
            for (row, list) in want.iter().enumerate() {
                let sees = list.iter().any(|column| columns.contains(column));
                assert!(!sees || rows.contains(&row));
            }
        }
    }
}
