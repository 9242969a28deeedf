//! What became of a file of samples, in numbers that add up.
//!
//! `rows_in = rows_used + sum of dropped`. Truncated rows are used rows.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::check::Problems;
use crate::formats::Format;
use crate::rows::{DropReason, TokenRow};
use crate::template::Origin;

/// Lines that a tally names.
const MAX_LINES: usize = 10;

/// A number of rows, and the lines of the first ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// How many rows.
    pub count: u64,
    /// Lines of the first ten.
    pub lines: Vec<u64>,
}

impl Tally {
    pub(crate) fn add(&mut self, line: u64) {
        self.count += 1;
        if self.lines.len() < MAX_LINES {
            self.lines.push(line);
        }
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.count)?;
        if self.lines.is_empty() {
            return Ok(());
        }
        let lines: Vec<String> = self.lines.iter().map(u64::to_string).collect();
        let more = if self.count > lines.len() as u64 {
            ", ..."
        } else {
            ""
        };
        write!(f, " (line {}{more})", lines.join(", "))
    }
}

/// Tokens of the used rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenStats {
    /// All tokens.
    pub total: u64,
    /// Tokens that count in the loss.
    pub trained: u64,
    /// `trained / total`.
    pub trained_share: f64,
    /// Tokens of the middle row by length.
    pub p50: u64,
    /// Tokens that nine rows of ten do not exceed.
    pub p90: u64,
    /// Tokens of the longest row.
    pub max: u64,
}

impl TokenStats {
    /// Counts the tokens of rows.
    #[must_use]
    pub fn of(rows: &[TokenRow]) -> Self {
        let mut lengths: Vec<u64> = rows.iter().map(|row| row.ids.len() as u64).collect();
        lengths.sort_unstable();
        let total: u64 = lengths.iter().sum();
        let trained: u64 = rows.iter().map(|row| row.trained() as u64).sum();
        let at_share = |percent: usize| {
            let rank = (lengths.len() * percent).div_ceil(100).max(1);
            lengths.get(rank - 1).copied().unwrap_or(0)
        };
        Self {
            total,
            trained,
            trained_share: if total == 0 {
                0.0
            } else {
                trained as f64 / total as f64
            },
            p50: at_share(50),
            p90: at_share(90),
            max: at_share(100),
        }
    }
}

/// What became of a file of samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The form of the records; absent when none could be read.
    pub format: Option<Format>,
    /// Where the chat template came from.
    pub template: Origin,
    /// Bytes read.
    pub bytes: u64,
    /// Longest accepted row in tokens.
    pub max_length: usize,
    /// Records in the file.
    pub rows_in: u64,
    /// Rows to train or measure on.
    pub rows_used: u64,
    /// Rows left out, by reason.
    pub dropped: BTreeMap<DropReason, Tally>,
    /// Rows cut at the limit, among the used ones.
    pub truncated: Tally,
    /// Tokens of the used rows.
    pub tokens: TokenStats,
    /// Used rows that are equal to an earlier one.
    pub duplicates: Tally,
    /// Rows for measuring that also are rows for training; absent when there was nothing to compare with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Tally>,
    /// Used rows held out of the file for measuring.
    pub held_out: u64,
    /// Rows whose own text spells special tokens.
    pub special_text: Tally,
    /// What refuses the file.
    pub errors: Problems,
    /// What is odd about it.
    pub warnings: Problems,
}

impl Report {
    pub(crate) fn new(template: Origin, max_length: usize) -> Self {
        Self {
            format: None,
            template,
            bytes: 0,
            max_length,
            rows_in: 0,
            rows_used: 0,
            dropped: BTreeMap::new(),
            truncated: Tally::default(),
            tokens: TokenStats::default(),
            duplicates: Tally::default(),
            overlap: None,
            held_out: 0,
            special_text: Tally::default(),
            errors: Problems::default(),
            warnings: Problems::default(),
        }
    }

    /// Rows left out for any reason.
    #[must_use]
    pub fn dropped_rows(&self) -> u64 {
        self.dropped.values().map(|tally| tally.count).sum()
    }

    pub(crate) fn drop_row(&mut self, reason: DropReason, line: u64) {
        self.dropped.entry(reason).or_default().add(line);
    }

    /// The dropped rows in words, as in "3 over-long, 1 invalid".
    pub(crate) fn dropped_words(&self) -> String {
        let words: Vec<String> = self
            .dropped
            .iter()
            .map(|(reason, tally)| format!("{} {}", tally.count, reason.words()))
            .collect();
        words.join(", ")
    }

    /// Whether the counts add up.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        self.rows_in == self.rows_used + self.dropped_rows()
            && self.truncated.count <= self.rows_used
    }
}

/// The report as plain text.
impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let format = self.format.map_or("unknown", Format::name);
        writeln!(f, "format      {format}, {} bytes", self.bytes)?;
        let used = self.rows_used;
        let dropped = self.dropped_rows();
        writeln!(
            f,
            "rows        {} in = {used} used + {dropped} dropped",
            self.rows_in
        )?;
        for (reason, tally) in &self.dropped {
            writeln!(f, "  dropped   {}: {tally}", reason.words())?;
        }
        if self.truncated.count > 0 {
            writeln!(
                f,
                "  truncated to {} tokens: {}",
                self.max_length, self.truncated
            )?;
        }
        if self.held_out > 0 {
            writeln!(f, "  held out  {}", self.held_out)?;
        }
        let tokens = &self.tokens;
        writeln!(
            f,
            "tokens      {} in all, {} trained ({:.1} %); per row: p50 {}, p90 {}, max {} (limit {})",
            tokens.total,
            tokens.trained,
            100.0 * tokens.trained_share,
            tokens.p50,
            tokens.p90,
            tokens.max,
            self.max_length
        )?;
        let overlap = self.overlap.clone().unwrap_or_default();
        let tallies = [
            ("duplicates", &self.duplicates),
            ("overlap", &overlap),
            ("special text", &self.special_text),
        ];
        for (title, tally) in tallies {
            if tally.count > 0 {
                writeln!(f, "{title:<11} {tally}")?;
            }
        }
        write_problems(f, "warning", &self.warnings)?;
        write_problems(f, "error", &self.errors)
    }
}

fn write_problems(f: &mut Formatter<'_>, title: &str, problems: &Problems) -> fmt::Result {
    if problems.is_empty() {
        return Ok(());
    }
    let totals: Vec<String> = problems
        .totals
        .iter()
        .map(|(code, count)| format!("{count} {}", code.name()))
        .collect();
    writeln!(f, "{title}s: {}", totals.join(", "))?;
    for problem in &problems.listed {
        writeln!(f, "  {title}: {problem}")?;
    }
    let more = problems.count() - problems.listed.len() as u64;
    if more > 0 {
        writeln!(f, "  and {more} more")?;
    }
    Ok(())
}
