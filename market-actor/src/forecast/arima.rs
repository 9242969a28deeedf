//! ARIMA(p, d, q) with its orders chosen.
//!
//! With w the series differenced d times, and mean mu (0 when d > 0):
//!
//! ```text
//! w_t - mu = phi_1 (w_(t-1) - mu) + .. + phi_p (w_(t-p) - mu) + e_t + theta_1 e_(t-1) + .. + theta_q e_(t-q)
//! ```
//!
//! 1. d: the least number of differences whose KPSS statistic is below its 5 % point (`arima/order.rs`).
//! 2. For each p and q up to their limits, parameters of the greatest exact Gaussian likelihood (`arima/likelihood.rs`) by the
//!    simplex method, from sample partial autocorrelations on; stationary and invertible by construction.
//! 3. The p and q of the least AICc = -2 ln L + 2 k + 2 k (k + 1) / (n - k - 1), k parameters with the variance (Hurvich
//!    and Tsai, Biometrika 76, 1989); of equals the fewest parameters.
//! 4. Forecasts by the recursion above with e = 0 ahead, summed up d times (Box and Jenkins, Time Series Analysis).
//!
//! Hyndman and Khandakar, "Automatic time series forecasting: the forecast package for R", Journal of Statistical
//! Software 27(3), 2008, order the steps so; we try every pair of orders instead of a path through them, and no drift.

use super::residual::PointModel;

mod likelihood;
mod order;

pub use likelihood::{Arma, Likelihood};
pub use order::{Fit, kpss};

/// Which orders are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orders {
    /// Most values looked back to.
    pub p: usize,
    /// Most differences.
    pub d: usize,
    /// Most errors looked back to.
    pub q: usize,
}

/// ARIMA whose orders and parameters are fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arima {
    /// Which orders are tried.
    pub orders: Orders,
    /// Most values that it is fitted on.
    pub window: usize,
}

impl Default for Arima {
    fn default() -> Self {
        Self {
            orders: Orders { p: 3, d: 1, q: 2 },
            window: 480,
        }
    }
}

impl Arima {
    /// Orders and parameters for a series.
    #[must_use]
    pub fn fit(&self, series: &[f64]) -> Fit {
        let begin = series.len().saturating_sub(self.window);
        order::choose(&series[begin..], self.orders)
    }
}

impl PointModel for Arima {
    fn name(&self) -> String {
        let Orders { p, d, q } = self.orders;
        format!("arima(<={p},<={d},<={q})")
    }

    fn paths(
        &self,
        series: &[f64],
        fitted_on: usize,
        points: &[usize],
        horizon: usize,
    ) -> Vec<Vec<f64>> {
        let fit = self.fit(&series[..fitted_on]);
        paths(&fit, series, points, horizon)
    }
}

/// Forecasts with given orders and parameters.
fn paths(fit: &Fit, series: &[f64], points: &[usize], horizon: usize) -> Vec<Vec<f64>> {
    // levels[k] is the series differenced k times; its value at t is at index t - k.
    let mut levels = vec![series.to_vec()];
    for k in 0..fit.d {
        levels.push(differences(&levels[k]));
    }
    let stationary = &levels[fit.d];
    let errors = fit.arma.errors(stationary);
    let path = |point: &usize| {
        let Some(known) = point.checked_sub(fit.d).filter(|known| *known > 0) else {
            return vec![series[point - 1]; horizon];
        };
        let mut path = fit
            .arma
            .ahead(&stationary[..known], &errors[..known], horizon);
        for k in (0..fit.d).rev() {
            let mut sum = levels[k][point - k - 1];
            for value in &mut path {
                sum += *value;
                *value = sum;
            }
        }
        path
    };
    points.iter().map(path).collect()
}

/// From each value to the next.
fn differences(series: &[f64]) -> Vec<f64> {
    series.windows(2).map(|two| two[1] - two[0]).collect()
}

#[cfg(test)]
mod tests;
