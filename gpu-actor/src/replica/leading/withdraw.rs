//! Taking back what was planned and not begun, so that neither a drain nor who comes need wait for whole rounds.
//!
//! What the station has of a job's step must be computed, since its gradient is partly summed; the rest of it may be planned
//! again later, as the parts of a step that is spread are: same rows, same masks, same bits. A job's sequences go to the station
//! in their order, and all chunks of one together, so the rest begins with a whole sequence.
//! Micro-batches that hold rows of several jobs lose only those that are taken back, as a job cannot tell its company.

use std::collections::BTreeMap;

use super::passing::Open;
use super::{Leading, Under};
use crate::batch::JobSlice;
use crate::link::word::{Pass, Planned};
use crate::pipeline::council::Matter;
use crate::train::engine::{TurnNumber, Withdrawn};

impl Leading {
    /// Takes back what the station has not of steps that are led and computed here alone.
    pub(super) fn take_back(&mut self) -> Vec<Withdrawn> {
        let back = self.not_begun();
        for (ticket, mut planned) in std::mem::take(&mut self.queue) {
            // Whoever asked for held-out rows or a text waits for their place in the queue.
            if planned.pass != Pass::Train {
                self.queue.push_back((ticket, planned));
                continue;
            }
            let gone = |job: &JobSlice| back.contains_key(&(job.slot, job.step));
            planned.batch = planned.batch.without(gone);
            if planned.batch.rows() > 0 {
                planned
                    .goals
                    .retain(|goal| !back.contains_key(&(goal.slot, goal.step)));
                if let Some(under) = self.under.get_mut(&ticket) {
                    under.jobs = Under::jobs_of(&planned.batch);
                }
                self.queue.push_back((ticket, planned));
            } else {
                let under = self.under.remove(&ticket);
                let turn = under.and_then(|under| under.turn);
                if let Some(open) = turn.and_then(|turn| self.turns.get_mut(&turn)) {
                    open.measured();
                }
            }
        }
        for (matter, begun) in &back {
            self.reopen(*matter, *begun);
        }
        let left = |open: &Open| open.given || open.unmeasured > 0 || !open.steps.is_empty();
        self.turns.retain(|_, open| left(open));
        let withdrawn = back.into_iter();
        let withdrawn = withdrawn.map(|((slot, step), begun)| Withdrawn { slot, step, begun });
        withdrawn.collect()
    }

    /// Steps of which the station lacks rows, each with its sequences that the station has.
    fn not_begun(&self) -> BTreeMap<Matter, usize> {
        let mut back = BTreeMap::new();
        // Rows of a shared step are with other replicas already.
        let own = |slot| !self.shared.contains_key(&slot);
        let trains = |planned: &Planned| planned.pass == Pass::Train;
        for (_, planned) in self.queue.iter().filter(|(_, planned)| trains(planned)) {
            let batch = &planned.batch;
            for sequence in &batch.sequences {
                let job = &batch.jobs[sequence.job];
                if own(job.slot) {
                    let first = back.entry((job.slot, job.step));
                    first.or_insert(sequence.number as usize);
                }
            }
        }
        back
    }

    /// A step goes on in a later turn than the one that was to end it.
    fn reopen(&mut self, matter: Matter, begun: usize) {
        let (slot, step) = matter;
        if begun == 0 {
            self.begun.remove(&matter);
        }
        for open in self.turns.values_mut() {
            if open.steps.remove(&matter)
                && begun > 0
                && let Some(share) = open.shares.remove(&slot)
            {
                open.jobs.retain(|other| *other != slot);
                self.begun.entry(matter).or_insert(share.tally);
            }
        }
        if let Some(planned) = self.steps.get_mut(&slot) {
            *planned = step.min(*planned);
        }
        if let Some(name) = self.names.get(&slot) {
            // Should its state after the step have been asked for, it will not come.
            self.broken.push((name.clone(), step + 1));
        }
    }

    /// Nobody asks any more what a turn of held-out rows finds: what the station has of it passes for nothing.
    pub(super) fn forget_turn(&mut self, turn: TurnNumber) {
        self.turns.remove(&turn);
        for (ticket, planned) in std::mem::take(&mut self.queue) {
            let under = self.under.get(&ticket);
            if under.is_some_and(|under| under.turn == Some(turn)) {
                self.under.remove(&ticket);
            } else {
                self.queue.push_back((ticket, planned));
            }
        }
    }
}
