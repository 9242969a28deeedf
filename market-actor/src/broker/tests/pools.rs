//! Pools that take machines away. BR-7

use super::super::told::Decided;
use super::super::*;
use super::world::*;
use crate::policy::tenant::{Leave, Rules};
use crate::provider::{Certainty, Machine, MachineState, Signal, Want};

/// A broker that holds one machine, in pools that refuse nothing.
struct Pools {
    broker: Broker,
    /// Seconds.
    now: u64,
    /// All that was asked for.
    asked: Vec<Want>,
    shown: Vec<Sighting>,
    decided: Option<Decided>,
}

impl Pools {
    /// Pools with a machine each, of these names and prices; the cheapest serves.
    fn new(pools: &[(&str, u64)]) -> Self {
        Self::under(terms(), pools)
    }

    fn under(terms: Terms, pools: &[(&str, u64)]) -> Self {
        let mut own = Self {
            broker: Broker::resumed(start(terms, &[], None), Now::both(Micros(0))),
            now: 0,
            asked: Vec::new(),
            shown: pools
                .iter()
                .map(|(zone, price)| sighting(zone, *price, 1))
                .collect(),
            decided: None,
        };
        own.pass(2);
        own
    }

    fn take(&mut self, event: Event) {
        let now = Now::both(Micros(self.now * S));
        for effect in self.broker.step(event, now) {
            let want = match effect {
                Effect::Acquire(want) => want,
                Effect::Decided(decided) => {
                    self.decided = Some(*decided);
                    continue;
                }
                _ => continue,
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

    /// What was decided last.
    fn decided(&self) -> &Decided {
        self.decided.as_ref().expect("something was decided")
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

#[test]
fn br_7_what_is_offered_and_what_budgets_reckon_with_is_what_would_be_asked_for() {
    let mut pools = Pools::new(&[("a", 200_000), ("b", 900_000)]);
    let hour = Micros(3600 * S);
    let one = crate::problem::offer::Held {
        spot: 1,
        on_demand: 0,
    };
    let cost = |pools: &Pools| {
        let now = Now::both(Micros(pools.now * S));
        let two = crate::problem::offer::Held { spot: 2, ..one };
        let next = pools.broker.cost(two, hour, now);
        assert_eq!(next, MicroUsd(1_100_000), "one of each");
        pools.broker.cost(one, hour, now)
    };
    // Of a slot of a minute, told in thousandths of a dollar an hour.
    let offered = |pools: &Pools| (pools.decided().offer.spot_price * 0.06).round() as u64;
    assert_eq!((offered(&pools), cost(&pools)), (200, MicroUsd(200_000)));
    pools.vanish();
    assert_eq!(pools.zones(), ["a", "b"]);
    assert_eq!((offered(&pools), cost(&pools)), (900, MicroUsd(900_000)));
    assert_eq!(pools.decided().offer.spot_available, 1);
    pools.pass(5);
    pools.vanish();
    // Both took one: the cheapest again.
    assert_eq!(pools.zones(), ["a", "b", "a"]);
    assert_eq!((offered(&pools), cost(&pools)), (200, MicroUsd(200_000)));
}

/// A pool that took a machine is left alone for three slots.
fn shy() -> Terms {
    let rules = Rules {
        leave: Some(Leave {
            losses: 1,
            slots: 3,
        }),
        ..Rules::default()
    };
    Terms {
        rules: BTreeMap::from([("*".to_owned(), rules)]),
        ..terms()
    }
}

#[test]
fn br_11_spot_of_a_pool_that_took_too_many_is_left_alone_and_that_of_others_is_not() {
    let mut pools = Pools::under(shy(), &THREE[..2]);
    pools.vanish();
    // Longer than it rests.
    pools.pass(25);
    pools.vanish();
    pools.pass(240);
    pools.vanish();
    let kinds: Vec<Kind> = pools.asked.iter().map(|want| want.kind).collect();
    // Both took one, and then that was long enough ago.
    assert_eq!(pools.zones(), ["a", "b", "a", "a"]);
    assert_eq!(kinds, [Kind::Spot, Kind::Spot, Kind::OnDemand, Kind::Spot]);
}

#[test]
fn br_11_what_stands_in_a_pool_that_is_left_alone_goes_when_others_serve() {
    let mut world = World::new(Terms { most: 2, ..shy() }, 2);
    world.others = vec![sighting("y", 400_000, 4)];
    world.pass(150);
    let zones = |world: &World| {
        let machines = world.machines.values();
        let zones = machines.map(|want| (want.kind, want.pool.zone.clone()));
        zones.collect::<Vec<_>>()
    };
    let spot = |zone: &str| (Kind::Spot, zone.to_owned());
    assert_eq!(zones(&world), [spot("z"), spot("z")]);
    let (id, _) = world.first(Kind::Spot);
    world.signal(&id, Certainty::Notice);
    world.pass(30);
    assert_eq!(zones(&world), [spot("y"), spot("y")]);
    // A restart knows it.
    world.restart(Terms { most: 2, ..shy() }, 1);
    world.pass(10);
    assert!(world.broker.is_left_alone(&world.broker.pool()));
    assert_eq!(zones(&world), [spot("y"), spot("y")]);
}

#[test]
fn br_7_no_other_pool_is_asked_above_the_least_price_on_demand() {
    // Its own machines on demand are dearer still.
    let mut dear = Pools::new(&[("a", 200_000), ("b", 3_000_000)]);
    dear.shown[1].on_demand_price = Some(MicroUsd(10_000_000));
    dear.pass(1);
    dear.vanish();
    assert_eq!(dear.zones(), ["a", "a"]);
    // So it is on demand.
    let mut pools = Pools::new(&[("a", 200_000), ("b", 300_000)]);
    pools.shown[1].on_demand_price = Some(MicroUsd(10_000_000));
    pools.pass(1);
    let now = Now::both(Micros(pools.now * S));
    let pool = pools.shown[0].pool.clone();
    let token = NodeName::new("n").expect("a plain word is a name");
    let kind = Kind::OnDemand;
    pools.broker.avoid(&Want { token, pool, kind }, now);
    let next = |pools: &Pools| {
        pools
            .broker
            .next(kind, now)
            .map(|one| one.pool.zone.clone())
    };
    assert_eq!(next(&pools).as_deref(), Some("a"));
    pools.shown[1].on_demand_price = Some(MicroUsd(1_000_000));
    pools.pass(1);
    assert_eq!(next(&pools).as_deref(), Some("b"));
}
