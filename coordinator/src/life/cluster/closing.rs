//! The end of the cluster in order: what jobs have learned is made durable first, and then all nodes stop. CL-7
//!
//! A node that was told to stop and says that it ends has left: it is not lost, and what its neighbours say of it is no
//! news. One whose connection ends without that word may not have heard the order, and one may be away when the others are
//! told: both are waited for as long as it may take to come back, and are told then. Who does not come back has left.
//! One that is silent instead is lost, as ever. A replica that is durable ends with its nodes: the next leadership
//! makes a plan, and finds none broken. CL-14
//!
//! A leadership that has just begun has not heard yet from all that train. Who leads a replica that is coming back is
//! waited for, saves once it is here, and any node of the plan is told to stop when it comes, for as long as it may
//! take to come (`bounds.attach`). What is stopped before it said that it is durable is told. Nodes that were told to
//! stop are waited for no longer than `bounds.drain`: then their connections are closed, and they are lost.

use std::collections::{BTreeMap, BTreeSet};

use shared::ids::{NodeName, PlanEpoch};
use shared::units::Micros;
use shared::wire::notice::LeaveCause;
use shared::wire::order::Order;

use super::{Coordinator, Effect};
use crate::life::layout::Links;
use crate::life::membership::{Leaving, LinkId, Presence};
use crate::life::transition::Event;
use crate::record::Change;

/// Toward no plan: the cluster ends.
pub(super) const THE_END: PlanEpoch = PlanEpoch(0);

/// How far the end is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// First stages end their round and make it durable, each under its epoch.
    Saving {
        leads: BTreeMap<NodeName, PlanEpoch>,
        /// Those that are done.
        saved: BTreeSet<NodeName>,
        until: Micros,
        /// Nodes of the plan that this leadership has not heard yet.
        unheard: BTreeSet<NodeName>,
    },
    /// All nodes are told to stop.
    Stopping {
        /// They are waited for until then.
        until: Micros,
        /// As above.
        unheard: BTreeSet<NodeName>,
    },
}

impl Coordinator {
    /// Everybody stops in order, and jobs go on when the cluster is up again; asked a second time, it waits for nothing more to be saved.
    pub(super) fn shut_down(&mut self) {
        if self.closing.is_some() {
            return self.stop_all();
        }
        self.step_move(Event::CallOff("the cluster is being shut down".into()));
        let numbers = self.book.layout.replicas.keys().copied();
        let may_know = numbers.filter(|n| self.is_at_work(*n) || self.is_attaching(*n));
        let leads: BTreeMap<NodeName, PlanEpoch> = may_know.filter_map(|n| self.lead(n)).collect();
        let nodes = self.book.layout.nodes().into_iter();
        let unheard = nodes.filter(|node| self.members.get(node).is_none());
        let unheard = unheard.collect();
        // One that is not back yet is told when it is.
        for (lead, epoch) in &leads {
            self.send_drain(lead, *epoch, THE_END);
        }
        let until = self.now.steady.plus(self.settings.bounds.drain);
        self.closing = Some(Closing::Saving {
            leads,
            saved: BTreeSet::new(),
            until,
            unheard,
        });
        self.go_on_closing();
    }

    /// A first stage has made its round durable.
    pub(super) fn saved(&mut self, node: &NodeName, epoch: PlanEpoch) {
        if let Some(Closing::Saving { leads, saved, .. }) = &mut self.closing
            && leads.get(node) == Some(&epoch)
        {
            leads.remove(node);
            saved.insert(node.clone());
            self.go_on_closing();
        }
    }

    /// Looks how far the end is: when nothing more will be saved all stop, and when the last node left it is over.
    pub(super) fn go_on_closing(&mut self) {
        if let Some(Closing::Saving { leads, until, .. }) = &self.closing {
            let saves = |node: &NodeName| {
                let place = self.book.layout.place_of(node);
                let may_know = place.is_some_and(|(replica, _)| {
                    self.is_at_work(replica) || self.is_attaching(replica)
                });
                let (now, bounds) = (self.now.steady, &self.settings.bounds);
                // One that is away may come back, and is then told again.
                may_know && self.members.presence(now, node, bounds) != Presence::Gone
            };
            let over = self.now.steady >= *until || !leads.keys().any(saves);
            if !over {
                return;
            }
            self.stop_all();
        }
        let Some(Closing::Stopping { until, unheard }) = &self.closing else {
            return;
        };
        let (now, bounds) = (self.now.steady, &self.settings.bounds);
        let here = self.members.nodes().any(|(name, node)| {
            node.link.is_some() || self.members.presence(now, name, bounds) == Presence::Away
        });
        let comes = |name: &NodeName| {
            let presence = self.members.presence(now, name, bounds);
            self.members.get(name).is_none() && presence == Presence::Away
        };
        let over = now >= *until;
        if !over && (here || unheard.iter().any(comes)) {
            return;
        }
        self.give_up_stopping();
        self.effect(Effect::Finished);
    }

    /// Nodes that were told to stop and are still here are lost.
    fn give_up_stopping(&mut self) {
        let bound = self.settings.bounds.drain;
        let links = self.members.nodes();
        let links = links.filter_map(|(name, node)| Some((name.clone(), node.link?)));
        let links: Vec<(NodeName, LinkId)> = links.collect();
        for (node, link) in links {
            let reason = format!(
                "it was told to stop and has not ended within {bound}: end its process on its machine"
            );
            self.members.closed(self.now.steady, link);
            self.close(link, reason.clone());
            self.lose(&node, &reason);
        }
    }

    /// Whether all nodes are told to stop: links that end are as they should be.
    pub(super) fn is_stopping(&self) -> bool {
        matches!(self.closing, Some(Closing::Stopping { .. }))
    }

    /// A first stage is stopped that did not say that all it knows is durable.
    fn tell_unsaved(&mut self, node: NodeName) {
        let place = self.book.layout.place_of(&node).map(|(replica, _)| replica);
        // Of one that broke it was told.
        let place = place.filter(|replica| !self.book.broken.contains(replica));
        let works = place.is_some_and(|replica| !self.book.ledger.on(replica).is_empty());
        if !works {
            return;
        }
        let bounds = &self.settings.bounds;
        let reason = match self.members.presence(self.now.steady, &node, bounds) {
            Presence::Here => "it was not waited for any longer",
            Presence::Away => "it has no connection, and was not waited for any longer",
            Presence::Gone => "it did not come back",
        };
        let reason = reason.to_owned();
        self.record(Change::Unsaved { node, reason });
    }

    /// Replicas that are durable end, and with them those that are broken. TR-1
    fn end_saved(&mut self, saved: &BTreeSet<NodeName>) {
        let layout = &self.book.layout;
        let ended = |number: &u32| {
            let lead = layout.lead(*number);
            self.book.broken.contains(number) || lead.is_some_and(|lead| saved.contains(lead))
        };
        let mut target = layout.seats();
        target.retain(|number, _| !ended(number));
        if target.len() < layout.replicas.len() {
            let epoch = self.book.last_epoch.next();
            let layout = layout.after(epoch, &target, &BTreeSet::new(), &Links::new());
            self.record(Change::InForce { layout });
        }
    }

    fn stop_all(&mut self) {
        match self.closing.take() {
            Some(Closing::Saving {
                leads,
                saved,
                unheard,
                ..
            }) => {
                let until = self.now.steady.plus(self.settings.bounds.drain);
                self.closing = Some(Closing::Stopping { until, unheard });
                leads.into_keys().for_each(|node| self.tell_unsaved(node));
                self.end_saved(&saved);
            }
            before => self.closing = before,
        }
        let here = self.members.nodes().filter(|(_, node)| node.link.is_some());
        let names: Vec<NodeName> = here.map(|(name, _)| name.clone()).collect();
        for node in &names {
            self.stop(node);
        }
    }

    /// Tells a node to stop: again on each of its connections.
    pub(super) fn stop(&mut self, node: &NodeName) {
        self.send(node, Order::Stop);
        let now = self.now.steady;
        if let Some(node) = self.members.get_mut(node) {
            node.leaving = Some(Leaving {
                until: now,
                hurry: now,
                cause: LeaveCause::Asked,
                released: true,
                left: false,
            });
        }
    }

    /// A first stage is back before it told that its round is durable: the order, or the answer, may be lost.
    pub(super) fn save_again(&mut self, node: &NodeName, epoch: PlanEpoch) {
        let unsaved = match &self.closing {
            Some(Closing::Saving { leads, .. }) => leads.get(node) == Some(&epoch),
            _ => false,
        };
        if unsaved {
            self.send_drain(node, epoch, THE_END);
        }
    }
}
