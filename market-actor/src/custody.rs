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
//! - CU-2: what is asked for joins, or is released, within [`Bounds::boot`] in which the coordinator is heard: times in which it is
//!   add up, from one look to the next with nothing lost between; what is being released is released again every
//!   [`Bounds::again`] until no list shows it, and said aloud after [`Bounds::alarm`].
//! - CU-3: a machine of this cluster that a list shows and nobody asked for, or a second one of the same token, is released.
//! - CU-4: a machine that is in no list is taken for gone after two lists in a row, and [`Bounds::lost`] after the first of them
//!   unless its node is gone as well: lists lag. One that is shown again within [`Bounds::boot`] is held again.
//! - CU-5: a machine whose node is not heard for [`Bounds::boot`], by a coordinator that is, is released: it costs and does nothing. The time
//!   is counted as for CU-2.

mod listing;
mod machine;
mod overdue;
pub mod record;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use shared::ids::NodeName;
use shared::units::Micros;

pub use machine::{Held, Stage};
use record::Entry;

use crate::now::Now;
use crate::provider::{Certainty, Machine, ProviderError, Signal, Want};
use listing::granted;
use overdue::Stray;

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// A request whose answer was lost and that no list shows is given up so long after the call.
    pub lost: Micros,
    /// A machine whose node has not joined, or is gone, is released after so long.
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
    /// The provider is called now.
    Called(NodeName),
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
        /// When, by the steady clock.
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
    /// That is over.
    RiskOver(NodeName),
    /// A machine is gone, or never came.
    Lost {
        /// Which.
        token: NodeName,
        /// Whether it had served.
        served: bool,
        /// What had been asked for, where its provider took it; nothing where it never came or runs on.
        taken: Option<Want>,
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
    /// Machines that no list showed any more, and when that was: they are held again when one does.
    closed: BTreeMap<NodeName, (Micros, Held)>,
    bounds: Bounds,
    /// Until when it is known whether the coordinator was heard.
    heard: Micros,
    /// Whether it was not since then.
    silent: bool,
    /// The notice that the provider gives where a signal names no time.
    notice: Micros,
}

impl Custody {
    /// What a record says is held: nothing is known of it until the first list.
    #[must_use]
    pub fn resumed(entries: &[Entry], bounds: Bounds, notice: Micros, now: Now) -> Self {
        let held = record::open(entries)
            .into_iter()
            .map(|(token, open)| (token, Held::resumed(open, now.steady)))
            .collect();
        Self {
            held,
            strays: BTreeMap::new(),
            closed: BTreeMap::new(),
            bounds,
            heard: now.steady,
            silent: false,
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

    /// Takes an event in.
    pub fn step(&mut self, event: Event, now: Now) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Acquire(want) => self.acquire(want, now, &mut effects),
            Event::Called(token) => self.called(&token, now),
            Event::Answered { token, answer } => self.answered(&token, answer, now, &mut effects),
            Event::Release { token, cause } => self.release(&token, &cause, now, &mut effects),
            Event::Listed(machines) => self.listed(&machines, now, &mut effects),
            Event::Joined(nodes) => self.joined(&nodes, now, &mut effects),
            Event::Signal(signal) => self.signal(signal, now, &mut effects),
            Event::Tick => self.tick(now, &mut effects),
        }
        effects
    }

    fn acquire(&mut self, want: Want, now: Now, effects: &mut Vec<Effect>) {
        // The same token is the same request.
        if self.held.contains_key(&want.token) {
            return;
        }
        effects.push(Effect::Record(Entry::Asked {
            at: now.wall,
            want: want.clone(),
        }));
        effects.push(Effect::Acquire(want.clone()));
        self.held.insert(want.token.clone(), Held::asked(want));
    }

    /// Whether a request is wanted still: the provider need not be called otherwise.
    #[must_use]
    pub fn is_asked(&self, token: &NodeName) -> bool {
        let held = self.held.get(token);
        held.is_some_and(|held| matches!(held.stage, Stage::Asked { .. }))
    }

    /// The coordinator does not answer: what its nodes do is not known, nor whether one joined.
    pub fn unheard(&mut self, now: Now) {
        self.pass_over(now);
        self.silent = true;
    }

    /// What passed since the coordinator was heard last does not count for what waits for it.
    fn pass_over(&mut self, now: Now) {
        let from = self.heard;
        let later = |since: Micros| since.plus(now.steady.since(since.max(from)));
        for held in self.held.values_mut() {
            held.absent = held.absent.map(later);
            if let Stage::Booting { since } = &mut held.stage {
                *since = later(*since);
            }
        }
        self.heard = self.heard.max(now.steady);
    }

    fn called(&mut self, token: &NodeName, now: Now) {
        if let Some(held) = self.held.get_mut(token)
            && let Stage::Asked { since } = &mut held.stage
        {
            since.get_or_insert(now.steady);
        }
    }

    fn answered(
        &mut self,
        token: &NodeName,
        answer: Result<Machine, ProviderError>,
        now: Now,
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
            Err(_) => self.called(token, now),
        }
    }

    fn release(&mut self, token: &NodeName, cause: &str, now: Now, effects: &mut Vec<Effect>) {
        let Some(held) = self.held.get_mut(token) else {
            return;
        };
        if matches!(held.stage, Stage::Releasing { .. }) {
            return;
        }
        effects.push(Effect::Record(Entry::Releasing {
            at: now.wall,
            token: token.clone(),
            cause: cause.to_owned(),
        }));
        held.stage = Stage::Releasing {
            since: now.steady,
            told: Some(now.steady),
            alarmed: false,
        };
        if let Some(id) = &held.id {
            effects.push(Effect::Release {
                id: id.clone(),
                token: Some(token.clone()),
            });
        }
    }

    fn joined(&mut self, nodes: &BTreeSet<NodeName>, now: Now, effects: &mut Vec<Effect>) {
        if std::mem::take(&mut self.silent) {
            self.pass_over(now);
        }
        self.heard = self.heard.max(now.steady);
        for (token, held) in &mut self.held {
            let booting = matches!(held.stage, Stage::Asked { .. } | Stage::Booting { .. });
            if booting && nodes.contains(&held.node) {
                held.stage = Stage::Serving { since: now.steady };
                held.served = true;
                effects.push(Effect::Ready(token.clone()));
            }
            held.absent = match nodes.contains(&held.node) || !held.served {
                true => None,
                false => held.absent.or(Some(now.steady)),
            };
        }
        let gone = self.held.iter().filter(|(_, held)| {
            let long = |since| now.steady.since(since) >= self.bounds.boot;
            held.serves() && held.absent.is_some_and(long)
        });
        let gone: Vec<NodeName> = gone.map(|(token, _)| token.clone()).collect();
        for token in gone {
            let cause = "its node is gone and its machine runs on".to_owned();
            self.release(&token, &cause, now, effects);
            effects.push(Effect::Lost {
                token,
                served: true,
                taken: None,
                cause,
            });
        }
    }

    fn signal(&mut self, signal: Signal, now: Now, effects: &mut Vec<Effect>) {
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
            Certainty::Over if held.at_risk => {
                held.at_risk = false;
                effects.push(Effect::RiskOver(token));
            }
            Certainty::Notice if held.stands() => {
                let deadline = match signal.deadline {
                    Some(wall) => now.steady_of(wall),
                    None => now.steady.plus(notice),
                };
                held.leaves(deadline, signal.cause, now, effects);
            }
            _ => {}
        }
    }

    fn close(&mut self, token: &NodeName, cause: &str, now: Now, effects: &mut Vec<Effect>) {
        let Some(held) = self.held.remove(token) else {
            return;
        };
        effects.push(Effect::Record(Entry::Closed {
            at: now.wall,
            token: token.clone(),
            cause: cause.to_owned(),
        }));
        if !matches!(held.stage, Stage::Releasing { .. }) {
            effects.push(Effect::Lost {
                token: token.clone(),
                served: held.served,
                // A request without a machine was refused, or its answer was lost.
                taken: held.id.is_some().then_some(held.want),
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

#[cfg(test)]
pub(crate) mod tests;
