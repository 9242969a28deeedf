//! One measurement of one side.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a run of some training steps cost, all its processes together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Real tokens trained per second of wall time.
    pub tokens_per_second: f64,
    /// CPU milliseconds, user and system, per real token.
    pub cpu_ms_per_token: f64,
    /// Largest proportional set size in bytes, of samples taken every 0.2 s of the measured steps on both sides.
    pub peak_pss_bytes: u64,
}

impl Sample {
    /// Reads what `spotmux bench train --json` prints: an object a line, one of them with this number of `jobs`.
    ///
    /// # Errors
    /// Not JSON, no line with so many jobs, or figures that cannot be.
    pub(super) fn ours(text: &str, jobs: usize) -> Result<Self> {
        for line in text.lines() {
            let object: Value =
                serde_json::from_str(line).context("not the JSON of bench train")?;
            if object.get("jobs") == Some(&jobs.into()) {
                let sample: Self = serde_json::from_value(object)
                    .context("a line of bench train lacks a figure")?;
                return sample.checked();
            }
        }
        bail!("no line with {jobs} jobs")
    }

    /// Reads what the script prints: one object, on the last line that is not empty.
    ///
    /// # Errors
    /// Not the expected JSON, or figures that cannot be.
    pub(super) fn theirs(text: &str) -> Result<Self> {
        let mut lines = text.lines().rev();
        let line = lines.find(|line| !line.trim().is_empty());
        let line = line.context("it printed nothing")?;
        let sample: Self = serde_json::from_str(line).context("not the JSON of a sample")?;
        sample.checked()
    }

    fn checked(self) -> Result<Self> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        if !positive(self.tokens_per_second) || !positive(self.cpu_ms_per_token) {
            bail!("{self:?} has a rate that is not above 0");
        }
        if self.peak_pss_bytes == 0 {
            bail!("{self:?} has no memory figure");
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_are_read_and_nonsense_is_refused() {
        let one = r#"{"tokens_per_second": 120.5, "cpu_ms_per_token": 14.0, "peak_pss_bytes": 7}"#;
        let noisy = format!("loading\n{one}\n\n");
        assert!((Sample::theirs(&noisy).unwrap().tokens_per_second - 120.5).abs() < 1e-9);
        let lines = r#"{"event": "setting", "threads": 2}
{"event": "figures", "jobs": 1, "tokens_per_second": 90.0, "cpu_ms_per_token": 9.0, "peak_pss_bytes": 5}
{"event": "figures", "jobs": 8, "tokens_per_second": 99.0, "cpu_ms_per_token": 9.0, "peak_pss_bytes": 9}"#;
        assert_eq!(Sample::ours(lines, 8).unwrap().peak_pss_bytes, 9);
        assert!(Sample::ours(lines, 2).is_err());
        assert!(Sample::ours(&lines.replace("9.0", "null"), 8).is_err());
        assert!(Sample::theirs(&one.replace("120.5", "0")).is_err());
        assert!(Sample::theirs("").is_err());
    }
}
