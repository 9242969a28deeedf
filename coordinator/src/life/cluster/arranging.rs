//! How the jobs of each replica train together: asked when its jobs or seats changed, told its first stage.
//!
//! The planner may take long, so it is asked outside of the machine: an effect has the question, an input the answer. What
//! an answer is about may have changed meanwhile; it is then asked again. Nothing of it is in the journal: it follows from
//! what is, and changes no result.
//!
//! | id | invariant |
//! | --- | --- |
//! | AS-1 | at most one question is open, and none is asked twice about the same jobs on the same seats |
//! | AS-2 | a first stage is told of the epoch that it stands under, and again whenever it comes back |
//! | AS-3 | nothing waits for an answer: until there is one, jobs train as the first stage sees fit |

use std::collections::BTreeMap;
use std::sync::Arc;

use shared::ids::{JobId, NodeName, PlanEpoch};
use shared::life::JobState;
use shared::model::ModelShape;
use shared::plan::arrangement::Arrangement;
use shared::units::{Bytes, Micros};
use shared::wire::order::Order;

use super::{Coordinator, Effect};
use crate::life::admission::{Admission, Gate, Member, Scene};
use crate::life::layout::Seats;
use crate::life::strain::{self, Strain};
use crate::plan::snapshot::Task;
use crate::record::Change;

/// A question that is not answered for so long is asked again.
const PATIENCE: Micros = Micros(60_000_000);

/// What an arrangement depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Topic {
    epoch: PlanEpoch,
    jobs: Vec<JobId>,
}

/// What is known of a replica.
#[derive(Clone, Debug)]
struct Known {
    topic: Topic,
    arrangement: Arrangement,
    /// By how much passes were made smaller.
    level: u32,
}

/// What is remembered of questions and answers.
#[derive(Clone, Debug, Default)]
pub(super) struct Arranging {
    known: BTreeMap<u32, Known>,
    /// The open question: its number, since when, and what about.
    open: Option<(u64, Micros, BTreeMap<u32, Topic>)>,
    last: u64,
    strains: BTreeMap<NodeName, Strain>,
}

/// How jobs shall train together: to be answered anywhere, by [`Question::answer`].
#[derive(Clone, Debug)]
pub struct Question {
    number: u64,
    about: BTreeMap<u32, Vec<JobId>>,
    admission: Arc<Admission>,
    shape: Box<ModelShape>,
    members: BTreeMap<NodeName, Member>,
    seats: Seats,
    tasks: BTreeMap<JobId, Task>,
    now: Micros,
}

impl PartialEq for Question {
    fn eq(&self, other: &Self) -> bool {
        (self.number, &self.about) == (other.number, &other.about)
    }
}

/// The answer to a question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    number: u64,
    /// By replica; nothing where jobs are to train as the first stage sees fit.
    arrangements: BTreeMap<u32, Option<Arrangement>>,
}

impl Question {
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

impl Coordinator {
    /// Jobs that train on each replica at work, as far as the planner can arrange them.
    fn topics(&self) -> BTreeMap<u32, Topic> {
        let mut topics = BTreeMap::new();
        for (replica, standing) in &self.book.layout.replicas {
            if self.is_at_work(*replica) {
                let (epoch, jobs) = (standing.since, Vec::new());
                topics.insert(*replica, Topic { epoch, jobs });
            }
        }
        for job in self.book.ledger.jobs() {
            let trains = matches!(job.state, JobState::Provisioning | JobState::Running);
            // What replicas share is cut for them apart.
            let own = trains && job.replicas <= 1;
            let topic = job.replica.filter(|_| own);
            if let Some(topic) = topic.and_then(|replica| topics.get_mut(&replica)) {
                topic.jobs.push(job.id);
            }
        }
        topics
    }

    /// Asks about replicas whose jobs or seats are others than before. AS-1
    pub(super) fn arrange(&mut self) {
        let Some(admission) = self.settings.admission.clone() else {
            return;
        };
        if self.closing.is_some() {
            return;
        }
        let now = self.now.steady;
        let open = self.arranging.open.as_ref();
        if open.is_some_and(|(_, since, _)| now.since(*since) < PATIENCE) {
            return;
        }
        let topics = self.topics();
        let known = &mut self.arranging.known;
        known.retain(|replica, _| topics.contains_key(replica));
        let mut new = topics;
        new.retain(|replica, topic| {
            let before = known.get(replica).map(|known| &known.topic);
            before.map_or(!topic.jobs.is_empty(), |before| before != topic)
        });
        if new.is_empty() {
            self.arranging.open = None;
            return;
        }
        self.arranging.last += 1;
        let about = new.iter();
        let about = about.map(|(replica, topic)| (*replica, topic.jobs.clone()));
        let mut seats = self.book.layout.seats();
        seats.retain(|replica, _| new.contains_key(replica));
        let question = Question {
            number: self.arranging.last,
            about: about.collect(),
            admission,
            shape: Box::new(self.settings.backbone.shape.clone()),
            members: self.planned_members(),
            seats,
            tasks: self.planned_tasks(new.values().flat_map(|topic| topic.jobs.iter().copied())),
            now: self.now.wall,
        };
        self.arranging.open = Some((self.arranging.last, now, new));
        self.effect(Effect::Arrange(question));
    }

    /// The planner answered.
    pub(super) fn arranged(&mut self, answer: Answer) {
        let asked = match self.arranging.open.take() {
            Some((number, _, asked)) if number == answer.number => asked,
            // A late answer to a question that was given up; the one that is open stays.
            open => {
                self.arranging.open = open;
                self.ignored += 1;
                return;
            }
        };
        let topics = self.topics();
        for (replica, arrangement) in answer.arrangements {
            let Some(topic) = asked.get(&replica) else {
                continue;
            };
            if topics.get(&replica) != Some(topic) {
                continue;
            }
            let before = self.arranging.known.get(&replica);
            let before = before.filter(|known| known.topic.epoch == topic.epoch);
            let known = Known {
                topic: topic.clone(),
                arrangement: arrangement.unwrap_or_default(),
                level: before.map_or(0, |known| known.level),
            };
            self.arranging.known.insert(replica, known);
            self.tell_arrangement(replica);
        }
        self.arrange();
    }

    /// Tells a first stage how its jobs train together, if that is known. AS-2
    pub(super) fn tell_arrangement(&mut self, replica: u32) {
        let Some((lead, epoch)) = self.lead(replica) else {
            return;
        };
        let known = self.arranging.known.get(&replica);
        let Some(known) = known.filter(|known| known.topic.epoch == epoch) else {
            return;
        };
        let own = self.settings.admission.as_ref();
        let own = own.map_or(u64::MAX, |admission| admission.tokens_per_pass);
        let arrangement = strain::eased(&known.arrangement, known.level, own);
        self.send(&lead, Order::Arrange { epoch, arrangement });
    }

    /// A heartbeat tells how much memory a node has in use: where that is more than it offers, the passes of its replica
    /// are made smaller.
    pub(super) fn look_at_memory(&mut self, node: &NodeName, used: Bytes) {
        let Some(offered) = self.members.get(node).map(|node| node.hello.memory) else {
            return;
        };
        let strain = self.arranging.strains.entry(node.clone()).or_default();
        if !strain.beat(used, offered) {
            return;
        }
        let place = self.book.layout.place_of(node);
        let Some((replica, _)) = place.filter(|(replica, _)| self.is_at_work(*replica)) else {
            return;
        };
        let Some((_, epoch)) = self.lead(replica) else {
            return;
        };
        let known = self.arranging.known.entry(replica);
        // Nothing was asked about its jobs yet.
        let known = known.or_insert_with(|| Known {
            topic: Topic {
                epoch,
                jobs: Vec::new(),
            },
            arrangement: Arrangement::default(),
            level: 0,
        });
        if known.level >= strain::MOST {
            return;
        }
        known.level += 1;
        let reason = format!(
            "{node} has {used} in use and offers {offered}: passes are made smaller (level {} of {})",
            known.level,
            strain::MOST
        );
        self.record(Change::Regrouped { replica, reason });
        self.tell_arrangement(replica);
    }

    /// A node is another process than before: what was known of its memory is of no use.
    pub(super) fn forget_strain(&mut self, node: &NodeName) {
        self.arranging.strains.remove(node);
    }
}
