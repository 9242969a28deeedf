//! Results as text.

use std::fmt::Write as _;

use super::Summary;

/// A table of one case, a line for each policy.
#[must_use]
pub fn text(title: &str, rows: &[Summary]) -> String {
    let width = rows
        .iter()
        .map(|row| row.name.len())
        .max()
        .unwrap_or(0)
        .max(6);
    let mut out = format!("{title}\n");
    let _ = writeln!(
        out,
        "{:width$}  of optimum  cost $  waste %  missed  changes  5th pct $",
        "policy"
    );
    for row in rows {
        let _ = writeln!(
            out,
            "{:width$}  {:>10.3}  {:>6.1}  {:>7.1}  {:>6}  {:>7.1}  {:>9.1}",
            row.name,
            row.share,
            row.cost,
            100.0 * row.waste,
            row.missed,
            row.reconfigurations,
            row.tail
        );
    }
    out
}
