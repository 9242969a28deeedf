//! Which orders an ARIMA has, and its parameters for them.
//!
//! KPSS: with residuals u of the mean, their sums S_t, and the long-run variance s2 with Bartlett weights over
//! l = floor(4 (n / 100)^(1/4)) lags, the statistic is sum S_t^2 / (n^2 s2); above 0.463 the series is taken as not
//! stationary, at 5 % (Kwiatkowski, Phillips, Schmidt and Shin, Journal of Econometrics 54, 1992).
//!
//! Parameters are searched without bounds: x / sqrt(1 + x^2) is a partial autocorrelation, and the Durbin-Levinson
//! recursion turns p of these into the phi of a stationary process, or with the other sign into the theta of an
//! invertible one (Monahan, Biometrika 71, 1984).

use super::likelihood::Arma;
use super::{Orders, differences};
use crate::forecast::simplex::{Limits, minimise};

/// The 5 % point of the KPSS statistic about a mean.
const KPSS_5_PERCENT: f64 = 0.463;
/// Fewer values than this have no orders: what is, stays.
const LEAST_VALUES: usize = 12;

const LIMITS: Limits = Limits {
    evaluations: 250,
    tolerance: 1e-7,
    step: 0.3,
};

/// A fitted ARIMA.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Differences.
    pub d: usize,
    /// What the differenced series follows.
    pub arma: Arma,
    /// Natural logarithm of the likelihood of the differenced series; 0 where it has no variance.
    pub log_likelihood: f64,
    /// What the orders were chosen by; 0 where there was no choice.
    pub aicc: f64,
}

impl Fit {
    /// What is, stays.
    const fn walk() -> Self {
        Self {
            d: 1,
            arma: Arma::noise(0.0),
            log_likelihood: 0.0,
            aicc: 0.0,
        }
    }
}

pub(super) fn choose(series: &[f64], limits: Orders) -> Fit {
    if series.len() < LEAST_VALUES {
        return Fit::walk();
    }
    let mut stationary = series.to_vec();
    let mut d = 0;
    while d < limits.d && kpss(&stationary) > KPSS_5_PERCENT {
        stationary = differences(&stationary);
        d += 1;
    }
    let count = stationary.len() as f64;
    let mean = if d == 0 {
        stationary.iter().sum::<f64>() / count
    } else {
        0.0
    };
    let squares: f64 = stationary.iter().map(|w| (w - mean).powi(2)).sum();
    let scale = (squares / count).sqrt();
    if scale <= 1e-12 * mean.abs().max(1.0) {
        return Fit {
            d,
            arma: Arma::noise(mean),
            ..Fit::walk()
        };
    }
    let scaled: Vec<f64> = stationary.iter().map(|w| (w - mean) / scale).collect();
    let mut best: Option<Fit> = None;
    for p in 0..=limits.p {
        for q in 0..=limits.q {
            let parameters = (p + q + usize::from(d == 0) + 1) as f64;
            if count - parameters - 1.0 <= 0.0 {
                continue;
            }
            let Some((arma, log)) = fit(&scaled, p, q, d == 0) else {
                continue;
            };
            // Back from unit scale: every value's density is divided by the scale.
            let log = log - count * scale.ln();
            let correction = 2.0 * parameters * (parameters + 1.0) / (count - parameters - 1.0);
            let aicc = -2.0 * log + 2.0 * parameters + correction;
            let fewest = best.as_ref().is_none_or(|known| aicc < known.aicc - 1e-9);
            if fewest {
                let arma = Arma {
                    mean: mean + scale * arma.mean,
                    ..arma
                };
                best = Some(Fit {
                    d,
                    arma,
                    log_likelihood: log,
                    aicc,
                });
            }
        }
    }
    best.unwrap_or_else(Fit::walk)
}

/// Parameters of the greatest likelihood, and its logarithm.
fn fit(series: &[f64], p: usize, q: usize, with_mean: bool) -> Option<(Arma, f64)> {
    let arma = |free: &[f64]| Arma {
        phi: of_partial(&free[..p]),
        theta: of_partial(&free[p..p + q]).iter().map(|w| -w).collect(),
        mean: if with_mean { free[p + q] } else { 0.0 },
    };
    let mut start: Vec<f64> = partial_autocorrelations(series, p)
        .into_iter()
        .map(|r| r.clamp(-0.97, 0.97))
        .map(|r| r / (1.0 - r * r).sqrt())
        .collect();
    start.resize(p + q + usize::from(with_mean), 0.0);
    let unlikely = |free: &[f64]| {
        let likelihood = arma(free).likelihood(series);
        likelihood.map_or(f64::INFINITY, |likelihood| -likelihood.log)
    };
    let (free, least) = minimise(&start, LIMITS, unlikely);
    least.is_finite().then(|| (arma(&free), -least))
}

/// Weights of a stationary process from numbers without bounds.
fn of_partial(free: &[f64]) -> Vec<f64> {
    let mut weights: Vec<f64> = Vec::new();
    for x in free {
        let partial = x / (1.0 + x * x).sqrt();
        let before = weights.clone();
        for (weight, mirrored) in weights.iter_mut().zip(before.iter().rev()) {
            *weight -= partial * mirrored;
        }
        weights.push(partial);
    }
    weights
}

/// Sample partial autocorrelations 1 to `most` of a series about 0, by the Durbin-Levinson recursion.
fn partial_autocorrelations(series: &[f64], most: usize) -> Vec<f64> {
    let product = |lag: usize| -> f64 {
        let pairs = series.iter().zip(series.iter().skip(lag));
        pairs.map(|(a, b)| a * b).sum()
    };
    let whole = product(0).max(f64::MIN_POSITIVE);
    let correlations: Vec<f64> = (1..=most).map(|lag| product(lag) / whole).collect();
    let mut weights: Vec<f64> = Vec::new();
    let mut partials = Vec::new();
    let mut rest = 1.0;
    for (lag, correlation) in correlations.iter().enumerate() {
        let explained: f64 = weights
            .iter()
            .zip(correlations[..lag].iter().rev())
            .map(|(w, r)| w * r)
            .sum();
        let partial = (correlation - explained) / f64::max(rest, 1e-12);
        let before = weights.clone();
        for (weight, mirrored) in weights.iter_mut().zip(before.iter().rev()) {
            *weight -= partial * mirrored;
        }
        weights.push(partial);
        partials.push(partial);
        rest *= 1.0 - partial * partial;
    }
    partials
}

/// The KPSS statistic of a series about its mean; 0 for one without variance.
#[must_use]
pub fn kpss(series: &[f64]) -> f64 {
    let count = series.len() as f64;
    if series.is_empty() {
        return 0.0;
    }
    let mean = series.iter().sum::<f64>() / count;
    let rest: Vec<f64> = series.iter().map(|value| value - mean).collect();
    let covariance = |lag: usize| -> f64 {
        let pairs = rest.iter().zip(rest.iter().skip(lag));
        pairs.map(|(a, b)| a * b).sum::<f64>() / count
    };
    let lags = (4.0 * (count / 100.0).powf(0.25)) as usize;
    let mut variance = covariance(0);
    for lag in 1..=lags {
        let weight = 1.0 - lag as f64 / (lags + 1) as f64;
        variance += 2.0 * weight * covariance(lag);
    }
    if variance <= 1e-24 * mean.abs().max(1.0) {
        return 0.0;
    }
    let mut sum = 0.0;
    let mut squares = 0.0;
    for value in &rest {
        sum += value;
        squares += sum * sum;
    }
    squares / (count * count * variance)
}
