//! What the station tells, gathered by turn.

use super::{Leading, News, Rows};
use crate::artifacts::keeper::Done;
use crate::link::word::Word;
use crate::pipeline::council::Matter;
use crate::pipeline::{MicroBatchNumber, Slot};
use crate::replica::error::ReplicaError;
use crate::replica::station::Told;
use crate::stage::agreement::Broken;
use crate::stage::optim::StepNumbers;
use crate::stage::outcome::JobOutcome;
use crate::train::engine::{Fault, TurnNumber};

impl Leading {
    /// Takes what the station told.
    pub(super) fn listen(&mut self, told: Told) -> Result<(), ReplicaError> {
        match told {
            Told::Returned(number) => self.passed(number, false),
            Told::Step(matter, step) => self.note_step(matter, step),
            Told::Word(Word::Outcome { number, outcomes }) => {
                self.measure(number, outcomes)?;
                self.passed(number, true);
            }
            Told::Word(Word::Chosen { number, token }) => {
                if let Some(ticket) = self.numbers.get(&number) {
                    self.chosen.insert(*ticket, token);
                }
                self.passed(number, true);
            }
            Told::Word(Word::Attached { slot }) => self.answer(slot, Ok(()))?,
            Told::Word(Word::Refused { slot, problem }) => self.answer(slot, Err(problem))?,
            Told::Word(Word::Part { job, step, outcome }) => {
                self.news.push_back(News::Part(job, step, outcome));
            }
            Told::Word(Word::Beyond { job, step }) => {
                self.news.push_back(News::Beyond(job, step));
            }
            Told::Sealed(Done::Manifest { job, step, outcome }) => {
                self.news.push_back(News::Sealed(job, step, outcome));
            }
            Told::Across(from, word) => self.hear_lead(from, word)?,
            Told::Sealed(Done::Part { .. }) | Told::Word(_) => {
                unreachable!("the station passes on only what is for the lead")
            }
        }
        Ok(())
    }

    fn answer(&mut self, slot: Slot, outcome: Result<(), String>) -> Result<(), ReplicaError> {
        if !self.answer_home(slot, &outcome)? {
            self.answers.insert(slot, outcome);
        }
        Ok(())
    }

    /// Notes that a micro-batch was measured or came back; it is done when nothing is missing.
    fn passed(&mut self, number: MicroBatchNumber, measured: bool) {
        let Some(ticket) = self.numbers.get(&number) else {
            return;
        };
        let under = self.under.get(ticket);
        // A micro-batch that trains is measured before it comes back.
        if under.is_some_and(|under| under.trains != measured) {
            self.under.remove(ticket);
            self.numbers.remove(&number);
        }
    }

    fn measure(
        &mut self,
        number: MicroBatchNumber,
        outcomes: Vec<JobOutcome>,
    ) -> Result<(), ReplicaError> {
        let ticket = self.numbers.get(&number);
        let Some(under) = ticket.and_then(|ticket| self.under.get_mut(ticket)) else {
            return Ok(());
        };
        let (turn, assists) = (under.turn, under.assists);
        if turn.is_none() && assists.is_none() {
            // Rows of a text.
            return Ok(());
        }
        let twice = std::mem::replace(&mut under.measured, true);
        let jobs = under.jobs.clone();
        let mut pairs = jobs.iter().zip(&outcomes);
        if twice || jobs.len() != outcomes.len() || !pairs.all(|(rows, one)| rows.fits(one)) {
            return Err(self.misfit("outcome", "it is not that of this micro-batch"));
        }
        if self.report_found(assists, &outcomes)? {
            return Ok(());
        }
        if let Some(turn) = turn {
            self.count(turn, jobs.into_iter().zip(outcomes));
        }
        Ok(())
    }

    /// A word that does not fit, at the first stage.
    pub(super) fn misfit(&self, word: &'static str, reason: &'static str) -> ReplicaError {
        let stage = self.station.seat().place.stage;
        ReplicaError::Word {
            stage,
            word,
            reason,
        }
    }

    /// Counts what a micro-batch of a turn gave.
    pub(super) fn count(
        &mut self,
        turn: TurnNumber,
        found: impl IntoIterator<Item = (Rows, JobOutcome)>,
    ) {
        let Some(open) = self.turns.get_mut(&turn) else {
            return;
        };
        for (rows, outcome) in found {
            let begun = self.begun.get_mut(&(rows.slot, rows.step));
            let share = open.shares.get_mut(&rows.slot);
            if let Some(tally) = begun.or_else(|| share.map(|share| &mut share.tally)) {
                tally.add(rows.first_block, rows.last, outcome);
            }
        }
        open.measured();
    }

    fn note_step(&mut self, matter: Matter, step: Option<Result<StepNumbers, Broken>>) {
        self.close_shared(matter.0, matter.1);
        let mut open = self.turns.values_mut();
        let Some(open) = open.find(|open| open.steps.contains(&matter)) else {
            return;
        };
        open.steps.remove(&matter);
        let (slot, number) = matter;
        if !matches!(step, Some(Ok(_)))
            && let Some(name) = self.names.get(&slot)
        {
            self.broken.push((name.clone(), number + 1));
        }
        if let Some(share) = open.shares.get_mut(&slot) {
            share.step = step.map(|step| {
                step.map_err(|broken| Fault {
                    reason: match broken.piece {
                        None => broken.what,
                        Some(_) => format!("{} is not finite", broken.what),
                    },
                    // Stages do not tell each other what of a step broke: none that is not is taken for good.
                    proven: false,
                })
            });
        }
    }
}
