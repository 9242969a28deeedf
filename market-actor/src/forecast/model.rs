//! A model of one series: from values seen to beliefs in the values to come.

use std::fmt::Debug;

use super::belief::Belief;

/// What a model thinks of the values after the last one seen, nearest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Prospect {
    /// Each value.
    pub values: Vec<Belief>,
    /// The least of all values so far.
    pub least: Vec<Belief>,
}

/// Which values a series can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// Any number.
    Free,
    /// Whole numbers from 0 to the greatest one seen.
    Counts,
}

/// A model of a series. MD-1: what it says at a point of a series does not depend on what follows.
pub trait Model: Debug + Send + Sync {
    /// What it is called, with its settings.
    fn name(&self) -> String;

    /// What the `horizon` values after `seen` (oldest first) may be; nothing when nothing was seen.
    fn look(&self, seen: &[f64], horizon: usize) -> Option<Prospect>;

    /// [`Model::look`] at each of some points of a series, for values from that point on, as it would have been then;
    /// `points` grow and none is 0. Models that are fitted may fit once, on what was seen at the first point.
    fn replay(&self, series: &[f64], points: &[usize], horizon: usize) -> Vec<Prospect> {
        let looks = points.iter().map(|at| self.look(&series[..*at], horizon));
        looks.flatten().collect()
    }
}

impl Range {
    /// The value of the range that is nearest to `value`, when `most` is the greatest one seen.
    #[must_use]
    pub fn nearest(self, value: f64, most: f64) -> f64 {
        match self {
            Self::Free => value,
            Self::Counts => value.round().clamp(0.0, most.max(0.0)),
        }
    }
}

/// The greatest value of a series; 0 without one.
#[must_use]
pub fn greatest(series: &[f64]) -> f64 {
    let greatest = series.iter().copied().reduce(f64::max);
    greatest.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        assert_eq!(Range::Free.nearest(-2.4, 3.0), -2.4);
        assert_eq!(Range::Counts.nearest(-2.4, 3.0), 0.0);
        assert_eq!(Range::Counts.nearest(2.4, 3.0), 2.0);
        assert_eq!(Range::Counts.nearest(7.0, 3.0), 3.0);
        assert_eq!(greatest(&[1.0, 5.0, 2.0]), 5.0);
        assert_eq!(greatest(&[]), 0.0);
    }
}
