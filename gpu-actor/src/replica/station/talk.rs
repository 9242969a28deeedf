//! A station's side of the agreement on steps.

use super::super::error::ReplicaError;
use super::{Station, Told};
use crate::link::word::Word;
use crate::pipeline::Event;
use crate::pipeline::council::{Act, Heard, Matter, Verdict};
use crate::stage::agreement::{Agreement, Broken};

impl Station {
    /// A step's gradient is complete here.
    pub(super) fn report(&mut self, matter: Matter) -> Result<(), ReplicaError> {
        let (slot, step) = matter;
        if self.tenants.get(&slot).is_none_or(|tenant| tenant.aside) {
            // It passes, to leave the others' micro-batches whole, and nothing is made of it.
            self.goals.remove(&matter);
            self.tallies.remove(&matter);
            if self.seat.place.stage == 0 {
                self.told.push_back(Told::Step(matter, None));
            }
            return self.tell(Event::Agreed(slot, step));
        }
        let mut report = self.stage.report(slot);
        if let Some(tally) = self.tallies.remove(&matter)
            && !tally.loss.is_finite()
        {
            report.broken = Some(Broken {
                piece: None,
                what: tally.reason("training"),
            });
        }
        self.deliberate(matter, Heard::Own(report))
    }

    /// Does what the council says about what was heard.
    pub(super) fn deliberate(&mut self, matter: Matter, heard: Heard) -> Result<(), ReplicaError> {
        let stage = self.seat.place.stage;
        let acts = self.council.hear(matter, heard);
        for act in acts.map_err(|source| ReplicaError::Undue { stage, source })? {
            match act {
                Act::Report(report) => self.back(Word::Report { matter, report })?,
                Act::Agreement(agreement, against) => self.forth(Word::Agreement {
                    matter,
                    agreement,
                    against,
                })?,
                Act::Verdict(verdict) => self.back(Word::Verdict { matter, verdict })?,
                Act::Settle(agreement) => {
                    let vote = self.settle(matter, agreement)?;
                    self.deliberate(matter, Heard::Settled(vote))?;
                }
                Act::Close(verdict) => self.conclude(matter, verdict)?,
            }
        }
        Ok(())
    }

    fn settle(&mut self, matter: Matter, agreement: Agreement) -> Result<Verdict, ReplicaError> {
        let slot = matter.0;
        let (Some(tenant), Some(goal)) = (self.tenants.get(&slot), self.goals.get(&matter)) else {
            return Err(self.misfit("agreement", "there is no such step"));
        };
        let (state, rule, rate) = (&tenant.optimizer, &tenant.rule, goal.learning_rate);
        Ok(
            match self.stage.settle(slot, state, rule, rate, agreement) {
                Ok(settled) => {
                    self.settled.insert(matter, settled);
                    None
                }
                Err(broken) => Some(broken),
            },
        )
    }

    fn conclude(&mut self, matter: Matter, verdict: Verdict) -> Result<(), ReplicaError> {
        let step = match (verdict, self.settled.get(&matter)) {
            (None, Some(settled)) => Ok(settled.numbers()),
            (None, None) => return Err(self.misfit("verdict", "the step was not settled here")),
            (Some(broken), _) => {
                self.settled.remove(&matter);
                self.goals.remove(&matter);
                if let Some(tenant) = self.tenants.get_mut(&matter.0) {
                    tenant.aside = true;
                }
                Err(broken)
            }
        };
        if self.seat.place.stage == 0 {
            self.told.push_back(Told::Step(matter, Some(step)));
        }
        self.tell(Event::Agreed(matter.0, matter.1))
    }
}
