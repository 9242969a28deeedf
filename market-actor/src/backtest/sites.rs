//! One job that may be in any of several sites: zones, regions, clouds, each with a market of its own, all of the same slots.
//!
//! A [`Roamer`] asks [`Survey`] in each slot where to be, told what its foresight says of each site up to the deadline; it moves when
//! the way is worth its toll: the share of the slot in which nothing is computed, and the egress of the job's state. Under it lies the
//! same safety net: a move passes only if flat out on demand from the next slot on still ends in time (NET-1); of what passes, staying
//! among it, the best is done. With perfect foresight, and no hysteresis, that is what other rows are measured by: the best that could
//! have been done on the grid of the plan, but for what the net holds back, which the plan does not know of.
//!
//! - SI-1: the job is in one site at a time, and every move is paid in the slot that it is made.
//! - SI-2: with one site, or with tolls that nobody pays, nothing moves.

use serde::{Deserialize, Serialize};
use shared::units::MicroUsd;

use super::run::score;
use super::{Optimum, Score, Summary};
use crate::market::{Market, Pool};
use crate::policy::foresight::View;
use crate::policy::net::guard;
use crate::policy::pools::{Move, Place, Site, Survey};
use crate::policy::{Memory, Safety};
use crate::problem::Problem;
use crate::problem::decision::{Decision, Reason, Situation};
use crate::problem::episode::{Course, Outcome, Record, cut, outcome, pass, play};
use crate::problem::offer::{Held, Offer};
use crate::select::pool::{Library, Member, Source};

/// What moves cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tolls {
    /// Share of the slot of a move that still computes.
    pub share: f64,
    /// Egress of the job's state to another zone of the region.
    pub zone: MicroUsd,
    /// To another region of the cloud.
    pub region: MicroUsd,
    /// To another cloud.
    pub cloud: MicroUsd,
}

impl Tolls {
    /// Of a move from one pool to another.
    #[must_use]
    pub fn between(&self, from: &Pool, to: &Pool) -> Move {
        let egress = if from.provider != to.provider {
            self.cloud
        } else if from.region != to.region {
            self.region
        } else {
            self.zone
        };
        Move {
            share: self.share,
            egress,
        }
    }
}

/// One job, started at many times of several markets.
#[derive(Clone, Debug)]
pub struct Journey {
    /// The markets, all of the same slots.
    pub markets: Vec<Market>,
    /// The job.
    pub problem: Problem,
    /// Index of the first slot of each episode.
    pub starts: Vec<usize>,
    /// What moves cost.
    pub tolls: Tolls,
    /// What a move must be expected to earn, where the future is not known.
    pub hysteresis: MicroUsd,
    /// Cells of the plan's grid.
    pub cells: usize,
    /// The net under all policies.
    pub safety: Safety,
}

/// Who decides where to be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Roamer {
    /// In one site, whatever happens.
    Stays {
        /// Which.
        site: usize,
        /// How many machines.
        member: Member,
    },
    /// Where the first slot looks best, and there to the end.
    Settles {
        /// How many machines.
        member: Member,
    },
    /// Wherever the plan says, slot by slot.
    Roams {
        /// What it is told of the slots to come.
        source: Source,
    },
}

/// What an episode came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trip {
    /// Figures.
    pub score: Score,
    /// Moves.
    pub moves: u32,
    /// Paid for them, of what was paid.
    pub egress: MicroUsd,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Over all episodes.
    #[serde(flatten)]
    pub summary: Summary,
    /// Mean moves.
    pub moves: f64,
    /// Mean egress, dollars.
    pub egress: f64,
}

impl Row {
    /// Sums up; `best` are the trips that knew the future.
    #[must_use]
    pub fn of(name: &str, trips: &[Trip], best: &[Trip]) -> Self {
        let scores: Vec<Score> = trips.iter().map(|trip| trip.score).collect();
        let best: Vec<Optimum> = best
            .iter()
            .map(|trip| Optimum {
                found: trip.score,
                bound: trip.score.utility as f64,
            })
            .collect();
        let count = trips.len().max(1) as f64;
        let moves: u32 = trips.iter().map(|trip| trip.moves).sum();
        let egress: f64 = trips.iter().map(|trip| trip.egress.dollars()).sum();
        Self {
            summary: Summary::of(name, &scores, &best),
            moves: f64::from(moves) / count,
            egress: egress / count,
        }
    }
}

/// What a roamer comes to in each episode.
#[must_use]
pub fn trips(journey: &Journey, roamer: &Roamer) -> Vec<Trip> {
    let starts = journey.starts.iter();
    starts
        .map(|&start| match *roamer {
            Roamer::Stays { site, member } => stay(journey, start, site, &member),
            Roamer::Settles { member } => {
                let first = Traveller::begin(journey, start, Source::Persistence);
                let site = first.survey().map_or(0, |place| place.site);
                stay(journey, start, site, &member)
            }
            Roamer::Roams { source } => Traveller::begin(journey, start, source).travel(),
        })
        .collect()
}

fn stay(journey: &Journey, start: usize, site: usize, member: &Member) -> Trip {
    let market = &journey.markets[site];
    let course = Course::plain(market, start);
    let mut memory = Memory::since(start as u64);
    let outcome = member.source.with(market, &Library::new(), |foresight| {
        play(&journey.problem, &course, |situation| {
            let policy = &member.policy;
            policy.decide(situation, foresight, &mut memory, journey.safety)
        })
    });
    Trip {
        score: score(&outcome),
        moves: 0,
        egress: MicroUsd(0),
    }
}

/// A job on its way.
struct Traveller<'a> {
    journey: &'a Journey,
    start: usize,
    source: Source,
    slot: u32,
    progress: f64,
    /// Where it is; nothing before it has begun.
    at: Option<Place>,
    /// Spot machines taken from it in each slot.
    losses: Vec<u32>,
    waited: u32,
}

impl<'a> Traveller<'a> {
    fn begin(journey: &'a Journey, start: usize, source: Source) -> Self {
        Self {
            journey,
            start,
            source,
            slot: 0,
            progress: 0.0,
            at: None,
            losses: vec![0],
            waited: 0,
        }
    }

    fn course(&self, site: usize) -> Course<'a> {
        Course::plain(&self.journey.markets[site], self.start)
    }

    /// The job as it would be in a site.
    fn situation(&self, site: usize) -> Situation<'_> {
        let market = &self.journey.markets[site];
        let at = self.start + self.slot as usize;
        let here = self.at.filter(|place| place.site == site);
        Situation {
            problem: &self.journey.problem,
            slot: self.slot,
            progress: self.progress,
            held: here.map_or_else(Held::default, |place| place.held),
            offer: self.course(site).offer(self.slot),
            at,
            past: &market.slots[..at.min(market.slots.len())],
            length: market.slot,
            losses: &self.losses,
            waited: self.waited,
        }
    }

    /// Where to be in this slot, as far as the net lets the job move, by what is expected of all sites up to the deadline; nothing
    /// where that has passed.
    fn survey(&self) -> Option<Place> {
        let journey = self.journey;
        let problem = &journey.problem;
        let left = problem.soft_deadline.saturating_sub(self.slot);
        let ahead = left.checked_sub(1)?;
        let sites: Vec<Site> = (0..journey.markets.len())
            .map(|site| {
                let situation = self.situation(site);
                let look = |foresight: &dyn crate::policy::foresight::Foresight| {
                    foresight.look(&situation, ahead)
                };
                let market = &journey.markets[site];
                let views: Vec<View> = self.source.with(market, &Library::new(), look);
                let later = views.iter().map(|view| view.offer(0.0));
                let offers: Vec<Offer> = std::iter::once(situation.offer).chain(later).collect();
                Site { offers }
            })
            .collect();
        let dearest = sites
            .iter()
            .map(|site| site.offers[0].on_demand_price)
            .fold(0.0, f64::max);
        let most = problem.fastest(None);
        let rate = problem.throughput.at(most).max(f64::MIN_POSITIVE);
        let tolls = |from: usize, to: usize| journey.tolls.between(self.pool(from), self.pool(to));
        let survey = Survey {
            problem,
            elapsed: self.slot,
            remaining: (problem.work - self.progress).max(0.0),
            at: self.at,
            sites: &sites,
            moves: &tolls,
            ending: f64::from(most) * dearest / rate,
            cells: journey.cells,
            hysteresis: match self.source {
                Source::Perfect => 0.0,
                _ => journey.hysteresis.0 as f64,
            },
        };
        // Before it has begun any site is as good.
        let choice = survey.choose_of(|to| self.at.is_none() || self.may_move(to))?;
        Some(choice.place)
    }

    fn pool(&self, site: usize) -> &'a Pool {
        &self.journey.markets[site].pool
    }

    /// Where to be, and how many machines, as far as the net lets them pass.
    fn decide(&self) -> (usize, Decision) {
        let home = self.at.map_or(0, |place| place.site);
        let planned = |held| Decision {
            held,
            reason: Reason::Planned {
                window: self.journey.problem.soft_deadline.saturating_sub(self.slot),
                expected: 0.0,
                margin: 0.0,
            },
        };
        let still = self.at.map_or_else(Held::default, |place| place.held);
        let stay = Place {
            site: home,
            held: still,
        };
        let Place { site, held } = self.survey().unwrap_or(stay);
        if site != home && self.at.is_some() {
            return (site, planned(held));
        }
        let situation = self.situation(site);
        let held = cut(&self.journey.problem, &situation.offer, held);
        let safety = self.journey.safety;
        let decision = guard(&situation, planned(held), safety.net, safety.margin);
        (site, decision)
    }

    /// Whether flat out on demand after the slot of a move still ends in time.
    fn may_move(&self, to: Place) -> bool {
        let problem = &self.journey.problem;
        let offer = self.course(to.site).offer(self.slot);
        let count = to.held.count();
        let limit = offer.on_demand_available;
        let mut gain = self.journey.tolls.share * problem.throughput.at(count);
        let mut held = to.held;
        if problem.reclaims && held.spot > 0 {
            gain = 0.0;
            held = Held::default();
        }
        let fastest = problem.fastest(limit);
        let mut share = problem.share(held.count(), fastest);
        if held.count() == fastest && held.spot > 0 {
            // Spot that is exchanged for on-demand.
            share = share.min(problem.reconfigure.replace);
        }
        let left = problem.work - self.progress - gain;
        let needed = problem.slots_flat_out_with(left, share, limit);
        let slots = problem.soft_deadline.saturating_sub(self.slot + 1);
        let slots = slots.saturating_sub(self.journey.safety.margin);
        count > 0 && needed.is_some_and(|needed| needed <= slots)
    }

    fn travel(mut self) -> Trip {
        let problem = &self.journey.problem;
        let (mut records, mut moves, mut egress) = (Vec::<Record>::new(), 0, MicroUsd(0));
        let mut completed = None;
        while self.slot < problem.hard_deadline {
            if let Some(place) = self.at {
                let offer =
                    Course::plain(&self.journey.markets[place.site], self.start).offer(self.slot);
                let lost = place.held.spot.saturating_sub(offer.spot_available);
                self.losses.push(lost);
            }
            let (site, mut decision) = self.decide();
            let course = self.course(site);
            decision.held = cut(problem, &course.offer(self.slot), decision.held);
            let moved = self.at.filter(|place| place.site != site);
            let before = self.at.filter(|place| place.site == site);
            let before = before.map_or_else(Held::default, |place| place.held);
            let mut record = pass(problem, &course, self.slot, before, decision);
            if let Some(from) = moved {
                let way = (self.journey.tolls).between(self.pool(from.site), self.pool(site));
                toll(&mut record, problem, way);
                moves += 1;
                egress = MicroUsd(egress.0.saturating_add(way.egress.0));
            }
            self.progress += record.gained;
            let held = record.decision.held;
            let began = self.at.is_some() || held.count() > 0;
            self.at = began.then_some(Place { site, held });
            self.waited = if held.spot == 0 { self.waited + 1 } else { 0 };
            self.slot += 1;
            records.push(record);
            if problem.done(self.progress) {
                completed = Some(self.slot);
                break;
            }
        }
        let outcome: Outcome = outcome(problem, completed, self.progress, records);
        Trip {
            score: score(&outcome),
            moves,
            egress,
        }
    }
}

/// SI-1: the slot of a move computes a share only, and its egress is paid.
fn toll(record: &mut Record, problem: &Problem, way: Move) {
    let full = problem.throughput.at(record.decision.held.count());
    record.gained = way.share * full;
    record.reconfigured = true;
    let idle = (1.0 - way.share).clamp(0.0, 1.0);
    let waste = (record.cost.0 as f64 * idle).round() as u64;
    record.waste = MicroUsd(waste.saturating_add(way.egress.0));
    record.cost = MicroUsd(record.cost.0.saturating_add(way.egress.0));
}

#[cfg(test)]
mod tests;
