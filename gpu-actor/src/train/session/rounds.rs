//! What a round is: turns are planned, what they found is noted, and what follows from it is done, in this order: held-out
//! rows, checkpoints, ends, halts.

use shared::ids::JobName;

use super::{Halt, Halted, Run, Session, Standing};
use crate::train::engine::{Engine, Finding, Turn};
use crate::train::event::{Ending, Event};
use crate::train::spread;

impl<E: Engine> Session<E> {
    /// One optimizer step of every active job, or a part of a long one, with the evaluations due before and after it.
    ///
    /// # Errors
    /// Of the engine, when it cannot go on.
    pub fn advance(&mut self) -> Result<Vec<Event>, E::Error> {
        let mut events = Vec::new();
        self.evaluate_due(&mut events)?;
        self.close_round(&mut events);
        self.plan_rounds()?;
        self.finish_round(&mut events)?;
        self.evaluate_due(&mut events)?;
        self.close_round(&mut events);
        Ok(events)
    }

    /// What follows once the evaluations behind a round are noted.
    pub(super) fn close_round(&mut self, events: &mut Vec<Event>) {
        self.checkpoint_due(events);
        self.finish_complete(events);
        self.come_to_halt();
    }

    pub(super) fn plan_rounds(&mut self) -> Result<(), E::Error> {
        let ahead = self.engine.ahead().max(1);
        while self.planned.len() < ahead {
            if self.runs.values().any(Run::holds_up) {
                return Ok(());
            }
            let bound = self.turn_rows();
            let runs = self.runs.values_mut().filter(|run| run.takes_part());
            let most = match self.short {
                true => bound.max(1),
                false => spread::most(bound, runs.map(Run::rest)),
            };
            if !self.plan_turn(Run::takes_part, most)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Rows of one job's step in a turn.
    fn turn_rows(&self) -> usize {
        let told = self.arrangement.turn_rows;
        told.map_or_else(
            || self.engine.turn_rows(),
            |rows| usize::try_from(rows).unwrap_or(usize::MAX),
        )
    }

    /// Plans a turn of the jobs that are chosen, of each at most so many rows; whether there are any.
    pub(super) fn plan_turn(
        &mut self,
        chosen: impl Fn(&Run) -> bool,
        most: usize,
    ) -> Result<bool, E::Error> {
        let slot = |name: &JobName| self.runs.get(name).map(|run| run.slot);
        let mut turn = Turn {
            requests: Vec::new(),
            goals: Vec::new(),
            arrangement: self.arrangement.renamed(slot),
        };
        for run in self.runs.values_mut().filter(|run| chosen(run)) {
            let whole = self.engine.takes_whole(run.slot);
            let (request, goal) = run.next_part(if whole { usize::MAX } else { most });
            turn.requests.push(request);
            turn.goals.push(goal);
        }
        let any = !turn.requests.is_empty();
        if any {
            self.planned.push_back(self.engine.plan(turn)?);
        }
        Ok(any)
    }

    /// Waits for the oldest training turn, and notes what it found.
    pub(super) fn finish_round(&mut self, events: &mut Vec<Event>) -> Result<(), E::Error> {
        let Some(turn) = self.planned.pop_front() else {
            return Ok(());
        };
        let found = self.engine.finish(turn)?;
        self.rounds += 1;
        self.note_found(found, events);
        Ok(())
    }

    /// Notes steps that were taken or broke.
    pub(super) fn note_found(&mut self, found: Vec<Finding>, events: &mut Vec<Event>) {
        for found in found {
            let mut runs = self.runs.values_mut();
            let run = runs.find(|run| run.slot == found.slot && run.is_active());
            if let (Some(run), Some(step)) = (run, found.step) {
                run.note_step(&found.tally, step, events);
            }
        }
    }

    fn evaluate_due(&mut self, events: &mut Vec<Event>) -> Result<(), E::Error> {
        if self.plan_evaluation()? {
            self.finish_evaluation(events)?;
        }
        Ok(())
    }

    /// Plans held-out rows that are due; whether any are on their way.
    pub(super) fn plan_evaluation(&mut self) -> Result<bool, E::Error> {
        if self.measured.is_some() {
            return Ok(true);
        }
        let due = self.runs.values().filter(|run| run.evaluates());
        let turn = Turn {
            requests: due.map(Run::evaluation).collect(),
            goals: Vec::new(),
            // Its bounds on rows alone.
            arrangement: self.arrangement.renamed(|_| None),
        };
        if turn.requests.is_empty() {
            return Ok(false);
        }
        self.measured = Some(self.engine.plan(turn)?);
        Ok(true)
    }

    /// Waits for the held-out rows that are on their way, and notes what they gave.
    pub(super) fn finish_evaluation(&mut self, events: &mut Vec<Event>) -> Result<(), E::Error> {
        let Some(turn) = self.measured.take() else {
            return Ok(());
        };
        for found in self.engine.finish(turn)? {
            let mut runs = self.runs.values_mut();
            // One that halted meanwhile is measured when it goes on.
            if let Some(run) = runs.find(|run| run.slot == found.slot && run.evaluates()) {
                run.note_evaluation(&found.tally, events);
            }
        }
        Ok(())
    }

    /// After the evaluations of the round: a state that counts one must not be saved before it is told.
    fn checkpoint_due(&mut self, events: &mut Vec<Event>) {
        for (name, run) in &mut self.runs {
            let step = run.progress.step;
            let stepped = std::mem::take(&mut run.stepped);
            if stepped && run.keeps(step) && run.is_active() {
                let job = name.clone();
                events.push(Event::CheckpointDue { job, step });
            }
        }
    }

    fn finish_complete(&mut self, events: &mut Vec<Event>) {
        for run in self.runs.values_mut() {
            if run.is_active() && run.progress.step >= run.total && !run.evaluates() {
                run.finish(Ending::Complete, events);
            }
        }
    }

    pub(super) fn come_to_halt(&mut self) {
        for run in self.runs.values_mut().filter(|run| run.halts()) {
            let Some(how) = run.asked.take() else {
                continue;
            };
            run.begun = 0;
            run.standing = match how {
                Halt::Pause => Standing::Paused,
                Halt::Cancel => Standing::Cancelled,
            };
            self.halted.push(Halted {
                job: run.name.clone(),
                step: run.progress.step,
                how,
            });
        }
    }
}
