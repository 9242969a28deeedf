//! Machines from the request to the end, whatever their provider says: nothing is asked for that is not on record, and nothing
//! that was asked for is forgotten.
//!
//! ```text
//! asked --answer--> booting --its node joins--> serving --notice--> leaving
//!   |                  |                           |                   |
//!   |                  '----------- release -------+-------------------'
//!   '-- no answer: looked up in lists                  |
//!                                       releasing --not in a list any more--> closed
//! ```
//!
//! - CU-1: [`Effect::Record`] of a request comes before the call it is about.
//! - CU-2: what is asked for joins, or is released, within [`Bounds::boot`]; what is being released is released again every
//!   [`Bounds::again`] until no list shows it, and said aloud after [`Bounds::alarm`].
//! - CU-3: a machine of this cluster that a list shows and nobody asked for, or a second one of the same token, is released.
//! - CU-4: a machine that is in no list is taken for gone after two lists in a row, not one: lists lag.

mod machine;
pub mod record;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use shared::ids::NodeName;
use shared::units::Micros;

pub use machine::{Held, Stage};
use record::Entry;

use crate::provider::{Certainty, Machine, MachineState, ProviderError, Signal, Want};

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// A request whose answer was lost and that no list shows is given up after so long.
    pub lost: Micros,
    /// A machine whose node has not joined is released after so long.
    pub boot: Micros,
    /// A machine that is told to end is told again after so long.
    pub again: Micros,
    /// One that does not end is said aloud after so long.
    pub alarm: Micros,
}

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A machine is wanted.
    Acquire(Want),
    /// A request was answered.
    Answered {
        /// Which.
        token: NodeName,
        /// With what.
        answer: Result<Machine, ProviderError>,
    },
    /// A machine is no longer wanted.
    Release {
        /// Of this request.
        token: NodeName,
        /// Why.
        cause: String,
    },
    /// The provider showed all machines of this cluster, as they were after all calls answered by then.
    Listed(Vec<Machine>),
    /// The coordinator showed its nodes that live.
    Joined(BTreeSet<NodeName>),
    /// The provider says something of a machine's end.
    Signal(Signal),
    /// Time passes.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Keep this durably before anything that follows.
    Record(Entry),
    /// Ask for a machine.
    Acquire(Want),
    /// End a machine.
    Release {
        /// The provider's name for it.
        id: String,
        /// The request, where one is known.
        token: Option<NodeName>,
    },
    /// Its node serves.
    Ready(NodeName),
    /// A machine will end at that time: take its work off it.
    Leaving {
        /// Which.
        token: NodeName,
        /// When, since 1970.
        deadline: Micros,
        /// In the provider's words.
        cause: String,
    },
    /// A machine may end.
    AtRisk {
        /// Which.
        token: NodeName,
        /// In the provider's words.
        cause: String,
    },
    /// A machine is gone, or never came.
    Lost {
        /// Which.
        token: NodeName,
        /// Whether it had served.
        served: bool,
        /// Why.
        cause: String,
    },
    /// Someone must look: what costs money does not end.
    Alarm {
        /// The provider's name for it.
        id: String,
        /// What.
        what: String,
    },
}

/// All machines of one provider.
#[derive(Clone, Debug)]
pub struct Custody {
    held: BTreeMap<NodeName, Held>,
    /// Machines that nobody asked for, being released: when they were told to end first and last, and whether that was said
    /// aloud.
    strays: BTreeMap<String, Stray>,
    bounds: Bounds,
    /// The notice that the provider gives where a signal names no time.
    notice: Micros,
}

#[derive(Clone, Copy, Debug)]
struct Stray {
    since: Micros,
    told: Micros,
    alarmed: bool,
}

impl Custody {
    /// What a record says is held: nothing is known of it until the first list.
    #[must_use]
    pub fn resumed(entries: &[Entry], bounds: Bounds, notice: Micros, now: Micros) -> Self {
        let held = record::open(entries)
            .into_iter()
            .map(|(token, open)| (token, Held::resumed(open, now)))
            .collect();
        Self {
            held,
            strays: BTreeMap::new(),
            bounds,
            notice,
        }
    }

    /// All that is held, by token.
    #[must_use]
    pub const fn held(&self) -> &BTreeMap<NodeName, Held> {
        &self.held
    }

    /// Machines that count for a job: asked for, booting or serving, not on their way out.
    pub fn standing(&self) -> impl Iterator<Item = &Held> {
        self.held.values().filter(|held| held.stands())
    }

    /// Whether nothing is held and nothing is being released.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.strays.is_empty()
    }

    /// Takes an event in at an instant since 1970.
    pub fn step(&mut self, event: Event, now: Micros) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Acquire(want) => self.acquire(want, now, &mut effects),
            Event::Answered { token, answer } => self.answered(&token, answer, now, &mut effects),
            Event::Release { token, cause } => self.release(&token, &cause, now, &mut effects),
            Event::Listed(machines) => self.listed(&machines, now, &mut effects),
            Event::Joined(nodes) => self.joined(&nodes, now, &mut effects),
            Event::Signal(signal) => self.signal(signal, now, &mut effects),
            Event::Tick => self.tick(now, &mut effects),
        }
        effects
    }

    fn acquire(&mut self, want: Want, now: Micros, effects: &mut Vec<Effect>) {
        // The same token is the same request.
        if self.held.contains_key(&want.token) {
            return;
        }
        effects.push(Effect::Record(Entry::Asked {
            at: now,
            want: want.clone(),
        }));
        effects.push(Effect::Acquire(want.clone()));
        self.held.insert(want.token.clone(), Held::asked(want, now));
    }

    fn answered(
        &mut self,
        token: &NodeName,
        answer: Result<Machine, ProviderError>,
        now: Micros,
        effects: &mut Vec<Effect>,
    ) {
        let Some(held) = self.held.get_mut(token) else {
            // Closed meanwhile: whatever came of it is nobody's.
            if let Ok(machine) = answer {
                self.stray(&machine, now, effects);
            }
            return;
        };
        match answer {
            Ok(machine) => {
                let known = held.id.clone();
                match known {
                    Some(id) if id != machine.id => self.stray(&machine, now, effects),
                    Some(_) => {}
                    None => granted(held, &machine, now, effects),
                }
            }
            Err(error) if error.is_certain() && held.id.is_none() => {
                self.close(token, &error.to_string(), now, effects);
            }
            Err(_) => {}
        }
    }

    fn release(&mut self, token: &NodeName, cause: &str, now: Micros, effects: &mut Vec<Effect>) {
        let Some(held) = self.held.get_mut(token) else {
            return;
        };
        if matches!(held.stage, Stage::Releasing { .. }) {
            return;
        }
        effects.push(Effect::Record(Entry::Releasing {
            at: now,
            token: token.clone(),
            cause: cause.to_owned(),
        }));
        held.stage = Stage::Releasing {
            since: now,
            told: now,
            alarmed: false,
        };
        if let Some(id) = &held.id {
            effects.push(Effect::Release {
                id: id.clone(),
                token: Some(token.clone()),
            });
        }
    }

    fn listed(&mut self, machines: &[Machine], now: Micros, effects: &mut Vec<Effect>) {
        let mut shown: BTreeSet<NodeName> = BTreeSet::new();
        for machine in machines {
            let token = machine.token.clone().or_else(|| self.token_of(&machine.id));
            let held = token.as_ref().and_then(|token| self.held.get_mut(token));
            let (Some(token), Some(held)) = (token, held) else {
                self.stray(machine, now, effects);
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
            if machine.state == MachineState::Ending && held.stands() {
                let cause = "its provider ends it".to_owned();
                leaving(held, &token, now, cause, now, effects);
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
    fn unseen(&mut self, token: &NodeName, now: Micros, effects: &mut Vec<Effect>) {
        let Some(held) = self.held.get_mut(token) else {
            return;
        };
        held.missed += 1;
        let twice = held.missed >= 2;
        let over = match held.stage {
            // It may have been granted just now.
            Stage::Asked { since } => twice && now.since(since) >= self.bounds.lost,
            Stage::Releasing { since, .. } if held.id.is_none() => {
                twice && now.since(since) >= self.bounds.lost
            }
            _ => twice,
        };
        if over {
            let cause = match held.stage {
                Stage::Asked { .. } => "no answer, and no list shows it",
                Stage::Releasing { .. } => "released",
                _ => "its provider shows it no more",
            };
            self.close(token, cause, now, effects);
        }
    }

    fn joined(&mut self, nodes: &BTreeSet<NodeName>, now: Micros, effects: &mut Vec<Effect>) {
        for (token, held) in &mut self.held {
            let booting = matches!(held.stage, Stage::Asked { .. } | Stage::Booting { .. });
            if booting && nodes.contains(&held.node) {
                held.stage = Stage::Serving { since: now };
                held.served = true;
                effects.push(Effect::Ready(token.clone()));
            }
        }
    }

    fn signal(&mut self, signal: Signal, now: Micros, effects: &mut Vec<Effect>) {
        let Some(token) = self.token_of(&signal.id) else {
            return;
        };
        let notice = self.notice;
        let Some(held) = self.held.get_mut(&token) else {
            return;
        };
        match signal.certainty {
            Certainty::Risk if held.stands() && !held.at_risk => {
                held.at_risk = true;
                effects.push(Effect::AtRisk {
                    token,
                    cause: signal.cause,
                });
            }
            Certainty::Notice if held.stands() => {
                let deadline = signal.deadline.unwrap_or_else(|| now.plus(notice));
                leaving(held, &token, deadline, signal.cause, now, effects);
            }
            _ => {}
        }
    }

    fn tick(&mut self, now: Micros, effects: &mut Vec<Effect>) {
        let bounds = self.bounds;
        let late: Vec<(NodeName, &str)> = self
            .held
            .iter()
            .filter_map(|(token, held)| match held.stage {
                Stage::Booting { since } if now.since(since) >= bounds.boot => {
                    Some((token.clone(), "its node never joined"))
                }
                // A machine that outlives its notice still costs.
                Stage::Leaving { until, .. } if now >= until.plus(bounds.again) => {
                    Some((token.clone(), "its notice is over"))
                }
                _ => None,
            })
            .collect();
        for (token, cause) in late {
            let served = self.held.get(&token).is_some_and(|held| held.served);
            self.release(&token, cause, now, effects);
            if !served {
                effects.push(Effect::Lost {
                    token,
                    served,
                    cause: cause.to_owned(),
                });
            }
        }
        for (token, held) in &mut self.held {
            let Stage::Releasing {
                since,
                told,
                alarmed,
            } = &mut held.stage
            else {
                continue;
            };
            let Some(id) = &held.id else {
                continue;
            };
            again(
                (*since, told, alarmed),
                &bounds,
                now,
                (id, Some(token)),
                effects,
            );
        }
        for (id, stray) in &mut self.strays {
            again(
                (stray.since, &mut stray.told, &mut stray.alarmed),
                &bounds,
                now,
                (id, None),
                effects,
            );
        }
    }

    /// A machine that nobody asked for (CU-3).
    fn stray(&mut self, machine: &Machine, now: Micros, effects: &mut Vec<Effect>) {
        if self.strays.contains_key(&machine.id) {
            return;
        }
        let stray = Stray {
            since: now,
            told: now,
            alarmed: false,
        };
        self.strays.insert(machine.id.clone(), stray);
        effects.push(Effect::Release {
            id: machine.id.clone(),
            token: machine.token.clone(),
        });
    }

    fn close(&mut self, token: &NodeName, cause: &str, now: Micros, effects: &mut Vec<Effect>) {
        let Some(held) = self.held.remove(token) else {
            return;
        };
        effects.push(Effect::Record(Entry::Closed {
            at: now,
            token: token.clone(),
            cause: cause.to_owned(),
        }));
        if !matches!(held.stage, Stage::Releasing { .. }) {
            effects.push(Effect::Lost {
                token: token.clone(),
                served: held.served,
                cause: cause.to_owned(),
            });
        }
    }

    fn token_of(&self, id: &str) -> Option<NodeName> {
        let mut all = self.held.iter();
        let found = all.find(|(_, held)| held.id.as_deref() == Some(id));
        found.map(|(token, _)| token.clone())
    }
}

/// A request has a machine now.
fn granted(held: &mut Held, machine: &Machine, now: Micros, effects: &mut Vec<Effect>) {
    let id = &machine.id;
    held.id = Some(id.clone());
    if let Some(node) = &machine.node {
        held.node = node.clone();
    }
    let token = held.want.token.clone();
    effects.push(Effect::Record(Entry::Granted {
        at: now,
        token: token.clone(),
        id: id.to_owned(),
    }));
    match held.stage {
        Stage::Asked { .. } => held.stage = Stage::Booting { since: now },
        // It was given up before it was known.
        Stage::Releasing { .. } => effects.push(Effect::Release {
            id: id.clone(),
            token: Some(token),
        }),
        _ => {}
    }
}

fn leaving(
    held: &mut Held,
    token: &NodeName,
    deadline: Micros,
    cause: String,
    now: Micros,
    effects: &mut Vec<Effect>,
) {
    held.stage = Stage::Leaving {
        since: now,
        until: deadline,
    };
    effects.push(Effect::Leaving {
        token: token.clone(),
        deadline,
        cause,
    });
}

/// Tells a machine again to end, and says it aloud once it takes too long.
fn again(
    (since, told, alarmed): (Micros, &mut Micros, &mut bool),
    bounds: &Bounds,
    now: Micros,
    (id, token): (&str, Option<&NodeName>),
    effects: &mut Vec<Effect>,
) {
    if now.since(*told) < bounds.again {
        return;
    }
    *told = now;
    effects.push(Effect::Release {
        id: id.to_owned(),
        token: token.cloned(),
    });
    if now.since(since) >= bounds.alarm && !*alarmed {
        *alarmed = true;
        let what = format!(
            "told to end {:.0} s ago and still there",
            now.since(since).seconds()
        );
        effects.push(Effect::Alarm {
            id: id.to_owned(),
            what,
        });
    }
}

#[cfg(test)]
mod tests;
