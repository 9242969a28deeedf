//! Taking back what was planned and not begun, so that a drain need not wait for whole rounds.
//!
//! A job's step is begun when the station has its first micro-batch; from then on it must be ended, since its gradient
//! is partly summed, with the parts of it that are in later turns or not planned yet. A step of which nothing was given is
//! planned again later: same rows, same masks, same bits.
//! Micro-batches that hold rows of both kinds lose those that are not begun, as a job cannot tell its company.

use std::collections::BTreeSet;

use super::{Leading, Under};
use crate::batch::JobSlice;
use crate::link::word::{Pass, Planned};
use crate::pipeline::council::Matter;

impl Leading {
    /// Takes back the steps of which the station has no micro-batch, and returns them.
    pub(super) fn take_back(&mut self) -> BTreeSet<Matter> {
        let mut back = BTreeSet::new();
        // Rows of a shared step are with other replicas already.
        let own = |slot| !self.shared.contains_key(&slot);
        let trains = |planned: &Planned| planned.pass == Pass::Train;
        let steps = self.queue.iter().filter(|(_, planned)| trains(planned));
        for job in steps.flat_map(|(_, planned)| &planned.batch.jobs) {
            if job.first_block == 0 && own(job.slot) {
                back.insert((job.slot, job.step));
            }
        }
        for (ticket, mut planned) in std::mem::take(&mut self.queue) {
            // Whoever asked for held-out rows or a text waits for their place in the queue.
            if !trains(&planned) {
                self.queue.push_back((ticket, planned));
                continue;
            }
            let gone = |job: &JobSlice| back.contains(&(job.slot, job.step));
            planned.batch = planned.batch.without(gone);
            if planned.batch.rows() > 0 {
                planned
                    .goals
                    .retain(|goal| !back.contains(&(goal.slot, goal.step)));
                if let Some(under) = self.under.get_mut(&ticket) {
                    under.jobs = Under::jobs_of(&planned.batch);
                }
                self.queue.push_back((ticket, planned));
            } else {
                let under = self.under.remove(&ticket);
                let turn = under.and_then(|under| under.turn);
                if let Some(open) = turn.and_then(|turn| self.turns.get_mut(&turn)) {
                    open.unmeasured -= 1;
                }
            }
        }
        for matter in &back {
            let (slot, step) = *matter;
            self.begun.remove(matter);
            for open in self.turns.values_mut() {
                open.steps.remove(matter);
            }
            if let Some(planned) = self.steps.get_mut(&slot) {
                *planned = step.min(*planned);
            }
            if let Some(name) = self.names.get(&slot) {
                // Should its state after the step have been asked for, it will not come.
                self.broken.push((name.clone(), step + 1));
            }
        }
        back
    }
}
