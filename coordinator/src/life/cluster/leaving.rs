//! Nodes that said that they go: asked to end, or on machines that are taken away. CL-8
//!
//! Such a node is as one to be empty: its stage moves, or where there is no other node its replica ends, in order. What a
//! move prepares takes time, and a node does not wait for ever: in the last third of its notice the replica ends at once,
//! which makes its jobs durable, and is seated anew where there is room. A node that holds nothing is told to stop.
//!
//! That end comes before everything else. A move that does not drain that replica is called off for it, and it waits
//! neither until all nodes are here nor until all replicas have settled.

use std::collections::BTreeSet;

use shared::ids::NodeName;
use shared::units::Micros;
use shared::wire::notice::{Departure, LeaveCause};
use shared::wire::order::Order;
use shared::wire::request::{Refusal, Reply};

use super::Coordinator;
use super::requests::never_came;
use crate::life::membership::{Leaving, LinkId, Node};
use crate::life::transition::{Event, Move, Phase};
use crate::record::Change;

impl Coordinator {
    /// A node says that it goes; again on each of its connections.
    pub(super) fn leaves(&mut self, name: NodeName, departure: Departure) {
        if self.is_stopping() {
            return;
        }
        let Departure { within, cause } = departure;
        let now = self.now.steady;
        let told = Leaving::told(now, [within; 2], self.settings.bounds.drain, cause);
        // Who is gone already goes no more.
        let there = |node: &&mut Node| !node.gone || node.link.is_some();
        let Some(node) = self.members.get_mut(&name).filter(there) else {
            return;
        };
        let incarnation = node.hello.incarnation;
        let before = node.leaving;
        node.leaving = Some(Leaving {
            // A notice that says less than the one before counts; said again, the same one gives no more time.
            hurry: before.map_or(told.hurry, |before| before.hurry.min(told.hurry)),
            ..told
        });
        if before.is_some() {
            return;
        }
        let node = name.clone();
        self.record(Change::NodeLeaving {
            node,
            within,
            cause,
            incarnation,
        });
        if self.moving.as_ref().is_some_and(|m| m.goal().seats(&name)) {
            self.step_move(Event::CallOff(format!("{name} leaves")));
        }
        self.press_drain(&name);
        // CL-5: it leaves once.
        self.retry_at = now;
    }

    /// A node is back of which the journal says that it goes: who said so need not say it again to a new leadership.
    pub(super) fn goes_still(&mut self, name: &NodeName, incarnation: u64) {
        let going = self.book.going.get(name);
        let Some(going) = going.filter(|going| going.incarnation == incarnation) else {
            return;
        };
        // A wall clock that jumped back gives no more time than was told.
        let left = going.until.since(self.now.wall).min(going.within);
        let (now, drain) = (self.now.steady, self.settings.bounds.drain);
        let told = Leaving::told(now, [left, going.within], drain, going.cause);
        if let Some(node) = self.members.get_mut(name) {
            node.leaving.get_or_insert(told);
        }
    }

    /// Somebody who knows says that the machine of a node will be taken: as if the node had said so itself.
    ///
    /// # Errors
    /// [`Refusal`] where there is no such node.
    pub(super) fn reclaim(&mut self, node: &NodeName, within: Micros) -> Result<Reply, Refusal> {
        if self.members.get(node).is_none() {
            return Err(never_came(node));
        }
        let cause = LeaveCause::Reclaimed;
        self.leaves(node.clone(), Departure { within, cause });
        Ok(Reply::Done)
    }

    /// Tells those to stop that leave and hold nothing.
    pub(super) fn let_go(&mut self) {
        if self.closing.is_some() {
            return;
        }
        let needed = |name: &NodeName| {
            let moving = self.moving.as_ref();
            self.book.layout.place_of(name).is_some()
                || moving.is_some_and(|moving| moving.goal().needs(name))
        };
        let waits = |node: &Node| {
            let leaving = node.leaving.is_some_and(|leaving| !leaving.released);
            leaving && node.link.is_some()
        };
        let free = self
            .members
            .nodes()
            .filter(|(name, node)| waits(node) && !needed(name));
        let free: Vec<NodeName> = free.map(|(name, _)| name.clone()).collect();
        for name in free {
            self.send(&name, Order::Stop);
            let node = self.members.get_mut(&name);
            if let Some(leaving) = node.and_then(|node| node.leaving.as_mut()) {
                leaving.released = true;
            }
        }
    }

    /// A node is not here any more, and does not come back if it was let go or its time is over; whether that is so.
    pub(super) fn left(&mut self, name: &NodeName) -> bool {
        let node = self.members.get(name).filter(|node| !node.gone);
        match node.and_then(|node| node.leaving) {
            Some(leaving) if leaving.released => {
                self.members.lose(name);
                let node = self.members.get_mut(name);
                if let Some(leaving) = node.and_then(|node| node.leaving.as_mut()) {
                    leaving.left = true;
                }
                self.holding.remove(name);
                self.risks.forget(name);
                let node = name.clone();
                self.record(Change::NodeLeft { node });
            }
            Some(_) => return self.is_late(name),
            None => return false,
        }
        true
    }

    /// Whether the time of a node that is not here is over without its having been let go: it is lost.
    fn is_late(&mut self, name: &NodeName) -> bool {
        let node = self.members.get(name).filter(|node| !node.gone);
        let leaving = node.and_then(|node| node.leaving);
        let late = leaving.filter(|told| !told.released && self.now.steady >= told.until);
        if let Some(leaving) = late {
            self.lose(name, &format!("{}, and its time was over", leaving.cause));
        }
        late.is_some()
    }

    /// Another process says hello under the name of one that was let go.
    pub(super) fn succeed(&mut self, name: &NodeName, incarnation: u64) {
        let node = self.members.get(name);
        let released = node.is_some_and(|node| {
            let other = node.hello.incarnation != incarnation;
            other && node.leaving.is_some_and(|leaving| leaving.released)
        });
        if released {
            self.left(name);
        }
    }

    /// Whether a node said that it goes.
    pub(super) fn is_leaving(&self, node: &NodeName) -> bool {
        let node = self.members.get(node);
        node.is_some_and(|node| node.leaving.is_some())
    }

    /// Replicas that can save and end at once, as a node of theirs goes too soon for another to be made ready.
    pub(super) fn hurried(&self) -> BTreeSet<u32> {
        let soon = |node: &&Node| {
            let leaving = node.leaving;
            leaving.is_some_and(|leaving| self.now.steady >= leaving.hurry)
        };
        let here = self.members.nodes().filter(|(_, node)| soon(node));
        let places = here.filter_map(|(name, _)| self.book.layout.place_of(name));
        let replicas = places.map(|(replica, _)| replica);
        replicas.filter(|n| self.can_save(*n)).collect()
    }

    /// Calls off a move that is in the way of such an end: any that does not drain one of those replicas already. CL-8
    pub(super) fn hurry(&mut self, hurried: &BTreeSet<u32>) {
        let layout = &self.book.layout;
        let drains = |moving: &Move| {
            let mut leads = hurried.iter().filter_map(|number| layout.lead(*number));
            let drained = &moving.goal().drained;
            moving.phase() == Phase::Draining && leads.any(|lead| drained.contains_key(lead))
        };
        let moving = self.moving.as_ref();
        if !hurried.is_empty() && moving.is_some_and(|moving| !drains(moving)) {
            let reason = "a node leaves before its stage can move: its jobs are made durable first";
            self.step_move(Event::CallOff(reason.into()));
        }
    }

    /// Ends replicas in order whose nodes go before another can be made ready, at most once in `bounds.retry`. Nothing is
    /// prepared for it: who is broken, or would have to open a seat, ends too, and is seated anew by the next move. CL-8
    pub(super) fn end_hurried(&mut self, hurried: &BTreeSet<u32>) {
        let now = self.now.steady;
        if now < self.hurry_at {
            return;
        }
        self.hurry_at = now.plus(self.settings.bounds.retry);
        let mut target = self.book.layout.seats();
        let seats = target
            .iter()
            .filter(|(n, _)| hurried.contains(*n))
            .flat_map(|(_, seats)| seats);
        let leaving = seats.filter(|seat| self.is_leaving(&seat.node));
        let leaving: Vec<&str> = leaving.map(|seat| seat.node.as_str()).collect();
        let reason = format!("{} leaves", leaving.join(", "));
        target.retain(|n, _| !hurried.contains(n) && !self.book.broken.contains(n));
        let mut goal = self.goal(target.clone(), reason.clone());
        while let Some((unready, _)) = goal.opened.values().next().copied() {
            target.remove(&unready);
            goal = self.goal(target.clone(), reason.clone());
        }
        self.begin_toward(goal);
    }

    /// A connection ended. One of a node that was let go may have been lost with the word: it has left when it said so,
    /// or does not come back. CL-14
    pub(super) fn closed_link(&mut self, link: LinkId, said_so: bool) -> Option<NodeName> {
        let name = self.members.closed(self.now.steady, link)?;
        if said_so {
            self.left(&name);
        } else {
            self.is_late(&name);
        }
        Some(name)
    }
}
