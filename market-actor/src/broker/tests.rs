//! A broker between a provider that does what it is asked and a cluster that trains.

use super::*;
use crate::market::Pool;
use crate::policy::Policy;
use crate::provider::{Certainty, Machine, MachineState, ProviderError, Signal};

const S: u64 = 1_000_000;

fn terms() -> Terms {
    Terms {
        slot: Micros(60 * S),
        fewest: 1,
        most: 6,
        deadline: Micros(40 * 60 * S),
        budget: None,
        worth: 1.5,
        change: Micros(3 * S),
        on_demand_price: MicroUsd(1_000_000),
        member: Member::plain(Policy::Maximal { limit: 1.0 }),
        safety: Safety::default(),
        rules: Rules::default(),
        grace: Micros(30 * S),
        rest: Micros(20 * S),
        hysteresis: 2,
    }
}

fn bounds() -> custody::Bounds {
    custody::Bounds {
        lost: Micros(30 * S),
        boot: Micros(60 * S),
        again: Micros(10 * S),
        alarm: Micros(40 * S),
    }
}

/// A provider and a cluster that are honest and quick.
struct World {
    broker: Broker,
    now: u64,
    spot: u32,
    machines: BTreeMap<String, Want>,
    draining: BTreeSet<NodeName>,
    jobs: Vec<JobTold>,
    /// Tokens that a node does in a second.
    rate: u64,
    done: Vec<Effect>,
}

impl World {
    fn new(terms: Terms, spot: u32) -> Self {
        let notice = Micros(20 * S);
        Self {
            broker: Broker::resumed(terms, &[], bounds(), notice, "t", Micros(0)),
            now: 0,
            spot,
            machines: BTreeMap::new(),
            draining: BTreeSet::new(),
            jobs: vec![JobTold {
                id: JobId(1),
                ended: false,
                paused: false,
                step: 0,
                total_steps: 5000,
                tokens: 0,
            }],
            rate: 10,
            done: Vec::new(),
        }
    }

    fn take(&mut self, event: Event) {
        let mut queue = self.broker.step(event, Micros(self.now));
        while !queue.is_empty() {
            let mut next = Vec::new();
            for effect in queue {
                match &effect {
                    Effect::Acquire(want) => {
                        let spots = self.machines.values().filter(|own| own.kind == Kind::Spot);
                        let full = want.kind == Kind::Spot && spots.count() as u32 >= self.spot;
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
                                node: None,
                            })
                        };
                        let token = want.token.clone();
                        let event = Event::Machine(custody::Event::Answered { token, answer });
                        next.extend(self.broker.step(event, Micros(self.now)));
                    }
                    Effect::Release { id } => {
                        self.machines.remove(id);
                    }
                    Effect::Drain { node, .. } => {
                        self.draining.insert(node.clone());
                    }
                    Effect::Pause(_) => self.jobs.iter_mut().for_each(|job| job.paused = true),
                    _ => {}
                }
                self.done.push(effect);
            }
            queue = next;
        }
    }

    /// Seconds pass; all nodes that are not draining train.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += S;
            let busy = self
                .machines
                .values()
                .filter(|want| !self.draining.contains(&want.token));
            let tokens = busy.count() as u64 * self.rate;
            if let Some(job) = self.jobs.first_mut().filter(|job| job.is_live()) {
                job.tokens += tokens;
                job.step = job.tokens / 10;
            }
            self.take(Event::Sighted(vec![Sighting {
                pool: Pool {
                    provider: "test".into(),
                    region: String::new(),
                    zone: "z".into(),
                    machine: "m".into(),
                },
                spot_price: Some(MicroUsd(300_000)),
                spot_available: Some(self.spot),
                on_demand_price: Some(MicroUsd(1_000_000)),
                on_demand_available: None,
            }]));
            let nodes = self.machines.values().map(|want| NodeTold {
                name: want.token.clone(),
                alive: true,
                draining: self.draining.contains(&want.token),
                holds: !self.draining.contains(&want.token),
            });
            let nodes = nodes.collect();
            let jobs = self.jobs.clone();
            self.take(Event::Cluster { nodes, jobs });
            let listed = self.machines.iter().map(|(id, want)| Machine {
                id: id.clone(),
                token: Some(want.token.clone()),
                kind: want.kind,
                state: MachineState::Running,
                node: None,
            });
            let listed = custody::Event::Listed(listed.collect());
            self.take(Event::Machine(listed));
            self.take(Event::Tick);
        }
    }

    fn count(&self, kind: Kind) -> usize {
        self.machines
            .values()
            .filter(|want| want.kind == kind)
            .count()
    }

    fn first(&self, kind: Kind) -> (String, NodeName) {
        let mut all = self.machines.iter();
        let found = all
            .find(|(_, want)| want.kind == kind)
            .expect("there is one");
        (found.0.clone(), found.1.token.clone())
    }

    fn signal(&mut self, id: &str, certainty: Certainty) {
        self.take(Event::Machine(custody::Event::Signal(Signal {
            id: id.to_owned(),
            certainty,
            deadline: None,
            cause: "capacity".into(),
        })));
    }
}

#[test]
fn work_gets_the_fewest_machines_until_its_rate_is_known_and_then_what_the_policy_says() {
    let mut world = World::new(terms(), 4);
    world.pass(30);
    assert_eq!(world.count(Kind::Spot), 1);
    world.pass(120);
    assert_eq!(
        (world.count(Kind::Spot), world.count(Kind::OnDemand)),
        (4, 0)
    );
    // No work, no machine.
    world.jobs[0].ended = true;
    world.pass(3);
    assert!(world.machines.is_empty(), "{:?}", world.machines);
    assert!(world.broker.custody().is_empty());
}

#[test]
fn a_notice_empties_the_machine_and_asks_for_another_at_once() {
    let mut world = World::new(terms(), 3);
    world.pass(150);
    let (id, token) = world.first(Kind::Spot);
    world.spot = 4;
    world.pass(1);
    world.done.clear();
    world.signal(&id, Certainty::Notice);
    let deadline = Some(Micros(world.now + 20 * S));
    let drain = Effect::Drain {
        node: token.clone(),
        deadline,
    };
    assert!(world.done.contains(&drain), "{:?}", world.done);
    let asked = world
        .done
        .iter()
        .any(|effect| matches!(effect, Effect::Acquire(_)));
    assert!(asked, "{:?}", world.done);
    world.pass(2);
    assert!(
        !world.machines.contains_key(&id),
        "it holds nothing any more"
    );
    assert_eq!(world.count(Kind::Spot) + world.count(Kind::OnDemand), 3);
}

#[test]
fn br_3_a_risk_moves_nothing() {
    let mut world = World::new(terms(), 3);
    world.pass(150);
    let (id, _) = world.first(Kind::Spot);
    world.done.clear();
    world.signal(&id, Certainty::Risk);
    world.pass(90);
    let moves = world.done.iter().filter(|effect| {
        matches!(
            effect,
            Effect::Drain { .. } | Effect::Release { .. } | Effect::Acquire(_) | Effect::Pause(_)
        )
    });
    assert_eq!(moves.count(), 0, "{:?}", world.done);
}

#[test]
fn br_4_the_budget_pauses_jobs_and_gives_up_machines_before_it_is_passed() {
    let mut capped = terms();
    let cap = MicroUsd(60_000);
    capped.budget = Some(Budget {
        cap,
        warn_per_mille: 800,
    });
    let mut world = World::new(capped, 4);
    world.pass(900);
    assert!(world.jobs[0].paused && world.machines.is_empty());
    let spent = world.broker.spent();
    assert!(spent <= cap && spent.0 > 30_000, "{spent:?}");
    let alarms = world
        .done
        .iter()
        .filter(|e| matches!(e, Effect::Say { alarm: true, .. }));
    assert_eq!(alarms.count(), 1);
    let pause = world
        .done
        .iter()
        .position(|e| matches!(e, Effect::Pause(_)));
    let drain = world
        .done
        .iter()
        .position(|e| matches!(e, Effect::Drain { .. }));
    assert!(pause < drain, "what is saved first is not lost");
}

#[test]
fn br_5_spot_replaces_on_demand_after_a_while_and_only_when_it_serves() {
    let mut urgent = terms();
    // Three machines all the time.
    urgent.deadline = Micros(60 * 60 * S);
    urgent.member = Member::plain(Policy::Uniform { mixed: true });
    let mut world = World::new(urgent, 0);
    world.rate = 100;
    world.jobs[0].total_steps = 100_000;
    world.pass(150);
    assert_eq!(world.count(Kind::Spot), 0);
    let needed = world.count(Kind::OnDemand);
    assert!(needed >= 2, "{needed}");
    world.spot = 6;
    world.pass(62);
    assert!(world.count(Kind::OnDemand) >= 2, "too early to change");
    world.pass(240);
    assert_eq!(world.count(Kind::OnDemand), 0);
    assert!(world.count(Kind::Spot) >= 2);
}

#[test]
fn a_machine_that_vanishes_is_replaced_and_a_refusal_is_not_repeated_at_once() {
    let mut world = World::new(terms(), 3);
    world.pass(150);
    let (id, _) = world.first(Kind::Spot);
    world.machines.remove(&id);
    world.spot = 2;
    world.done.clear();
    world.pass(10);
    let asked = world
        .done
        .iter()
        .filter(|e| matches!(e, Effect::Acquire(_)))
        .count();
    assert!(asked <= 1, "asked {asked} times in ten seconds");
    world.spot = 3;
    world.pass(90);
    assert_eq!(world.count(Kind::Spot), 3);
}

#[test]
fn a_restart_gives_nothing_up_before_it_has_heard_the_cluster() {
    let mut world = World::new(terms(), 3);
    world.pass(150);
    let entries: Vec<Entry> = world
        .done
        .iter()
        .filter_map(|effect| match effect {
            Effect::Record(entry) => Some(entry.clone()),
            _ => None,
        })
        .collect();
    let held = world.machines.clone();
    world.broker = Broker::resumed(
        terms(),
        &entries,
        bounds(),
        Micros(20 * S),
        "u",
        Micros(world.now),
    );
    world.take(Event::Tick);
    world.take(Event::Sighted(Vec::new()));
    assert_eq!(world.machines, held);
    world.pass(5);
    assert!(
        held.keys().all(|id| world.machines.contains_key(id)),
        "all go on"
    );
    world.pass(150);
    assert_eq!(world.count(Kind::Spot), 3);
}
