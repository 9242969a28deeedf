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

use shared::ids::{JobId, NodeName, PlanEpoch};
use shared::life::JobState;
use shared::plan::arrangement::Arrangement;
use shared::units::{Bytes, Micros};
use shared::wire::order::Order;

use super::question::{Answer, Question};
use super::{Coordinator, Effect};
use crate::life::strain::{self, Strain, Turn};
use crate::record::Change;

/// A question that is not answered for so long is asked again. At each repeat it is twice as long: the planner may be at
/// the question of before still, and a slow one shall be waited for and not be started over and over.
const PATIENCE: Micros = Micros(60_000_000);
/// Most times that the patience doubles.
const DOUBLED: u32 = 10;

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
}

/// What is remembered of questions and answers.
#[derive(Clone, Debug, Default)]
pub(super) struct Arranging {
    known: BTreeMap<u32, Known>,
    /// The open question: its number, since when, and what about.
    open: Option<(u64, Micros, BTreeMap<u32, Topic>)>,
    last: u64,
    /// Questions that were given up since the last answer.
    given_up: u32,
    /// Of nodes, as long as they are the same processes: jobs and seats may change meanwhile.
    strains: BTreeMap<NodeName, Strain>,
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
        let patience = Micros(PATIENCE.0 << self.arranging.given_up.min(DOUBLED));
        let open = self.arranging.open.as_ref();
        if open.is_some_and(|(_, since, _)| now.since(*since) < patience) {
            return;
        }
        if self.arranging.open.take().is_some() {
            self.arranging.given_up += 1;
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
        self.arranging.given_up = 0;
        let topics = self.topics();
        for (replica, arrangement) in answer.arrangements {
            let Some(topic) = asked.get(&replica) else {
                continue;
            };
            if topics.get(&replica) != Some(topic) {
                continue;
            }
            let known = Known {
                topic: topic.clone(),
                arrangement: arrangement.unwrap_or_default(),
            };
            self.arranging.known.insert(replica, known);
            self.tell_arrangement(replica);
        }
        self.arrange();
    }

    /// Replicas that compute what a replica cuts into passes: itself, and those that share the jobs that it leads.
    fn computing(&self, replica: u32) -> Vec<u32> {
        let ledger = &self.book.ledger;
        let here = ledger.on(replica).into_iter();
        let most = here
            .filter_map(|job| ledger.get(job))
            .map(|job| job.replicas);
        let mut all = self.book.layout.sharing(replica, most.max().unwrap_or(1));
        all.push(replica);
        all
    }

    /// By how much passes that a replica cuts are made smaller.
    fn level(&self, replica: u32) -> u32 {
        let replicas = &self.book.layout.replicas;
        let computing = self.computing(replica);
        let standing = computing.iter().filter_map(|n| replicas.get(n));
        let seats = standing.flat_map(|standing| &standing.seats);
        let strains = seats.filter_map(|seat| self.arranging.strains.get(&seat.node));
        strains.map(Strain::level).max().unwrap_or(0)
    }

    /// Tells a first stage how its jobs train together, if that is known, and how large passes may be where memory is
    /// short. AS-2
    pub(super) fn tell_arrangement(&mut self, replica: u32) {
        if self.known_of(replica).is_some() || self.level(replica) > 0 {
            self.send_arrangement(replica);
        }
    }

    /// Tells a first stage that got jobs how large their passes may be, where memory is short.
    pub(super) fn tell_level(&mut self, replica: u32) {
        if self.level(replica) > 0 {
            self.send_arrangement(replica);
        }
    }

    /// What is known under the epoch that a replica stands under.
    fn known_of(&self, replica: u32) -> Option<&Arrangement> {
        let (_, epoch) = self.lead(replica)?;
        let known = self.arranging.known.get(&replica);
        let known = known.filter(|known| known.topic.epoch == epoch)?;
        Some(&known.arrangement)
    }

    fn send_arrangement(&mut self, replica: u32) {
        let (Some((lead, epoch)), Some(admission)) = (self.lead(replica), &self.settings.admission)
        else {
            return;
        };
        let unknown = Arrangement::default();
        let arrangement = self.known_of(replica).unwrap_or(&unknown);
        let own = admission.tokens_per_pass;
        let arrangement = strain::eased(arrangement, self.level(replica), own);
        self.send(&lead, Order::Arrange { epoch, arrangement });
    }

    /// A heartbeat tells how much memory a node has in use: where that is more than it offers, the passes of its replica
    /// are made smaller, and those of replicas that send it rows.
    pub(super) fn look_at_memory(&mut self, node: &NodeName, used: Bytes) {
        let Some(offered) = self.members.get(node).map(|node| node.hello.memory) else {
            return;
        };
        let place = self.book.layout.place_of(node);
        let at_work = place.filter(|(replica, _)| self.is_at_work(*replica));
        // Nobody could be told, so it does not count.
        let (Some((replica, _)), true) = (at_work, self.settings.admission.is_some()) else {
            return;
        };
        let strain = self.arranging.strains.entry(node.clone()).or_default();
        let Some(turn) = strain.beat(used, offered) else {
            return;
        };
        let replicas: Vec<u32> = self.book.layout.replicas.keys().copied().collect();
        let cut = replicas
            .into_iter()
            .filter(|n| self.is_at_work(*n) && self.computing(*n).contains(&replica));
        let cut: Vec<u32> = cut.collect();
        let by_now = cut.iter().map(|n| self.level(*n)).max().unwrap_or(0);
        let strain = self.arranging.strains.entry(node.clone()).or_default();
        if !strain.turn(turn, by_now) {
            return;
        }
        if turn == Turn::Smaller {
            let reason = format!(
                "{node} has {used} in use and offers {offered}: passes are made smaller (level {} of {})",
                strain.level(),
                strain::MOST
            );
            self.record(Change::Regrouped { replica, reason });
        }
        for replica in cut {
            self.send_arrangement(replica);
        }
    }

    /// A node is another process than before: what was known of its memory is of no use.
    pub(super) fn forget_strain(&mut self, node: &NodeName) {
        self.arranging.strains.remove(node);
    }
}
