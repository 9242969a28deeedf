//! How jobs train together: what a coordinator asks and tells of it, held against what must be so. AS-1 to AS-3 are those of
//! `coordinator::life::cluster`; answers come late, or never.

use std::collections::BTreeMap;

use coordinator::life::cluster::{Answer, Question};
use coordinator::life::ledger::Job;
use coordinator::life::strain::{self, MOST};
use shared::ids::{JobId, PlanEpoch};
use shared::life::JobState;
use shared::plan::arrangement::Arrangement;
use shared::units::Micros;

use crate::model::TOKENS_PER_PASS;
use crate::world::node::Post;
use crate::world::{FAULTS_END, World};

/// A question without an answer is not asked again before.
const PATIENCE: Micros = Micros::of_millis(60_000);

/// What is told arrives within so long once nothing goes wrong any more.
const ARRIVES: Micros = Micros::of_millis(1_000);

/// Whoever was halted when faults ended goes on by then.
const CALM: Micros = FAULTS_END.plus(Micros::of_millis(7_000));

/// What an arrangement is about.
type Topic = (PlanEpoch, Vec<JobId>);

/// What an answer said.
#[derive(Debug)]
struct Known {
    topic: Topic,
    since: Micros,
    arrangement: Arrangement,
}

/// What one coordinator has asked, and knows by the answers.
#[derive(Debug, Default)]
pub(crate) struct Arranging {
    open: Option<(u64, Micros, BTreeMap<u32, Topic>)>,
    known: BTreeMap<u32, Known>,
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arranged {
    /// Questions to the planner.
    pub asked: u64,
    /// Of replicas: answers about jobs or seats that had changed meanwhile.
    pub stale: u64,
    /// Arrangements that came to a first stage.
    pub told: u64,
    /// Rounds that a first stage formed by one.
    pub rounds: u64,
    /// Looks at a first stage that must have been told.
    pub looks: u64,
}

impl World {
    /// Jobs that train on a replica by themselves, and the epoch that it stands under; none when it is broken.
    fn topic(&self, replica: u32) -> Option<Topic> {
        let book = &self.shadow;
        let standing = book.layout.replicas.get(&replica)?;
        let own = |job: &&Job| {
            let trains = matches!(job.state, JobState::Provisioning | JobState::Running);
            trains && job.replicas <= 1 && job.replica == Some(replica)
        };
        let jobs = book.ledger.jobs().filter(own).map(|job| job.id).collect();
        (!book.broken.contains(&replica)).then_some((standing.since, jobs))
    }

    /// The planner is asked; `moved` says that the plan changed in the same step. AS-1
    pub(crate) fn asks(&mut self, instance: usize, question: &Question, moved: bool) {
        let now = self.now();
        let layout = &self.shadow.layout.replicas;
        let about = question.about().iter().filter_map(|(replica, jobs)| {
            let since = layout.get(replica)?.since;
            Some((*replica, (since, jobs.clone())))
        });
        let about: BTreeMap<u32, Topic> = about.collect();
        self.check.arranged.asked += 1;
        let mine = &mut self.instances[instance].arranging;
        let twice = mine
            .open
            .as_ref()
            .is_some_and(|(_, since, _)| now.since(*since) < PATIENCE);
        let known = about.iter().find(|(replica, topic)| {
            mine.known
                .get(*replica)
                .is_some_and(|own| own.topic == **topic)
        });
        let again = known.filter(|_| !moved).map(|known| format!("{known:?}"));
        mine.open = Some((question.number(), now, about));
        if twice {
            self.check
                .fail("AS-1", "asked while a question is open".into());
        }
        if let Some(again) = again {
            self.check
                .fail("AS-1", format!("asked again of what is known: {again}"));
        }
    }

    /// An answer comes to the coordinator that asked, before it is taken.
    pub(crate) fn answers(&mut self, instance: usize, answer: &Answer) {
        let open = &mut self.instances[instance].arranging.open;
        let Some((_, _, asked)) = open.take_if(|(number, ..)| *number == answer.number()) else {
            return;
        };
        let now = self.now();
        for (replica, topic) in asked {
            if self.topic(replica).as_ref() == Some(&topic) {
                let told = Known {
                    topic,
                    since: now,
                    arrangement: answer.of(replica).cloned().unwrap_or_default(),
                };
                let known = &mut self.instances[instance].arranging.known;
                known.insert(replica, told);
            } else {
                self.check.arranged.stale += 1;
            }
        }
    }

    /// A first stage is told how its jobs train together. AS-2
    pub(crate) fn is_arranged(&mut self, node: usize, epoch: PlanEpoch, arrangement: Arrangement) {
        let name = self.nodes[node].name.clone();
        if let Some(fault) = arrangement.fault() {
            let seen = format!("{name} is told under {epoch}: {fault}");
            self.check.fail("SIM-14", seen);
        }
        let Some(post) = self.nodes[node].post_of(epoch) else {
            return;
        };
        let Some(lead) = &mut post.lead else {
            let seen = format!("{name} is told under {epoch}, where it is not the first stage");
            return self.check.fail("AS-2", seen);
        };
        lead.arrangement = Some(arrangement);
        self.check.arranged.told += 1;
    }

    /// When nothing goes wrong any more, a first stage whose arrangement is known has that one, of the jobs that were asked about last,
    /// with passes as it was answered or as much smaller as some level of strain makes them. AS-2
    pub(crate) fn look_at_arrangement(&mut self, node: usize) {
        let now = self.now();
        let old = |since: Micros| now.since(since) > ARRIVES;
        let process = &self.nodes[node].process;
        let leads = |post: &&Post| post.is_linked() && post.lead.is_some();
        let (Some(post), Some(number)) = (process.post.as_ref().filter(leads), process.connection)
        else {
            return;
        };
        let Some(connection) = self.connections.get(&number) else {
            return;
        };
        let up = connection.leader_open && old(connection.opened);
        let known = &self.instances[connection.instance].arranging.known;
        let known = known.get(&post.replica.number);
        let known = known.filter(|known| known.topic.0 == post.epoch && old(known.since));
        let Some(known) = known.filter(|_| now >= CALM && up) else {
            return;
        };
        self.check.arranged.looks += 1;
        let told = post
            .lead
            .as_ref()
            .and_then(|lead| lead.arrangement.as_ref());
        let eased = |level| strain::eased(&known.arrangement, level, TOKENS_PER_PASS);
        let is_known = told.is_some_and(|told| (0..=MOST).any(|level| *told == eased(level)));
        if !is_known {
            let name = &self.nodes[node].name;
            let seen = format!("{name} was told {told:?}, and this is known: {known:?}");
            self.check.fail("AS-2", seen);
        }
    }
}
