//! What can be wrong with a source: all bad rows at once, each with its place.

use thiserror::Error;

/// Most bad rows that are listed; the others are counted.
pub const LISTED: usize = 20;

/// Why a source cannot be read.
#[derive(Debug, Error)]
pub enum FeedError {
    /// Some rows are wrong.
    #[error(
        "{source_name}: {} bad rows:{}{}",
        rows.len() + more, listed(rows), unlisted(*more)
    )]
    BadRows {
        /// Which source.
        source_name: String,
        /// The first of them.
        rows: Vec<BadRow>,
        /// How many more there are.
        more: usize,
    },
    /// The content looks like none of the formats.
    #[error("{source_name}: in none of the known formats; name it with --format, one of: {known}")]
    Unknown {
        /// Which source.
        source_name: String,
        /// The names of the formats.
        known: String,
    },
    /// There is nothing in it.
    #[error("{source_name}: holds no observation")]
    Empty {
        /// Which source.
        source_name: String,
    },
    /// Two series that belong together have different lengths.
    #[error(
        "{source_name}: {prices} prices for {values} values of data; there must be one for each"
    )]
    Lengths {
        /// Which source.
        source_name: String,
        /// Prices.
        prices: usize,
        /// Values of data.
        values: usize,
    },
    /// It was written by a later version of this program.
    #[error(
        "{source_name}: version {found} of the recording format; this program reads up to {known}: update it"
    )]
    Version {
        /// Which source.
        source_name: String,
        /// Its version.
        found: u64,
        /// The last one that is read.
        known: u64,
    },
}

/// One bad row.
#[derive(Debug, Error)]
#[error("line {line}, column {column}: {fault}")]
pub struct BadRow {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// What is wrong there.
    pub fault: RowFault,
}

/// What is wrong with a row.
#[derive(Debug, Error)]
pub enum RowFault {
    /// Too few or too many cells.
    #[error("{found} cells where {wanted} belong")]
    Cells {
        /// How many there are.
        found: usize,
        /// How many there must be.
        wanted: usize,
    },
    /// A number that is none, or out of range.
    #[error("{what} is not {text:?}: a number from {least} to {most}")]
    Number {
        /// Of what.
        what: &'static str,
        /// What stands there.
        text: String,
        /// The least that is allowed.
        least: u64,
        /// The most.
        most: u64,
    },
    /// A price that is none.
    #[error("{text:?} is no price: dollars above 0 and up to 1,000,000, such as 0.918")]
    Price {
        /// What stands there.
        text: String,
    },
    /// A time that is none.
    #[error("{text:?} is no time of the form {form}")]
    Instant {
        /// What stands there.
        text: String,
        /// How times look here.
        form: &'static str,
    },
    /// A word that is none of the few allowed.
    #[error("{text:?} stands where {wanted} belongs")]
    Word {
        /// What stands there.
        text: String,
        /// What belongs there.
        wanted: &'static str,
    },
    /// A node that comes although it is there, or goes although it is not.
    #[error("node {node:?} {}", if *there { "is added twice" } else { "is removed but was not there" })]
    Node {
        /// Which.
        node: String,
        /// Whether it was there.
        there: bool,
    },
    /// Not the JSON that belongs there.
    #[error("{0}")]
    Json(serde_json::Error),
    /// Not well-formed XML.
    #[error("{0}")]
    Xml(quick_xml::Error),
}

fn listed(rows: &[BadRow]) -> String {
    rows.iter().map(|row| format!("\n  {row}")).collect()
}

fn unlisted(more: usize) -> String {
    if more == 0 {
        String::new()
    } else {
        format!("\n  and {more} more")
    }
}

/// Collects bad rows.
#[derive(Debug)]
pub(super) struct Faults<'a> {
    source_name: &'a str,
    rows: Vec<BadRow>,
    more: usize,
}

impl<'a> Faults<'a> {
    pub(super) const fn new(source_name: &'a str) -> Self {
        Self {
            source_name,
            rows: Vec::new(),
            more: 0,
        }
    }

    pub(super) fn add(&mut self, line: usize, column: usize, fault: RowFault) {
        if self.rows.len() < LISTED {
            self.rows.push(BadRow {
                line,
                column,
                fault,
            });
        } else {
            self.more += 1;
        }
    }

    /// The same of a byte of a text, which is looked up only for what is listed: that goes through the whole text.
    pub(super) fn add_at(
        &mut self,
        text: &str,
        byte: impl FnOnce() -> usize,
        fault: impl FnOnce() -> RowFault,
    ) {
        if self.rows.len() < LISTED {
            let (line, column) = place(text, byte());
            self.add(line, column, fault());
        } else {
            self.more += 1;
        }
    }

    /// Keeps what is right, notes what is wrong.
    pub(super) fn keep<T>(
        &mut self,
        line: usize,
        found: Result<T, (usize, RowFault)>,
    ) -> Option<T> {
        match found {
            Ok(value) => Some(value),
            Err((column, fault)) => {
                self.add(line, column, fault);
                None
            }
        }
    }

    /// The value, if no row was bad.
    pub(super) fn or<T>(self, value: T) -> Result<T, FeedError> {
        if self.rows.is_empty() {
            return Ok(value);
        }
        Err(FeedError::BadRows {
            source_name: self.source_name.to_owned(),
            rows: self.rows,
            more: self.more,
        })
    }
}

/// Line and column, both from 1, of a byte of a text.
pub(super) fn place(text: &str, byte: usize) -> (usize, usize) {
    let mut end = byte.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line = before.matches('\n').count() + 1;
    let begin = before.rfind('\n').map_or(0, |at| at + 1);
    (line, before[begin..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bad_rows_are_said_at_once_up_to_a_limit() {
        let mut faults = Faults::new("t.csv");
        for line in 1..=25 {
            let fault = RowFault::Price { text: "x".into() };
            faults.add(line, 3, fault);
        }
        let message = faults.or(()).unwrap_err().to_string();
        assert!(message.starts_with("t.csv: 25 bad rows:\n  line 1, column 3: \"x\" is no price"));
        assert!(message.contains("line 20, column 3") && !message.contains("line 21"));
        assert!(message.ends_with("and 5 more"));
    }

    #[test]
    fn what_is_only_counted_is_not_looked_up() {
        let mut faults = Faults::new("t.json");
        let mut lookups = 0;
        for _ in 0..1000 {
            let byte = || {
                lookups += 1;
                0
            };
            faults.add_at("x", byte, || RowFault::Price { text: "x".into() });
        }
        assert_eq!(lookups, LISTED);
        let told = faults.or(()).expect_err("all are bad").to_string();
        assert!(told.contains("1000 bad rows"), "{told}");
    }

    #[test]
    fn places_are_counted_in_lines_and_characters() {
        assert_eq!(place("ab\ncd", 0), (1, 1));
        assert_eq!(place("ab\nüd", 5), (2, 2));
        assert_eq!(place("ab\nüd", 4), (2, 1));
        assert_eq!(place("ab", 99), (1, 3));
    }
}
