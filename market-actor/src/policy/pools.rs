//! Several pools at once: in which zone, region or cloud a job is, and when a move pays.
//!
//! A job is in one *site* at a time, since machines far apart cannot share an optimizer step; a site may join the pools of
//! several zones. A move costs a share of the slot (restart, load) and the egress of the job's state:
//!
//! ```text
//! W_t(q, m, i) = max( max over n of  -cost_{q,t}(n) + W_{t+1}(q, n, i - share(m, n) H(n)),
//!                     max over q' != q, n > 0 of  -egress(q, q') - cost_{q',t}(n) + W_{t+1}(q', n, i - move * H(n)) )
//! ```
//!
//! The second line does not depend on m, so P sites cost P times one plus `P^2` maxima. A job that has not begun has no state:
//! its first site is free.

use serde::{Deserialize, Serialize};
use shared::units::MicroUsd;

use super::lattice::{Lattice, Layer, Rounding, Tariff, best};
use super::tariff::tariffs;
use crate::problem::Problem;
use crate::problem::offer::{Held, Offer};
use crate::utility::{Finish, value};

/// What a move from one site to another takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// Share of the slot that still computes.
    pub share: f64,
    /// Egress of the job's state.
    pub egress: MicroUsd,
}

/// A site with what it is expected to offer, this slot first.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Offers, one a slot.
    pub offers: Vec<Offer>,
}

/// Where a job is and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Index of its site.
    pub site: usize,
    /// Machines there.
    pub held: Held,
}

/// Where to be in this slot.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Site and machines.
    pub place: Place,
    /// Utility expected from here on, millionths of a dollar.
    pub expected: f64,
    /// What the best choice without a move is expected to earn less; nothing when this one is none or there is no
    /// other.
    pub gain_of_moving: Option<f64>,
}

/// Bytes of state times the price of a gibibyte, rounded up.
#[must_use]
pub fn egress(bytes: u64, per_gibibyte: MicroUsd) -> MicroUsd {
    let exact = (u128::from(bytes) * u128::from(per_gibibyte.0)).div_ceil(1 << 30);
    MicroUsd(u64::try_from(exact).unwrap_or(u64::MAX))
}

/// Zones of one place as one offer for `count` machines at most: a price by number is no single price, so the cheapest
/// pools are joined while they cost at most `tolerance` times the cheapest, at their mean price.
#[must_use]
pub fn joined(zones: &[Offer], most: u32, tolerance: f64) -> Option<Offer> {
    let mut order: Vec<&Offer> = zones
        .iter()
        .filter(|zone| zone.spot_available > 0)
        .collect();
    order.sort_by(|a, b| a.spot_price.total_cmp(&b.spot_price));
    let on_demand = zones
        .iter()
        .min_by(|a, b| a.on_demand_price.total_cmp(&b.on_demand_price))?;
    let Some(cheapest) = order.first() else {
        return Some(*on_demand);
    };
    let (mut count, mut money) = (0u32, 0.0);
    for zone in &order {
        if zone.spot_price > tolerance * cheapest.spot_price {
            break;
        }
        let more = zone.spot_available.min(most - count.min(most));
        count += more;
        money += f64::from(more) * zone.spot_price;
    }
    Some(Offer {
        spot_price: if count > 0 {
            money / f64::from(count)
        } else {
            cheapest.spot_price
        },
        spot_available: count,
        ..*on_demand
    })
}

/// All that a choice of a site depends on.
pub struct Survey<'a> {
    /// The job.
    pub problem: &'a Problem,
    /// Slots of it that are over.
    pub elapsed: u32,
    /// Work left.
    pub remaining: f64,
    /// Where it is; nothing before it has begun.
    pub at: Option<Place>,
    /// Where it could be.
    pub sites: &'a [Site],
    /// What a move from one site to another takes.
    pub moves: &'a dyn Fn(usize, usize) -> Move,
    /// What a unit of work left costs when all slots of the sites are over before the deadline, millionths of a dollar.
    pub ending: f64,
    /// Cells of the grid over the work left.
    pub cells: usize,
    /// What a move must be expected to earn, millionths of a dollar.
    pub hysteresis: f64,
}

impl std::fmt::Debug for Survey<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Survey")
            .field("elapsed", &self.elapsed)
            .field("remaining", &self.remaining)
            .field("at", &self.at)
            .field("sites", &self.sites.len())
            .finish_non_exhaustive()
    }
}

impl Survey<'_> {
    /// Decides site and machines for the first slot, exactly on the grid; nothing when there is no site or no slot.
    #[must_use]
    pub fn choose(&self) -> Option<Choice> {
        self.choose_of(|_| true)
    }

    /// The same of where the job is and those other places that `may` says.
    pub fn choose_of(&self, may: impl Fn(Place) -> bool) -> Option<Choice> {
        let slots = self.sites.iter().map(|site| site.offers.len()).min()?;
        let left = self.problem.soft_deadline.saturating_sub(self.elapsed);
        let slots = slots.min(left as usize);
        if slots == 0 {
            return None;
        }
        let remaining = self.remaining.max(f64::MIN_POSITIVE);
        let lattice = Lattice::new(self.problem, remaining, self.cells, Rounding::Between);
        let costs: Vec<Vec<Tariff>> = self
            .sites
            .iter()
            .enumerate()
            .map(|(site, own)| {
                let held = self.at.filter(|place| place.site == site);
                let held = held.map(|place| place.held);
                tariffs(self.problem, &lattice, held, &own.offers[..slots])
            })
            .collect();
        let next = self.after_first(&lattice, &costs, slots);
        let options: Vec<Choice> = (0..self.sites.len())
            .map(|site| self.option(&lattice, &next[site], &costs[site][0], site))
            .collect();
        let stays = |choice: &Choice| self.at.is_none_or(|place| place.site == choice.place.site);
        let stay = self
            .at
            .and_then(|place| options.get(place.site))
            .map(|stay| stay.expected);
        let worth =
            |choice: &Choice| choice.expected - if stays(choice) { 0.0 } else { self.hysteresis };
        let mut open = options.iter().filter(|one| stays(one) || may(one.place));
        let mut found = *open.next()?;
        for option in open {
            if worth(option) > worth(&found) {
                found = *option;
            }
        }
        if !stays(&found) {
            found.gain_of_moving = stay.map(|stay| found.expected - stay);
        }
        Some(found)
    }

    /// What each site is worth after the first slot.
    fn after_first(&self, lattice: &Lattice, costs: &[Vec<Tariff>], slots: usize) -> Vec<Layer> {
        let problem = self.problem;
        let end = self.elapsed + slots as u32;
        let done = value(problem, end);
        let last = |site: &Site| {
            let last = site.offers[slots - 1];
            let finish = Finish::new(problem, last.on_demand_price, last.on_demand_available);
            lattice.layer(done, |held, left| {
                if end >= problem.soft_deadline {
                    finish.worth(end, left, held)
                } else {
                    done - left * self.ending
                }
            })
        };
        let mut next: Vec<Layer> = self.sites.iter().map(last).collect();
        for slot in (1..slots).rev() {
            next = (0..next.len())
                .map(|from| {
                    let mut layer = lattice.before(&next[from], &costs[from][slot], done);
                    for to in (0..next.len()).filter(|to| *to != from) {
                        let way = (self.moves)(from, to);
                        let fee = way.egress.0 as f64;
                        lattice.arrive(&mut layer, &next[to], &costs[to][slot], way.share, fee);
                    }
                    layer
                })
                .collect();
        }
        next
    }

    /// The best that a site offers in the first slot.
    fn option(&self, lattice: &Lattice, next: &Layer, cost: &Tariff, site: usize) -> Choice {
        let (worths, before) = match self.at {
            Some(place) if place.site != site => {
                let way = (self.moves)(place.site, site);
                let mut worths = lattice.arrivals(next, cost, way.share, self.remaining);
                for worth in &mut worths {
                    *worth -= way.egress.0 as f64;
                }
                (worths, 0)
            }
            at => {
                let before = at.map_or(0, |place| place.held.count());
                (lattice.worths(next, cost, before, self.remaining), before)
            }
        };
        let (action, _) = best(lattice.actions(), &worths, before);
        let held = self.sites[site].offers[0].fill_most(lattice.actions()[action]);
        Choice {
            place: Place { site, held },
            expected: worths[action],
            gain_of_moving: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::tests::trial;
    use crate::problem::throughput::Throughput;

    fn offer(price: f64, available: u32) -> Offer {
        Offer {
            spot_price: price * 1e6,
            spot_available: available,
            on_demand_price: 1e6,
            on_demand_available: None,
        }
    }

    fn site(slots: &[(f64, u32)]) -> Site {
        Site {
            offers: slots.iter().map(|&(p, n)| offer(p, n)).collect(),
        }
    }

    fn decide(here: &[(f64, u32)], there: &[(f64, u32)], egress: u64, hysteresis: f64) -> Choice {
        let mut problem = trial(0.5, Throughput::per_machine(1.0));
        problem.soft_deadline = 6;
        problem.hard_deadline = 9;
        problem.work = 62.0;
        let at = Place {
            site: 0,
            held: Held {
                spot: 8,
                on_demand: 0,
            },
        };
        let way = Move {
            share: 0.5,
            egress: MicroUsd(egress),
        };
        let sites = [site(here), site(there)];
        let survey = Survey {
            problem: &problem,
            elapsed: 0,
            remaining: 62.0,
            at: Some(at),
            sites: &sites,
            moves: &|_, _| way,
            ending: 1e6,
            cells: 200,
            hysteresis,
        };
        survey.choose().unwrap()
    }

    #[test]
    fn a_move_pays_only_when_the_saving_covers_it() {
        let (cheap, dear) = ([(0.2, 12); 6], [(0.6, 12); 6]);
        let moved = decide(&dear, &cheap, 1_000_000, 0.0);
        assert_eq!(moved.place.site, 1);
        assert!(moved.gain_of_moving.unwrap() > 3e6);
        assert_eq!(decide(&dear, &cheap, 30_000_000, 0.0).place.site, 0);
        assert_eq!(decide(&dear, &cheap, 1_000_000, 20e6).place.site, 0);
        assert_eq!(decide(&cheap, &dear, 0, 0.0).place.site, 0);
    }

    #[test]
    fn a_dip_elsewhere_is_not_chased() {
        let here = [(0.30, 12); 6];
        let dip = [
            (0.25, 12),
            (0.9, 12),
            (0.9, 12),
            (0.9, 12),
            (0.9, 12),
            (0.9, 12),
        ];
        assert_eq!(decide(&here, &dip, 100_000, 0.0).place.site, 0);
        // A pool that is about to be empty is left in time.
        let ends = [(0.3, 12), (0.3, 0), (0.3, 0), (0.3, 0), (0.3, 0), (0.3, 0)];
        let choice = decide(&ends, &[(0.3, 12); 6], 100_000, 0.0);
        assert!(choice.expected > decide(&ends, &ends, 100_000, 0.0).expected + 5e6);
    }

    #[test]
    fn zones_join_while_prices_are_near() {
        let zones = [offer(0.3, 4), offer(0.31, 2), offer(0.9, 9)];
        let joined = joined(&zones, 12, 1.1).unwrap();
        assert_eq!(joined.spot_available, 6);
        assert!((joined.spot_price - (0.3 * 4.0 + 0.31 * 2.0) / 6.0 * 1e6).abs() < 1e-6);
        assert_eq!(super::joined(&zones, 3, 9.0).unwrap().spot_available, 3);
        assert!(super::joined(&[], 3, 1.0).is_none());
        assert_eq!(
            super::joined(&[offer(0.3, 0)], 3, 1.0)
                .unwrap()
                .spot_available,
            0
        );
    }

    #[test]
    fn egress_is_rounded_up() {
        assert_eq!(egress(1 << 30, MicroUsd(90_000)), MicroUsd(90_000));
        assert_eq!(egress(1, MicroUsd(90_000)), MicroUsd(1));
        assert_eq!(egress(0, MicroUsd(90_000)), MicroUsd(0));
    }
}
