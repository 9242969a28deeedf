//! Who may begin, asked of the replicas as they stand; see [`crate::life::admission`].
//!
//! What waits is remembered beside the book and not in it: it follows from the book and the clock. What tenants were
//! served and how long jobs have waited is in the book.

use std::collections::BTreeMap;

use shared::ids::{JobId, NodeName, PlanEpoch};
use shared::job::JobSpec;
use shared::life::{Reason, ReasonClass};

use super::Coordinator;
use crate::life::admission::{self, Gate, Member, Scene};
use crate::life::ledger::{Job, account};
use crate::life::membership::Node;
use crate::life::placement::Pace;
use crate::plan::snapshot::Task;
use crate::record::Change;

/// Jobs of which it is asked why they wait or whether they ever fit, beyond which the answer is the last one's.
pub(super) const ASKED: usize = 16;
/// How often those that wait are asked about when nothing else changed.
const EVERY: u64 = 1_000_000;

/// What is remembered from one question to the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    /// What the last answer was about.
    about: Option<About>,
    /// Why the planner could not be asked, as it was told last.
    unplanned: Option<String>,
    /// What devices take of a pass, by their names and threads; nothing where they were not measured.
    paces: BTreeMap<String, BTreeMap<u32, Option<Pace>>>,
}

/// What an answer depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct About {
    epoch: PlanEpoch,
    load: BTreeMap<u32, usize>,
    waiting: Vec<JobId>,
    turn: u64,
}

/// A node as admission sees it.
pub(super) fn member(node: &Node) -> Member {
    Member {
        device: node.hello.device.clone(),
        threads: node.hello.threads,
        memory: node.hello.memory,
    }
}

impl Coordinator {
    /// What a node's device takes of a pass, where it was measured.
    pub(super) fn pace(&self, node: &Node) -> Option<Pace> {
        let of_device = self.memory.paces.get(&node.hello.device)?;
        of_device.get(&node.hello.threads).copied().flatten()
    }

    /// Looks up what devices take that came since the last time.
    pub(super) fn learn_paces(&mut self) {
        let Some(admission) = &self.settings.admission else {
            return;
        };
        if admission.profiles.is_empty() {
            return;
        }
        let shape = &self.settings.backbone.shape;
        for (_, node) in self.members.nodes() {
            let (device, threads) = (&node.hello.device, node.hello.threads);
            let known = self.memory.paces.get(device);
            if !known.is_some_and(|known| known.contains_key(&threads)) {
                let pace = admission.pace(&member(node), shape);
                let of_device = self.memory.paces.entry(device.clone()).or_default();
                of_device.insert(threads, pace);
            }
        }
    }

    /// The question, unless admission is off or nothing changed since the last answer.
    pub(super) fn gate(&mut self, load: &BTreeMap<u32, usize>, waiting: &[JobId]) -> Asked {
        let Some(admission) = self.settings.admission.clone() else {
            return Asked::Open;
        };
        let about = About {
            epoch: self.book.layout.epoch,
            load: load.clone(),
            waiting: waiting.to_vec(),
            turn: self.now.wall.0 / EVERY,
        };
        if self.memory.about.as_ref() == Some(&about) {
            return Asked::Answered;
        }
        self.memory.about = Some(about);
        self.remember();
        let (seats, members) = (self.book.layout.seats(), self.planned_members());
        self.notes.verdicts.stand(&seats, &members);
        let scene = Scene {
            shape: &self.settings.backbone.shape,
            members,
            seats: &seats,
            on: seats
                .keys()
                .map(|n| (*n, self.book.ledger.on(*n)))
                .collect(),
            tasks: self.notes.tasks.clone(),
            served: self.book.ledger.served().clone(),
            now: self.now.wall,
        };
        match Gate::new(&admission, scene) {
            Ok(gate) => {
                self.memory.unplanned = None;
                Asked::Gate(Box::new(gate))
            }
            Err(why) => {
                self.tell_unplanned(why.to_string());
                Asked::Open
            }
        }
    }

    /// The planner cannot be asked: admission goes by number alone, and that is told.
    fn tell_unplanned(&mut self, reason: String) {
        if self.memory.unplanned.as_ref() != Some(&reason) {
            self.memory.unplanned = Some(reason.clone());
            self.record(Change::Unplanned { reason });
        }
    }

    /// Of these jobs those that the planner knows, as it sees them.
    pub(super) fn planned_tasks(
        &mut self,
        jobs: impl Iterator<Item = JobId>,
    ) -> BTreeMap<JobId, Task> {
        self.remember();
        let tasks = &self.notes.tasks;
        jobs.filter_map(|job| Some((job, tasks.get(&job)?.clone())))
            .collect()
    }

    /// Nodes with a seat, as the planner sees them.
    pub(super) fn planned_members(&self) -> BTreeMap<NodeName, Member> {
        let seated = self.book.layout.nodes();
        let nodes = self.members.nodes();
        nodes
            .filter(|(name, _)| seated.contains(*name))
            .map(|(name, node)| (name.clone(), member(node)))
            .collect()
    }

    /// Jobs that have not ended, as the planner sees them.
    pub(super) fn remember(&mut self) {
        let ledger = &self.book.ledger;
        let now = self.now.wall;
        for job in ledger.jobs().filter(|job| !job.state.is_final()) {
            let left = |steps: u64| steps.saturating_sub(job.step).max(1);
            let stand = |task: &mut Task| {
                // LG-6: waited since, had it waited at one go.
                task.queued = now.since(job.waiting.so_far(now));
                let began = job.started.unwrap_or(job.submitted);
                task.started = job.replica.map(|_| began);
            };
            if let Some(task) = self.notes.tasks.get_mut(&job.id) {
                if job.total > 0 {
                    task.steps = left(job.total);
                }
                stand(task);
                continue;
            }
            let measure = job
                .inputs
                .as_ref()
                .and_then(|inputs| inputs.measure.as_deref());
            let spec = serde_json::from_str::<JobSpec>(&job.spec).ok();
            if let (Some(measure), Some(spec)) = (measure, spec) {
                let mut task = admission::task(&spec, measure, job.submitted);
                task.steps = left(task.steps);
                stand(&mut task);
                self.notes.tasks.insert(job.id, task);
            }
        }
    }

    /// Asks for a place among these replicas, the emptiest first.
    pub(super) fn choose(&mut self, gate: &mut Gate, job: JobId, rooms: &[u32]) -> Option<u32> {
        let mut why = None;
        for replica in rooms {
            match gate.takes(*replica, job) {
                Ok(()) => {
                    gate.begin(*replica, job);
                    return Some(*replica);
                }
                Err(wait) => {
                    why.get_or_insert(wait);
                }
            }
        }
        if let Some(wait) = why {
            gate.waits(job, &wait);
            self.notes.waits.insert(job, format!("it {wait}"));
        }
        None
    }

    /// Those that were not asked wait behind the last one that was.
    pub(super) fn rest_waits(&mut self, last: JobId, rest: &[JobId]) {
        let last = self.notes.waits.get(&last).cloned();
        for job in rest {
            let why = match &last {
                Some(why) => format!("it is not its turn; of the job before it: {why}"),
                None => "it is not its turn".to_owned(),
            };
            self.notes.waits.insert(*job, why);
        }
    }

    /// Why a job waits that could have had a replica.
    pub(super) fn waiting_reason(&self, job: &Job) -> Option<Reason> {
        let message = self.notes.waits.get(&job.id)?.clone();
        let class = ReasonClass::NoCapacity;
        Some(Reason { class, message })
    }

    /// Where the account of a tenant starts that comes back from having no job; 0 where it has one.
    pub(super) fn served_from(&self, tenant: &str) -> u64 {
        let ledger = &self.book.ledger;
        if ledger.active().any(|active| active == tenant) {
            return 0;
        }
        let nobody = BTreeMap::new();
        let admission = self.settings.admission.as_ref();
        let weights = admission.map_or(&nobody, |admission| &admission.tenants);
        account::start(ledger.served(), weights, ledger.active(), tenant)
    }
}

/// What was made of a question.
pub(super) enum Asked {
    /// Admission is off: by number alone.
    Open,
    /// The answer is still that of before.
    Answered,
    /// To be asked.
    Gate(Box<Gate>),
}
