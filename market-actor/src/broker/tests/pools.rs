//! Pools that take machines away. BR-7

use super::super::*;
use super::world::*;
use crate::provider::{Certainty, Machine, MachineState, Signal, Want};

/// A broker that holds one machine, in pools that refuse nothing.
struct Pools {
    broker: Broker,
    /// Seconds.
    now: u64,
    /// All that was asked for.
    asked: Vec<Want>,
    shown: Vec<Sighting>,
}

impl Pools {
    /// Pools with a machine each, of these names and prices; the cheapest serves.
    fn new(pools: &[(&str, u64)]) -> Self {
        let mut own = Self {
            broker: Broker::resumed(start(terms(), &[], None), Now::both(Micros(0))),
            now: 0,
            asked: Vec::new(),
            shown: pools
                .iter()
                .map(|(zone, price)| sighting(zone, *price, 1))
                .collect(),
        };
        own.pass(2);
        own
    }

    fn take(&mut self, event: Event) {
        let now = Now::both(Micros(self.now * S));
        for effect in self.broker.step(event, now) {
            let Effect::Acquire(want) = effect else {
                continue;
            };
            let token = want.token.clone();
            let answer = Ok(machine(&want));
            self.asked.push(want);
            self.take(Event::Machine(custody::Event::Answered { token, answer }));
        }
    }

    /// Seconds pass in which the last machine serves.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += 1;
            self.take(Event::Sighted(self.shown.clone()));
            self.show(false);
            let last = self.asked.last().map(machine);
            self.take(Event::Machine(custody::Event::Listed(
                last.into_iter().collect(),
            )));
            self.take(Event::Tick);
        }
    }

    /// The coordinator shows the node of the last machine.
    fn show(&mut self, draining: bool) {
        let node = self.asked.last().map(|want| NodeTold {
            name: want.token.clone(),
            alive: true,
            draining,
            holds: true,
            at_risk: false,
        });
        let (nodes, jobs) = (node.into_iter().collect(), vec![job(1)]);
        self.take(Event::Cluster { nodes, jobs });
    }

    /// The last machine will be taken.
    fn notice(&mut self) {
        let last = self.asked.last().map(machine).expect("one is held");
        self.take(Event::Machine(custody::Event::Signal(Signal {
            id: last.id,
            certainty: Certainty::Notice,
            deadline: None,
            cause: "capacity".into(),
        })));
    }

    /// The last machine vanishes: neither its node nor the provider shows it.
    fn vanish(&mut self) {
        for _ in 0..2 {
            self.now += 1;
            let jobs = vec![job(1)];
            let nodes = Vec::new();
            self.take(Event::Cluster { nodes, jobs });
            self.take(Event::Machine(custody::Event::Listed(Vec::new())));
        }
    }

    /// Zones in which machines were asked for, in turn.
    fn zones(&self) -> Vec<&str> {
        let zones = self.asked.iter().map(|want| want.pool.zone.as_str());
        zones.collect()
    }
}

fn machine(want: &Want) -> Machine {
    Machine {
        id: format!("i-{}", want.token),
        token: Some(want.token.clone()),
        kind: want.kind,
        state: MachineState::Running,
        node: None,
    }
}

const THREE: [(&str, u64); 3] = [("a", 200_000), ("b", 300_000), ("c", 400_000)];

#[test]
fn br_7_after_a_notice_another_pool_is_asked_at_once() {
    let mut pools = Pools::new(&THREE[..2]);
    assert_eq!(pools.zones(), ["a"]);
    pools.notice();
    assert_eq!(pools.zones(), ["a", "b"]);
}

#[test]
fn br_7_after_a_machine_that_vanished_another_pool_is_asked() {
    let mut pools = Pools::new(&THREE[..2]);
    pools.vanish();
    assert_eq!(pools.zones(), ["a", "b"]);
}

#[test]
fn br_7_after_a_machine_that_its_own_cloud_told_another_pool_is_asked() {
    let mut pools = Pools::new(&THREE[..2]);
    pools.show(true);
    assert_eq!(pools.zones(), ["a", "b"]);
}

#[test]
fn br_7_a_pool_is_avoided_for_a_while_and_no_longer() {
    let mut pools = Pools::new(&THREE);
    pools.vanish();
    pools.pass(5);
    pools.vanish();
    assert_eq!(pools.zones(), ["a", "b", "c"], "both took one just now");
    let mut pools = Pools::new(&THREE);
    pools.vanish();
    pools.pass(20);
    pools.vanish();
    assert_eq!(pools.zones(), ["a", "b", "a"], "the first has rested");
}

#[test]
fn br_7_without_another_that_is_worth_it_the_same_pool_is_asked() {
    let mut alone = Pools::new(&THREE[..1]);
    alone.vanish();
    assert_eq!(alone.zones(), ["a", "a"]);
    // A machine on demand costs a dollar.
    let mut dear = Pools::new(&[("a", 200_000), ("b", 1_100_000)]);
    dear.vanish();
    assert_eq!(dear.zones(), ["a", "a"]);
    let mut full = Pools::new(&THREE[..2]);
    full.shown[1].spot_available = Some(0);
    full.pass(1);
    full.notice();
    assert_eq!(full.zones(), ["a", "a"]);
}
