//! Rounds of a lead that are not waited for: whoever drives it hears orders between two pieces of work.

use std::time::Duration;

use super::Lead;
use crate::replica::error::{Lacking, ReplicaError};
use crate::replica::event::ReplicaEvent;

impl Lead {
    /// As [`Self::round`], without waiting: plans rounds if `begins` says so, does a piece of what is under way, and tells
    /// what ended with it.
    ///
    /// # Errors
    /// When the replica cannot go on.
    pub fn advance(&mut self, begins: bool) -> Result<Vec<ReplicaEvent>, ReplicaError> {
        if begins {
            self.prepare_rounds();
            self.session.plan_on()?;
            self.note(Vec::new())?;
        }
        let mut told = self.tend()?;
        if self.settling.is_none() {
            while let Some(events) = self.session.note_done()? {
                self.moved = true;
                self.note(events)?;
            }
        }
        told.append(&mut self.events);
        Ok(told)
    }

    /// Takes back what is planned and no stage has, the rest of a step too: whoever comes need not wait for it, and it is
    /// planned again with the next round. Steps that are being ended stay planned.
    ///
    /// # Errors
    /// When the replica cannot go on.
    pub fn make_room(&mut self) -> Result<(), ReplicaError> {
        if self.settling.is_some() {
            return Ok(());
        }
        self.session.make_room();
        self.note(Vec::new())
    }

    /// From the next round that is planned on, or no longer, no turn takes more of a step than the bound on its rows, however
    /// long the other steps are.
    pub fn keep_turns_short(&mut self, short: bool) {
        self.session.keep_turns_short(short);
    }

    /// Rounds that have ended.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.session.rounds()
    }

    /// Whether anything is planned that has not ended.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.session.is_under_way()
    }

    /// How long nothing may move while something is under way.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.session.engine().patience()
    }

    /// What it waits for in vain.
    #[must_use]
    pub fn stalled(&self) -> ReplicaError {
        let engine = self.session.engine();
        let first = self.session.next_turn();
        let first = first.and_then(|turn| engine.first_under(turn));
        engine.stalled(first.map(Lacking::Outcome))
    }

    /// Rounds are begun from now on.
    pub(super) fn prepare_rounds(&mut self) {
        self.settling = None;
        let (every, ledger) = (self.every_steps, &self.ledger);
        self.session.hasten(every, |job| ledger.is_behind(job));
    }
}
