//! Rows that occur twice, in one file or in two.

use std::collections::BTreeSet;

use crate::report::Tally;
use crate::rows::TokenRow;

/// Rows equal to an earlier one, in tokens and labels.
pub(crate) fn duplicates(rows: &[TokenRow]) -> Tally {
    let mut seen = BTreeSet::new();
    let mut tally = Tally::default();
    for row in rows {
        if !seen.insert((&row.ids, &row.labels)) {
            tally.add(row.line);
        }
    }
    tally
}

/// Rows for measuring whose tokens also are a row for training.
#[must_use]
pub fn overlap(train: &[TokenRow], eval: &[TokenRow]) -> Tally {
    let known: BTreeSet<&Vec<u32>> = train.iter().map(|row| &row.ids).collect();
    let mut tally = Tally::default();
    for row in eval.iter().filter(|row| known.contains(&row.ids)) {
        tally.add(row.line);
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(first: u32, line: u64) -> TokenRow {
        TokenRow {
            line,
            ..TokenRow::new(vec![first, 2], vec![-100, 2])
        }
    }

    #[test]
    fn equal_rows_are_counted_with_their_lines() {
        let rows = [row(1, 1), row(2, 2), row(1, 3), row(1, 4)];
        let tally = duplicates(&rows);
        assert_eq!((tally.count, tally.lines), (2, vec![3, 4]));
        let tally = overlap(&rows, &[row(9, 7), row(2, 8)]);
        assert_eq!((tally.count, tally.lines), (1, vec![8]));
    }
}
