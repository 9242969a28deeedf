//! What the planner is asked of how jobs train together, and what it answers: computed outside of the machine, from what the
//! question has alone. When it is asked stands in the machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use shared::ids::{JobId, NodeName};
use shared::model::ModelShape;
use shared::plan::arrangement::Arrangement;
use shared::units::Micros;

use crate::life::admission::{Admission, Gate, Member, Scene};
use crate::life::layout::Seats;
use crate::plan::snapshot::Task;

/// How jobs shall train together: to be answered anywhere, by [`Question::answer`].
#[derive(Clone, Debug)]
pub struct Question {
    pub(super) number: u64,
    pub(super) about: BTreeMap<u32, Vec<JobId>>,
    pub(super) admission: Arc<Admission>,
    pub(super) shape: Box<ModelShape>,
    pub(super) members: BTreeMap<NodeName, Member>,
    pub(super) seats: Seats,
    pub(super) tasks: BTreeMap<JobId, Task>,
    pub(super) now: Micros,
}

impl PartialEq for Question {
    fn eq(&self, other: &Self) -> bool {
        (self.number, &self.about) == (other.number, &other.about)
    }
}

/// The answer to a question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub(super) number: u64,
    /// By replica; nothing where jobs are to train as the first stage sees fit.
    pub(super) arrangements: BTreeMap<u32, Option<Arrangement>>,
}

impl Answer {
    /// Of which question.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How the jobs of a replica are to train together; nothing where it was not asked about, or they train as the first stage sees fit.
    #[must_use]
    pub fn of(&self, replica: u32) -> Option<&Arrangement> {
        self.arrangements.get(&replica)?.as_ref()
    }
}

impl Question {
    /// Which question it is: greater than those before.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Replicas that are asked about, each with its jobs.
    #[must_use]
    pub fn about(&self) -> &BTreeMap<u32, Vec<JobId>> {
        &self.about
    }

    /// Asks the planner.
    #[must_use]
    pub fn answer(&self) -> Answer {
        let scene = Scene {
            shape: &self.shape,
            members: self.members.clone(),
            seats: &self.seats,
            on: BTreeMap::new(),
            tasks: self.tasks.clone(),
            served: BTreeMap::new(),
            now: self.now,
        };
        // With a profile of another model, jobs train as the first stage sees fit.
        let gate = Gate::new(&self.admission, scene).ok();
        let about = self.about.iter();
        let arrangements = about.map(|(replica, jobs)| {
            let arranged = gate.as_ref().and_then(|gate| gate.arranged(*replica, jobs));
            (*replica, arranged)
        });
        Answer {
            number: self.number,
            arrangements: arrangements.collect(),
        }
    }
}
