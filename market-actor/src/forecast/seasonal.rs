//! As at this time of day: f_o(h) = y_(o + h - m k), with period m and the least k that makes it known (seasonal naive;
//! Hyndman and Athanasopoulos, Forecasting: Principles and Practice, 3rd ed., section 5.2). Before a whole period was
//! seen: the last value.

use super::residual::PointModel;

/// The value of one period ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeasonalNaive {
    /// Slots of a period, such as those of a day; 0 is taken as 1.
    pub period: usize,
}

impl PointModel for SeasonalNaive {
    fn name(&self) -> String {
        format!("seasonal-naive({})", self.period)
    }

    fn paths(&self, series: &[f64], _: usize, points: &[usize], horizon: usize) -> Vec<Vec<f64>> {
        let period = self.period.max(1);
        let value = |point: usize, ahead: usize| {
            let back = period * (ahead / period + 1);
            let at = (point + ahead).checked_sub(back);
            series[at.unwrap_or(point - 1)]
        };
        let path = |point: &usize| (0..horizon).map(|ahead| value(*point, ahead)).collect();
        points.iter().map(path).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_ago() {
        let model = SeasonalNaive { period: 3 };
        let paths = model.paths(&[1.0, 2.0, 3.0, 4.0], 4, &[2, 4], 5);
        assert_eq!(paths[0], [2.0, 1.0, 2.0, 2.0, 1.0]);
        assert_eq!(paths[1], [2.0, 3.0, 4.0, 2.0, 3.0]);
    }
}
