//! The learning rate as a function of the step alone.

use serde::{Deserialize, Serialize};

/// The shape of the curve after warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleKind {
    /// Stays at the peak.
    #[default]
    Constant,
    /// Falls in a line to `min_ratio` at the end.
    Linear,
    /// Falls along half a cosine to `min_ratio` at the end.
    Cosine,
}

/// How the learning rate moves over a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScheduleSpec {
    /// The shape after warm-up.
    pub kind: ScheduleKind,
    /// Steps of linear rise to the peak; step k (from 0) has (k + 1) / warmup of it.
    pub warmup_steps: u64,
    /// The same as a share of all steps, used when `warmup_steps` is 0.
    pub warmup_ratio: f64,
    /// Learning rate at the end over the peak.
    pub min_ratio: f64,
}

impl ScheduleSpec {
    /// The learning rate of step `step` (from 0) of `total`: peak times warm-up, times the falling curve.
    ///
    /// A function of its arguments alone, so a resumed job continues on the same curve.
    ///
    /// ```
    /// use shared::job::{ScheduleKind, ScheduleSpec};
    ///
    /// let schedule = ScheduleSpec {
    ///     kind: ScheduleKind::Linear,
    ///     warmup_steps: 2,
    ///     ..ScheduleSpec::default()
    /// };
    /// let rates: Vec<f64> = (0..4).map(|step| schedule.learning_rate(1.0, step, 4)).collect();
    /// assert_eq!(rates, [0.5, 1.0, 1.0, 0.5]);
    /// ```
    #[must_use]
    pub fn learning_rate(&self, peak: f64, step: u64, total: u64) -> f64 {
        let warmup = self.warmup(total);
        if step < warmup {
            return peak * (step + 1) as f64 / warmup as f64;
        }
        let span = total.saturating_sub(warmup).max(1) as f64;
        let left = total.saturating_sub(step) as f64 / span;
        let share = match self.kind {
            ScheduleKind::Constant => return peak,
            ScheduleKind::Linear => left,
            ScheduleKind::Cosine => 0.5 * (1.0 + libm::cos(std::f64::consts::PI * (1.0 - left))),
        };
        peak * (self.min_ratio + (1.0 - self.min_ratio) * share)
    }

    fn warmup(&self, total: u64) -> u64 {
        if self.warmup_steps > 0 {
            self.warmup_steps
        } else {
            (self.warmup_ratio * total as f64).ceil() as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The schedule of the golden case `lora-r2-mlp-sched`: warm-up 3 of 10, then linear to zero.
    #[test]
    fn linear_after_warmup() {
        let spec = ScheduleSpec {
            kind: ScheduleKind::Linear,
            warmup_steps: 3,
            ..ScheduleSpec::default()
        };
        let rates: Vec<f64> = (0..10).map(|k| spec.learning_rate(5e-3, k, 10)).collect();
        let want = [
            1.0 / 3.0,
            2.0 / 3.0,
            1.0,
            1.0,
            6.0 / 7.0,
            5.0 / 7.0,
            4.0 / 7.0,
            3.0 / 7.0,
        ];
        for (rate, want) in rates.iter().zip(want) {
            assert!(
                (rate - 5e-3 * want).abs() < 1e-12,
                "{rate} is not 5e-3 * {want}"
            );
        }
        assert!((rates[9] - 5e-3 / 7.0).abs() < 1e-12);
    }

    #[test]
    fn cosine_starts_at_the_peak_and_nears_the_floor() {
        let spec = ScheduleSpec {
            kind: ScheduleKind::Cosine,
            min_ratio: 0.1,
            ..ScheduleSpec::default()
        };
        assert!((spec.learning_rate(1.0, 0, 100) - 1.0).abs() < 1e-12);
        assert!((spec.learning_rate(1.0, 50, 100) - 0.55).abs() < 1e-12);
        assert!((spec.learning_rate(1.0, 100, 100) - 0.1).abs() < 1e-12);
    }
}
