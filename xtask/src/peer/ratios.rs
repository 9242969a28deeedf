//! Ratios between the sides, within a round, and their medians over rounds.

use serde::Serialize;

use super::Sample;

/// Both sides, measured one after another.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// Load average of the machine as the round began.
    pub load: f64,
    /// Ours, eight jobs in one process.
    pub fused8: Sample,
    /// Theirs, four processes with padded batches; eight do not fit 24 GiB.
    pub padded4: Sample,
    /// Theirs, eight processes with packed batches.
    pub packed8: Sample,
    /// Ours, one job.
    pub one: Sample,
    /// Theirs, one process with packed batches.
    pub packed1: Sample,
}

impl Round {
    /// Each measurement with its name, in the order in which they are made.
    #[must_use]
    pub fn samples(&self) -> [(&'static str, &Sample); 5] {
        [
            ("ours, 8 jobs fused", &self.fused8),
            ("4 padded processes", &self.padded4),
            ("8 packed processes", &self.packed8),
            ("ours, 1 job", &self.one),
            ("1 packed process", &self.packed1),
        ]
    }
}

/// The figures of the target table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratios {
    /// Tokens per second: eight jobs fused over four padded processes.
    pub fused8_over_padded: f64,
    /// Tokens per second: eight jobs fused over eight packed processes.
    pub fused8_over_packed: f64,
    /// Tokens per second: one job over one packed process.
    pub one_over_packed: f64,
    /// Peak memory: eight jobs fused over eight packed processes.
    pub pss8_over_packed8: f64,
}

impl Ratios {
    /// Each ratio with its name.
    #[must_use]
    pub fn named(&self) -> [(&'static str, f64); 4] {
        [
            ("fused8_over_padded", self.fused8_over_padded),
            ("fused8_over_packed", self.fused8_over_packed),
            ("one_over_packed", self.one_over_packed),
            ("pss8_over_packed8", self.pss8_over_packed8),
        ]
    }

    /// The median of each ratio over the rounds, of which there is at least one.
    ///
    /// # Panics
    /// When there is no round.
    #[must_use]
    pub fn of(rounds: &[Round]) -> Self {
        let rate = |sample: &Sample| sample.tokens_per_second;
        let bytes = |sample: &Sample| sample.peak_pss_bytes as f64;
        let over = |ratio: &dyn Fn(&Round) -> f64| median(rounds.iter().map(ratio).collect());
        Self {
            fused8_over_padded: over(&|round| rate(&round.fused8) / rate(&round.padded4)),
            fused8_over_packed: over(&|round| rate(&round.fused8) / rate(&round.packed8)),
            one_over_packed: over(&|round| rate(&round.one) / rate(&round.packed1)),
            pss8_over_packed8: over(&|round| bytes(&round.fused8) / bytes(&round.packed8)),
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    assert!(!values.is_empty(), "a median needs a value");
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rate: f64, bytes: u64) -> Sample {
        Sample {
            tokens_per_second: rate,
            cpu_ms_per_token: 1.0,
            peak_pss_bytes: bytes,
        }
    }

    fn round(fused8: f64) -> Round {
        Round {
            load: 0.0,
            fused8: sample(fused8, 10),
            padded4: sample(50.0, 100),
            packed8: sample(100.0, 80),
            one: sample(150.0, 5),
            packed1: sample(100.0, 20),
        }
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_the_median_counts() {
        let ratios = Ratios::of(&[round(200.0), round(20.0), round(210.0)]);
        let want = Ratios {
            fused8_over_padded: 4.0,
            fused8_over_packed: 2.0,
            one_over_packed: 1.5,
            pss8_over_packed8: 0.125,
        };
        assert_eq!(ratios, want);
    }

    #[test]
    fn an_even_number_of_rounds_takes_the_middle_of_two() {
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-12);
    }
}
