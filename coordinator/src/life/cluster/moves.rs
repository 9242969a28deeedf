//! Laying the cluster out: when, from what, and what the move's machine wants done.

use std::collections::{BTreeMap, BTreeSet};

use shared::ids::{NodeName, PlanEpoch};
use shared::wire::order::Order;

use super::Coordinator;
use crate::life::layout::{Links, Seats, links, siblings};
use crate::life::membership::{Node, Presence};
use crate::life::placement::{NoPlace, Room, Snapshot, lacking, place};
use crate::life::transition::{self, Event, Goal, Move, Settling};
use crate::record::Change;

impl Coordinator {
    /// A replica cannot go on as it is: whatever was being prepared is prepared anew with that in mind.
    pub(super) fn break_up(&mut self, replica: u32, reason: &str) {
        if self.book.broken.contains(&replica) {
            return;
        }
        self.settling.remove(&replica);
        let reason = reason.to_owned();
        self.record(Change::Broken { replica, reason });
        self.step_move(Event::CallOff(format!("replica {replica} broke")));
        // Their stages lose their links to it.
        let linked = self.book.layout.linked(replica).to_vec();
        for other in linked {
            self.break_up(
                other,
                &format!("it is linked to replica {replica}, which broke"),
            );
        }
    }

    /// Looks whether the cluster should be laid out otherwise, and begins the move.
    pub(super) fn lay_out(&mut self) {
        if self.closing.is_some() {
            return;
        }
        self.note_losses();
        let hurried = self.hurried();
        self.hurry(&hurried);
        if self.moving.is_some() {
            return;
        }
        if !hurried.is_empty() {
            return self.end_hurried(&hurried);
        }
        if self.now.steady < self.retry_at || !self.may_move() {
            return;
        }
        self.learn_paces();
        let snapshot = self.snapshot();
        let before = self.book.layout.seats();
        let placed = place(&snapshot, &before);
        match placed {
            Ok(target) => {
                self.lack = lacking(&snapshot, &target);
                if self.waits_for_more(&target) {
                    return;
                }
                if target != before || !self.book.broken.is_empty() || self.lacks_links() {
                    let reason = self.reason();
                    self.begin_move(target, reason);
                }
            }
            Err(why) => {
                self.lack = Some(why.clone());
                if !before.is_empty() && !self.waits_for_more(&Seats::new()) {
                    self.begin_move(Seats::new(), why.to_string());
                }
            }
        }
    }

    /// Replicas whose nodes are gone are broken; a move that needs one of those is called off.
    fn note_losses(&mut self) {
        let steady = self.now.steady;
        let bounds = self.settings.bounds.clone();
        let gone = |this: &Self, node: &NodeName| {
            this.members.presence(steady, node, &bounds) == Presence::Gone
        };
        let mut found = Vec::new();
        for (number, standing) in &self.book.layout.replicas {
            let lost = standing.seats.iter().find(|seat| gone(self, &seat.node));
            if let Some(seat) = lost {
                found.push((*number, format!("{} is lost", seat.node)));
            }
        }
        for (replica, reason) in found {
            self.break_up(replica, &reason);
        }
        let lost = self.moving.as_ref().and_then(|moving| {
            let seats = moving.goal().target.values().flatten();
            let mut nodes = seats
                .map(|seat| &seat.node)
                .filter(|node| moving.goal().needs(node));
            nodes.find(|node| gone(self, node)).cloned()
        });
        if let Some(node) = lost {
            self.step_move(Event::CallOff(format!("{node} is lost")));
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot<'_> {
        let fit = |(name, node): &(&NodeName, &Node)| {
            let fit = node.unfit_until <= self.now.steady;
            let fit = fit && !node.device.hangs;
            let stays = node.leaving.is_none() && !self.book.draining.contains(*name);
            node.link.is_some() && fit && stays
        };
        let room = |(name, node): (&NodeName, &Node)| {
            let room = Room {
                address: node.hello.address.clone(),
                memory: node.hello.memory,
                threads: node.hello.threads,
                pace: self.pace(node),
            };
            (name.clone(), room)
        };
        let layout = &self.settings.layout;
        Snapshot {
            weights: &self.settings.backbone.weights,
            nodes: self.members.nodes().filter(fit).map(room).collect(),
            stages: layout.stages,
            replicas: layout.replicas,
            activation_budget: layout.activation_budget,
            recompute: layout.recompute,
        }
    }

    /// The links that jobs ask for, if one does.
    fn wanted_links(&self, target: &Seats) -> Option<Links> {
        self.book.ledger.shares().then(|| links(target))
    }

    /// Whether a job asks for links that the layout does not have.
    fn lacks_links(&self) -> bool {
        let layout = &self.book.layout;
        let wanted = self.wanted_links(&layout.seats()).unwrap_or_default();
        wanted.iter().any(|(n, linked)| layout.linked(*n) != linked)
    }

    fn reason(&self) -> String {
        if let Some(replica) = self.book.broken.first() {
            return format!("replica {replica} is broken");
        }
        let seats = self.book.layout.nodes();
        match seats.intersection(&self.book.draining).next() {
            Some(node) => format!("{node} shall be empty"),
            None if seats.iter().any(|node| self.is_leaving(node)) => {
                let node = seats.iter().find(|node| self.is_leaving(node));
                format!("{} leaves", node.map_or("a node", NodeName::as_str))
            }
            None if self.lacks_links() => "replicas are linked, to share steps".into(),
            None => "nodes are here for another replica".into(),
        }
    }

    /// Begins a move to these seats.
    pub(super) fn begin_move(&mut self, target: Seats, reason: String) {
        let goal = self.goal(target, reason);
        self.begin_toward(goal);
    }

    /// The move to these seats. What only settles has nothing yet that a drain could make durable.
    pub(super) fn goal(&self, target: Seats, reason: String) -> Goal {
        let epoch = self.book.last_epoch.next();
        let (layout, broken) = (&self.book.layout, &self.book.broken);
        let (fresh, links) = (self.fresh(), self.wanted_links(&target));
        let mut goal = Goal::new(
            layout,
            epoch,
            target,
            links.as_ref(),
            broken,
            &fresh,
            reason,
        );
        goal.drained.retain(|lead, _| {
            let place = layout.place_of(lead);
            let settling = place.and_then(|(replica, _)| self.settling.get(&replica));
            settling.is_none_or(Settling::is_attaching)
        });
        goal
    }

    /// Begins a move. CL-3
    pub(super) fn begin_toward(&mut self, goal: Goal) {
        // CL-5
        self.retry_at = self.now.steady.plus(self.settings.bounds.retry);
        let replicas = goal.changes(&self.book.layout);
        if replicas.is_empty() {
            return;
        }
        self.record(Change::MoveStarted {
            epoch: goal.epoch,
            replicas,
            reason: goal.reason.clone(),
        });
        let (moving, effects) = Move::begin(self.now.steady, goal, &self.settings.bounds);
        self.moving = Some(moving);
        self.perform(effects);
    }

    /// Nodes that do not hold what the plan in force says.
    fn fresh(&self) -> BTreeSet<NodeName> {
        let standing = self.book.layout.replicas.values();
        let seats = standing.flat_map(|s| s.seats.iter().map(|seat| (&seat.node, s.since)));
        let holds = |node: &NodeName, since: PlanEpoch| {
            let process = self.members.get(node).map(|node| node.hello.incarnation);
            let held = self.holding.get(node);
            held.is_some_and(|(of, epoch)| Some(*of) == process && *epoch == since)
        };
        let fresh = seats.filter(|(node, since)| !holds(node, *since));
        fresh.map(|(node, _)| node.clone()).collect()
    }

    pub(super) fn step_move(&mut self, event: Event) {
        if let Some(mut moving) = self.moving.take() {
            let effects = moving.step(self.now.steady, event, &self.settings.bounds);
            self.moving = Some(moving);
            self.perform(effects);
        }
    }

    fn perform(&mut self, effects: Vec<transition::Effect>) {
        for effect in effects {
            match effect {
                transition::Effect::Prepare(node, replica, stage) => {
                    self.prepare(&node, replica, stage);
                }
                transition::Effect::Drain(node, epoch) => {
                    let toward = self.moving.as_ref().map(|moving| moving.goal().epoch);
                    let toward = toward.unwrap_or_default();
                    self.send_drain(&node, epoch, toward);
                }
                transition::Effect::Force => self.force(),
                transition::Effect::CalledOff {
                    reason,
                    blame,
                    fault,
                } => {
                    self.call_off(reason, blame);
                    self.note_fault(fault);
                }
            }
        }
    }

    fn prepare(&mut self, node: &NodeName, number: u32, stage: u32) {
        let Some(goal) = self.moving.as_ref().map(Move::goal) else {
            return;
        };
        let epoch = goal.epoch;
        let replica = shared::plan::Replica {
            number,
            seats: goal.target.get(&number).cloned().unwrap_or_default(),
            jobs: self.book.ledger.on(number),
            siblings: siblings(
                &goal.target,
                goal.links.get(&number).map_or(&[], Vec::as_slice),
            ),
        };
        self.send(
            node,
            Order::Prepare {
                epoch,
                replica,
                stage,
            },
        );
    }

    /// The plan is in force from this record on.
    fn force(&mut self) {
        let Some(moving) = self.moving.take() else {
            return;
        };
        self.unstored = 0;
        let goal = moving.goal();
        let before: BTreeMap<NodeName, PlanEpoch> = {
            let standing = self.book.layout.replicas.values();
            let seats =
                standing.flat_map(|s| s.seats.iter().map(|seat| (seat.node.clone(), s.since)));
            seats.collect()
        };
        let (target, links) = (&goal.target, &goal.links);
        let layout = self
            .book
            .layout
            .after(goal.epoch, target, &goal.anew, links);
        if layout.replicas.is_empty() {
            self.empty_since = self.now.steady;
        }
        self.record(Change::InForce { layout });
        let standing = &self.book.layout.replicas;
        self.settling
            .retain(|number, _| standing.contains_key(number));
        let after = self.book.layout.nodes();
        for (node, epoch) in before.iter().filter(|(node, _)| !after.contains(*node)) {
            self.holding.remove(node);
            self.send(node, Order::Release { epoch: *epoch });
        }
        let until = self.now.steady.plus(self.settings.bounds.hold);
        for number in &goal.anew {
            let seats = self.book.layout.replicas[number].seats.clone();
            let nodes: BTreeSet<NodeName> = seats.iter().map(|seat| seat.node.clone()).collect();
            self.settling
                .insert(*number, Settling::holding(nodes, until));
            for (stage, seat) in seats.iter().enumerate() {
                self.hold(&seat.node, *number, stage as u32);
            }
        }
    }

    pub(super) fn hold(&mut self, node: &NodeName, number: u32, stage: u32) {
        let layout = &self.book.layout;
        let epoch = layout.replicas.get(&number).map(|standing| standing.since);
        let replica = layout.replica(number, self.book.ledger.on(number));
        if let (Some(epoch), Some(replica)) = (epoch, replica) {
            self.send(
                node,
                Order::Hold {
                    epoch,
                    replica,
                    stage,
                },
            );
        }
    }

    /// All goes on as before.
    fn call_off(&mut self, reason: String, blame: Option<NodeName>) {
        let Some(moving) = self.moving.take() else {
            return;
        };
        let goal = moving.goal();
        let epoch = goal.epoch;
        self.record(Change::MoveCalledOff { epoch, reason });
        let unfit_until = self.now.steady.plus(self.settings.bounds.penalty);
        if let Some(node) = blame.and_then(|node| self.members.get_mut(&node)) {
            node.unfit_until = unfit_until;
        }
        let told: BTreeSet<&NodeName> = goal.opened.keys().chain(goal.drained.keys()).collect();
        for node in told {
            let since = self.book.layout.place_of(node);
            let since = since.map(|(replica, _)| self.book.layout.replicas[&replica].since);
            let order = match since {
                Some(epoch) => Order::Undrain { epoch },
                None => Order::Release { epoch },
            };
            self.send(node, order);
        }
    }

    /// Moves the stage of a node to another, or takes it off where none is named.
    ///
    /// # Errors
    /// [`NoPlace`] when the other cannot take it.
    pub(super) fn migrated(
        &self,
        from: &NodeName,
        to: Option<&NodeName>,
    ) -> Result<Seats, NoPlace> {
        let mut snapshot = self.snapshot();
        let before = self.book.layout.seats();
        match to {
            Some(to) => snapshot.swap(&before, from, to),
            None => {
                snapshot.nodes.remove(from);
                place(&snapshot, &before)
            }
        }
    }
}
