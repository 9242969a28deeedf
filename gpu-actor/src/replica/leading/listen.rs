//! What the station tells, gathered by turn.

use super::{Leading, News};
use crate::artifacts::keeper::Done;
use crate::link::word::Word;
use crate::pipeline::MicroBatchNumber;
use crate::pipeline::council::Matter;
use crate::replica::station::Told;
use crate::stage::agreement::Broken;
use crate::stage::optim::StepNumbers;
use crate::stage::outcome::JobOutcome;

impl Leading {
    /// Takes what the station told.
    pub(super) fn listen(&mut self, told: Told) {
        match told {
            Told::Returned(number) => self.passed(number, false),
            Told::Step(matter, step) => self.note_step(matter, step),
            Told::Word(Word::Outcome { number, outcomes }) => {
                self.measure(number, outcomes);
                self.passed(number, true);
            }
            Told::Word(Word::Chosen { number, token }) => {
                self.chosen.insert(number, token);
                self.passed(number, true);
            }
            Told::Word(Word::Attached { slot }) => {
                self.answers.insert(slot, Ok(()));
            }
            Told::Word(Word::Refused { slot, problem }) => {
                self.answers.insert(slot, Err(problem));
            }
            Told::Word(Word::Part { job, step, outcome }) => {
                self.news.push_back(News::Part(job, step, outcome));
            }
            Told::Sealed(Done::Manifest { job, step, outcome }) => {
                self.news.push_back(News::Sealed(job, step, outcome));
            }
            Told::Sealed(Done::Part { .. }) | Told::Word(_) => {
                unreachable!("the station passes on only what is for the lead")
            }
        }
    }

    /// Notes that a micro-batch was measured or came back; it is done when nothing is missing.
    fn passed(&mut self, number: MicroBatchNumber, measured: bool) {
        let under = self.under.get(&number);
        // A micro-batch that trains is measured before it comes back.
        if under.is_some_and(|under| under.trains != measured) {
            self.under.remove(&number);
        }
    }

    fn measure(&mut self, number: MicroBatchNumber, outcomes: Vec<JobOutcome>) {
        let Some(under) = self.under.get(&number) else {
            return;
        };
        let Some(open) = under.turn.and_then(|turn| self.turns.get_mut(&turn)) else {
            return;
        };
        open.unmeasured -= 1;
        for (&(slot, first_block, last), outcome) in under.jobs.iter().zip(outcomes) {
            if let Some(share) = open.shares.get_mut(&slot) {
                share.tally.add(first_block, last, outcome);
            }
        }
    }

    fn note_step(&mut self, matter: Matter, step: Option<Result<StepNumbers, Broken>>) {
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
                step.map_err(|broken| match broken.piece {
                    None => broken.what,
                    Some(_) => format!("{} is not finite", broken.what),
                })
            });
        }
    }
}
