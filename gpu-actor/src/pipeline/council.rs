//! How the stages of a pipeline agree on each job's step, speaking to their neighbours only: a pure state machine.
//!
//! Reports are merged from the last stage to the first, each stage adding its own; the first makes the agreement and
//! sends it back with the votes so far, each stage settling the step and adding its vote; the last one then knows the
//! verdict and sends it to the first, each stage closing the matter as it passes.
//!
//! | id | invariant |
//! | --- | --- |
//! | MT-1 | a step is taken on all stages or on none |
//! | MT-2 | all stages get the same agreement and the same verdict |
//!
//! MT-1 follows from MT-2: a stage closes a matter by the verdict alone, which only the last stage makes, once, from
//! all votes. MT-2 holds since each message has one maker and the others pass it on as it is.

use std::collections::BTreeMap;

use thiserror::Error;

use super::{Place, Slot};
use crate::stage::agreement::{self, Agreement, Broken, Report};

#[cfg(test)]
mod tests;

/// A job's step.
pub type Matter = (Slot, u64);

/// Why a step is not taken; none: it is.
pub type Verdict = Option<Broken>;

/// What a stage hears of a matter.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// Its own gradient is complete.
    Own(Report),
    /// What all stages behind report together.
    Behind(Report),
    /// What all stages know together, and the first vote against the step, from the stage before.
    Agreement(Agreement, Verdict),
    /// What its own trial of the step says.
    Settled(Verdict),
    /// Whether the step is taken, from the stage behind.
    Verdict(Verdict),
}

/// What a stage shall do about a matter.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Send this to the stage before.
    Report(Report),
    /// Try the step, and tell the council by [`Heard::Settled`].
    Settle(Agreement),
    /// Send this to the stage behind.
    Agreement(Agreement, Verdict),
    /// Send this to the stage before.
    Verdict(Verdict),
    /// Take the step, or set the job aside.
    Close(Verdict),
}

/// A message about a matter that is not due.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{heard} of step {} of slot {} is not due: {state}", matter.1, matter.0)]
pub struct Undue {
    /// The matter.
    pub matter: Matter,
    /// What was heard.
    pub heard: &'static str,
    /// How the matter stands.
    pub state: &'static str,
}

/// How a matter stands.
#[derive(Clone, Debug)]
enum Standing {
    /// Reports are missing.
    Open {
        own: Option<Report>,
        behind: Option<Report>,
    },
    /// All from here to the end have reported; the agreement is missing.
    Reported,
    /// The stage tries the step; the votes of the stages before.
    Trying(Agreement, Verdict),
    /// The verdict is missing.
    Voted,
}

impl Standing {
    fn name(&self) -> &'static str {
        match self {
            Self::Open { .. } => "reports are missing",
            Self::Reported => "the agreement is missing",
            Self::Trying(..) => "the step is being tried",
            Self::Voted => "the verdict is missing",
        }
    }
}

/// The matters that are open on a stage.
#[derive(Clone, Debug)]
pub struct Council {
    place: Place,
    open: BTreeMap<Matter, Standing>,
}

impl Council {
    /// Of a stage, without a matter.
    #[must_use]
    pub fn new(place: Place) -> Self {
        let open = BTreeMap::new();
        Self { place, open }
    }

    /// Takes what was heard, and returns what to do now, in this order.
    ///
    /// # Errors
    /// [`Undue`] when the message does not fit; the matter then stands as before.
    pub fn hear(&mut self, matter: Matter, heard: Heard) -> Result<Vec<Act>, Undue> {
        let none = || Standing::Open {
            own: None,
            behind: None,
        };
        let standing = self.open.remove(&matter);
        let known = standing.is_some();
        let standing = standing.unwrap_or_else(none);
        if !self.is_due(&standing, &heard) {
            let (heard, state) = (name(&heard), standing.name());
            if known {
                self.open.insert(matter, standing);
            }
            return Err(Undue {
                matter,
                heard,
                state,
            });
        }
        let (standing, acts) = self.next(standing, heard);
        self.open
            .extend(standing.map(|standing| (matter, standing)));
        Ok(acts)
    }

    /// How the oldest matter stands, if one is open.
    #[must_use]
    pub fn lacks(&self) -> Option<(Matter, &'static str)> {
        let (matter, standing) = self.open.first_key_value()?;
        Some((*matter, standing.name()))
    }

    fn is_due(&self, standing: &Standing, heard: &Heard) -> bool {
        let (first, last) = (self.place.stage == 0, self.place.is_last());
        match (standing, heard) {
            (Standing::Open { own, .. }, Heard::Own(_)) => own.is_none(),
            (Standing::Open { behind, .. }, Heard::Behind(_)) => behind.is_none() && !last,
            (Standing::Reported, Heard::Agreement(..)) => !first,
            (Standing::Trying(..), Heard::Settled(_)) | (Standing::Voted, Heard::Verdict(_)) => {
                true
            }
            _ => false,
        }
    }

    /// Where a matter stands after what was heard, which was due; none: it is closed.
    fn next(&self, standing: Standing, heard: Heard) -> (Option<Standing>, Vec<Act>) {
        match (standing, heard) {
            (Standing::Open { behind, .. }, Heard::Own(report)) => {
                self.gather(Some(report), behind)
            }
            (Standing::Open { own, .. }, Heard::Behind(report)) => self.gather(own, Some(report)),
            (_, Heard::Agreement(agreement, votes)) => {
                let acts = vec![Act::Settle(agreement.clone())];
                (Some(Standing::Trying(agreement, votes)), acts)
            }
            (Standing::Trying(agreement, votes), Heard::Settled(vote)) => {
                let votes = agreement::first(votes, vote);
                if self.place.is_last() {
                    return (None, self.close(votes));
                }
                let acts = vec![Act::Agreement(agreement, votes)];
                (Some(Standing::Voted), acts)
            }
            (_, Heard::Verdict(verdict)) => (None, self.close(verdict)),
            (standing, _) => (Some(standing), Vec::new()),
        }
    }

    fn gather(&self, own: Option<Report>, behind: Option<Report>) -> (Option<Standing>, Vec<Act>) {
        let all = match (own, behind) {
            (Some(own), Some(behind)) => own.and(behind),
            (Some(own), None) if self.place.is_last() => own,
            (own, behind) => return (Some(Standing::Open { own, behind }), Vec::new()),
        };
        if self.place.stage > 0 {
            return (Some(Standing::Reported), vec![Act::Report(all)]);
        }
        let agreement = Agreement::of([all]);
        let acts = vec![Act::Settle(agreement.clone())];
        (Some(Standing::Trying(agreement, None)), acts)
    }

    fn close(&self, verdict: Verdict) -> Vec<Act> {
        let mut acts = Vec::with_capacity(2);
        if self.place.stage > 0 {
            acts.push(Act::Verdict(verdict.clone()));
        }
        acts.push(Act::Close(verdict));
        acts
    }
}

fn name(heard: &Heard) -> &'static str {
    match heard {
        Heard::Own(_) => "the own report",
        Heard::Behind(_) => "the report from behind",
        Heard::Agreement(..) => "the agreement",
        Heard::Settled(_) => "the own vote",
        Heard::Verdict(_) => "the verdict",
    }
}
