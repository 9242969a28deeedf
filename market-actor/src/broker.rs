//! The market actor's decisions: from what the provider, the coordinator and the clock say to machines asked for and given up.
//!
//! One plan for the tenant whose cluster it is: all live jobs share the machines, so their work is one number ([`work`]). At the
//! begin of each slot, and whenever a machine is lost, taken or refused, the policy says how many of which kind to hold;
//! [`Broker::step`] turns the difference to what stands into effects. Machines themselves are kept by [`crate::custody`].
//!
//! - BR-1: a machine that is given up is emptied first (the coordinator is asked to drain it) and released when it holds nothing,
//!   or after [`Terms::grace`].
//! - BR-2: nothing is given up before as many others serve as are wanted, but when there is no work or no money.
//! - BR-3: a risk changes no machine: it only lowers what is expected of the pool.
//! - BR-4: what would pass the budget pauses all jobs, which saves them, and gives up all machines.
//! - BR-5: spot takes the place of on-demand only after it was cheaper for [`Terms::hysteresis`] slots in a row.

mod decide;
pub mod told;
pub mod work;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use shared::ids::{JobId, NodeName};
use shared::units::{MicroUsd, Micros};

use crate::custody::record::Entry;
use crate::custody::{self, Custody};
use crate::market::Slot;
use crate::money::Budget;
use crate::policy::tenant::Rules;
use crate::policy::{Memory, Safety};
use crate::problem::offer::{Held, slot_price};
use crate::provider::{Kind, Sighting, Want};
use crate::select::pool::Member;
use told::{Decided, JobTold, NodeTold};
use work::Meter;

/// What the operator set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Length of a slot.
    pub slot: Micros,
    /// Fewest machines that hold the work.
    pub fewest: u32,
    /// Most machines.
    pub most: u32,
    /// From the first job on until all work is to be done.
    pub deadline: Micros,
    /// What may be spent; nothing when there is no cap.
    pub budget: Option<Budget>,
    /// What finishing in time is worth, over the work at the price on demand.
    pub worth: f64,
    /// How long a change of machines keeps the cluster from work.
    pub change: Micros,
    /// Of a machine on demand for an hour, where the provider does not say.
    pub on_demand_price: MicroUsd,
    /// Policy and foresight.
    pub member: Member,
    /// The net under it.
    pub safety: Safety,
    /// What the tenant allows.
    pub rules: Rules,
    /// How long a machine that is given up may take to be emptied.
    pub grace: Micros,
    /// After a refusal a kind of machine is not asked for again for so long.
    pub rest: Micros,
    /// Slots in a row.
    pub hysteresis: u32,
}

/// Microseconds of an hour: prices are by the hour.
const HOUR: u128 = 3_600_000_000;

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The provider showed what it offers.
    Sighted(Vec<Sighting>),
    /// The coordinator showed its nodes and jobs.
    Cluster {
        /// All nodes.
        nodes: Vec<NodeTold>,
        /// All jobs.
        jobs: Vec<JobTold>,
    },
    /// The coordinator does not answer: nothing is asked for or given up until it does.
    Unheard,
    /// Of a machine.
    Machine(custody::Event),
    /// Time passes.
    Tick,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Keep this durably before anything that follows.
    Record(Entry),
    /// Ask the provider for a machine.
    Acquire(Want),
    /// Tell the provider to end one.
    Release {
        /// The provider's name for it.
        id: String,
    },
    /// Ask the coordinator to take the work off a node.
    Drain {
        /// Which.
        node: NodeName,
        /// When it will be gone, since 1970; nothing when it is given up freely.
        deadline: Option<Micros>,
    },
    /// Ask the coordinator to give work to a node again.
    Undrain(NodeName),
    /// Ask the coordinator to pause a job: its state is saved.
    Pause(JobId),
    /// Keep and tell what was decided.
    Decided(Box<Decided>),
    /// Say aloud.
    Say {
        /// Whether somebody must look.
        alarm: bool,
        /// What.
        what: String,
    },
}

/// The whole of it.
#[derive(Debug)]
pub struct Broker {
    terms: Terms,
    custody: Custody,
    /// Differs from start to start: tokens of two starts are never the same.
    run: String,
    made: u32,
    /// What the pools offered, slot by slot, the one under way last.
    slots: Vec<Slot>,
    sightings: Vec<Sighting>,
    /// What all pools offer together, as it was seen last.
    latest: Option<Slot>,
    /// When the slot under way began.
    since: Option<Micros>,
    plan: Option<Plan>,
    meter: Meter,
    jobs: Vec<JobTold>,
    nodes: BTreeMap<NodeName, NodeTold>,
    /// Nodes being emptied, each with when that began and, for one that is taken, when it ends.
    emptied: BTreeMap<NodeName, (Micros, Option<Micros>)>,
    /// Nodes that were drained from here, until they are seen to take work.
    given_up: BTreeSet<NodeName>,
    /// Kinds that were refused, and until when they are not asked for.
    refused: BTreeMap<Kind, Micros>,
    /// Machines that may be taken.
    at_risk: BTreeSet<NodeName>,
    /// Slots in a row in which spot was cheaper.
    cheaper: u32,
    spent: MicroUsd,
    /// Millionths of a dollar times microseconds that are not yet a millionth.
    owed: u128,
    counted: Micros,
    /// Whether something changed that the policy must hear of.
    due: bool,
    /// Whether the coordinator is heard: while not, nothing is asked for or given up.
    heard: bool,
}

/// The work under way.
#[derive(Clone, Debug)]
struct Plan {
    /// Slot of the market in which it began.
    first: usize,
    /// Tokens done before it began.
    before: f64,
    memory: Memory,
    losses: Vec<u32>,
    waited: u32,
    /// What the policy wants.
    target: Held,
}

impl Broker {
    /// Goes on from a record; `run` differs from start to start.
    #[must_use]
    pub fn resumed(
        terms: Terms,
        entries: &[Entry],
        bounds: custody::Bounds,
        notice: Micros,
        run: &str,
        now: Micros,
    ) -> Self {
        Self {
            custody: Custody::resumed(entries, bounds, notice, now),
            terms,
            run: run.to_owned(),
            made: 0,
            slots: Vec::new(),
            sightings: Vec::new(),
            latest: None,
            since: None,
            plan: None,
            meter: Meter::default(),
            jobs: Vec::new(),
            nodes: BTreeMap::new(),
            emptied: BTreeMap::new(),
            given_up: BTreeSet::new(),
            refused: BTreeMap::new(),
            at_risk: BTreeSet::new(),
            cheaper: 0,
            spent: MicroUsd(0),
            owed: 0,
            counted: now,
            due: false,
            heard: false,
        }
    }

    /// The machines.
    #[must_use]
    pub const fn custody(&self) -> &Custody {
        &self.custody
    }

    /// What was paid since the start, by the prices that were seen.
    #[must_use]
    pub const fn spent(&self) -> MicroUsd {
        self.spent
    }

    /// Takes an event in at an instant since 1970.
    pub fn step(&mut self, event: Event, now: Micros) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.count(now);
        match event {
            Event::Sighted(sightings) => self.sighted(sightings, now),
            Event::Cluster { nodes, jobs } => self.cluster(nodes, jobs, now, &mut effects),
            Event::Unheard => self.heard = false,
            Event::Machine(event) => self.machine(event, now, &mut effects),
            Event::Tick => {
                self.machine(custody::Event::Tick, now, &mut effects);
                self.slot_passes(now);
            }
        }
        self.begin();
        if self.due && !self.slots.is_empty() {
            self.due = false;
            self.decide(now, &mut effects);
        }
        self.reconcile(now, &mut effects);
        for effect in &effects {
            if let Effect::Drain { node, .. } = effect {
                self.given_up.insert(node.clone());
            }
        }
        effects
    }

    /// Money for the time since the last event.
    fn count(&mut self, now: Micros) {
        let passed = now.since(self.counted);
        self.counted = self.counted.max(now);
        let Some(slot) = self.slots.last() else {
            return;
        };
        for held in self
            .custody
            .held()
            .values()
            .filter(|held| held.id.is_some())
        {
            let hourly = match held.want.kind {
                Kind::Spot => slot.spot_price,
                Kind::OnDemand => slot.on_demand_price,
            };
            self.owed += u128::from(hourly.0) * u128::from(passed.0);
        }
        self.spent.0 += u64::try_from(self.owed / HOUR).unwrap_or(u64::MAX);
        self.owed %= HOUR;
    }

    /// What the pools offer in all, at the price of the cheapest that has a machine.
    fn sighted(&mut self, sightings: Vec<Sighting>, now: Micros) {
        let mut slot = Slot {
            spot_price: self.terms.on_demand_price,
            spot_available: 0,
            on_demand_price: self.terms.on_demand_price,
            on_demand_available: None,
        };
        let mut cheapest: Option<MicroUsd> = None;
        for one in sightings
            .iter()
            .filter(|one| self.terms.rules.allows(&one.pool))
        {
            let count = one.spot_available.unwrap_or(0);
            slot.spot_available = slot.spot_available.saturating_add(count);
            if let Some(price) = one.on_demand_price {
                slot.on_demand_price = price;
            }
            if one.on_demand_available.is_some() {
                slot.on_demand_available = one.on_demand_available;
            }
            if let Some(price) = one.spot_price.filter(|_| count > 0)
                && cheapest.is_none_or(|least| price < least)
            {
                cheapest = Some(price);
            }
        }
        if let Some(price) = cheapest {
            slot.spot_price = price;
        }
        if sightings.is_empty() {
            return;
        }
        self.sightings = sightings;
        self.latest = Some(slot);
        self.slot_passes(now);
        match self.slots.last_mut() {
            // A capacity is the least over the slot; a price the last one seen.
            Some(last) if self.since.is_some() => {
                let fewer = slot.spot_available.min(last.spot_available);
                *last = Slot {
                    spot_available: fewer,
                    ..slot
                };
            }
            _ => {
                self.since = Some(now);
                self.slots.push(slot);
                self.due = true;
            }
        }
    }

    /// Begins new slots as their time comes, each with what was seen last.
    fn slot_passes(&mut self, now: Micros) {
        let (Some(since), Some(last)) = (self.since, self.slots.last().copied()) else {
            return;
        };
        let passed = now.since(since).0 / self.terms.slot.0.max(1);
        if passed == 0 {
            return;
        }
        self.since = Some(since.plus(Micros(passed * self.terms.slot.0)));
        for _ in 0..passed.min(1000) {
            self.slots.push(last);
            if let Some(plan) = &mut self.plan {
                plan.losses.push(0);
                plan.waited = if plan.target.spot == 0 {
                    plan.waited + 1
                } else {
                    0
                };
            }
        }
        if let (Some(newest), Some(latest)) = (self.slots.last_mut(), self.latest) {
            *newest = latest;
        }
        self.cheaper = if last.spot_price < last.on_demand_price && last.spot_available > 0 {
            self.cheaper.saturating_add(1)
        } else {
            0
        };
        self.due = true;
    }

    fn cluster(
        &mut self,
        nodes: Vec<NodeTold>,
        jobs: Vec<JobTold>,
        now: Micros,
        effects: &mut Vec<Effect>,
    ) {
        let alive: BTreeSet<NodeName> = nodes
            .iter()
            .filter(|node| node.alive)
            .map(|node| node.name.clone())
            .collect();
        self.nodes = nodes
            .into_iter()
            .map(|node| (node.name.clone(), node))
            .collect();
        self.heard = true;
        let had = self.jobs.iter().any(JobTold::is_live);
        let has = jobs.iter().any(JobTold::is_live);
        let known = |id: JobId| self.jobs.iter().any(|job| job.id == id);
        let more = jobs.iter().any(|job| job.is_live() && !known(job.id));
        self.jobs = jobs;
        let serving = self
            .custody
            .standing()
            .filter(|held| matches!(held.stage, custody::Stage::Serving { .. }))
            .count();
        self.meter.see(&self.jobs, serving as u32, now);
        if !has {
            self.plan = None;
        }
        self.due |= had != has || more;
        self.machine(custody::Event::Joined(alive), now, effects);
        self.empty_again(now, effects);
        // A machine of a fixed list that was given up before. What an operator drains stays drained.
        for held in self.custody.standing() {
            if self.emptied.contains_key(&held.want.token) {
                continue;
            }
            let drained = self.nodes.get(&held.node).is_some_and(|node| node.draining);
            if !drained {
                self.given_up.remove(&held.node);
            } else if self.given_up.contains(&held.node) {
                effects.push(Effect::Undrain(held.node.clone()));
            }
        }
    }

    /// Begins a plan where there is work and an offer, whichever of them was heard of first.
    fn begin(&mut self) {
        let has = self.heard && self.jobs.iter().any(JobTold::is_live);
        if has && self.plan.is_none() && !self.slots.is_empty() {
            self.plan = Some(Plan {
                first: self.slots.len() - 1,
                before: self.meter.done(),
                memory: Memory::default(),
                losses: vec![0],
                waited: 0,
                target: Held::default(),
            });
            self.due = true;
        }
    }

    /// The node that came of a request.
    fn node_of(&self, token: &NodeName) -> NodeName {
        let held = self.custody.held().get(token);
        held.map_or_else(|| token.clone(), |held| held.node.clone())
    }

    /// Asks again for what the coordinator has not begun, and lets go what is empty (BR-1).
    fn empty_again(&mut self, now: Micros, effects: &mut Vec<Effect>) {
        let mut over = Vec::new();
        for (name, (since, deadline)) in &self.emptied {
            let own = self.node_of(name);
            let node = self.nodes.get(&own);
            let holds = node.is_some_and(|node| node.alive && node.holds);
            let late = deadline.is_none() && now.since(*since) >= self.terms.grace;
            if !holds || late {
                over.push(name.clone());
            } else if node.is_some_and(|node| !node.draining) {
                effects.push(Effect::Drain {
                    node: own,
                    deadline: *deadline,
                });
            }
        }
        for name in over {
            self.emptied.remove(&name);
            let event = custody::Event::Release {
                token: name,
                cause: "it holds nothing any more".into(),
            };
            self.machine(event, now, effects);
        }
    }

    fn machine(&mut self, event: custody::Event, now: Micros, effects: &mut Vec<Effect>) {
        if let custody::Event::Answered {
            token,
            answer: Err(error),
        } = &event
            && error.is_certain()
            && let Some(held) = self.custody.held().get(token)
        {
            self.refused
                .insert(held.want.kind, now.plus(self.terms.rest));
        }
        for effect in self.custody.step(event, now) {
            match effect {
                custody::Effect::Record(entry) => effects.push(Effect::Record(entry)),
                custody::Effect::Acquire(want) => effects.push(Effect::Acquire(want)),
                custody::Effect::Release { id, .. } => effects.push(Effect::Release { id }),
                custody::Effect::Ready(token) => say(effects, false, format!("{token} serves")),
                custody::Effect::Leaving {
                    token,
                    deadline,
                    cause,
                } => {
                    say(effects, false, format!("{token} will be taken: {cause}"));
                    self.taken();
                    self.emptied.insert(token.clone(), (now, Some(deadline)));
                    effects.push(Effect::Drain {
                        node: self.node_of(&token),
                        deadline: Some(deadline),
                    });
                }
                custody::Effect::AtRisk { token, cause } => {
                    say(effects, false, format!("{token} may be taken: {cause}"));
                    self.at_risk.insert(token);
                }
                custody::Effect::Lost {
                    token,
                    served,
                    cause,
                } => {
                    say(effects, false, format!("{token} is gone: {cause}"));
                    if served && !self.emptied.contains_key(&token) {
                        self.taken();
                    }
                    self.emptied.remove(&token);
                    self.at_risk.remove(&token);
                    self.due = true;
                }
                custody::Effect::Alarm { id, what } => say(effects, true, format!("{id}: {what}")),
            }
        }
    }

    /// A machine is taken: the plan hears of the loss.
    fn taken(&mut self) {
        if let Some(plan) = &mut self.plan
            && let Some(last) = plan.losses.last_mut()
        {
            *last += 1;
        }
        self.due = true;
    }
}

fn say(effects: &mut Vec<Effect>, alarm: bool, what: String) {
    effects.push(Effect::Say { alarm, what });
}

/// What machines cost for a slot.
fn cost(held: Held, slot: &Slot, length: Micros) -> MicroUsd {
    let of = |count: u32, hourly| u64::from(count) * slot_price(hourly, length).0;
    MicroUsd(of(held.spot, slot.spot_price) + of(held.on_demand, slot.on_demand_price))
}

#[cfg(test)]
mod tests;
