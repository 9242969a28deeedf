//! Samples as token rows, and what happens to one that is too long.

use serde::{Deserialize, Serialize};
use shared::job::Overlong;

use crate::mask::{Labelled, NOT_TRAINED};

/// One sample as tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenRow {
    /// Token ids.
    pub ids: Vec<u32>,
    /// For each token its own id, or -100 where it does not count; not shifted: position `t` predicts label `t + 1`,
    /// so the first label never counts.
    pub labels: Vec<i32>,
    /// Line of the file it came from, counted from 1; 0 when it came from none.
    pub line: u64,
}

impl TokenRow {
    /// A row that came from no file.
    ///
    /// # Panics
    /// When there are not as many labels as ids.
    #[must_use]
    pub fn new(ids: Vec<u32>, labels: Vec<i32>) -> Self {
        assert_eq!(ids.len(), labels.len(), "one label per token");
        Self {
            ids,
            labels,
            line: 0,
        }
    }

    /// Number of tokens that count in the loss.
    #[must_use]
    pub fn trained(&self) -> usize {
        let labels = self.labels.iter().skip(1);
        labels.filter(|&&label| label != NOT_TRAINED).count()
    }
}

/// Why a row is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// It has an error; a file with such rows is refused.
    Invalid,
    /// It is longer than the limit.
    OverLong,
    /// None of its tokens counts in the loss, after truncation.
    NothingToTrain,
}

impl DropReason {
    /// The printed form.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::OverLong => "over_long",
            Self::NothingToTrain => "nothing_to_train",
        }
    }

    /// The reason in words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::OverLong => "over-long",
            Self::NothingToTrain => "without trained tokens",
        }
    }
}

/// What became of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// A row to use, cut or not.
    Used { row: TokenRow, truncated: bool },
    /// Left out.
    Dropped(DropReason),
    /// Longer than the limit, which the job calls an error.
    TooLong { tokens: usize },
}

/// Applies the limit to a sample.
pub(crate) fn decide(labelled: Labelled, line: u64, max_length: usize, overlong: Overlong) -> Fate {
    let mut row = TokenRow {
        ids: labelled.ids,
        labels: labelled.labels,
        line,
    };
    let tokens = row.ids.len();
    let truncated = tokens > max_length;
    if truncated {
        match overlong {
            Overlong::Drop => return Fate::Dropped(DropReason::OverLong),
            Overlong::Error => return Fate::TooLong { tokens },
            Overlong::Truncate => {
                row.ids.truncate(max_length);
                row.labels.truncate(max_length);
            }
        }
    }
    if row.trained() == 0 {
        return Fate::Dropped(DropReason::NothingToTrain);
    }
    Fate::Used { row, truncated }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Labelled {
        Labelled {
            ids: vec![5, 6, 7, 8],
            labels: vec![NOT_TRAINED, NOT_TRAINED, 7, 8],
            ..Labelled::default()
        }
    }

    #[test]
    fn a_long_row_is_dropped_cut_or_refused() {
        assert_eq!(
            decide(sample(), 1, 3, Overlong::Drop),
            Fate::Dropped(DropReason::OverLong)
        );
        assert_eq!(
            decide(sample(), 1, 3, Overlong::Error),
            Fate::TooLong { tokens: 4 }
        );
        let row = TokenRow {
            ids: vec![5, 6, 7],
            labels: vec![NOT_TRAINED, NOT_TRAINED, 7],
            line: 1,
        };
        let truncated = true;
        assert_eq!(
            decide(sample(), 1, 3, Overlong::Truncate),
            Fate::Used { row, truncated }
        );
    }

    #[test]
    fn a_row_that_trains_nothing_is_dropped() {
        let cut = decide(sample(), 1, 2, Overlong::Truncate);
        assert_eq!(cut, Fate::Dropped(DropReason::NothingToTrain));
        let first_only = Labelled {
            ids: vec![5],
            labels: vec![5],
            ..Labelled::default()
        };
        let first = decide(first_only, 1, 9, Overlong::Drop);
        assert_eq!(first, Fate::Dropped(DropReason::NothingToTrain));
    }
}
