//! Machines that are emptied before they are let go (BR-1).
//!
//! - EM-1: a coordinator that has just begun lists only nodes that have said hello to it: one that it does not list may hold work, and
//!   may be drained. So such a machine is waited for up to its grace, and what was drained from here is known as that until it is
//!   listed and takes work, or was listed by no coordinator that was heard for as long as a machine may take to join.

use std::collections::{BTreeMap, BTreeSet};

use shared::ids::NodeName;
use shared::units::Micros;

use super::{Broker, Effect, say};
use crate::custody;
use crate::now::Now;
use crate::provider::Want;

/// One of them; instants are by the steady clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Emptied {
    since: Micros,
    /// When it will be gone; nothing when it is given up freely.
    until: Option<Micros>,
}

impl Emptied {
    fn is_late(self, now: Now, grace: Micros) -> bool {
        now.steady >= self.until.unwrap_or(self.since).plus(grace)
    }
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Emptying {
    /// By the request that they came of.
    held: BTreeMap<NodeName, Emptied>,
    /// Nodes that were drained from here, until they are seen to take work or are gone, and since when a coordinator that is heard
    /// does not list them.
    given_up: BTreeMap<NodeName, Option<Micros>>,
}

impl Emptying {
    /// What a process before this one was emptying.
    pub(super) fn resumed(
        tokens: BTreeMap<NodeName, Option<Micros>>,
        given_up: BTreeSet<NodeName>,
        now: Now,
    ) -> Self {
        let since = now.steady;
        let held = tokens.into_iter().map(|(token, until)| {
            let until = until.map(|wall| now.steady_of(wall));
            (token, Emptied { since, until })
        });
        Self {
            held: held.collect(),
            given_up: given_up.into_iter().map(|node| (node, None)).collect(),
        }
    }

    pub(super) fn begin(&mut self, token: NodeName, until: Option<Micros>, now: Now) {
        let since = now.steady;
        self.held.insert(token, Emptied { since, until });
    }

    pub(super) fn end(&mut self, token: &NodeName) {
        self.held.remove(token);
    }

    pub(super) fn contains(&self, token: &NodeName) -> bool {
        self.held.contains_key(token)
    }

    /// All, with when they will be gone by the wall.
    pub(super) fn kept(&self, now: Now) -> BTreeMap<NodeName, Option<Micros>> {
        let held = self.held.iter();
        held.map(|(token, own)| (token.clone(), own.until.map(|until| now.wall_of(until))))
            .collect()
    }

    /// Those that took longer than they may.
    pub(super) fn late(&self, now: Now, grace: Micros) -> BTreeSet<NodeName> {
        let held = self.held.iter().filter(|(_, own)| own.is_late(now, grace));
        held.map(|(token, _)| token.clone()).collect()
    }

    pub(super) fn given_up(&self) -> BTreeSet<NodeName> {
        self.given_up.keys().cloned().collect()
    }

    /// The coordinator was asked to drain a node; whether that is new.
    pub(super) fn drained(&mut self, node: &NodeName) -> bool {
        self.given_up.insert(node.clone(), None).is_none()
    }

    /// The coordinator is not heard: what it does not list says nothing (EM-1).
    pub(super) fn unheard(&mut self) {
        self.given_up.values_mut().for_each(|absent| *absent = None);
    }

    /// Forgets nodes that no list showed for so long.
    fn forget(&mut self, listed: impl Fn(&NodeName) -> bool, now: Now, bound: Micros) {
        self.given_up.retain(|node, absent| {
            *absent = (!listed(node)).then(|| absent.unwrap_or(now.steady));
            absent.is_none_or(|since| now.steady.since(since) <= bound)
        });
    }
}

impl Broker {
    /// The node that came of a request.
    pub(super) fn node_of(&self, token: &NodeName) -> NodeName {
        let held = self.custody.held().get(token);
        held.map_or_else(|| token.clone(), |held| held.node.clone())
    }

    /// Machines that leave though nobody here asked for it: their cloud or queue told them, or an operator drains them. They are
    /// replaced at once, and given back when they are empty. Nodes of a fixed list stay: they are not made for a request.
    pub(super) fn leave_by_themselves(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let standing = self.custody.standing().filter(|held| {
            let token = &held.want.token;
            let own = held.serves() && held.node == *token;
            let draining = self.nodes.get(token).is_some_and(|node| node.draining);
            let asked = self.emptying.contains(token) || self.emptying.given_up.contains_key(token);
            own && draining && !asked
        });
        let leaving: Vec<Want> = standing.map(|held| held.want.clone()).collect();
        for want in leaving {
            self.avoid(&want, now);
            let token = want.token.clone();
            say(
                effects,
                false,
                format!("{token} leaves: another takes its place"),
            );
            self.emptying.begin(token, None, now);
            self.taken(Some(&want));
        }
    }

    /// Asks again for what the coordinator has not begun, and lets go what is empty.
    pub(super) fn empty_again(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let mut over = Vec::new();
        for (name, emptied) in &self.emptying.held {
            let own = self.node_of(name);
            let node = self.nodes.get(&own);
            // One that is not heard for a while, or not listed yet (EM-1), may hold work all the same.
            let holds = node.is_none_or(|node| node.holds);
            if !holds || emptied.is_late(now, self.terms.grace) {
                over.push(name.clone());
            } else if node.is_some_and(|node| node.alive && !node.draining) {
                effects.push(Effect::Drain {
                    node: own,
                    until: emptied.until,
                });
            }
        }
        for name in over {
            self.emptying.held.remove(&name);
            let event = custody::Event::Release {
                token: name,
                cause: "it holds nothing any more".into(),
            };
            self.machine(event, now, effects);
        }
    }

    /// Gives work again to nodes of a fixed list that were given up before. What an operator drains stays drained.
    pub(super) fn take_back(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let (nodes, bound) = (&self.nodes, self.custody.bounds().boot);
        let listed = |node: &NodeName| nodes.contains_key(node);
        self.emptying.forget(listed, now, bound);
        let standing = self.custody.standing();
        let standing = standing.filter(|held| !self.emptying.held.contains_key(&held.want.token));
        let standing: Vec<NodeName> = standing.map(|held| held.node.clone()).collect();
        for node in standing {
            // Whether a node that is not heard is drained is not told.
            let Some(told) = self.nodes.get(&node).filter(|node| node.alive) else {
                continue;
            };
            if !told.draining {
                self.emptying.given_up.remove(&node);
            } else if self.emptying.given_up.contains_key(&node) {
                effects.push(Effect::Undrain(node));
            }
        }
    }
}
