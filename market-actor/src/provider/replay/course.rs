//! What a trace does to machines at an instant: pure.
//!
//! - CO-1: after [`Course::step`] no more spot machines stand than the trace shows; those told of their end stand no more.
//! - CO-3: a machine that is at risk in a slot is told once, and told when it is not any more; both are a function of seed, slot and name.
//! - CO-2: whom it takes and how is a function of the seed and of how many were taken before: the same run, the same reclaims.

use std::collections::{BTreeMap, BTreeSet};

use shared::random::{Domain, Stream};
use shared::units::Micros;

use crate::market::{Market, Slot};
use crate::provider::{Certainty, Signal};

/// What is played.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// The trace; after its last slot it begins again.
    pub market: Market,
    /// Seconds of the trace that pass in one.
    pub speed: u64,
    /// How long before its end a machine is told; in real time.
    pub notice: Micros,
    /// Of a thousand machines that are taken, so many are not told.
    pub abrupt_per_mille: u64,
    /// Of a thousand spot machines, so many are at risk in a slot; whoever is, is it from the slot's begin to its end.
    pub risk_per_mille: u64,
    /// Seed of whom and how.
    pub seed: u64,
}

/// Something the trace does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// A machine is told of its end.
    Tell(Signal),
    /// A machine is taken.
    Take {
        /// Which.
        id: String,
        /// Whether it was told before.
        told: bool,
    },
}

/// A trace under way.
#[derive(Clone, Debug)]
pub struct Course {
    script: Script,
    begun: Micros,
    /// Machines that were told, and when they end.
    told: BTreeMap<String, Micros>,
    taken: u32,
    /// Machines that are at risk.
    risky: BTreeSet<String>,
}

impl Course {
    /// A trace that began at an instant since 1970.
    #[must_use]
    pub const fn new(script: Script, begun: Micros) -> Self {
        Self {
            script,
            begun,
            told: BTreeMap::new(),
            taken: 0,
            risky: BTreeSet::new(),
        }
    }

    /// The notice.
    #[must_use]
    pub const fn notice(&self) -> Micros {
        self.script.notice
    }

    /// Slots of the trace that have passed.
    fn slots(&self, now: Micros) -> u64 {
        let passed = now.since(self.begun).0.saturating_mul(self.script.speed);
        passed / self.script.market.slot.0.max(1)
    }

    /// The slot of the trace at an instant; of a trace without a slot one in which nothing can be had.
    #[must_use]
    pub fn slot(&self, now: Micros) -> Slot {
        let market = &self.script.market;
        let at = self.slots(now) % (market.slots.len().max(1) as u64);
        market.slots.get(at as usize).copied().unwrap_or(Slot {
            spot_price: shared::units::MicroUsd(0),
            spot_available: 0,
            on_demand_price: shared::units::MicroUsd(0),
            on_demand_available: Some(0),
        })
    }

    /// Spot machines that can still be had, while `running` run.
    #[must_use]
    pub fn free(&self, running: &[String], now: Micros) -> u32 {
        let standing = running.iter().filter(|id| !self.told.contains_key(*id));
        let standing = standing.count() as u32;
        self.slot(now).spot_available.saturating_sub(standing)
    }

    /// What happens to the spot machines that run.
    pub fn step(&mut self, running: &[String], now: Micros) -> Vec<Act> {
        self.told.retain(|id, _| running.contains(id));
        let mut acts: Vec<Act> = self
            .told
            .iter()
            .filter(|(_, end)| now >= **end)
            .map(|(id, _)| Act::Take {
                id: id.clone(),
                told: true,
            })
            .collect();
        let mut standing: Vec<&String> = running
            .iter()
            .filter(|id| !self.told.contains_key(*id))
            .collect();
        standing.sort();
        let most = self.slot(now).spot_available as usize;
        while standing.len() > most {
            let stream = Stream::new(self.script.seed, Domain::Market, [self.taken, 0, 7]);
            let id = standing.remove(stream.below(0, standing.len() as u64) as usize);
            self.taken += 1;
            if stream.below(1, 1000) < self.script.abrupt_per_mille {
                acts.push(Act::Take {
                    id: id.clone(),
                    told: false,
                });
                // It stands no more, whenever its process is gone.
                self.told.insert(id.clone(), now);
            } else {
                let end = now.plus(self.script.notice);
                self.told.insert(id.clone(), end);
                acts.push(Act::Tell(Signal {
                    id: id.clone(),
                    certainty: Certainty::Notice,
                    deadline: Some(end),
                    cause: format!("the trace shows {most} machines"),
                }));
            }
        }
        let standing: BTreeSet<&String> = standing.into_iter().collect();
        acts.extend(self.risks(&standing, now).into_iter().map(Act::Tell));
        acts
    }

    /// Risks that begin and end. CO-3
    fn risks(&mut self, standing: &BTreeSet<&String>, now: Micros) -> Vec<Signal> {
        let slot = self.slots(now);
        let (seed, most) = (self.script.seed, self.script.risk_per_mille);
        let is_risky = |id: &String| {
            let place = [slot as u32, (slot >> 32) as u32, 8];
            let at = fold(id);
            Stream::new(seed ^ at, Domain::Market, place).below(0, 1000) < most
        };
        let of = |id: &String, certainty| Signal {
            id: id.clone(),
            certainty,
            deadline: None,
            cause: format!("the trace, in its slot {slot}"),
        };
        self.risky.retain(|id| standing.contains(id));
        let mut signals = Vec::new();
        for id in standing {
            match (is_risky(id), self.risky.contains(*id)) {
                (true, false) => {
                    self.risky.insert((*id).clone());
                    signals.push(of(id, Certainty::Risk));
                }
                (false, true) => {
                    self.risky.remove(*id);
                    signals.push(of(id, Certainty::Over));
                }
                _ => {}
            }
        }
        signals
    }
}

/// A number of a name: FNV-1a.
fn fold(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |all, byte| {
        (all ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::episode::tests::market;

    fn course(counts: &[u32], abrupt_per_mille: u64) -> Course {
        let slots: Vec<(f64, u32)> = counts.iter().map(|count| (0.3, *count)).collect();
        let script = Script {
            market: market(&slots, 1.0),
            speed: 1800,
            notice: Micros(2_000_000),
            abrupt_per_mille,
            risk_per_mille: 0,
            seed: 5,
        };
        Course::new(script, Micros(0))
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|at| format!("m{at}")).collect()
    }

    const S: u64 = 1_000_000;

    #[test]
    fn co_1_as_many_are_told_as_the_trace_lacks_and_taken_at_the_end_of_the_notice() {
        let mut course = course(&[4, 2, 4], 0);
        let all = names(4);
        assert_eq!(course.step(&all, Micros(0)), []);
        assert_eq!(course.free(&all[..1], Micros(0)), 3);
        let told = course.step(&all, Micros(S));
        assert_eq!(told.len(), 2);
        assert!(told.iter().all(|act| matches!(act, Act::Tell(_))));
        assert_eq!(course.step(&all, Micros(S + 1)), [], "once");
        assert_eq!(course.free(&all, Micros(S)), 0);
        let taken = course.step(&all, Micros(3 * S));
        assert_eq!(taken.len(), 2);
        assert!(taken.iter().all(|act| matches!(act, Act::Take { .. })));
        // Slots come again.
        assert_eq!(course.slot(Micros(4 * S)).spot_available, 2);
    }

    #[test]
    fn co_2_the_same_seed_takes_the_same_some_without_a_word() {
        let run = || {
            let mut course = course(&[20, 0], 500);
            course.step(&names(20), Micros(S))
        };
        let acts = run();
        assert_eq!(acts, run());
        let abrupt = acts
            .iter()
            .filter(|act| matches!(act, Act::Take { .. }))
            .count();
        assert!((4..=16).contains(&abrupt), "{abrupt}");
    }

    #[test]
    fn co_3_risks_come_and_go_slot_by_slot_and_take_nobody() {
        let mut course = course(&[8, 8, 8, 8, 8, 8], 0);
        course.script.risk_per_mille = 500;
        let all = names(8);
        let mut risky: BTreeSet<String> = BTreeSet::new();
        let (mut begun, mut over) = (0, 0);
        for slot in 0..40 {
            for act in course.step(&all, Micros(slot * S)) {
                let Act::Tell(signal) = act else {
                    panic!("nobody is taken: {act:?}");
                };
                match signal.certainty {
                    Certainty::Risk => assert!(risky.insert(signal.id)),
                    Certainty::Over => assert!(risky.remove(&signal.id)),
                    Certainty::Notice => panic!("nobody is to go"),
                }
                begun += usize::from(signal.certainty == Certainty::Risk);
                over += usize::from(signal.certainty == Certainty::Over);
            }
            assert_eq!(course.step(&all, Micros(slot * S + 1)), [], "once");
            assert_eq!(course.free(&all, Micros(slot * S)), 0, "they stand");
        }
        assert!(begun > 40 && over > 40, "{begun} and {over}");
    }
}
