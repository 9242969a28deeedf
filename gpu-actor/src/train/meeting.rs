//! Where the stages of a pipeline agree on each job's step: reports, then votes, then a verdict.
//!
//! | id | invariant |
//! | --- | --- |
//! | MT-1 | a step is taken on all stages or on none |
//! | MT-2 | all stages get the same agreement and the same verdict |

use std::collections::BTreeMap;

use crate::pipeline::Slot;
use crate::stage::agreement::{self, Agreement, Broken, Report};

/// A job's step.
pub(super) type Matter = (Slot, u64);

#[derive(Debug, Default)]
struct Open {
    reports: Vec<Report>,
    agreement: Option<Agreement>,
    votes: usize,
    broken: Option<Broken>,
    /// Stages that know the verdict.
    told: usize,
}

/// The matters that are open.
#[derive(Debug)]
pub(super) struct Meeting {
    stages: usize,
    open: BTreeMap<Matter, Open>,
    /// Whether a stage left before its work was done: then there is nothing to wait for.
    pub(super) left: bool,
}

impl Meeting {
    pub(super) fn new(stages: usize) -> Self {
        Self {
            stages,
            open: BTreeMap::new(),
            left: false,
        }
    }

    /// Takes one stage's report; true when it was the last.
    pub(super) fn report(&mut self, matter: Matter, report: Report) -> bool {
        let open = self.open.entry(matter).or_default();
        open.reports.push(report);
        if open.reports.len() < self.stages {
            return false;
        }
        open.agreement = Some(Agreement::of(std::mem::take(&mut open.reports)));
        true
    }

    /// What all stages know together, once all have reported.
    pub(super) fn agreement(&self, matter: Matter) -> Option<Agreement> {
        self.open.get(&matter)?.agreement.clone()
    }

    /// Takes one stage's vote: against the step when it says what is broken. True when it was the last.
    pub(super) fn vote(&mut self, matter: Matter, broken: Option<Broken>) -> bool {
        let open = self.open.entry(matter).or_default();
        open.votes += 1;
        open.broken = agreement::first(open.broken.take(), broken);
        open.votes == self.stages
    }

    /// Whether the step is taken, once all have voted; each stage asks until it knows.
    pub(super) fn verdict(&mut self, matter: Matter) -> Option<Result<(), Broken>> {
        let open = self.open.get_mut(&matter)?;
        if open.votes < self.stages {
            return None;
        }
        open.told += 1;
        let verdict = open.broken.clone().map_or(Ok(()), Err);
        if open.told == self.stages {
            self.open.remove(&matter);
        }
        Some(verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_vote_against_it_keeps_all_from_the_step() {
        let mut meeting = Meeting::new(2);
        let matter = (3, 7);
        let report = |piece: usize| Report {
            squares: vec![(piece, piece as f64)],
            ..Report::default()
        };
        assert!(!meeting.report(matter, report(1)));
        assert_eq!(meeting.agreement(matter), None);
        assert!(meeting.report(matter, report(0)));
        let all = Agreement::of([report(0), report(1)]);
        assert_eq!(meeting.agreement(matter), Some(all));
        let broken = Broken {
            piece: Some(1),
            what: "new value of b".into(),
        };
        assert!(!meeting.vote(matter, Some(broken.clone())));
        assert_eq!(meeting.verdict(matter), None);
        assert!(meeting.vote(matter, None));
        assert_eq!(meeting.verdict(matter), Some(Err(broken.clone())));
        assert_eq!(meeting.verdict(matter), Some(Err(broken)));
        assert_eq!(meeting.verdict(matter), None, "all know");
    }
}
