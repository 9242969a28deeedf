//! From the plan in force to another: prepare, drain, and then it is in force.
//!
//! New seats are opened while the old ones work; then the first stages of the replicas that change end the steps they have
//! begun and make them durable; then the plan is in force, which is the one instant that the journal decides. Up to it, the move
//! can be called off, and all goes on as before. After it, each replica that changed settles for itself
//! ([`Settling`]): all seats hold, and jobs are admitted. A recovery is the same without a drain, as there is nothing
//! left that could be drained.
//!
//! ```text
//! preparing --all prepared--> draining --all drained--> in force: settling --all hold--> at work
//!     |                          |                                  |
//!     +------ called off --------+                                  +--> broken: the next move
//! ```
//!
//! | id | invariant |
//! | --- | --- |
//! | TR-1 | a plan is in force only when all its new seats are open and all that it ends is durable |
//! | TR-2 | a move that was called off leaves the plan in force as it was |
//! | TR-3 | what belongs to another epoch changes nothing |

mod settling;

#[cfg(test)]
mod tests;

pub use settling::{Settled, Settling};

use std::collections::{BTreeMap, BTreeSet};

use shared::ids::{NodeName, PlanEpoch};
use shared::units::Micros;

use super::layout::{Layout, Links, Seats};
use crate::settings::Bounds;

/// What a move is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    /// Of the plan to come.
    pub epoch: PlanEpoch,
    /// All seats of that plan.
    pub target: Seats,
    /// The replicas that each is linked to then.
    pub links: Links,
    /// The replicas that are seated anew.
    pub anew: BTreeSet<u32>,
    /// Seats to open, by node: replica and stage.
    pub opened: BTreeMap<NodeName, (u32, u32)>,
    /// First stages to drain, and the epoch that each stands under.
    pub drained: BTreeMap<NodeName, PlanEpoch>,
    /// Why.
    pub reason: String,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Seats are being opened.
    Preparing,
    /// Rounds are being ended.
    Draining,
    /// The plan is in force, or never will be.
    Over,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A node opened its seat, or could not.
    Prepared(NodeName, PlanEpoch, Result<(), String>),
    /// A first stage ended its round for a plan to come; or why it is not durable.
    Drained(NodeName, PlanEpoch, Result<(), String>),
    /// A node lost its connection and has it again: what it was told may be lost.
    Returned(NodeName),
    /// The move makes no sense any more.
    CallOff(String),
    /// Time passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Tell a node to open a seat: replica and stage.
    Prepare(NodeName, u32, u32),
    /// Tell a first stage to end its round.
    Drain(NodeName, PlanEpoch),
    /// The plan is in force now.
    Force,
    /// It never will be.
    CalledOff {
        /// Why.
        reason: String,
        /// Who is to blame, if a node is.
        blame: Option<NodeName>,
        /// Which promise was not kept.
        fault: Fault,
    },
}

/// Why a move did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It was called off, or a seat could not be opened.
    None,
    /// These first stages did not end their rounds in time.
    Undrained(Vec<NodeName>),
    /// A round is not durable.
    Unstored,
}

/// A move under way.
#[derive(Clone, Debug)]
pub struct Move {
    goal: Goal,
    phase: Phase,
    waiting: BTreeSet<NodeName>,
    until: Micros,
}

impl Goal {
    /// The move from a layout to other seats; `fresh` are nodes that do not have open what their seat of before says.
    /// With `wanted` links are made or let go; without, only those of replicas that are seated anew are let go.
    ///
    /// Linked replicas are seated together: one that changes takes those with it that it is linked to, before or after.
    #[must_use]
    pub fn new(
        from: &Layout,
        epoch: PlanEpoch,
        target: Seats,
        wanted: Option<&Links>,
        broken: &BTreeSet<u32>,
        fresh: &BTreeSet<NodeName>,
        reason: String,
    ) -> Self {
        let before = from.seats();
        let after = |n: &u32| {
            wanted
                .and_then(|links| links.get(n))
                .map_or(&[][..], Vec::as_slice)
        };
        let differs = |n: &u32| {
            let relinked = wanted.is_some() && after(n) != from.linked(*n);
            broken.contains(n) || target.get(n) != before.get(n) || relinked
        };
        let mut anew: BTreeSet<u32> = target.keys().copied().filter(differs).collect();
        let ended: BTreeSet<u32> = before
            .keys()
            .filter(|n| !target.contains_key(n))
            .copied()
            .collect();
        loop {
            let changed = anew.iter().chain(&ended);
            let taken = changed.flat_map(|n| from.linked(*n).iter().chain(after(n)));
            let more: Vec<u32> = taken
                .filter(|n| target.contains_key(n) && !anew.contains(n))
                .copied()
                .collect();
            if more.is_empty() {
                break;
            }
            anew.extend(more);
        }
        let linked = |n: &u32| match anew.contains(n) {
            true => (*n, after(n).to_vec()),
            false => (*n, from.linked(*n).to_vec()),
        };
        let links = target.keys().map(linked).collect();
        let changed: BTreeSet<u32> = anew.union(&ended).copied().collect();
        let mut opened = BTreeMap::new();
        for number in &anew {
            for (stage, seat) in target[number].iter().enumerate() {
                let mut held = before
                    .values()
                    .flatten()
                    .filter(|old| old.node == seat.node);
                let open = held.any(|old| old.layers() == seat.layers());
                if !open || fresh.contains(&seat.node) {
                    opened.insert(seat.node.clone(), (*number, stage as u32));
                }
            }
        }
        let drains = changed.iter().filter(|n| !broken.contains(n));
        let lead = |n: &u32| Some((from.lead(*n)?.clone(), from.replicas.get(n)?.since));
        Self {
            drained: drains.filter_map(lead).collect(),
            epoch,
            target,
            links,
            anew,
            opened,
            reason,
        }
    }

    /// All replicas that do not go on as they are.
    #[must_use]
    pub fn changes(&self, from: &Layout) -> Vec<u32> {
        let ended = from
            .replicas
            .keys()
            .filter(|n| !self.target.contains_key(n));
        let all: BTreeSet<u32> = self.anew.iter().chain(ended).copied().collect();
        all.into_iter().collect()
    }

    /// Whether a node is to have a seat of it.
    #[must_use]
    pub fn seats(&self, node: &NodeName) -> bool {
        let seated = self.anew.iter().filter_map(|n| self.target.get(n));
        seated.flatten().any(|seat| seat.node == *node)
    }

    /// Whether the move needs a node.
    #[must_use]
    pub fn needs(&self, node: &NodeName) -> bool {
        self.drained.contains_key(node) || self.seats(node)
    }
}

impl Move {
    /// Begins a move.
    #[must_use]
    pub fn begin(now: Micros, goal: Goal, bounds: &Bounds) -> (Self, Vec<Effect>) {
        let mut this = Self {
            waiting: goal.opened.keys().cloned().collect(),
            goal,
            phase: Phase::Preparing,
            until: now.plus(bounds.prepare),
        };
        let opened = this.goal.opened.iter();
        let mut effects: Vec<Effect> = opened
            .map(|(node, (replica, stage))| Effect::Prepare(node.clone(), *replica, *stage))
            .collect();
        this.advance(now, bounds, &mut effects);
        (this, effects)
    }

    /// What it is.
    #[must_use]
    pub fn goal(&self) -> &Goal {
        &self.goal
    }

    /// How far it is.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// How far it is, in words.
    #[must_use]
    pub fn progress(&self) -> String {
        let names: Vec<&str> = self.waiting.iter().map(NodeName::as_str).collect();
        match self.phase {
            Phase::Preparing => format!("preparing, waits for {}", names.join(", ")),
            Phase::Draining => format!("draining, waits for {}", names.join(", ")),
            Phase::Over => "over".into(),
        }
    }

    /// Takes an event.
    pub fn step(&mut self, now: Micros, event: Event, bounds: &Bounds) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            _ if self.phase == Phase::Over => {}
            Event::Prepared(node, epoch, outcome) => {
                // TR-3
                let awaited = self.phase == Phase::Preparing && epoch == self.goal.epoch;
                match outcome {
                    _ if !awaited => {}
                    Ok(()) => {
                        self.waiting.remove(&node);
                    }
                    Err(why) => {
                        let reason = format!("{node} could not open its layers: {why}");
                        self.call_off((reason, Some(node)), Fault::None, &mut effects);
                    }
                }
            }
            Event::Drained(node, epoch, outcome) => {
                // TR-3
                let awaited = self.phase == Phase::Draining && epoch == self.goal.epoch;
                match outcome {
                    _ if !awaited || !self.waiting.contains(&node) => {}
                    Ok(()) => {
                        self.waiting.remove(&node);
                    }
                    Err(why) => {
                        let reason = format!("{node} could not make all states durable: {why}");
                        self.call_off((reason, None), Fault::Unstored, &mut effects);
                    }
                }
            }
            Event::Returned(node) => effects.extend(self.again(&node)),
            Event::CallOff(reason) => self.call_off((reason, None), Fault::None, &mut effects),
            Event::Tick => {
                if now >= self.until {
                    let what = self.progress();
                    let (blame, fault) = match self.phase {
                        Phase::Preparing => (self.waiting.first().cloned(), Fault::None),
                        _ => (
                            None,
                            Fault::Undrained(self.waiting.iter().cloned().collect()),
                        ),
                    };
                    let why = (format!("it took too long: {what}"), blame);
                    self.call_off(why, fault, &mut effects);
                }
            }
        }
        self.advance(now, bounds, &mut effects);
        effects
    }

    /// What a node is told once more.
    fn again(&self, node: &NodeName) -> Option<Effect> {
        if !self.waiting.contains(node) {
            return None;
        }
        match self.phase {
            Phase::Preparing => {
                let (replica, stage) = self.goal.opened.get(node)?;
                Some(Effect::Prepare(node.clone(), *replica, *stage))
            }
            Phase::Draining => {
                let epoch = self.goal.drained.get(node)?;
                Some(Effect::Drain(node.clone(), *epoch))
            }
            Phase::Over => None,
        }
    }

    fn call_off(
        &mut self,
        (reason, blame): (String, Option<NodeName>),
        fault: Fault,
        effects: &mut Vec<Effect>,
    ) {
        self.phase = Phase::Over;
        effects.push(Effect::CalledOff {
            reason,
            blame,
            fault,
        });
    }

    /// Goes to the next phase when nothing is waited for.
    fn advance(&mut self, now: Micros, bounds: &Bounds, effects: &mut Vec<Effect>) {
        if self.phase == Phase::Preparing && self.waiting.is_empty() {
            self.phase = Phase::Draining;
            self.until = now.plus(bounds.drain);
            self.waiting = self.goal.drained.keys().cloned().collect();
            let drained = self.goal.drained.iter();
            effects.extend(drained.map(|(node, epoch)| Effect::Drain(node.clone(), *epoch)));
        }
        if self.phase == Phase::Draining && self.waiting.is_empty() {
            // TR-1
            self.phase = Phase::Over;
            effects.push(Effect::Force);
        }
    }
}
