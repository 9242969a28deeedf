//! What a provider's list says of what is held.

use std::collections::BTreeSet;

use shared::ids::NodeName;

use super::record::Entry;
use super::{Custody, Effect, Held, Stage};
use crate::now::Now;
use crate::provider::{Machine, MachineState};

impl Custody {
    pub(super) fn listed(&mut self, machines: &[Machine], now: Now, effects: &mut Vec<Effect>) {
        let mut shown: BTreeSet<NodeName> = BTreeSet::new();
        for machine in machines {
            let token = machine.token.clone().or_else(|| self.token_of(&machine.id));
            let held = token.as_ref().and_then(|token| self.held.get_mut(token));
            let (Some(token), Some(held)) = (token, held) else {
                match self.adopt(machine, now, effects) {
                    Some(token) => _ = shown.insert(token),
                    None => self.stray(machine, now, effects),
                }
                continue;
            };
            match &held.id {
                None => granted(held, machine, now, effects),
                Some(id) if *id != machine.id => {
                    self.stray(machine, now, effects);
                    continue;
                }
                Some(_) => {}
            }
            shown.insert(token.clone());
            if let Some(node) = &machine.node {
                held.node = node.clone();
            }
            held.missed = 0;
            held.missing = None;
            if machine.state == MachineState::Ending && held.stands() {
                let cause = "its provider ends it".to_owned();
                held.leaves(now.steady, cause, now, effects);
            }
        }
        let ids: BTreeSet<&str> = machines.iter().map(|one| one.id.as_str()).collect();
        self.strays.retain(|id, _| ids.contains(id.as_str()));
        let absent: Vec<NodeName> = self
            .held
            .keys()
            .filter(|token| !shown.contains(*token))
            .cloned()
            .collect();
        for token in absent {
            self.unseen(&token, now, effects);
        }
    }

    /// A list that does not show a machine (CU-4).
    fn unseen(&mut self, token: &NodeName, now: Now, effects: &mut Vec<Effect>) {
        let Some(held) = self.held.get_mut(token) else {
            return;
        };
        held.missed += 1;
        let missing = *held.missing.get_or_insert(now.steady);
        let lost = |since| now.steady.since(since) >= self.bounds.lost;
        let over = match held.stage {
            // It may have been granted just now.
            Stage::Asked { since } => since.is_some_and(lost),
            Stage::Releasing { since, .. } if held.id.is_none() => lost(since),
            Stage::Booting { .. } => lost(missing),
            // Where the coordinator does not hear its node either, it is gone.
            Stage::Serving { .. } => held.absent.is_some() || lost(missing),
            _ => true,
        };
        if over && held.missed >= 2 {
            if held.id.is_some() && held.stands() {
                self.closed
                    .insert(token.clone(), (now.steady, held.clone()));
            }
            let cause = match held.stage {
                Stage::Asked { .. } => "no answer, and no list shows it",
                Stage::Releasing { .. } => "released",
                _ => "its provider shows it no more",
            };
            self.close(token, cause, now, effects);
        }
    }

    /// A machine that lists did not show for a while is held again (CU-4).
    fn adopt(
        &mut self,
        machine: &Machine,
        now: Now,
        effects: &mut Vec<Effect>,
    ) -> Option<NodeName> {
        let bound = self.bounds.boot;
        let known = self.closed.iter().find(|(_, (since, held))| {
            let own = held.id.as_ref() == Some(&machine.id);
            let fresh = now.steady.since(*since) < bound;
            own && fresh
                && machine.state != MachineState::Ending
                && !self.strays.contains_key(&machine.id)
        });
        let token = known.map(|(token, _)| token.clone())?;
        let (_, before) = self.closed.remove(&token)?;
        effects.push(Effect::Record(Entry::Asked {
            at: now.wall,
            want: before.want.clone(),
        }));
        let mut held = Held::asked(before.want);
        granted(&mut held, machine, now, effects);
        self.held.insert(token.clone(), held);
        Some(token)
    }
}

/// A request has a machine now.
pub(super) fn granted(held: &mut Held, machine: &Machine, now: Now, effects: &mut Vec<Effect>) {
    let id = &machine.id;
    held.id = Some(id.clone());
    if let Some(node) = &machine.node {
        held.node = node.clone();
    }
    let token = held.want.token.clone();
    effects.push(Effect::Record(Entry::Granted {
        at: now.wall,
        token: token.clone(),
        id: id.to_owned(),
    }));
    match held.stage {
        Stage::Asked { .. } => held.stage = Stage::Booting { since: now.steady },
        // It was given up before it was known.
        Stage::Releasing { .. } => effects.push(Effect::Release {
            id: id.clone(),
            token: Some(token),
        }),
        _ => {}
    }
}
