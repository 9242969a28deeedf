//! Forecasts as foresight: what a forecaster of [`crate::forecast`] thinks, in the words of a policy.
//!
//! A capacity becomes a [`Spread`] of its 10 % quantile, its median or mean, and its 90 % quantile; so does a price. Prices
//! of an hour become prices of a slot. The present slot is the situation's own, observed; a forecaster sees the past and it,
//! never more (FO-1 in [`crate::forecast::record`]).

use serde::{Deserialize, Serialize};

use super::{Foresight, Spread, View};
use crate::forecast::record::Outlooks;
use crate::forecast::{Forecast, Outlook, SlotOutlook};
use crate::market::Slot;
use crate::problem::decision::Situation;
use crate::problem::offer::{hourly, slot_price};
use shared::units::Micros;

/// Which number stands for a distribution where only one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guess {
    /// As often below as above.
    #[default]
    Median,
    /// The expected one. Of a price, of which three quantiles are known, .3, .4 and .3 of them (Swanson's rule).
    Mean,
}

/// Asks a forecaster anew each slot.
#[derive(Clone, Copy)]
pub struct Asking<'a> {
    /// Thinks.
    pub forecaster: &'a dyn Forecast,
    /// Slots ahead that it is asked for, also where fewer are needed: what it thinks may depend on it.
    pub horizon: usize,
    /// Which number is taken.
    pub guess: Guess,
}

/// Reads what was thought at each slot of the market.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    /// What was thought.
    pub outlooks: &'a Outlooks,
    /// Which number is taken.
    pub guess: Guess,
}

impl std::fmt::Debug for Asking<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asking")
            .field("horizon", &self.horizon)
            .field("guess", &self.guess)
            .finish_non_exhaustive()
    }
}

impl Foresight for Asking<'_> {
    fn look(&self, situation: &Situation<'_>, ahead: u32) -> Vec<View> {
        let offer = &situation.offer;
        let mut seen = situation.past.to_vec();
        seen.push(Slot {
            spot_price: hourly(offer.spot_price, situation.length),
            spot_available: offer.spot_available,
            on_demand_price: hourly(offer.on_demand_price, situation.length),
            on_demand_available: offer.on_demand_available,
        });
        let outlook = self
            .forecaster
            .outlook(&seen, self.horizon.max(ahead as usize));
        views(&outlook, ahead, self.guess, situation)
    }
}

impl Foresight for Recorded<'_> {
    fn look(&self, situation: &Situation<'_>, ahead: u32) -> Vec<View> {
        let outlook = self.outlooks.at(situation.at);
        outlook.map_or_else(Vec::new, |outlook| {
            views(outlook, ahead, self.guess, situation)
        })
    }
}

/// The first `ahead` slots of an outlook. On-demand stays as it is.
fn views(outlook: &Outlook, ahead: u32, guess: Guess, situation: &Situation<'_>) -> Vec<View> {
    let slots = outlook.slots.iter().take(ahead as usize);
    slots
        .map(|slot| View {
            spot_price: price(slot, guess, situation.length),
            spot_available: capacity(slot, guess),
            on_demand_price: situation.offer.on_demand_price,
            on_demand_available: situation.offer.on_demand_available,
        })
        .collect()
}

fn price(slot: &SlotOutlook, guess: Guess, length: Micros) -> Spread {
    let quantiles = &slot.spot_price;
    let of = |hourly| slot_price(hourly, length).0 as f64;
    let (low, median, high) = (of(quantiles.p10), of(quantiles.p50), of(quantiles.p90));
    let mean = match guess {
        Guess::Median => median,
        Guess::Mean => 0.3 * low + 0.4 * median + 0.3 * high,
    };
    Spread { low, mean, high }
}

fn capacity(slot: &SlotOutlook, guess: Guess) -> Spread {
    let capacity = &slot.spot_available;
    let at = |share| f64::from(capacity.quantile(share));
    let mean = match guess {
        Guess::Median => at(0.5),
        Guess::Mean => capacity.mean(),
    };
    Spread {
        low: at(0.1),
        mean,
        high: at(0.9),
    }
}

#[cfg(test)]
mod tests {
    use shared::units::MicroUsd;

    use super::*;
    use crate::forecast::forecaster::Forecaster;
    use crate::forecast::{Capacity, Quantiles};
    use crate::market::{Market, Pool};
    use crate::problem::episode::Course;
    use crate::problem::offer::{Held, Offer};
    use crate::problem::tests::trial;
    use crate::problem::throughput::Throughput;

    const HALF_HOUR: Micros = Micros(1_800_000_000);

    fn market() -> Market {
        let slots = (0..40u64).map(|at| Slot {
            spot_price: MicroUsd(600_000 + 2 * (at * 37_000 % 500_000)),
            spot_available: (at * 7 % 13) as u32,
            on_demand_price: MicroUsd(2_000_000),
            on_demand_available: Some(9),
        });
        Market {
            pool: Pool {
                provider: "p".into(),
                region: String::new(),
                zone: String::new(),
                machine: "m".into(),
            },
            start: Micros(0),
            slot: HALF_HOUR,
            slots: slots.collect(),
        }
    }

    fn look(market: &Market, at: usize, foresight: &dyn Foresight) -> Vec<View> {
        let problem = trial(0.5, Throughput::per_machine(1.0));
        let situation = Situation {
            problem: &problem,
            slot: 0,
            progress: 0.0,
            held: Held::default(),
            offer: Course::plain(market, at).offer(0),
            at,
            past: &market.slots[..at],
            length: market.slot,
            losses: &[0],
            waited: 0,
        };
        foresight.look(&situation, 4)
    }

    #[test]
    fn what_is_asked_anew_and_what_was_recorded_are_one() {
        let market = market();
        let forecaster = Forecaster::ensemble(0);
        let outlooks = Outlooks::of(&market.slots, 30, 6, &forecaster);
        for guess in [Guess::Median, Guess::Mean] {
            let asking = Asking {
                forecaster: &forecaster,
                horizon: 6,
                guess,
            };
            let recorded = Recorded {
                outlooks: &outlooks,
                guess,
            };
            for at in [30, 35, 39] {
                let said = look(&market, at, &asking);
                assert_eq!(said, look(&market, at, &recorded));
                assert_eq!(said.len(), 4);
                assert_eq!(said[0].on_demand_available, Some(9));
            }
            assert_eq!(look(&market, 29, &recorded), []);
        }
    }

    #[test]
    fn no_foresight_of_a_forecast_looks_ahead() {
        let one = market();
        let mut two = market();
        for slot in &mut two.slots[36..] {
            slot.spot_available = 16 - slot.spot_available;
            slot.spot_price = MicroUsd(77_000);
        }
        let forecaster = Forecaster::ensemble(0);
        let record = |market: &Market| Outlooks::of(&market.slots, 33, 4, &forecaster);
        let (first, second) = (record(&one), record(&two));
        let says = |outlooks, market, at| {
            let guess = Guess::Mean;
            look(market, at, &Recorded { outlooks, guess })
        };
        for at in [33, 35] {
            assert_eq!(says(&first, &one, at), says(&second, &two, at));
        }
        // It does listen: once what differs is seen, it says something else.
        assert_ne!(says(&first, &one, 36), says(&second, &two, 36));
    }

    #[test]
    fn numbers_are_those_of_the_distribution() {
        let slot = SlotOutlook {
            spot_price: Quantiles {
                p10: MicroUsd(200_000),
                p50: MicroUsd(400_000),
                p90: MicroUsd(1_000_000),
            },
            spot_available: Capacity::of_weighted([(0.0, 0.5), (10.0, 0.3), (12.0, 0.2)], 12),
            spot_lasting: Capacity::certain(0),
            on_demand_price: MicroUsd(2_000_000),
            on_demand_available: None,
        };
        let spread = capacity(&slot, Guess::Median);
        assert_eq!([spread.low, spread.mean, spread.high], [0.0, 0.0, 12.0]);
        assert!((capacity(&slot, Guess::Mean).mean - 5.4).abs() < 1e-9);
        let median = price(&slot, Guess::Median, HALF_HOUR);
        assert_eq!([median.low, median.mean, median.high], [1e5, 2e5, 5e5]);
        assert!((price(&slot, Guess::Mean, HALF_HOUR).mean - 2.6e5).abs() < 1e-6);
        let offer = Offer::of(&market().slots[3], HALF_HOUR);
        assert_eq!(
            hourly(offer.spot_price, HALF_HOUR),
            market().slots[3].spot_price
        );
    }
}
