//! Work of a slot by number of machines: H(n), with H(0) = 0.
//!
//! Kong et al. (arXiv 2512.20967) take `H(n) = alpha * n + beta` from measured LoRA throughput. A positive `beta` means that
//! each further machine brings less than the first: the curve through 0 is concave. What is measured here goes into a
//! table; between its points a line is drawn, beyond them nothing more is promised than at the last.

use serde::{Deserialize, Serialize};

/// A throughput curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Throughput {
    /// `alpha * n + beta` for n > 0, never below 0.
    Affine {
        /// Work that one more machine brings in a slot.
        alpha: f64,
        /// Work besides.
        beta: f64,
    },
    /// Work of a slot with 1, 2, ... machines; more machines than entries bring what the last one brings.
    Table(Vec<f64>),
}

/// A curve that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThroughputError {
    /// Not a number, or below zero.
    #[error("throughput at {machines} machines is no number of at least 0: measure it again")]
    Value {
        /// Number of machines.
        machines: u32,
    },
    /// Nothing gets done.
    #[error("a throughput curve of zeros: no number of machines does any work")]
    Zero,
}

impl Throughput {
    /// A line through zero: `work` for each machine.
    #[must_use]
    pub const fn per_machine(work: f64) -> Self {
        Self::Affine {
            alpha: work,
            beta: 0.0,
        }
    }

    /// A table through measured points `(machines, work of a slot)`, in any order; lines between them, from 0 to the first.
    /// Of points at the same number the last counts.
    ///
    /// # Errors
    /// When a value is no number or below 0, or all are 0.
    pub fn measured(points: &[(u32, f64)]) -> Result<Self, ThroughputError> {
        let known: std::collections::BTreeMap<u32, f64> = points
            .iter()
            .copied()
            .filter(|(machines, _)| *machines > 0)
            .collect();
        let mut table = Vec::new();
        let (mut left, mut below) = (0, 0.0);
        for (&machines, &work) in &known {
            for count in left + 1..=machines {
                let part = f64::from(count - left) / f64::from(machines - left);
                table.push(below + part * (work - below));
            }
            (left, below) = (machines, work);
        }
        let curve = Self::Table(table);
        curve.check()?;
        Ok(curve)
    }

    /// The curve after one more measurement: a table up to `most` whose entry at `machines` moves by `trust` (0 to 1) of the
    /// way, all others by the same factor, since a slower backbone or longer rows slow every number of machines.
    ///
    /// # Errors
    /// When the measurement is no number or below 0.
    pub fn after(
        &self,
        machines: u32,
        work: f64,
        trust: f64,
        most: u32,
    ) -> Result<Self, ThroughputError> {
        let now = self.at(machines);
        if machines == 0 || !(work.is_finite() && work >= 0.0) {
            return Err(ThroughputError::Value { machines });
        }
        let factor = if now > 0.0 {
            1.0 + trust.clamp(0.0, 1.0) * (work / now - 1.0)
        } else {
            1.0
        };
        let curve = Self::Table((1..=most).map(|count| factor * self.at(count)).collect());
        curve.check()?;
        Ok(curve)
    }

    /// Work of a slot with `machines` machines.
    #[must_use]
    pub fn at(&self, machines: u32) -> f64 {
        if machines == 0 {
            return 0.0;
        }
        match self {
            Self::Affine { alpha, beta } => (alpha * f64::from(machines) + beta).max(0.0),
            Self::Table(table) => {
                let last = table.len().saturating_sub(1);
                table
                    .get((machines as usize - 1).min(last))
                    .copied()
                    .unwrap_or(0.0)
            }
        }
    }

    /// Checks that the curve is one.
    ///
    /// # Errors
    /// When a value is no number or below 0, or all are 0.
    pub fn check(&self) -> Result<(), ThroughputError> {
        match self {
            Self::Affine { alpha, beta } => {
                if !(alpha.is_finite() && beta.is_finite()) {
                    return Err(ThroughputError::Value { machines: 1 });
                }
                if *alpha <= 0.0 && *beta <= 0.0 {
                    return Err(ThroughputError::Zero);
                }
            }
            Self::Table(table) => {
                let wrong = table
                    .iter()
                    .position(|work| !(work.is_finite() && *work >= 0.0));
                if let Some(at) = wrong {
                    return Err(ThroughputError::Value {
                        machines: at as u32 + 1,
                    });
                }
                if table.iter().all(|work| *work == 0.0) {
                    return Err(ThroughputError::Zero);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_curve_goes_through_its_points_and_promises_no_more() {
        let curve = Throughput::measured(&[(4, 8.0), (1, 3.0), (8, 10.0)]).unwrap();
        assert_eq!(curve.at(0), 0.0);
        assert_eq!(curve.at(1), 3.0);
        assert!((curve.at(2) - (3.0 + 5.0 / 3.0)).abs() < 1e-12);
        assert_eq!(curve.at(4), 8.0);
        assert_eq!(curve.at(6), 9.0);
        assert_eq!(curve.at(50), 10.0);
    }

    #[test]
    fn a_measurement_moves_the_whole_curve() {
        let curve = Throughput::Affine {
            alpha: 0.72,
            beta: 2.0,
        };
        let slower = curve.after(4, 0.5 * curve.at(4), 1.0, 12).unwrap();
        for count in 1..=12 {
            assert!((slower.at(count) - 0.5 * curve.at(count)).abs() < 1e-12);
        }
        let half_way = curve.after(4, 0.5 * curve.at(4), 0.5, 12).unwrap();
        assert!((half_way.at(9) - 0.75 * curve.at(9)).abs() < 1e-12);
        assert!(curve.after(0, 1.0, 1.0, 12).is_err());
        assert!(curve.after(3, f64::NAN, 1.0, 12).is_err());
    }

    #[test]
    fn curves_that_cannot_be_are_refused() {
        assert_eq!(
            Throughput::measured(&[(2, 0.0)]),
            Err(ThroughputError::Zero)
        );
        assert_eq!(
            Throughput::Table(vec![1.0, -1.0]).check(),
            Err(ThroughputError::Value { machines: 2 })
        );
        let falling = Throughput::Affine {
            alpha: 1.0,
            beta: -2.0,
        };
        assert_eq!(falling.at(1), 0.0);
        assert_eq!(falling.at(5), 3.0);
    }
}
