//! What the coordinator is told: machines that may be taken, what is offered, what jobs owe.
//!
//! What it knows is not told again, until it was not heard for a while: then it may be another, which knows nothing. What is offered
//! is told again now and then all the same: where that stays out, the coordinator takes it for gone.

use std::collections::{BTreeMap, BTreeSet};

use shared::ids::{JobId, NodeName};
use shared::units::Micros;
use shared::wire::market::{Ground, MarketTold, Money, Offered, Place};

use super::{Broker, Effect};
use crate::now::Now;

/// Digits of a rate that are told: each word of a rate that hardly changed would be one more.
const DIGITS: u32 = 2;

/// What is offered is told again after so long.
const AGAIN: Micros = Micros::of_millis(60_000);

/// What was told last.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    /// What is offered, and when that was told, by the steady clock.
    ground: Option<(Ground, Micros)>,
    bills: BTreeMap<JobId, Money>,
    /// Requests whose machines the coordinator may believe to be at risk, though nobody says so here.
    doubted: BTreeSet<NodeName>,
}

impl Broker {
    /// The coordinator may be another than it was, or what it was told last did not come to it.
    pub(super) fn forget_told(&mut self) {
        self.report = Report {
            doubted: self.custody.held().keys().cloned().collect(),
            ..Report::default()
        };
    }

    /// Tells of machines that may be taken, for as long as their nodes do not show it; and once of each that shows it though that
    /// was over before this process or while the coordinator was not heard. BR-3
    pub(super) fn tell_risks(&mut self, effects: &mut Vec<Effect>) {
        for (token, cause) in &self.at_risk {
            let node = self.node_of(token);
            let told = self.nodes.get(&node);
            if told.is_some_and(|told| told.alive && !told.at_risk) {
                let cause = Some(cause.clone());
                effects.push(Effect::Risk { node, cause });
            }
        }
        // Before its first look the provider has said nothing of risks.
        if self.sightings.is_empty() {
            return;
        }
        for token in std::mem::take(&mut self.report.doubted) {
            let node = self.node_of(&token);
            let told = self.nodes.get(&node);
            if told.is_some_and(|told| told.at_risk) && !self.at_risk.contains_key(&token) {
                effects.push(Effect::Risk { node, cause: None });
            }
        }
    }

    /// Tells what is offered and owed, where that is not what was told.
    pub(super) fn tell_market(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let mut told = MarketTold::default();
        let ground = self.ground();
        let known = self.report.ground.as_ref();
        let known = known.filter(|(_, at)| now.steady.since(*at) < AGAIN);
        if !ground.offers.is_empty() && known.is_none_or(|(known, _)| *known != ground) {
            self.report.ground = Some((ground.clone(), now.steady));
            told.ground = Some(ground);
        }
        for (job, money) in self.purse.owed() {
            if self.report.bills.get(&job) != Some(&money) {
                told.bills.push((job, money));
            }
        }
        let known = &mut self.report.bills;
        known.extend(told.bills.iter().copied());
        known.retain(|job, _| self.purse.knows(*job));
        if told != MarketTold::default() {
            effects.push(Effect::Tell(Box::new(told)));
        }
    }

    fn ground(&self) -> Ground {
        let offers = self.sightings.iter().map(|one| {
            let on_demand_price = one.on_demand_price.unwrap_or(self.terms.on_demand_price);
            Offered {
                place: Place {
                    region: one.pool.region.clone(),
                    zone: one.pool.zone.clone(),
                },
                spot_price: self.spot_price(one),
                spot_available: one.spot_available.unwrap_or(0),
                on_demand_price,
                on_demand_available: one.on_demand_available,
            }
        });
        let hour = Micros::of_millis(3_600_000);
        Ground {
            offers: offers.collect(),
            fewest: self.terms.fewest,
            most: self.terms.most,
            slot: self.terms.slot,
            tokens_per_machine_hour: rounded(self.meter.rate(hour) as u64),
        }
    }
}

/// The first digits of a number, upwards: no job is refused for a rate that was measured too low by that.
const fn rounded(number: u64) -> u64 {
    let mut unit = 1;
    while number / unit >= 10u64.pow(DIGITS) {
        unit *= 10;
    }
    number.div_ceil(unit).saturating_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_told_in_two_digits() {
        let of = [0, 7, 99, 100, 101, 12_345, 99_999];
        assert_eq!(of.map(rounded), [0, 7, 99, 100, 110, 13_000, 100_000]);
    }
}
