//! The first stage of a replica: it forms rounds, keeps count of steps, and sees to states and adapters.

use std::collections::{BTreeMap, BTreeSet};

use gpu_actor::pipeline::{Event, MicroBatch, Part, Slot};
use shared::ids::{JobId, PlanEpoch};
use shared::life::{Reason, ReasonClass};
use shared::plan::arrangement::Arrangement;
use shared::units::Bytes;
use shared::wire::notice::{JobNotice, Notice};
use shared::wire::order::{JobAction, JobOrder};

use crate::artifacts::state_after;
use crate::world::links::Message;
use crate::world::rounds::{Member, passes};
use crate::world::{Awaited, World};

/// Jobs that a first stage takes.
const MOST: usize = 4;

/// A job that is trained.
#[derive(Clone, Debug)]
struct Train {
    slot: Slot,
    step: u64,
    total: u64,
    state: u64,
    /// Its numbers stop being finite after this step.
    sick: Option<u64>,
    every: u64,
    paused: bool,
    told_paused: bool,
    cancelled: bool,
    /// The newest step whose state is in the store.
    stored: u64,
    /// Being stored: step and state.
    storing: Option<(u64, u64)>,
    finished: bool,
    exporting: bool,
}

/// What a first stage keeps.
#[derive(Debug)]
pub(crate) struct Lead {
    stages: usize,
    jobs: BTreeMap<JobId, Train>,
    loading: BTreeMap<JobId, (JobOrder, bool)>,
    /// Jobs that ended here, until the notice of that number is heard.
    ended: BTreeMap<JobId, u64>,
    round: BTreeSet<JobId>,
    /// How its jobs train together, as it was told last.
    pub(crate) arrangement: Option<Arrangement>,
    complete: BTreeMap<(Slot, u64), usize>,
    draining: bool,
    toward: PlanEpoch,
    drained: bool,
    slots: Slot,
    batches: u64,
}

impl Lead {
    pub(crate) fn new(stages: usize) -> Self {
        Self {
            stages,
            jobs: BTreeMap::new(),
            loading: BTreeMap::new(),
            ended: BTreeMap::new(),
            round: BTreeSet::new(),
            arrangement: None,
            complete: BTreeMap::new(),
            draining: false,
            toward: PlanEpoch(0),
            drained: false,
            slots: 0,
            batches: 0,
        }
    }

    pub(crate) fn held(&self) -> Vec<(JobId, u64)> {
        let trained = self.jobs.iter().map(|(job, train)| (*job, train.step));
        let other = self
            .loading
            .keys()
            .chain(self.ended.keys())
            .map(|job| (*job, 0));
        trained.chain(other).collect()
    }

    pub(crate) fn paused(&self) -> Vec<JobId> {
        let trained = self
            .jobs
            .iter()
            .filter(|(_, train)| train.paused)
            .map(|(job, _)| *job);
        let loading = self.loading.iter().filter(|(_, (order, _))| order.paused);
        trained.chain(loading.map(|(job, _)| *job)).collect()
    }

    pub(crate) fn heard(&mut self, number: u64) {
        self.ended.retain(|_, last| *last > number);
    }

    pub(crate) fn drain(&mut self, toward: PlanEpoch) {
        self.draining = true;
        self.toward = toward;
        self.drained = false;
    }

    pub(crate) fn undrain(&mut self) {
        self.draining = false;
        self.drained = false;
    }

    pub(crate) fn act(&mut self, job: JobId, action: JobAction) {
        if let Some((order, cancelled)) = self.loading.get_mut(&job) {
            match action {
                JobAction::Pause => order.paused = true,
                JobAction::Resume => order.paused = false,
                JobAction::Cancel => *cancelled = true,
            }
        }
        if let Some(train) = self.jobs.get_mut(&job) {
            match action {
                JobAction::Pause => train.paused = true,
                JobAction::Resume => {
                    train.paused = false;
                    train.told_paused = true;
                }
                JobAction::Cancel => train.cancelled = true,
            }
        }
    }
}

/// Steps in all, and the step after which numbers are not finite, from the specification.
fn wanted(order: &JobOrder) -> (u64, Option<u64>) {
    let spec: serde_json::Value = serde_json::from_str(&order.spec).unwrap_or_default();
    let steps = spec["train"]["steps"].as_u64().unwrap_or(1);
    let sick = spec["seed"].as_u64().filter(|seed| *seed < steps);
    (steps, sick)
}

impl World {
    /// Does something to a first stage, and then lets it think.
    pub(crate) fn with_lead(
        &mut self,
        node: usize,
        epoch: PlanEpoch,
        what: impl FnOnce(&mut Lead),
    ) {
        if let Some(lead) = self.nodes[node]
            .post_of(epoch)
            .and_then(|post| post.lead.as_mut())
        {
            what(lead);
            self.think(node);
        }
    }

    fn lead(&mut self, node: usize, epoch: PlanEpoch) -> Option<&mut Lead> {
        let post = self.nodes[node].post_of(epoch)?;
        let linked = post.is_linked();
        post.lead.as_mut().filter(|_| linked)
    }

    pub(crate) fn admit(&mut self, node: usize, epoch: PlanEpoch, jobs: Vec<JobOrder>) {
        for order in jobs {
            let Some(lead) = self.lead(node, epoch) else {
                return;
            };
            let job = order.job;
            let here = lead.jobs.contains_key(&job) || lead.loading.contains_key(&job);
            if here || lead.ended.contains_key(&job) {
                continue;
            }
            if lead.jobs.len() + lead.loading.len() >= MOST {
                let class = ReasonClass::NoCapacity;
                let message = "its memory is full".into();
                let refused = JobNotice::Refused(Reason { class, message });
                self.end(node, epoch, job, refused);
                continue;
            }
            lead.loading.insert(job, (order, false));
            let delay = self.millis(5, 60);
            self.soon(node, delay, Awaited::Loaded(epoch, job));
        }
    }

    /// The last word about a job.
    fn end(&mut self, node: usize, epoch: PlanEpoch, job: JobId, notice: JobNotice) {
        let number = self.tell_of_job(node, epoch, job, notice);
        if let Some(lead) = self.nodes[node]
            .post_of(epoch)
            .and_then(|post| post.lead.as_mut())
        {
            lead.jobs.remove(&job);
            lead.ended.insert(job, number);
        }
    }

    pub(crate) fn loaded(&mut self, node: usize, epoch: PlanEpoch, job: JobId) {
        let (step, state) = self.artifacts.newest(job);
        let answers = self.artifacts.answers(self.now());
        let Some(lead) = self.lead(node, epoch) else {
            return;
        };
        let Some((order, cancelled)) = lead.loading.remove(&job) else {
            return;
        };
        if !answers {
            let class = ReasonClass::System;
            let message = "the store does not answer".into();
            let refused = JobNotice::Refused(Reason { class, message });
            return self.end(node, epoch, job, refused);
        }
        let (total, sick) = wanted(&order);
        let slot = lead.slots;
        lead.slots += 1;
        let train = Train {
            slot,
            step,
            total,
            state,
            sick,
            every: 2 + job.0 % 4,
            paused: order.paused,
            told_paused: order.paused,
            cancelled,
            stored: step,
            storing: None,
            finished: false,
            exporting: false,
        };
        lead.jobs.insert(job, train);
        let last = lead.stages == 1;
        self.feed(node, epoch, Event::Attached(slot, step));
        if !last {
            self.pass(node, true, Message::Attach(slot, step));
        }
        self.tell_of_job(node, epoch, job, JobNotice::Admitted { step, total });
        if step > 0 && self.dice.percent(50) {
            self.tell_of_job(node, epoch, job, JobNotice::Recovered { step });
        }
        self.think(node);
    }

    /// What the first stage does next.
    pub(crate) fn think(&mut self, node: usize) {
        let Some(epoch) = self.nodes[node]
            .process
            .post
            .as_ref()
            .map(|post| post.epoch)
        else {
            return;
        };
        let Some(lead) = self.lead(node, epoch).filter(|lead| lead.round.is_empty()) else {
            return;
        };
        let jobs: Vec<JobId> = lead.jobs.keys().copied().collect();
        for job in jobs {
            self.see_to(node, epoch, job);
        }
        let Some(lead) = self.lead(node, epoch) else {
            return;
        };
        if lead.draining {
            let durable = |train: &Train| train.stored == train.step && train.storing.is_none();
            if !lead.drained && lead.jobs.values().all(durable) {
                lead.drained = true;
                let drained = Notice::Drained {
                    epoch,
                    toward: lead.toward,
                    outcome: Ok(()),
                };
                self.tell(node, drained);
            }
            return;
        }
        self.begin_round(node, epoch);
    }

    /// What is due between rounds for one job.
    fn see_to(&mut self, node: usize, epoch: PlanEpoch, job: JobId) {
        let Some(lead) = self.lead(node, epoch) else {
            return;
        };
        let draining = lead.draining;
        let Some(train) = lead.jobs.get_mut(&job) else {
            return;
        };
        let (step, slot) = (train.step, train.slot);
        let over = train.cancelled || step == train.total || train.sick == Some(step);
        let due = step.is_multiple_of(train.every) || over || draining;
        if due && train.storing.is_none() && train.stored < step {
            train.storing = Some((step, train.state));
            self.save(node, epoch, slot, step);
            return self.see_to_end(node, epoch, job);
        }
        self.see_to_end(node, epoch, job);
    }

    fn see_to_end(&mut self, node: usize, epoch: PlanEpoch, job: JobId) {
        let Some(train) = self
            .lead(node, epoch)
            .and_then(|lead| lead.jobs.get_mut(&job))
        else {
            return;
        };
        let step = train.step;
        let durable = train.stored == step;
        if train.cancelled && durable {
            return self.end(node, epoch, job, JobNotice::Cancelled { step });
        }
        if train.sick == Some(step) && durable {
            let reason = "the loss is not a number".into();
            return self.end(node, epoch, job, JobNotice::Quarantined { step, reason });
        }
        if step == train.total {
            let told = std::mem::replace(&mut train.finished, true);
            let export = durable && !train.exporting;
            train.exporting |= export;
            if !told {
                self.tell_of_job(node, epoch, job, JobNotice::Finished { step, early: false });
            }
            if export {
                let delay = self.millis(5, 100);
                self.soon(node, delay, Awaited::Exported(epoch, job));
            }
            return;
        }
        if train.paused != train.told_paused || (!train.paused && train.told_paused) {
            train.told_paused = train.paused;
            let notice = if train.paused {
                JobNotice::Paused { step }
            } else {
                JobNotice::Resumed
            };
            self.tell_of_job(node, epoch, job, notice);
        }
    }

    /// One step of every job that may take one.
    fn begin_round(&mut self, node: usize, epoch: PlanEpoch) {
        let halves = self.dice.percent(40);
        let Some(lead) = self.lead(node, epoch) else {
            return;
        };
        let goes_on = |train: &Train| {
            let over = train.step >= train.total || train.sick == Some(train.step);
            !train.paused && !train.cancelled && !over
        };
        let jobs = lead.jobs.iter().filter(|(_, train)| goes_on(train));
        let members: Vec<Member> = jobs.map(|(job, t)| (*job, t.slot, t.step)).collect();
        if members.is_empty() {
            return;
        }
        lead.round = members.iter().map(|(job, _, _)| *job).collect();
        let mut batches = Vec::new();
        let arrangement = lead.arrangement.as_ref();
        let arranged = arrangement.is_some_and(|told| !told.buckets.is_empty());
        for shares in passes(&members, arrangement, halves) {
            batches.push(MicroBatch {
                number: lead.batches,
                trains: true,
                bytes: 10,
                passing: 0,
                part: Part::default(),
                shares,
            });
            lead.batches += 1;
        }
        let alone = lead.stages == 1;
        self.check.arranged.rounds += u64::from(arranged);
        for batch in batches {
            if !alone {
                self.pass(node, true, Message::Plan(batch.clone()));
            }
            self.feed(node, epoch, Event::Planned(batch));
        }
    }

    /// One stage more has all gradients of a step.
    pub(crate) fn complete(&mut self, node: usize, epoch: PlanEpoch, slot: Slot, step: u64) {
        let Some(lead) = self.lead(node, epoch) else {
            return;
        };
        let count = lead.complete.entry((slot, step)).or_insert(0);
        *count += 1;
        if *count == lead.stages {
            lead.complete.remove(&(slot, step));
            if lead.stages > 1 {
                self.pass(node, true, Message::Agree(slot, step));
            }
            self.feed(node, epoch, Event::Agreed(slot, step));
        }
    }

    /// The first stage took a step of an adapter.
    pub(crate) fn step_taken(&mut self, node: usize, epoch: PlanEpoch, slot: Slot) {
        let Some(lead) = self.lead(node, epoch) else {
            return;
        };
        let Some((job, train)) = lead.jobs.iter_mut().find(|(_, train)| train.slot == slot) else {
            return;
        };
        let job = *job;
        train.step += 1;
        train.state = state_after(train.state, job, train.step);
        lead.round.remove(&job);
        let step = train.step;
        let notice = JobNotice::Step {
            step,
            loss: 1.0 / step as f64,
            accuracy: 0.5,
            gradient_norm: 1.0,
            learning_rate: 0.1,
            tokens: step * 100,
        };
        self.tell_of_job(node, epoch, job, notice);
        self.think(node);
    }

    /// All stages gave their part of a state: it goes to the store.
    pub(crate) fn saved(&mut self, node: usize, epoch: PlanEpoch, slot: Slot, step: u64) {
        let Some(lead) = self.lead(node, epoch) else {
            return;
        };
        let found = lead.jobs.iter().find(|(_, train)| train.slot == slot);
        let Some((job, Some((at, state)))) = found.map(|(job, train)| (*job, train.storing)) else {
            return;
        };
        if at == step {
            let delay = self.millis(2, 40);
            self.soon(node, delay, Awaited::Stored(epoch, job, step, state));
        }
    }

    pub(crate) fn stored(
        &mut self,
        node: usize,
        epoch: PlanEpoch,
        job: JobId,
        step: u64,
        state: u64,
    ) {
        if !self.artifacts.answers(self.now()) {
            return self.not_stored(node, epoch, job);
        }
        // Even a first stage whose plan is over wrote what it wrote.
        self.artifacts.put(job, step, state);
        let Some(train) = self
            .lead(node, epoch)
            .and_then(|lead| lead.jobs.get_mut(&job))
        else {
            return;
        };
        train.stored = step;
        train.storing = None;
        let bytes = Bytes(64);
        self.tell_of_job(node, epoch, job, JobNotice::Durable { step, bytes });
        self.think(node);
    }

    fn not_stored(&mut self, node: usize, epoch: PlanEpoch, job: JobId) {
        let Some(lead) = self.lead(node, epoch) else {
            return;
        };
        let (draining, toward) = (lead.draining && !lead.drained, lead.toward);
        if let Some(train) = lead.jobs.get_mut(&job) {
            train.storing = None;
        }
        if draining {
            let drained = Notice::Drained {
                epoch,
                toward,
                outcome: Err("the store does not answer".into()),
            };
            self.tell(node, drained);
        }
        let delay = self.millis(50, 200);
        self.soon(node, delay, Awaited::Again(epoch));
    }

    pub(crate) fn exported(&mut self, node: usize, epoch: PlanEpoch, job: JobId) {
        if !self.artifacts.answers(self.now()) {
            let delay = self.millis(50, 200);
            return self.soon(node, delay, Awaited::Exported(epoch, job));
        }
        let Some(train) = self.lead(node, epoch).and_then(|lead| lead.jobs.get(&job)) else {
            return;
        };
        let state = format!("{:016x}", train.state);
        let files = vec![(format!("{job}/{epoch}/adapter"), state, Bytes(64))];
        self.end(node, epoch, job, JobNotice::Exported { files });
        self.think(node);
    }
}
