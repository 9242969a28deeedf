//! What a policy is told of the slots to come, and the foresights that policies are judged with.
//!
//! Perfect foresight and its noisy form see the market's future: only a back-test can have them. Persistence and AR(1)
//! see the past alone and are the baselines that a forecaster must beat by utility.
//!
//! Every forecaster of [`crate::forecast`] becomes a foresight by [`outlook`].
//!
//! AR(1) on each series x (price, capacity), fitted by least squares over the last slots:
//!
//! ```text
//! x_{t+h} = m + phi^h (x_t - m) + e_h,      var e_h = s^2 (1 - phi^{2h}) / (1 - phi^2)
//! ```

pub mod outlook;

use serde::{Deserialize, Serialize};
use shared::random::{Domain, Stream};

use crate::market::Market;
use crate::problem::decision::Situation;
use crate::problem::offer::Offer;

/// Standard normal quantile of 10 % and 90 %.
const TENTH: f64 = 1.281_551_565_5;

/// A number that is not known: its mean and two quantiles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Undershot one time in ten.
    pub low: f64,
    /// Mean, or the best single guess.
    pub mean: f64,
    /// Overshot one time in ten.
    pub high: f64,
}

/// What is expected of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// Of one spot machine for the slot, millionths of a dollar.
    pub spot_price: Spread,
    /// Spot machines that live through it.
    pub spot_available: Spread,
    /// Of one on-demand machine for the slot, millionths of a dollar.
    pub on_demand_price: f64,
    /// On-demand machines; nothing when there is no end of them.
    pub on_demand_available: Option<u32>,
}

/// Sees slots ahead.
pub trait Foresight {
    /// The `ahead` slots after the situation's own, nearest first. It may be fewer, where nothing is known.
    fn look(&self, situation: &Situation<'_>, ahead: u32) -> Vec<View>;
}

/// The future itself.
#[derive(Clone, Copy, Debug)]
pub struct Perfect<'a> {
    /// The market that the job lives in.
    pub market: &'a Market,
}

/// The future with independent noise on every slot of every look.
#[derive(Clone, Copy, Debug)]
pub struct Noisy<'a> {
    /// The market that the job lives in.
    pub market: &'a Market,
    /// Half the width of the uniform noise: as a share of the on-demand price, and of the pool's size.
    pub error: f64,
    /// Greatest capacity of the pool.
    pub size: u32,
    /// Seed.
    pub seed: u64,
}

/// All stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Persistence;

/// Both series drift back to their means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Autoregression {
    /// Slots of the past that it is fitted on.
    pub memory: u32,
}

impl Spread {
    /// A number that is known.
    #[must_use]
    pub const fn sure(value: f64) -> Self {
        Self {
            low: value,
            mean: value,
            high: value,
        }
    }

    /// The value at a caution from 0 (mean) to 1 (the low quantile); below 0 towards the high one.
    #[must_use]
    pub fn cautious(&self, caution: f64) -> f64 {
        if caution >= 0.0 {
            self.mean + caution.min(1.0) * (self.low - self.mean)
        } else {
            self.mean + (-caution).min(1.0) * (self.high - self.mean)
        }
    }
}

impl View {
    /// The view as if it were to happen, at a caution from 0 (means) to 1 (low capacity).
    #[must_use]
    pub fn offer(&self, caution: f64) -> Offer {
        Offer {
            spot_price: self.spot_price.mean.max(0.0),
            spot_available: self.spot_available.cautious(caution).max(0.0).round() as u32,
            on_demand_price: self.on_demand_price,
            on_demand_available: self.on_demand_available,
        }
    }

    fn known(offer: &Offer) -> Self {
        Self {
            spot_price: Spread::sure(offer.spot_price),
            spot_available: Spread::sure(f64::from(offer.spot_available)),
            on_demand_price: offer.on_demand_price,
            on_demand_available: offer.on_demand_available,
        }
    }
}

impl Foresight for Perfect<'_> {
    fn look(&self, situation: &Situation<'_>, ahead: u32) -> Vec<View> {
        future(self.market, situation, ahead)
    }
}

/// The next slots of the market, as far as there are any.
fn future(market: &Market, situation: &Situation<'_>, ahead: u32) -> Vec<View> {
    let from = (situation.at + 1).min(market.slots.len());
    let to = (from + ahead as usize).min(market.slots.len());
    market.slots[from..to]
        .iter()
        .map(|slot| View::known(&Offer::of(slot, market.slot)))
        .collect()
}

impl Foresight for Noisy<'_> {
    fn look(&self, situation: &Situation<'_>, ahead: u32) -> Vec<View> {
        let mut views = future(self.market, situation, ahead);
        let stream = Stream::new(self.seed, Domain::Policy, [situation.at as u32, 0, 1]);
        for (ahead, view) in views.iter_mut().enumerate() {
            let draw = |index: u32| 2.0 * stream.uniform64(2 * ahead as u32 + index) - 1.0;
            let price = view.spot_price.mean + self.error * draw(0) * view.on_demand_price;
            let size = f64::from(self.size);
            let count = view.spot_available.mean + self.error * draw(1) * size;
            view.spot_price = Spread::sure(price.max(0.0));
            view.spot_available = Spread::sure(count.round().clamp(0.0, size));
        }
        views
    }
}

impl Foresight for Persistence {
    fn look(&self, situation: &Situation<'_>, ahead: u32) -> Vec<View> {
        vec![View::known(&situation.offer); ahead as usize]
    }
}

impl Foresight for Autoregression {
    fn look(&self, situation: &Situation<'_>, ahead: u32) -> Vec<View> {
        let from = situation.past.len().saturating_sub(self.memory as usize);
        let (mut prices, mut counts) = (Vec::new(), Vec::new());
        for slot in &situation.past[from..] {
            let offer = Offer::of(slot, situation.length);
            prices.push(offer.spot_price);
            counts.push(f64::from(offer.spot_available));
        }
        prices.push(situation.offer.spot_price);
        counts.push(f64::from(situation.offer.spot_available));
        let (price, count) = (Drift::fit(&prices), Drift::fit(&counts));
        let top = counts.iter().copied().fold(0.0, f64::max);
        (1..=ahead)
            .map(|steps| View {
                spot_price: price.after(situation.offer.spot_price, steps, f64::INFINITY),
                spot_available: count.after(counts[counts.len() - 1], steps, top),
                on_demand_price: situation.offer.on_demand_price,
                on_demand_available: situation.offer.on_demand_available,
            })
            .collect()
    }
}

/// AR(1) of one series.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Drift {
    mean: f64,
    phi: f64,
    /// Variance of a step.
    variance: f64,
}

impl Drift {
    fn fit(series: &[f64]) -> Self {
        let mean = series.iter().sum::<f64>() / series.len().max(1) as f64;
        let (mut along, mut square) = (0.0, 0.0);
        for pair in series.windows(2) {
            along += (pair[0] - mean) * (pair[1] - mean);
            square += (pair[0] - mean).powi(2);
        }
        // A series without movement, or one too short to tell, persists.
        let phi = if square > 0.0 && series.len() > 2 {
            (along / square).clamp(-0.999, 0.999)
        } else {
            1.0
        };
        let residual: f64 = series
            .windows(2)
            .map(|pair| (pair[1] - mean - phi * (pair[0] - mean)).powi(2))
            .sum();
        Self {
            mean,
            phi,
            variance: residual / series.len().saturating_sub(1).max(1) as f64,
        }
    }

    fn after(&self, now: f64, steps: u32, top: f64) -> Spread {
        let decay = self.phi.powi(steps as i32);
        let mean = self.mean + decay * (now - self.mean);
        let square = self.phi * self.phi;
        let spread = if square < 1.0 {
            self.variance * (1.0 - decay * decay) / (1.0 - square)
        } else {
            self.variance * f64::from(steps)
        };
        let width = TENTH * spread.sqrt();
        Spread {
            low: (mean - width).clamp(0.0, top),
            mean: mean.clamp(0.0, top),
            high: (mean + width).clamp(0.0, top),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drift_finds_what_made_the_series() {
        let stream = Stream::new(3, Domain::Policy, [0; 3]);
        let mut series = vec![10.0];
        for at in 0..4000 {
            let last: f64 = series[series.len() - 1];
            series.push(10.0 + 0.8 * (last - 10.0) + f64::from(stream.normal(at)));
        }
        let drift = Drift::fit(&series);
        assert!((drift.phi - 0.8).abs() < 0.03, "{drift:?}");
        assert!((drift.mean - 10.0).abs() < 0.3 && (drift.variance - 1.0).abs() < 0.1);
        let far = drift.after(30.0, 40, f64::INFINITY);
        assert!((far.mean - 10.0).abs() < 0.5);
        assert!(
            (far.high - far.low - 2.0 * TENTH / 0.6).abs() < 0.3,
            "{far:?}"
        );
    }

    #[test]
    fn a_flat_series_persists() {
        let drift = Drift::fit(&[4.0; 9]);
        assert_eq!(drift.after(4.0, 7, 16.0), Spread::sure(4.0));
        assert_eq!(Drift::fit(&[7.0]).after(7.0, 3, 16.0).mean, 7.0);
    }

    #[test]
    fn caution_moves_towards_the_low_quantile() {
        let spread = Spread {
            low: 2.0,
            mean: 6.0,
            high: 8.0,
        };
        assert_eq!(spread.cautious(0.0), 6.0);
        assert_eq!(spread.cautious(0.5), 4.0);
        assert_eq!(spread.cautious(1.0), 2.0);
        assert_eq!(spread.cautious(-1.0), 8.0);
    }
}
