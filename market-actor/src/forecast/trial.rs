//! How good a model is: rolling-origin back-tests.
//!
//! At every `stride`-th point of a series, from `first` on, the model says what the next values may be, seeing only what
//! came before; then what came is held against it (Tashman, "Out-of-sample tests of forecasting accuracy", International
//! Journal of Forecasting 16, 2000). For h slots ahead, over all points:
//!
//! | figure | |
//! | --- | --- |
//! | mean absolute error | of the median |
//! | pinball loss | mean of those of the 10, 50 and 90 % quantile |
//! | coverage | share of values from the 10 to the 90 % quantile, ends included: 0.8 is right for a value that varies |
//! | Brier score | of the chance that fewer machines than the last seen live through h slots, where there were any |

use super::hedge::{SHARES, pinball};
use super::model::{Model, Prospect};

/// What figures are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The series is ln of millionths of a dollar; figures are in dollars an hour.
    Dollars,
    /// Machines.
    Machines,
}

/// Which points are tried, and how far ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Slots ahead.
    pub horizon: usize,
    /// Values seen before the first point, at least 1.
    pub first: usize,
    /// Slots from point to point, at least 1.
    pub stride: usize,
    /// Points that share fitted parameters: they are fitted on what was seen at the first of them. At least 1.
    pub refit: usize,
    /// Most values looked back to.
    pub memory: usize,
}

/// How a model did.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Which.
    pub model: String,
    /// One for each number of slots ahead.
    pub scores: Vec<Score>,
    /// For each point the pinball loss, mean over all slots ahead.
    pub losses: Vec<f64>,
}

/// How a model did so many slots ahead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Slots ahead, 1 the nearest.
    pub ahead: usize,
    /// Of the median.
    pub mean_absolute_error: f64,
    /// Of three quantiles.
    pub pinball: f64,
    /// Of the band between the outer two.
    pub coverage: f64,
    /// Of the chance of a loss; nothing for prices, and where there was never a machine to lose.
    pub brier: Option<f64>,
}

/// Sums of one number of slots ahead.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    cases: f64,
    absolute: f64,
    pinball: f64,
    covered: f64,
    brier: f64,
    losable: f64,
}

impl Plan {
    /// Further points that the path of a point reaches.
    #[must_use]
    pub fn lags(&self) -> usize {
        self.horizon.div_ceil(self.stride.max(1)).saturating_sub(1)
    }
}

impl Report {
    /// The pinball loss, mean over all slots ahead.
    #[must_use]
    pub fn mean_pinball(&self) -> f64 {
        let sum: f64 = self.scores.iter().map(|score| score.pinball).sum();
        sum / self.scores.len().max(1) as f64
    }
}

impl Unit {
    fn value(self, of_series: f64) -> f64 {
        match self {
            Self::Dollars => of_series.exp() / 1e6,
            Self::Machines => of_series,
        }
    }
}

/// Tries a model on a series. Points whose last value ahead is beyond its end are not tried.
#[must_use]
pub fn run(model: &dyn Model, series: &[f64], unit: Unit, plan: &Plan) -> Report {
    let first = plan.first.max(1);
    let end = (series.len() + 1).saturating_sub(plan.horizon);
    let points: Vec<usize> = (first..end).step_by(plan.stride.max(1)).collect();
    let mut tallies = vec![Tally::default(); plan.horizon];
    let mut losses = Vec::with_capacity(points.len());
    for together in points.chunks(plan.refit.max(1)) {
        let begin = together[0].saturating_sub(plan.memory.max(1));
        let within: Vec<usize> = together.iter().map(|point| point - begin).collect();
        let prospects = model.replay(&series[begin..], &within, plan.horizon);
        for (point, prospect) in together.iter().zip(&prospects) {
            let lost = judge(prospect, series, *point, unit, &mut tallies);
            losses.push(lost);
        }
    }
    let scores = tallies.iter().enumerate();
    Report {
        model: model.name(),
        scores: scores
            .map(|(at, tally)| tally.score(at + 1, unit))
            .collect(),
        losses,
    }
}

/// Adds one point's figures and gives its pinball loss.
fn judge(
    prospect: &Prospect,
    series: &[f64],
    point: usize,
    unit: Unit,
    tallies: &mut [Tally],
) -> f64 {
    let held = series[point - 1];
    let mut lowest = f64::INFINITY;
    let mut sum = 0.0;
    for (ahead, tally) in tallies.iter_mut().enumerate() {
        let raw = series[point + ahead];
        lowest = lowest.min(raw);
        let value = unit.value(raw);
        let quantiles = SHARES.map(|share| unit.value(prospect.values[ahead].quantile(share)));
        let lost: f64 = SHARES
            .iter()
            .zip(quantiles)
            .map(|(share, quantile)| pinball(value, quantile, *share))
            .sum::<f64>()
            / SHARES.len() as f64;
        // A quantile that was a value of the past may miss its equal by rounding of a logarithm.
        let slack = 1e-9 * value.abs();
        let covered = quantiles[0] <= value + slack && value <= quantiles[2] + slack;
        tally.cases += 1.0;
        tally.absolute += (value - quantiles[1]).abs();
        tally.pinball += lost;
        tally.covered += f64::from(u8::from(covered));
        if unit == Unit::Machines && held > 0.0 {
            let said = prospect.least[ahead].below(held);
            let came = f64::from(u8::from(lowest < held));
            tally.brier += (said - came).powi(2);
            tally.losable += 1.0;
        }
        sum += lost;
    }
    sum / tallies.len().max(1) as f64
}

impl Tally {
    fn score(self, ahead: usize, unit: Unit) -> Score {
        let cases = self.cases.max(1.0);
        let has_brier = unit == Unit::Machines && self.losable > 0.0;
        Score {
            ahead,
            mean_absolute_error: self.absolute / cases,
            pinball: self.pinball / cases,
            coverage: self.covered / cases,
            brier: has_brier.then(|| self.brier / self.losable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::model::Range;
    use crate::forecast::persistence::Persistence;
    use crate::forecast::residual::Residual;
    use crate::forecast::transition::Transition;

    const PLAN: Plan = Plan {
        horizon: 2,
        first: 3,
        stride: 1,
        refit: 2,
        memory: 100,
    };

    #[test]
    fn figures_by_hand() {
        // No errors are known at 3 (of two whole paths 1 is (0, 0)): the last value is said.
        let model = Residual::new(Persistence, Range::Counts);
        let report = run(&model, &[4.0, 4.0, 4.0, 2.0, 4.0], Unit::Machines, &PLAN);
        assert_eq!(report.model, "persistence");
        assert_eq!(report.losses.len(), 1);
        let [next, then] = report.scores.as_slice() else {
            panic!("two slots ahead")
        };
        // 2 came where all three quantiles are 4: 2 * (0.9 + 0.5 + 0.1) / 3.
        assert_eq!((next.mean_absolute_error, next.coverage), (2.0, 0.0));
        assert!((next.pinball - 1.0).abs() < 1e-12);
        assert_eq!(next.brier, Some(1.0));
        assert_eq!((then.mean_absolute_error, then.coverage), (0.0, 1.0));
        assert_eq!((then.pinball, then.brier), (0.0, Some(1.0)));
        assert_eq!(report.mean_pinball(), 0.5);
    }

    #[test]
    fn prices_are_in_dollars() {
        let price = |usd: f64| (usd * 1e6).ln();
        let series = [price(0.5), price(0.5), price(0.5), price(0.7), price(0.5)];
        let model = Residual::new(Persistence, Range::Free);
        let report = run(&model, &series, Unit::Dollars, &PLAN);
        assert!((report.scores[0].mean_absolute_error - 0.2).abs() < 1e-9);
        assert_eq!(report.scores[0].brier, None);
    }

    #[test]
    fn what_is_too_short_is_not_tried() {
        let report = run(&Transition::default(), &[1.0; 4], Unit::Machines, &PLAN);
        assert!(report.losses.is_empty());
        assert_eq!(report.scores[0].mean_absolute_error, 0.0);
    }

    /// How often points are fitted anew changes nothing for a model without parameters.
    #[test]
    fn sharing_parameters_changes_nothing_where_there_are_none() {
        let series: Vec<f64> = (0..60).map(|at| f64::from(at * 7 % 11)).collect();
        let model = Residual::new(Persistence, Range::Counts);
        let once = Plan {
            refit: 1000,
            ..PLAN
        };
        let always = Plan { refit: 1, ..PLAN };
        let of = |plan: &Plan| run(&model, &series, Unit::Machines, plan);
        assert_eq!(of(&once), of(&always));
    }
}
