//! Jobs that other replicas lead: this one holds them, computes the rows that it is sent, and tells what those gave.
//!
//! What a lead elsewhere says is looked at before any of it is computed: a word that does not fit ends this replica with
//! a sentence, and not its thread with a panic.

use super::sharing::Shared;
use super::{Leading, Ticket, Under};
use crate::batch::Batch;
use crate::link::word::{Assist, Attach, Pass, StepGoal, Word};
use crate::pipeline::Slot;
use crate::replica::error::ReplicaError;
use crate::stage::outcome::JobOutcome;
use shared::ids::JobName;

/// A job that another replica leads.
#[derive(Debug)]
pub(super) struct Guest {
    slot: Slot,
    home: u32,
    /// Steps under way.
    open: usize,
    /// The step and the block behind those that were sent for training.
    sent: (u64, u64),
    dismissed: bool,
}

impl Guest {
    /// Whether rows follow those that were sent, with a goal that can be theirs; if so, what is sent then.
    fn expects(&self, assist: &Assist) -> Option<(u64, u64)> {
        let trains = assist.pass == Pass::Train;
        let mut sent = self.sent;
        for batch in &assist.chain {
            let [slice] = &batch.jobs[..] else {
                return None;
            };
            let follows = match assist.pass {
                Pass::Train => (slice.step, slice.first_block) >= sent,
                Pass::Evaluate => true,
                Pass::Sample { .. } => false,
            };
            let ends = |goal: &StepGoal| trains && goal.step == slice.step && goal.shard.is_some();
            let sound = !slice.blocks.is_empty()
                && !slice.last
                && !slice.closes
                && slice.first_block < MOST_BLOCKS;
            if !follows || !sound || !assist.goal.as_ref().is_none_or(ends) {
                return None;
            }
            if trains {
                sent = (slice.step, slice.first_block + slice.blocks.len() as u64);
            }
        }
        Some(sent)
    }
}

/// More than any step has.
const MOST_BLOCKS: u64 = 1 << 40;

impl Leading {
    pub(super) fn enlist(&mut self, home: u32, mut attach: Attach) -> Result<(), ReplicaError> {
        let job = attach.job.clone();
        if self.guests.contains_key(&job) {
            self.deferred
                .push_back((home, Word::Enlist(Box::new(attach))));
            return Ok(());
        }
        if self.names.values().any(|own| *own == job) {
            let outcome = Err("a job of this name is led there".into());
            return self.station.call(home, Word::Enlisted { job, outcome });
        }
        let slot = self.free_slot();
        attach.slot = slot;
        let guest = Guest {
            slot,
            home,
            open: 0,
            sent: (0, 0),
            dismissed: false,
        };
        self.guests.insert(job, guest);
        self.steps.insert(slot, 0);
        self.station.attach(attach)?;
        let shared = Shared {
            replicas: Vec::new(),
            closed: self.station.steps(slot).unwrap_or(0),
        };
        self.shared.insert(slot, shared);
        Ok(())
    }

    /// All stages here have answered on a job; whether it is led elsewhere.
    pub(super) fn answer_home(
        &mut self,
        slot: Slot,
        outcome: &Result<(), String>,
    ) -> Result<bool, ReplicaError> {
        let mut guests = self.guests.iter();
        let Some((job, guest)) = guests.find(|(_, guest)| guest.slot == slot) else {
            return Ok(false);
        };
        let (job, home) = (job.clone(), guest.home);
        let refused = outcome.is_err();
        if refused {
            self.remove_guest(&job)?;
        }
        let outcome = outcome.clone();
        self.station.call(home, Word::Enlisted { job, outcome })?;
        if refused {
            self.hear_deferred()?;
        }
        Ok(true)
    }

    pub(super) fn assist(&mut self, home: u32, assist: Assist) -> Result<(), ReplicaError> {
        if self.leaving {
            return Ok(());
        }
        let guest = self.guests.get_mut(&assist.job);
        let Some(guest) = guest.filter(|guest| guest.home == home) else {
            return Err(self.misfit("assist", "no such job is shared"));
        };
        let begin = |batch: &Batch| {
            let mut sequences = batch.sequences.iter();
            batch.cut.is_some() || sequences.all(|sequence| sequence.start == 0)
        };
        let chain = &assist.chain;
        let whole = Batch::is_chain(chain) && chain.iter().all(begin);
        let Some(sent) = guest.expects(&assist).filter(|_| whole) else {
            return Err(self.misfit("assist", "these rows are not of a step that is shared"));
        };
        guest.sent = sent;
        let Assist {
            ticket,
            pass,
            mut chain,
            goal,
            ..
        } = assist;
        for slice in chain.iter_mut().flat_map(|batch| &mut batch.jobs) {
            slice.slot = guest.slot;
        }
        guest.open += usize::from(goal.is_some());
        let goal = goal.map(|goal| StepGoal {
            slot: guest.slot,
            keep: false,
            ..goal
        });
        self.enqueue_chain((None, Some((home, ticket))), &pass, chain, goal);
        Ok(())
    }

    /// Tells the replica whose rows these were what they gave; whether they were another's.
    pub(super) fn report_found(
        &mut self,
        under: Option<(u32, Ticket)>,
        outcomes: &[JobOutcome],
    ) -> Result<bool, ReplicaError> {
        let (Some((home, ticket)), [outcome]) = (under, outcomes) else {
            return Ok(false);
        };
        let outcome = outcome.clone();
        self.station.call(home, Word::Found { ticket, outcome })?;
        Ok(true)
    }

    /// A shared step is closed here.
    pub(super) fn close_shared(&mut self, slot: Slot, step: u64) {
        if let Some(shared) = self.shared.get_mut(&slot) {
            shared.closed = step + 1;
        }
        let mut guests = self.guests.values_mut();
        if let Some(guest) = guests.find(|guest| guest.slot == slot) {
            guest.open = guest.open.saturating_sub(1);
        }
    }

    /// A job's lead dismissed it.
    pub(super) fn let_go_of(&mut self, from: u32, job: &JobName) {
        let guest = self.guests.get_mut(job);
        if let Some(guest) = guest.filter(|guest| guest.home == from) {
            guest.dismissed = true;
        }
    }

    /// Takes jobs off whose lead dismissed them, once nothing of them is under way; whether there were any.
    pub(super) fn let_guests_go(&mut self) -> Result<bool, ReplicaError> {
        let passes = |under: &Under, slot| under.jobs.iter().any(|job| job.slot == slot);
        let gone = self.guests.iter().filter(|(_, guest)| {
            let through = guest.dismissed && guest.open == 0;
            through && !self.under.values().any(|under| passes(under, guest.slot))
        });
        let gone: Vec<JobName> = gone.map(|(job, _)| job.clone()).collect();
        for job in &gone {
            self.remove_guest(job)?;
        }
        if gone.is_empty() {
            return Ok(false);
        }
        self.hear_deferred()?;
        Ok(true)
    }

    /// Hears again what waited for a job to be gone; what still waits waits on.
    fn hear_deferred(&mut self) -> Result<(), ReplicaError> {
        for (from, word) in std::mem::take(&mut self.deferred) {
            self.hear_lead(from, word)?;
        }
        Ok(())
    }

    /// Nothing more is begun for other replicas: what they asked for and no stage has is dropped, and they are told by
    /// the end that follows.
    pub(in super::super) fn help_no_more(&mut self) {
        self.leaving = true;
        for (ticket, planned) in std::mem::take(&mut self.queue) {
            let under = self.under.get(&ticket);
            if under.is_some_and(|under| under.assists.is_some()) {
                self.under.remove(&ticket);
            } else {
                self.queue.push_back((ticket, planned));
            }
        }
    }

    fn remove_guest(&mut self, job: &JobName) -> Result<(), ReplicaError> {
        let Some(guest) = self.guests.remove(job) else {
            return Ok(());
        };
        self.shared.remove(&guest.slot);
        self.steps.remove(&guest.slot);
        self.station.detach(guest.slot)
    }
}
