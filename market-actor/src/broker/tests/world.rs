//! A broker between a provider that does what it is asked and a cluster that trains.

use shared::ids::JobName;

use super::super::told::Decided;
use super::super::*;
use crate::policy::{Policy, Safety};
use crate::provider::{Certainty, Machine, MachineState, ProviderError, Signal, Want};
use crate::select::pool::Member;
use crate::terms::Choice;

pub(super) const S: u64 = 1_000_000;

pub(super) fn fixed(policy: Policy) -> Choice {
    Choice::Fixed(Member::plain(policy))
}

pub(super) fn terms() -> Terms {
    Terms {
        slot: Micros(60 * S),
        fewest: 1,
        most: 6,
        stages: 1,
        replicas: 6,
        deadline: Micros(40 * 60 * S),
        budget: None,
        worth: 1.5,
        change: Micros(3 * S),
        on_demand_price: MicroUsd(1_000_000),
        choice: fixed(Policy::Maximal { limit: 1.0 }),
        safety: Safety::default(),
        rules: BTreeMap::new(),
        grace: Micros(30 * S),
        rest: Micros(20 * S),
        hysteresis: 2,
    }
}

/// What a zone offers at a price.
pub(super) fn sighting(zone: &str, price: u64, count: u32) -> Sighting {
    Sighting {
        pool: Pool {
            provider: "test".into(),
            region: String::new(),
            zone: zone.into(),
            machine: "m".into(),
        },
        spot_price: Some(MicroUsd(price)),
        spot_available: Some(count),
        on_demand_price: Some(MicroUsd(1_000_000)),
        on_demand_available: None,
    }
}

pub(super) fn start(terms: Terms, entries: &[Entry], kept: Option<Kept>) -> Start<'_> {
    Start {
        terms,
        entries,
        kept,
        bounds: bounds(),
        notice: Micros(20 * S),
        run: "t",
    }
}

pub(super) fn job(id: u64) -> JobTold {
    JobTold {
        id: JobId(id),
        name: JobName::new(format!("j{id}")).expect("a plain word is a name"),
        tenant: String::new(),
        ended: false,
        paused: false,
        step: 0,
        total_steps: 5000,
        tokens: 0,
        deadline: None,
        budget: None,
        zones: BTreeSet::new(),
    }
}

pub(super) fn bounds() -> custody::Bounds {
    custody::Bounds {
        lost: Micros(30 * S),
        boot: Micros(60 * S),
        again: Micros(10 * S),
        alarm: Micros(40 * S),
    }
}

/// A provider and a cluster that are honest and quick.
pub(super) struct World {
    pub(super) broker: Broker,
    pub(super) now: u64,
    pub(super) spot: u32,
    pub(super) on_demand: Option<u32>,
    /// For an hour, on spot and on demand.
    pub(super) prices: [u64; 2],
    pub(super) machines: BTreeMap<String, Want>,
    pub(super) draining: BTreeSet<NodeName>,
    pub(super) jobs: Vec<JobTold>,
    /// Tokens that a node does in a second.
    pub(super) rate: u64,
    /// Nodes that hold a stage: those beyond have nothing to do.
    pub(super) seats: usize,
    /// Whether the newest nodes hold them.
    pub(super) newest: bool,
    /// Whether nodes have names of their own, as those of a fixed list.
    pub(super) listed: bool,
    /// The one node that all machines are, as where a fixed list has one.
    pub(super) same: Option<NodeName>,
    pub(super) done: Vec<Effect>,
    /// Whether questions are not answered.
    pub(super) slow: bool,
    /// Where all machines are.
    pub(super) zone: String,
    /// Other pools that are shown.
    pub(super) others: Vec<Sighting>,
    /// Zones whose machines do not join.
    pub(super) unheeded: BTreeSet<String>,
    /// Nodes whose risk the coordinator knows.
    pub(super) risky: BTreeSet<NodeName>,
    /// Whether what is asked of the coordinator is lost.
    pub(super) deaf: bool,
}

impl World {
    pub(super) fn new(terms: Terms, spot: u32) -> Self {
        Self {
            broker: Broker::resumed(start(terms, &[], None), Now::both(Micros(0))),
            now: 0,
            spot,
            on_demand: None,
            prices: [300_000, 1_000_000],
            machines: BTreeMap::new(),
            draining: BTreeSet::new(),
            risky: BTreeSet::new(),
            zone: "z".into(),
            others: Vec::new(),
            unheeded: BTreeSet::new(),
            jobs: vec![job(1)],
            deaf: false,
            slow: false,
            rate: 10,
            seats: usize::MAX,
            newest: false,
            listed: false,
            same: None,
            done: Vec::new(),
        }
    }

    pub(super) fn take(&mut self, event: Event) {
        let mut queue = self.broker.step(event, Now::both(Micros(self.now)));
        while !queue.is_empty() {
            let mut next = Vec::new();
            for effect in queue {
                match &effect {
                    Effect::Acquire(want) => {
                        let spots = self.machines.values().filter(|own| {
                            own.kind == Kind::Spot && own.pool.zone == want.pool.zone
                        });
                        let others = self.others.iter().filter(|one| one.pool == want.pool);
                        let there = others.filter_map(|one| one.spot_available).next();
                        let there = there.unwrap_or(self.spot);
                        let full = want.kind == Kind::Spot && spots.count() as u32 >= there;
                        let id = format!("i-{}", want.token);
                        let answer = if full {
                            Err(ProviderError::NoCapacity {
                                provider: "test".into(),
                                why: "none".into(),
                            })
                        } else {
                            self.machines.insert(id.clone(), want.clone());
                            Ok(Machine {
                                id,
                                token: Some(want.token.clone()),
                                kind: want.kind,
                                state: MachineState::Running,
                                node: self.listed.then(|| self.node(want)),
                            })
                        };
                        let token = want.token.clone();
                        let event = Event::Machine(custody::Event::Answered { token, answer });
                        next.extend(self.broker.step(event, Now::both(Micros(self.now))));
                    }
                    Effect::Release { id } => {
                        self.machines.remove(id);
                    }
                    Effect::Drain { node, .. } if !self.deaf => {
                        self.draining.insert(node.clone());
                    }
                    Effect::Undrain(node) if !self.deaf => {
                        self.draining.remove(node);
                    }
                    Effect::Think(question) if !self.slow => {
                        let answer = Box::new(question.as_ref().clone().answer());
                        let now = Now::both(Micros(self.now));
                        next.extend(self.broker.step(Event::Thought(answer), now));
                    }
                    Effect::Risk { node, cause } if !self.deaf => {
                        match cause {
                            Some(_) => self.risky.insert(node.clone()),
                            None => self.risky.remove(node),
                        };
                    }
                    Effect::Pause(id) if !self.deaf => {
                        let mut jobs = self.jobs.iter_mut();
                        if let Some(job) = jobs.find(|job| job.id == *id) {
                            job.paused = true;
                        }
                    }
                    _ => {}
                }
                self.done.push(effect);
            }
            queue = next;
        }
    }

    /// The node of a machine.
    pub(super) fn node(&self, want: &Want) -> NodeName {
        match self.listed {
            true => self.same.clone().unwrap_or_else(|| {
                NodeName::new(format!("n-{}", want.token)).expect("a plain word is a name")
            }),
            false => want.token.clone(),
        }
    }

    /// Seconds pass; all nodes that are not draining train.
    pub(super) fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += S;
            let busy = self
                .machines
                .values()
                .filter(|want| !self.draining.contains(&self.node(want)));
            let tokens = busy.count().min(self.seats) as u64 * self.rate;
            // One whose steps are not known is not admitted.
            let at_work = |job: &JobTold| job.is_live() && job.total_steps > 0;
            let live = self.jobs.iter().filter(|job| at_work(job)).count() as u64;
            for job in self.jobs.iter_mut().filter(|job| at_work(job)) {
                job.tokens += tokens / live;
                job.step = job.tokens / 10;
            }
            let mut shown = vec![Sighting {
                pool: Pool {
                    provider: "test".into(),
                    region: String::new(),
                    zone: self.zone.clone(),
                    machine: "m".into(),
                },
                spot_price: Some(MicroUsd(self.prices[0])),
                spot_available: Some(self.spot),
                on_demand_price: Some(MicroUsd(self.prices[1])),
                on_demand_available: self.on_demand,
            }];
            shown.extend(self.others.iter().cloned());
            self.take(Event::Sighted(shown));
            let joined = self.machines.values();
            let joined = joined.filter(|want| !self.unheeded.contains(&want.pool.zone));
            let mut joined: Vec<NodeName> = joined.map(|want| self.node(want)).collect();
            if self.newest {
                joined.reverse();
            }
            let mut free = self.seats;
            let mut seated = |token: &NodeName| {
                let holds = !self.draining.contains(token) && free > 0;
                free -= usize::from(holds);
                holds
            };
            let nodes = joined.into_iter().map(|node| NodeTold {
                alive: true,
                draining: self.draining.contains(&node),
                holds: seated(&node),
                at_risk: self.risky.contains(&node),
                name: node,
            });
            let nodes = nodes.collect();
            let jobs = self.jobs.clone();
            self.take(Event::Cluster { nodes, jobs });
            let listed = self.machines.iter().map(|(id, want)| Machine {
                id: id.clone(),
                token: Some(want.token.clone()),
                kind: want.kind,
                state: MachineState::Running,
                node: self.listed.then(|| self.node(want)),
            });
            let listed = custody::Event::Listed(listed.collect());
            self.take(Event::Machine(listed));
            self.take(Event::Tick);
        }
    }

    /// The process ends and another goes on from what was kept and recorded, `seconds` later.
    pub(super) fn restart(&mut self, terms: Terms, seconds: u64) {
        let entries: Vec<Entry> = self.entries();
        let kept = self.kept();
        // What was written is what is read.
        let kept = kept.map(|kept| Kept::from_json(&kept.to_json()).expect("it was written"));
        self.now += seconds * S;
        let now = Now {
            wall: Micros(self.now),
            steady: Micros(self.now),
        };
        self.broker = Broker::resumed(start(terms, &entries, kept), now);
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        let entries = self.done.iter().filter_map(|effect| match effect {
            Effect::Record(entry) => Some(entry.clone()),
            _ => None,
        });
        entries.collect()
    }

    pub(super) fn kept(&self) -> Option<Kept> {
        let mut kept = self.done.iter().rev().filter_map(|effect| match effect {
            Effect::Keep(kept) => Some(kept.as_ref().clone()),
            _ => None,
        });
        kept.next()
    }

    pub(super) fn decided(&self) -> &Decided {
        let mut decided = self.done.iter().rev().filter_map(|effect| match effect {
            Effect::Decided(decided) => Some(decided.as_ref()),
            _ => None,
        });
        decided.next().expect("something was decided")
    }

    pub(super) fn count(&self, kind: Kind) -> usize {
        self.machines
            .values()
            .filter(|want| want.kind == kind)
            .count()
    }

    pub(super) fn first(&self, kind: Kind) -> (String, NodeName) {
        let mut all = self.machines.iter();
        let found = all
            .find(|(_, want)| want.kind == kind)
            .expect("there is one");
        (found.0.clone(), found.1.token.clone())
    }

    pub(super) fn signal(&mut self, id: &str, certainty: Certainty) {
        self.take(Event::Machine(custody::Event::Signal(Signal {
            id: id.to_owned(),
            certainty,
            deadline: None,
            cause: "capacity".into(),
        })));
    }
}
