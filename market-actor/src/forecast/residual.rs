//! Point forecasts with the errors that they made: a point model becomes a [`Model`].
//!
//! At a point o of a series, with forecasts f_o(1..H) and the errors e_j(h) = y_(j+h) - f_j(h) of the last `errors` points
//! j whose whole path is known by then (j + H <= o), the belief in y_(o+h) is the values f_o(h) + e_j(h), all equally
//! likely, and in the least value so far the minimum of f_o(k) + e_j(k) over k <= h. Whole error paths keep what errors of
//! neighbouring slots have in common. This is the empirical distribution of rolling errors that Hyndman and
//! Athanasopoulos call bootstrapped residuals (Forecasting: Principles and Practice, 3rd ed., section 5.5), without
//! drawing.
//!
//! Errors are of a fit that knew the values they are measured on, so bands are a little narrow when there is little to
//! fit on. Before the first whole path the forecast alone is believed: nothing is known of its errors.

use std::fmt::Debug;

use super::belief::Belief;
use super::model::{Model, Prospect, Range, greatest};

/// Says one number for each value to come.
pub trait PointModel: Debug + Send + Sync {
    /// What it is called, with its settings.
    fn name(&self) -> String;

    /// For each of `points` (growing, none 0) the forecasts of the `horizon` values from that point on, with parameters
    /// fitted on `series[..fitted_on]`. A forecast depends on these and on the values before its point.
    fn paths(
        &self,
        series: &[f64],
        fitted_on: usize,
        points: &[usize],
        horizon: usize,
    ) -> Vec<Vec<f64>>;
}

/// A point model and its past errors.
#[derive(Clone, Debug)]
pub struct Residual<P> {
    /// Says the numbers.
    pub point: P,
    /// Which values the series can have.
    pub range: Range,
    /// Most past points whose errors count.
    pub errors: usize,
}

/// Errors of this many past points count unless something else is set.
pub const ERRORS: usize = 400;

impl<P: PointModel> Residual<P> {
    /// With the usual number of errors.
    pub const fn new(point: P, range: Range) -> Self {
        Self {
            point,
            range,
            errors: ERRORS,
        }
    }
}

impl<P: PointModel> Model for Residual<P> {
    fn name(&self) -> String {
        self.point.name()
    }

    fn look(&self, seen: &[f64], horizon: usize) -> Option<Prospect> {
        if seen.is_empty() {
            return None;
        }
        self.replay(seen, &[seen.len()], horizon).pop()
    }

    fn replay(&self, series: &[f64], points: &[usize], horizon: usize) -> Vec<Prospect> {
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return Vec::new();
        };
        let begin = first.saturating_sub(horizon + self.errors).max(1);
        let all: Vec<usize> = (begin..=*last).collect();
        let paths = self.point.paths(&series[..*last], *first, &all, horizon);
        let error =
            |point: usize, ahead: usize| series[point + ahead] - paths[point - begin][ahead];
        let look = |point: usize| {
            // Points whose last forecast value is known.
            let known = (point + 1).saturating_sub(horizon).max(begin);
            let from = known.saturating_sub(self.errors).max(begin);
            let most = greatest(&series[..point]);
            let path = &paths[point - begin];
            let mut values = vec![Vec::new(); horizon];
            let mut least = vec![Vec::new(); horizon];
            for origin in from..known {
                let mut lowest = f64::INFINITY;
                for ahead in 0..horizon {
                    let value = path[ahead] + error(origin, ahead);
                    let value = self.range.nearest(value, most);
                    lowest = lowest.min(value);
                    values[ahead].push((value, 1.0));
                    least[ahead].push((lowest, 1.0));
                }
            }
            if from == known {
                return bare(path, |value| self.range.nearest(value, most));
            }
            Prospect {
                values: values.into_iter().filter_map(Belief::new).collect(),
                least: least.into_iter().filter_map(Belief::new).collect(),
            }
        };
        points.iter().map(|point| look(*point)).collect()
    }
}

/// The forecasts alone.
fn bare(path: &[f64], nearest: impl Fn(f64) -> f64) -> Prospect {
    let values = path.iter().map(|value| Belief::certain(nearest(*value)));
    let mut lowest = f64::INFINITY;
    let least = path.iter().map(|value| {
        lowest = lowest.min(nearest(*value));
        Belief::certain(lowest)
    });
    let least = least.collect();
    Prospect {
        values: values.collect(),
        least,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says the last value.
    #[derive(Clone, Debug)]
    struct Last;

    impl PointModel for Last {
        fn name(&self) -> String {
            "last".into()
        }

        fn paths(
            &self,
            series: &[f64],
            _: usize,
            points: &[usize],
            horizon: usize,
        ) -> Vec<Vec<f64>> {
            let path = |at: &usize| vec![series[at - 1]; horizon];
            points.iter().map(path).collect()
        }
    }

    #[test]
    fn errors_of_whole_paths_are_added() {
        let model = Residual::new(Last, Range::Counts);
        let prospect = model.look(&[2.0, 4.0, 1.0, 3.0], 2).unwrap();
        // Whole paths: from 2 (errors 2, -1) and from 4 (errors -3, -1).
        assert_eq!(prospect.values[0].atoms(), [(0.0, 0.5), (4.0, 0.5)]);
        assert_eq!(prospect.values[1].atoms(), [(2.0, 1.0)]);
        assert_eq!(prospect.least[1].atoms(), [(0.0, 0.5), (2.0, 0.5)]);
    }

    #[test]
    fn without_errors_the_forecast_is_believed() {
        let model = Residual::new(Last, Range::Counts);
        let prospect = model.look(&[2.0], 2).unwrap();
        assert_eq!(prospect.values[1], Belief::certain(2.0));
        assert_eq!(prospect.least[1], Belief::certain(2.0));
        assert_eq!(model.look(&[], 2), None);
    }

    #[test]
    fn only_the_last_errors_count() {
        let model = Residual {
            errors: 1,
            ..Residual::new(Last, Range::Free)
        };
        let prospect = model.look(&[0.0, 9.0, 9.0, 10.0], 1).unwrap();
        assert_eq!(prospect.values[0], Belief::certain(11.0));
    }
}
