//! Micro-batches on their way to the station: which goes in next, and by which number.

use std::collections::BTreeSet;

use super::{Leading, Ticket, Under};
use crate::batch::{Batch, JobSlice};
use crate::link::word::{Pass, Planned, StepGoal};
use crate::replica::error::ReplicaError;
use crate::train::engine::TurnNumber;

impl Leading {
    /// Gives the station micro-batches, as many as may be under way; the chunks of a sequence count as one and go in
    /// together, since none comes back before the last went.
    pub(super) fn feed(&mut self) -> Result<(), ReplicaError> {
        // On each stage one that it holds and one that comes, and two whose steps are agreed on; and what the plan lets the
        // first stage hold.
        let planned = self.held.first().map_or(0, |passes| *passes as usize + 2);
        let window = self.settings.window.max(self.stages() * 2 + 2).max(planned);
        while self.begun() < window
            && let Some(at) = self.next_ready()
        {
            while let Some((ticket, planned)) = self.queue.remove(at) {
                self.give(ticket, planned)?;
                let next = self.queue.get(at);
                if !next.is_some_and(|(_, next)| next.batch.follows()) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Micro-batches that the station has, without those that follow a chunk.
    fn begun(&self) -> usize {
        let under = self.numbers.values().filter_map(|t| self.under.get(t));
        under.filter(|under| !under.follows).count()
    }

    fn give(&mut self, ticket: Ticket, mut planned: Planned) -> Result<(), ReplicaError> {
        planned.number = self.next;
        let turn = self.under.get(&ticket).and_then(|under| under.turn);
        if let Some(open) = turn.and_then(|turn| self.turns.get_mut(&turn)) {
            open.given = true;
        }
        self.numbers.insert(self.next, ticket);
        self.next += 1;
        self.station.plan(planned)
    }

    /// Place of the first micro-batch that waits for nothing outside of this pipeline: a shared step must be closed before the
    /// job's next rows may go in, lest two replicas wait for each other. A job's micro-batches keep their order.
    fn next_ready(&self) -> Option<usize> {
        let mut passed = BTreeSet::new();
        self.queue.iter().position(|(_, planned)| {
            let jobs = &planned.batch.jobs;
            let open = |slot, step| self.shared.get(&slot).is_some_and(|job| job.closed != step);
            let waits = |job: &JobSlice| passed.contains(&job.slot) || open(job.slot, job.step);
            if !jobs.iter().any(waits) {
                return true;
            }
            passed.extend(jobs.iter().map(|job| job.slot));
            false
        })
    }

    /// Plans a micro-batch outside of any turn, and returns its name.
    pub(in super::super) fn plan_apart(&mut self, pass: Pass, batch: Batch) -> u64 {
        self.enqueue((None, None), pass, batch, Vec::new())
    }

    /// Puts a batch, or the chunks of a sequence, behind those before. A step ends with the first chunk: it comes back
    /// last.
    pub(super) fn enqueue_chain(
        &mut self,
        (turn, assists): (Option<TurnNumber>, Option<(u32, Ticket)>),
        pass: &Pass,
        chain: Vec<Batch>,
        mut goal: Option<StepGoal>,
    ) {
        for (at, batch) in (0..).zip(chain) {
            let assists = assists.map(|(home, ticket)| (home, ticket + at));
            let goals = goal.take().into_iter().collect();
            self.enqueue((turn, assists), pass.clone(), batch, goals);
        }
    }

    /// Puts a micro-batch behind those before; it gets its number when it goes in.
    pub(super) fn enqueue(
        &mut self,
        (turn, assists): (Option<TurnNumber>, Option<(u32, Ticket)>),
        pass: Pass,
        batch: Batch,
        goals: Vec<StepGoal>,
    ) -> Ticket {
        let ticket = self.ticket;
        self.ticket += 1;
        let under = Under {
            turn,
            assists,
            jobs: Under::jobs_of(&batch),
            trains: pass == Pass::Train,
            measured: false,
            follows: batch.follows(),
        };
        self.under.insert(ticket, under);
        let planned = Planned {
            number: 0,
            pass,
            batch,
            goals,
        };
        self.queue.push_back((ticket, planned));
        ticket
    }
}
