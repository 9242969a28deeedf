//! A station's side of the agreement on steps.

use super::super::meeting::Matter;
use super::super::pipeline_error::PipelineError;
use super::{Station, Talk};
use crate::pipeline::Event;
use crate::stage::agreement::Broken;

impl Station<'_> {
    /// Reports gradients that are complete, votes on steps that were reported by all, and hears verdicts.
    pub(super) fn talk(&mut self) -> Result<bool, PipelineError> {
        let open = |matter: &Matter| !self.pipeline.has_agreed(*matter);
        let complete: Vec<Matter> = self.pipeline.complete().filter(open).collect();
        let mut moved = false;
        for matter in complete {
            moved |= match self.talks.get(&matter) {
                None => self.report(matter)?,
                Some(Talk::Reported) => self.vote(matter),
                Some(Talk::Voted(_)) => self.hear(matter)?,
            };
        }
        Ok(moved)
    }

    fn report(&mut self, matter: Matter) -> Result<bool, PipelineError> {
        if self
            .tenants
            .get(&matter.0)
            .is_none_or(|tenant| tenant.aside)
        {
            self.tell(Event::Agreed(matter.0, matter.1))?;
            return Ok(true);
        }
        let mut report = self.stage.report(matter.0);
        if let Some(tally) = self.found.tallies.get(&matter)
            && !tally.loss.is_finite()
        {
            report.broken = Some(Broken {
                piece: None,
                what: tally.reason("training"),
            });
        }
        self.talks.insert(matter, Talk::Reported);
        if self.shared.meeting().report(matter, report) {
            self.shared.ring_all();
        }
        Ok(true)
    }

    fn vote(&mut self, matter: Matter) -> bool {
        let Some(agreement) = self.shared.meeting().agreement(matter) else {
            return false;
        };
        let tenant = &self.tenants[&matter.0];
        let rate = self.shared.goals[&matter].learning_rate;
        let (state, rule) = (&tenant.optimizer, &tenant.rule);
        let settled = self.stage.settle(matter.0, state, rule, rate, agreement);
        let (settled, broken) = match settled {
            Ok(settled) => (Some(settled), None),
            Err(broken) => (None, Some(broken)),
        };
        self.talks.insert(matter, Talk::Voted(settled));
        if self.shared.meeting().vote(matter, broken) {
            self.shared.ring_all();
        }
        true
    }

    fn hear(&mut self, matter: Matter) -> Result<bool, PipelineError> {
        let Some(verdict) = self.shared.meeting().verdict(matter) else {
            return Ok(false);
        };
        let talk = self.talks.remove(&matter);
        let step = match (verdict, talk) {
            (Ok(()), Some(Talk::Voted(Some(settled)))) => {
                self.settled.insert(matter, settled);
                Ok(settled.numbers())
            }
            (Ok(()), _) => unreachable!("a step that all voted for was settled here too"),
            (Err(broken), _) => {
                if let Some(tenant) = self.tenants.get_mut(&matter.0) {
                    tenant.aside = true;
                }
                Err(broken)
            }
        };
        self.found.steps.insert(matter, step);
        self.tell(Event::Agreed(matter.0, matter.1))?;
        Ok(true)
    }
}
