//! What replicas have of steps that they share, until all is here: a pure record.
//!
//! | id | invariant |
//! | --- | --- |
//! | GA-1 | a step is joined once, when each of its replicas has given what it has, and in the order of the replicas |

use std::collections::BTreeMap;

use shared::ids::JobName;

use crate::stage::partial::Partial;
use crate::train::tally::LossPartials;

/// A job and the steps taken before.
pub(super) type Step = (JobName, u64);

/// What one replica has of a step on this stage.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Contribution {
    /// Of the gradient.
    pub(super) partials: Vec<Partial>,
    /// Of the losses, on the last stage.
    pub(super) losses: LossPartials,
}

/// Steps that are not joined.
#[derive(Clone, Debug, Default)]
pub(super) struct Gathering {
    open: BTreeMap<Step, BTreeMap<u32, Contribution>>,
}

impl Gathering {
    /// A replica gave what it has; whether it had not before.
    pub(super) fn add(&mut self, step: Step, replica: u32, given: Contribution) -> bool {
        let open = self.open.entry(step).or_default();
        open.insert(replica, given).is_none()
    }

    /// What all have, in the order of the replicas, once nothing is missing.
    pub(super) fn take(&mut self, step: &Step, replicas: &[u32]) -> Option<Vec<Contribution>> {
        let open = self.open.get(step)?;
        if !replicas.iter().all(|replica| open.contains_key(replica)) {
            return None;
        }
        let mut open = self.open.remove(step)?;
        let all = replicas.iter().filter_map(|replica| open.remove(replica));
        Some(all.collect())
    }

    /// Whether a replica gave what it has of a step that is not joined.
    pub(super) fn has(&self, step: &Step, replica: u32) -> bool {
        let open = self.open.get(step);
        open.is_some_and(|open| open.contains_key(&replica))
    }

    /// A job is gone.
    pub(super) fn forget(&mut self, job: &JobName) {
        self.open.retain(|(other, _), _| other != job);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_step_is_joined_in_the_order_of_its_replicas_when_all_gave() {
        let step = (JobName::new("a").unwrap(), 3);
        let given = |first| Contribution {
            losses: LossPartials {
                sums: vec![(first, 0, 1.0)],
                bad: None,
            },
            ..Contribution::default()
        };
        let mut gathering = Gathering::default();
        // GA-1
        assert!(gathering.add(step.clone(), 2, given(2)));
        assert!(gathering.add(step.clone(), 0, given(0)) && gathering.has(&step, 0));
        assert_eq!(gathering.take(&step, &[1, 0, 2]), None);
        assert!(!gathering.add(step.clone(), 2, given(2)), "it came twice");
        assert!(gathering.add(step.clone(), 1, given(1)));
        let all = gathering.take(&step, &[1, 0, 2]).unwrap();
        assert_eq!(all, [given(1), given(0), given(2)]);
        assert_eq!(gathering.take(&step, &[1, 0, 2]), None);
        assert!(gathering.add(step.clone(), 1, given(1)));
        gathering.forget(&step.0);
        assert!(!gathering.has(&step, 1));
    }
}
