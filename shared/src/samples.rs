//! What became of the records of a file of samples, in numbers that add up.
//!
//! SC-1: `rows_in = rows_used + sum of dropped`. Truncated and held-out rows are used rows.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The records of one file, by what became of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleCount {
    /// The file, as the job names it.
    pub file: String,
    /// Records in the file.
    pub rows_in: u64,
    /// Those trained or measured on.
    pub rows_used: u64,
    /// Those of the used ones that are held out of training.
    pub held_out: u64,
    /// Those left out, by reason: `over_long`, or `nothing_to_train` where no token counts in the loss.
    pub dropped: BTreeMap<String, u64>,
    /// Those of the used ones that were cut at `max_length`.
    pub truncated: u64,
    /// Tokens of the longest accepted row; 0 where it stands for several files.
    pub max_length: u64,
}

impl SampleCount {
    /// Rows left out for any reason.
    #[must_use]
    pub fn dropped_rows(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Whether every record is used as it is.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.dropped_rows() == 0 && self.truncated == 0
    }

    /// SC-1.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        self.rows_in == self.rows_used + self.dropped_rows()
            && self.truncated <= self.rows_used
            && self.held_out <= self.rows_used
    }

    /// The counts, as in "60 rows in = 40 used + 20 dropped (20 over long); 3 of the used cut to 64 tokens".
    #[must_use]
    pub fn counts(&self) -> String {
        let (rows, used, dropped) = (self.rows_in, self.rows_used, self.dropped_rows());
        let mut text = format!("{rows} rows in = {used} used + {dropped} dropped");
        if dropped > 0 {
            let reasons = self.dropped.iter();
            let reasons: Vec<String> = reasons
                .map(|(reason, count)| format!("{count} {}", reason.replace('_', " ")))
                .collect();
            text.push_str(&format!(" ({})", reasons.join(", ")));
        }
        if self.truncated > 0 {
            text.push_str(&format!("; {} of the used cut", self.truncated));
            if self.max_length > 0 {
                text.push_str(&format!(" to {} tokens", self.max_length));
            }
        }
        if self.held_out > 0 {
            text.push_str(&format!("; {} of the used held out", self.held_out));
        }
        text
    }
}

/// The file and its counts.
impl fmt::Display for SampleCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.counts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sc_1_a_count_tells_every_record() {
        let mut count = SampleCount {
            file: "a.jsonl".into(),
            rows_in: 60,
            rows_used: 60,
            ..SampleCount::default()
        };
        assert!(count.is_whole() && count.adds_up());
        assert_eq!(
            count.to_string(),
            "a.jsonl: 60 rows in = 60 used + 0 dropped"
        );
        count.dropped = BTreeMap::from([("nothing_to_train".into(), 1), ("over_long".into(), 20)]);
        assert!(!count.is_whole() && !count.adds_up());
        (count.rows_used, count.truncated, count.max_length) = (39, 3, 64);
        count.held_out = 4;
        assert!(count.adds_up());
        assert_eq!(
            count.to_string(),
            "a.jsonl: 60 rows in = 39 used + 21 dropped (1 nothing to train, 20 over long); 3 of the used cut to 64 tokens; \
             4 of the used held out"
        );
    }
}
