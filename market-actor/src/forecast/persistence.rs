//! What is, stays: f_o(h) = y_o. The forecaster that every other one has to beat.

use super::residual::PointModel;

/// The last value, for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Persistence;

impl PointModel for Persistence {
    fn name(&self) -> String {
        "persistence".to_owned()
    }

    fn paths(&self, series: &[f64], _: usize, points: &[usize], horizon: usize) -> Vec<Vec<f64>> {
        let path = |at: &usize| vec![series[at - 1]; horizon];
        points.iter().map(path).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_stays() {
        let paths = Persistence.paths(&[1.0, 5.0], 2, &[1, 2], 2);
        assert_eq!(paths, [[1.0, 1.0], [5.0, 5.0]]);
    }
}
