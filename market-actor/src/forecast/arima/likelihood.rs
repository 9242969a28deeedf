//! The exact Gaussian likelihood of an ARMA process, by the Kalman filter.
//!
//! State of r = max(p, q + 1) numbers, with phi and theta filled up by zeros:
//!
//! ```text
//! a_(t+1) = T a_t + R e_(t+1),  w_t - mu = a_t[0],  T = phi in the first column, ones above the diagonal,
//! R = (1, theta_1, .., theta_(r-1))
//! ```
//!
//! (Harvey, Forecasting, Structural Time Series Models and the Kalman Filter, 1989, section 3.3; Gardner, Harvey and
//! Phillips, algorithm AS 154, Applied Statistics 29, 1980.) It begins with the stationary variance P = T P T' + R R', by
//! doubling: P <- P + A P A', A <- A A from A = T, P = R R'. With the variance of e taken at its best value s2 = mean of
//! v_t^2 / F_t over innovations v and their relative variances F:
//!
//! ```text
//! ln L = -n/2 (ln 2 pi s2 + 1) - 1/2 sum ln F_t
//! ```

/// An ARMA process about a mean.
#[derive(Clone, Debug, PartialEq)]
pub struct Arma {
    /// Weights of values before, the nearest first.
    pub phi: Vec<f64>,
    /// Weights of errors before, the nearest first.
    pub theta: Vec<f64>,
    /// What values are about.
    pub mean: f64,
}

/// How well a process explains a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likelihood {
    /// Natural logarithm.
    pub log: f64,
    /// Variance of the errors.
    pub variance: f64,
}

/// Relative change of an innovation's variance below which the filter is taken as settled.
const SETTLED: f64 = 1e-13;
/// Doublings after which a stationary variance that does not settle is given up.
const DOUBLINGS: usize = 60;

type Matrix = Vec<Vec<f64>>;

impl Arma {
    /// Only errors about a mean.
    #[must_use]
    pub const fn noise(mean: f64) -> Self {
        Self {
            phi: Vec::new(),
            theta: Vec::new(),
            mean,
        }
    }

    /// The likelihood of a series. Nothing for a process that is not stationary, or a series without variance.
    #[must_use]
    pub fn likelihood(&self, series: &[f64]) -> Option<Likelihood> {
        let size = self.phi.len().max(self.theta.len() + 1);
        let at = |part: &[f64], index: usize| part.get(index).copied().unwrap_or_default();
        let phi: Vec<f64> = (0..size).map(|i| at(&self.phi, i)).collect();
        let spread: Vec<f64> = (0..size)
            .map(|i| if i == 0 { 1.0 } else { at(&self.theta, i - 1) })
            .collect();
        let mut variance = stationary(&phi, &spread)?;
        let mut state = vec![0.0; size];
        let mut gain = vec![0.0; size];
        let mut relative: f64 = 0.0;
        let mut settled = false;
        let (mut squares, mut logs) = (0.0, 0.0);
        for value in series {
            if !settled {
                let before = relative;
                relative = variance[0][0];
                if !(relative.is_finite() && relative > 0.0) {
                    return None;
                }
                let moved = shift_rows(&phi, &variance);
                gain = moved.iter().map(|row| row[0] / relative).collect();
                settled = (relative - before).abs() <= SETTLED * relative && relative < 1.0 + 1e-9;
                variance = predicted(&phi, &spread, &moved, &gain, relative);
            }
            let innovation = value - self.mean - state[0];
            squares += innovation * innovation / relative;
            logs += relative.ln();
            let first = state[0];
            for i in 0..size {
                let next = if i + 1 < size { state[i + 1] } else { 0.0 };
                state[i] = phi[i] * first + next + gain[i] * innovation;
            }
        }
        let count = series.len() as f64;
        let variance = squares / count;
        let log = -0.5 * count * ((std::f64::consts::TAU * variance).ln() + 1.0) - 0.5 * logs;
        (variance > 0.0 && log.is_finite()).then_some(Likelihood { log, variance })
    }

    /// What each value differs by from the forecast one step before, errors before the first value taken as 0.
    #[must_use]
    pub fn errors(&self, series: &[f64]) -> Vec<f64> {
        let mut errors: Vec<f64> = Vec::with_capacity(series.len());
        for (at, value) in series.iter().enumerate() {
            let expected = self.next(&series[..at], &errors);
            errors.push(value - expected);
        }
        errors
    }

    /// The `horizon` values after a series whose errors are given.
    #[must_use]
    pub fn ahead(&self, series: &[f64], errors: &[f64], horizon: usize) -> Vec<f64> {
        let reach = self.phi.len().max(self.theta.len());
        let mut values = series[series.len().saturating_sub(reach)..].to_vec();
        let mut errors = errors[errors.len().saturating_sub(reach)..].to_vec();
        let known = values.len();
        for _ in 0..horizon {
            let next = self.next(&values, &errors);
            values.push(next);
            errors.push(0.0);
        }
        values.split_off(known)
    }

    /// The value after these.
    fn next(&self, values: &[f64], errors: &[f64]) -> f64 {
        let about = values.iter().rev().map(|value| value - self.mean);
        let from_values: f64 = self.phi.iter().zip(about).map(|(w, v)| w * v).sum();
        let from_errors: f64 = self
            .theta
            .iter()
            .zip(errors.iter().rev())
            .map(|(w, e)| w * e)
            .sum();
        self.mean + from_values + from_errors
    }
}

/// T X.
fn shift_rows(phi: &[f64], matrix: &Matrix) -> Matrix {
    let size = phi.len();
    let row = |i: usize| {
        let below = |j: usize| if i + 1 < size { matrix[i + 1][j] } else { 0.0 };
        (0..size)
            .map(|j| phi[i] * matrix[0][j] + below(j))
            .collect()
    };
    (0..size).map(row).collect()
}

/// The variance of the next state: T P T' + R R' - K K' F, where `moved` is T P and `gain` is K.
fn predicted(phi: &[f64], spread: &[f64], moved: &Matrix, gain: &[f64], relative: f64) -> Matrix {
    let size = phi.len();
    let entry = |i: usize, j: usize| {
        let right = if j + 1 < size { moved[i][j + 1] } else { 0.0 };
        moved[i][0] * phi[j] + right + spread[i] * spread[j] - gain[i] * gain[j] * relative
    };
    (0..size)
        .map(|i| (0..size).map(|j| entry(i, j)).collect())
        .collect()
}

/// P = T P T' + R R'.
fn stationary(phi: &[f64], spread: &[f64]) -> Option<Matrix> {
    let size = phi.len();
    let mut variance: Matrix = (0..size)
        .map(|i| (0..size).map(|j| spread[i] * spread[j]).collect())
        .collect();
    let mut power: Matrix = (0..size)
        .map(|i| {
            let entry = |j: usize| {
                let above = if j == i + 1 { 1.0 } else { 0.0 };
                if j == 0 { phi[i] + above } else { above }
            };
            (0..size).map(entry).collect()
        })
        .collect();
    for _ in 0..DOUBLINGS {
        let added = sandwich(&power, &variance);
        let mut greatest: f64 = 0.0;
        for (row, more) in variance.iter_mut().zip(&added) {
            for (sum, part) in row.iter_mut().zip(more) {
                *sum += part;
                greatest = greatest.max((part / (1.0 + sum.abs())).abs());
            }
        }
        if !greatest.is_finite() || greatest > 1e100 {
            return None;
        }
        if greatest < 1e-15 {
            return Some(variance);
        }
        power = product(&power, &power);
    }
    None
}

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    let size = a.len();
    let entry = |i: usize, j: usize| (0..size).map(|k| a[i][k] * b[k][j]).sum();
    (0..size)
        .map(|i| (0..size).map(|j| entry(i, j)).collect())
        .collect()
}

/// A X A'.
fn sandwich(a: &Matrix, x: &Matrix) -> Matrix {
    let left = product(a, x);
    let size = a.len();
    let entry = |i: usize, j: usize| (0..size).map(|k| left[i][k] * a[j][k]).sum();
    (0..size)
        .map(|i| (0..size).map(|j| entry(i, j)).collect())
        .collect()
}
