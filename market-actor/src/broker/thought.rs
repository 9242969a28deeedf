//! What takes long to say: a policy's wish with its forecast, and what all members of a selection would have earned.
//!
//! A plan of a horizon takes a millisecond, a forecast proven anew a second: notices of machines must not wait for that. So the
//! broker hands out a [`Question`] that holds all it is made of, whoever performs its effects has it answered elsewhere, and the
//! [`Answer`] is one more event. Until then what was wanted before is wanted still.
//!
//! - TH-1: at most one wish is asked for at a time; what changes meanwhile is asked about once it has come.
//! - TH-2: an answer that is not the one waited for changes nothing.

use shared::ids::JobId;
use shared::units::Micros;

use super::stretch;
use crate::market::{Market, Pool, Slot};
use crate::policy::tenant::Rules;
use crate::policy::{Memory, Safety};
use crate::problem::Problem;
use crate::problem::decision::{Decision, Situation};
use crate::problem::episode::{Course, play};
use crate::problem::offer::{Held, Offer};
use crate::select::pool::{Library, Member};

/// All that a policy's wish is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Wondering {
    pub(super) member: Member,
    pub(super) problem: Problem,
    pub(super) slot: u32,
    pub(super) progress: f64,
    pub(super) held: Held,
    pub(super) offer: Offer,
    pub(super) slots: Vec<Slot>,
    pub(super) length: Micros,
    pub(super) losses: Vec<u32>,
    pub(super) waited: u32,
    pub(super) rules: Rules,
    pub(super) pool: Pool,
    pub(super) memory: Memory,
    pub(super) safety: Safety,
}

/// A stretch of work that is over, and who is replayed on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    pub(super) members: Vec<Member>,
    pub(super) problem: Problem,
    pub(super) market: Market,
    /// Slots of the market that are played, its last.
    pub(super) played: usize,
    /// Number of the slot in which it began.
    pub(super) begun: u64,
    pub(super) safety: Safety,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Matter {
    /// How many machines.
    Wish(Box<Wondering>),
    /// What each member would have earned.
    Replay(Box<Replay>),
}

/// A question that takes long to answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    pub(super) number: u64,
    pub(super) matter: Matter,
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// How many machines, and what the policy remembers now.
    Wish(Decision, Memory),
    /// Utilities by member.
    Replay(Vec<f64>),
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub(super) number: u64,
    pub(super) found: Found,
}

/// A wish that is waited for.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) number: u64,
    /// Of the stretch that it is for.
    pub(super) first: u64,
    pub(super) offer: Offer,
    pub(super) member: Member,
    pub(super) pressing: Option<JobId>,
    /// Whether its deadline is only met with spot that may vanish.
    pub(super) hopes: bool,
}

impl Question {
    /// Answers it: as long as that takes.
    #[must_use]
    pub fn answer(self) -> Answer {
        let found = match self.matter {
            Matter::Wish(wondering) => wondering.wish(),
            Matter::Replay(replay) => Found::Replay(replay.utilities()),
        };
        Answer {
            number: self.number,
            found,
        }
    }
}

impl Wondering {
    fn wish(mut self) -> Found {
        let market = stretch::market(&self.slots, self.length, self.pool.clone());
        let at = self.slots.len().saturating_sub(1);
        let situation = Situation {
            problem: &self.problem,
            slot: self.slot,
            progress: self.progress,
            held: self.held,
            offer: self.offer,
            at,
            past: &self.slots[..at],
            length: self.length,
            losses: &self.losses,
            waited: self.waited,
        };
        let (member, rules) = (self.member, &self.rules);
        let (memory, safety) = (&mut self.memory, self.safety);
        let decision = member.source.with(&market, &Library::new(), |foresight| {
            let policy = &member.policy;
            policy.decide_under(rules, &self.pool, &situation, foresight, memory, safety)
        });
        Found::Wish(decision, self.memory)
    }
}

impl Replay {
    fn utilities(&self) -> Vec<f64> {
        let first = self.market.slots.len().saturating_sub(self.played);
        let course = Course::plain(&self.market, first);
        let members = self.members.iter().map(|member| {
            let mut memory = Memory::since(self.begun);
            let outcome = member
                .source
                .with(&self.market, &Library::new(), |foresight| {
                    play(&self.problem, &course, |situation| {
                        member
                            .policy
                            .decide(situation, foresight, &mut memory, self.safety)
                    })
                });
            outcome.utility as f64
        });
        members.collect()
    }
}
