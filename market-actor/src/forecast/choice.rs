//! Which model is used: one that beats persistence, or persistence.
//!
//! A model beats persistence when its pinball loss is lower and the difference is more than chance has it: with d_t the
//! loss of persistence less that of the model at point t, and s2 the long-run variance of d with Bartlett weights over L
//! lags, the statistic mean(d) / sqrt(s2 / n) is above 1.645, 5 % on one side (Diebold and Mariano, "Comparing predictive
//! accuracy", Journal of Business and Economic Statistics 13, 1995; weights of Newey and West, Econometrica 55, 1987).
//! Paths of neighbouring points overlap, so L is the number of further points that a path reaches. Of the models that
//! beat it the one with the least loss is used.

use std::fmt;

use super::trial::Report;

/// The 5 % point of a standard normal number, on one side.
pub const NEEDED: f64 = 1.645;

/// How a model compares with the first.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Which.
    pub model: String,
    /// Its pinball loss.
    pub pinball: f64,
    /// Share of the first model's loss that it saves; negative when it loses more.
    pub saved: f64,
    /// Diebold and Mariano's.
    pub statistic: f64,
    /// Whether it is better by more than chance.
    pub beats: bool,
}

/// What is used, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Place of the model among the reports.
    pub chosen: usize,
    /// One for each report but the first.
    pub comparisons: Vec<Comparison>,
    /// Name and pinball loss of the first.
    pub baseline: (String, f64),
}

/// Chooses among models tried on the same points; the first is the one to beat. `lags` is the number of further points
/// that a path reaches. Nothing without a report.
#[must_use]
pub fn choose(reports: &[Report], lags: usize) -> Option<Choice> {
    let (baseline, others) = reports.split_first()?;
    let loss = baseline.mean_pinball();
    let compare = |report: &Report| {
        let evidence = statistic(&baseline.losses, &report.losses, lags);
        let pinball = report.mean_pinball();
        Comparison {
            model: report.model.clone(),
            pinball,
            saved: if loss > 0.0 {
                1.0 - pinball / loss
            } else {
                0.0
            },
            statistic: evidence,
            beats: pinball < loss && evidence > NEEDED,
        }
    };
    let comparisons: Vec<Comparison> = others.iter().map(compare).collect();
    let best = comparisons
        .iter()
        .enumerate()
        .filter(|(_, comparison)| comparison.beats)
        .min_by(|a, b| a.1.pinball.total_cmp(&b.1.pinball));
    Some(Choice {
        chosen: best.map_or(0, |(at, _)| at + 1),
        comparisons,
        baseline: (baseline.model.clone(), loss),
    })
}

/// Diebold and Mariano's statistic of two series of losses, positive when the second loses less; 0 when they never differ.
#[must_use]
pub fn statistic(first: &[f64], second: &[f64], lags: usize) -> f64 {
    let differences: Vec<f64> = first.iter().zip(second).map(|(a, b)| a - b).collect();
    let count = differences.len() as f64;
    if differences.is_empty() {
        return 0.0;
    }
    let mean = differences.iter().sum::<f64>() / count;
    let rest: Vec<f64> = differences.iter().map(|d| d - mean).collect();
    let covariance = |lag: usize| -> f64 {
        let pairs = rest.iter().zip(rest.iter().skip(lag));
        pairs.map(|(a, b)| a * b).sum::<f64>() / count
    };
    let mut variance = covariance(0);
    for lag in 1..=lags {
        let weight = 1.0 - lag as f64 / (lags + 1) as f64;
        variance += 2.0 * weight * covariance(lag);
    }
    if variance > f64::EPSILON * mean * mean {
        mean / (variance / count).sqrt()
    } else if mean == 0.0 {
        0.0
    } else {
        mean.signum() * f64::INFINITY
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, loss) = &self.baseline;
        match self.chosen.checked_sub(1) {
            None => write!(
                f,
                "{name} is used: no model beats its pinball loss of {loss:.4} by more than chance"
            )?,
            Some(at) => {
                let c = &self.comparisons[at];
                write!(
                    f,
                    "{} is used: a pinball loss of {:.4}, {:.1} % below the {loss:.4} of {name}",
                    c.model,
                    c.pinball,
                    c.saved * 100.0
                )?;
            }
        }
        for c in &self.comparisons {
            let verdict = if c.beats { "better" } else { "not better" };
            write!(
                f,
                "\n  {}: {:.4}, {:.1} % {}, statistic {:.2} of {NEEDED} needed: {verdict}",
                c.model,
                c.pinball,
                c.saved.abs() * 100.0,
                if c.saved < 0.0 { "more" } else { "less" },
                c.statistic
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::trial::Score;

    fn report(model: &str, losses: &[f64]) -> Report {
        let mean = losses.iter().sum::<f64>() / losses.len() as f64;
        Report {
            model: model.into(),
            scores: vec![Score {
                ahead: 1,
                mean_absolute_error: 0.0,
                pinball: mean,
                coverage: 0.8,
                brier: None,
            }],
            losses: losses.to_vec(),
        }
    }

    #[test]
    fn the_statistic_by_hand() {
        // Differences 1, 3: mean 2, variance 1, so 2 / sqrt(1 / 2); with one lag the covariance is -1/2, its weight 1/2.
        let plain = statistic(&[2.0, 4.0], &[1.0, 1.0], 0);
        assert!((plain - 8f64.sqrt()).abs() < 1e-12);
        let lagged = statistic(&[2.0, 4.0], &[1.0, 1.0], 1);
        assert!((lagged - 2.0 / 0.25f64.sqrt()).abs() < 1e-12);
        assert_eq!(statistic(&[2.0, 2.0], &[2.0, 2.0], 1), 0.0);
        assert_eq!(statistic(&[2.0, 2.0], &[1.0, 1.0], 1), f64::INFINITY);
        assert_eq!(statistic(&[], &[], 1), 0.0);
    }

    #[test]
    fn only_what_beats_persistence_by_more_than_chance_is_used() {
        let base: Vec<f64> = (0..40).map(|at| f64::from(at % 5)).collect();
        let luck: Vec<f64> = base
            .iter()
            .enumerate()
            .map(|(at, l)| if at == 7 { l - 1.0 } else { *l })
            .collect();
        let good: Vec<f64> = base
            .iter()
            .enumerate()
            .map(|(at, l)| l - 0.3 - (at % 2) as f64 * 0.1)
            .collect();
        let reports = [
            report("persistence", &base),
            report("luck", &luck),
            report("good", &good),
        ];
        let choice = choose(&reports, 1).unwrap();
        assert_eq!(choice.chosen, 2);
        assert!(!choice.comparisons[0].beats && choice.comparisons[0].saved > 0.0);
        let text = choice.to_string();
        assert!(
            text.starts_with(
                "good is used: a pinball loss of 1.6500, 17.5 % below the 2.0000 of persistence"
            ),
            "{text}"
        );
        assert!(text.contains("\n  luck: 1.9750, saves "), "{text}");
        let alone = choose(&reports[..2], 1).unwrap();
        assert_eq!(alone.chosen, 0);
        assert!(
            alone
                .to_string()
                .starts_with("persistence is used: no model beats")
        );
        assert!(choose(&[], 1).is_none());
    }
}
