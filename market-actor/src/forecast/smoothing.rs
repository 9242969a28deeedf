//! Exponential smoothing with an additive damped trend, ETS(A, Ad, N).
//!
//! ```text
//! l_t = a y_t + (1 - a) (l_(t-1) + phi b_(t-1))
//! b_t = g (l_t - l_(t-1)) + (1 - g) phi b_(t-1)
//! f_t(h) = l_t + (phi + phi^2 + .. + phi^h) b_t
//! ```
//!
//! Gardner and McKenzie, "Forecasting trends in time series", Management Science 31, 1985; the ranges of a and g in
//! (0, 1) and phi in (0.8, 0.98) are those of Hyndman and Athanasopoulos, Forecasting: Principles and Practice, 3rd ed.,
//! section 8.2. It begins with l = y of the first value and b = 0; the parameters have the least sum of squared errors one
//! step ahead over the last `window` values.

use super::residual::PointModel;
use super::simplex::{Limits, minimise};

/// Smoothing whose parameters are fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Smoothing {
    /// Most values that parameters are fitted on.
    pub window: usize,
}

impl Default for Smoothing {
    fn default() -> Self {
        Self { window: 480 }
    }
}

/// What is fitted.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Parameters {
    level: f64,
    trend: f64,
    damping: f64,
}

/// Level and trend.
type State = (f64, f64);

const LIMITS: Limits = Limits {
    evaluations: 300,
    tolerance: 1e-9,
    step: 1.0,
};

impl PointModel for Smoothing {
    fn name(&self) -> String {
        "damped-trend".to_owned()
    }

    fn paths(
        &self,
        series: &[f64],
        fitted_on: usize,
        points: &[usize],
        horizon: usize,
    ) -> Vec<Vec<f64>> {
        let begin = fitted_on.saturating_sub(self.window);
        let parameters = fit(&series[begin..fitted_on]);
        let states = parameters.states(series);
        let path = |point: &usize| parameters.path(states[point - 1], horizon);
        points.iter().map(path).collect()
    }
}

impl Parameters {
    /// From numbers without bounds.
    fn of_free(free: &[f64]) -> Self {
        let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
        Self {
            level: logistic(free[0]),
            trend: logistic(free[1]),
            damping: 0.8 + 0.18 * logistic(free[2]),
        }
    }

    fn next(self, (level, trend): State, value: f64) -> State {
        let expected = level + self.damping * trend;
        let risen = self.level * value + (1.0 - self.level) * expected;
        let slope = self.trend * (risen - level) + (1.0 - self.trend) * self.damping * trend;
        (risen, slope)
    }

    /// The state after each value.
    fn states(self, series: &[f64]) -> Vec<State> {
        let Some(first) = series.first() else {
            return Vec::new();
        };
        let mut state = (*first, 0.0);
        let mut states = vec![state];
        for value in &series[1..] {
            state = self.next(state, *value);
            states.push(state);
        }
        states
    }

    fn squares(self, series: &[f64]) -> f64 {
        let states = self.states(series);
        let errors = states
            .iter()
            .zip(&series[1..])
            .map(|((level, trend), value)| {
                let error = value - level - self.damping * trend;
                error * error
            });
        errors.sum()
    }

    fn path(self, (level, trend): State, horizon: usize) -> Vec<f64> {
        let mut damped = 0.0;
        let mut power = 1.0;
        let ahead = (0..horizon).map(|_| {
            power *= self.damping;
            damped += power;
            level + damped * trend
        });
        ahead.collect()
    }
}

fn fit(series: &[f64]) -> Parameters {
    // Smoothing with a level of 0.88 and little trend.
    let start = [2.0, -2.0, 0.0];
    if series.len() < 3 {
        return Parameters::of_free(&start);
    }
    let scale = Parameters::of_free(&start)
        .squares(series)
        .max(f64::MIN_POSITIVE);
    let squares = |free: &[f64]| Parameters::of_free(free).squares(series) / scale;
    let (free, _) = minimise(&start, LIMITS, squares);
    Parameters::of_free(&free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recursion_by_hand() {
        let parameters = Parameters {
            level: 0.5,
            trend: 0.5,
            damping: 0.9,
        };
        // From (10, 0) with 12: level 11, trend 0.5.
        assert_eq!(parameters.next((10.0, 0.0), 12.0), (11.0, 0.5));
        let path = parameters.path((11.0, 0.5), 2);
        assert!((path[0] - 11.45).abs() < 1e-12 && (path[1] - 11.855).abs() < 1e-12);
    }

    #[test]
    fn a_constant_stays_and_a_line_goes_on_for_a_while() {
        let constant = Smoothing::default().paths(&[4.0; 20], 20, &[20], 3);
        assert_eq!(constant[0], [4.0; 3]);
        let line: Vec<f64> = (0..60).map(f64::from).collect();
        let path = Smoothing::default().paths(&line, 60, &[60], 3).remove(0);
        assert!(
            path[0] > 59.5 && path[2] > path[0] && path[2] < 62.0,
            "{path:?}"
        );
    }

    #[test]
    fn noise_about_a_level_is_averaged() {
        let noisy: Vec<f64> = (0..200)
            .map(|at| if at % 2 == 0 { 1.0 } else { -1.0 })
            .collect();
        let path = Smoothing::default().paths(&noisy, 200, &[200], 1).remove(0);
        assert!(path[0].abs() < 0.5, "{path:?}");
    }
}
