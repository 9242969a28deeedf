//! One stage at work on its own thread: events to the [`Pipeline`], its work to the [`Stage`], chunks to the links.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::meeting::{Matter, Meeting};
use super::pipeline_error::PipelineError;
use super::tally::Tally;
use crate::batch::Batch;
use crate::link::bell::Bell;
use crate::link::local::LocalLink;
use crate::link::{Chunk, ChunkHeader, ChunkLink, Direction, LinkError};
use crate::pipeline::{Event, MicroBatch, MicroBatchNumber, Pipeline, Slot, Work};
use crate::stage::agreement::Broken;
use crate::stage::optim::{OptimizerState, Rule, Settled, StepNumbers};
use crate::stage::outcome::JobOutcome;
use crate::stage::relay::Passed;
use crate::stage::step::Stage;

mod talk;

/// What a station must know of a step besides its batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goal {
    pub(super) learning_rate: f64,
}

/// One job on one stage.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) rule: Rule,
    pub(super) optimizer: OptimizerState,
    /// Set aside: its steps are no longer taken.
    pub(super) aside: bool,
}

/// What all stations of a run share.
#[derive(Debug)]
pub(super) struct Shared<'a> {
    pub(super) epoch: u64,
    pub(super) batches: &'a [Arc<Batch>],
    pub(super) goals: &'a BTreeMap<Matter, Goal>,
    pub(super) meeting: Mutex<Meeting>,
    pub(super) bells: Vec<Bell>,
    /// Work begun and ended on all stages.
    pub(super) begun: AtomicU64,
    pub(super) ended: AtomicU64,
    /// Held while one computes, when there is a single thread for all.
    pub(super) turn: Option<Mutex<()>>,
    pub(super) patience: Duration,
}

impl Shared<'_> {
    fn meeting(&self) -> MutexGuard<'_, Meeting> {
        self.meeting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring_all(&self) {
        self.bells.iter().for_each(Bell::ring);
    }
}

/// How far a job's step is on this stage.
#[derive(Debug)]
enum Talk {
    Reported,
    Voted(Option<Settled>),
}

/// What a station found out.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Steps taken, or why not.
    pub(super) steps: BTreeMap<Matter, Result<StepNumbers, Broken>>,
    /// On the last stage.
    pub(super) tallies: BTreeMap<Matter, Tally>,
}

/// A stage, its neighbours and its part of the plan.
#[derive(Debug)]
pub(super) struct Station<'a> {
    number: usize,
    stage: &'a mut Stage,
    tenants: &'a mut BTreeMap<Slot, Tenant>,
    shared: &'a Shared<'a>,
    pipeline: Pipeline,
    /// To the stage before and to the stage behind.
    links: [Option<LocalLink>; 2],
    outbox: [VecDeque<Chunk>; 2],
    inputs: BTreeMap<MicroBatchNumber, Vec<f32>>,
    gradients: BTreeMap<MicroBatchNumber, Vec<f32>>,
    talks: BTreeMap<Matter, Talk>,
    settled: BTreeMap<Matter, Settled>,
    next: Option<Work>,
    found: Found,
    finished: bool,
}

/// The place of a link and its outbox.
const BEFORE: usize = 0;
const BEHIND: usize = 1;

impl<'a> Station<'a> {
    pub(super) fn new(
        number: usize,
        stage: &'a mut Stage,
        tenants: &'a mut BTreeMap<Slot, Tenant>,
        shared: &'a Shared<'a>,
        pipeline: Pipeline,
        links: [Option<LocalLink>; 2],
    ) -> Self {
        Self {
            number,
            stage,
            tenants,
            shared,
            pipeline,
            links,
            outbox: Default::default(),
            inputs: BTreeMap::new(),
            gradients: BTreeMap::new(),
            talks: BTreeMap::new(),
            settled: BTreeMap::new(),
            next: None,
            found: Found::default(),
            finished: false,
        }
    }

    /// Does all that is planned.
    pub(super) fn run(
        mut self,
        plan: &[MicroBatch],
        tallies: BTreeMap<Matter, Tally>,
    ) -> Result<Found, PipelineError> {
        self.found.tallies = tallies;
        let steps: Vec<(Slot, u64)> = self.attached();
        for (slot, step) in steps {
            self.tell(Event::Attached(slot, step))?;
        }
        for micro_batch in plan {
            self.tell(Event::Planned(micro_batch.clone()))?;
        }
        while !self.is_done() {
            let bell = self.shared.bells[self.number].clone();
            let heard = bell.heard();
            let mut moved = self.flush()?;
            moved |= self.receive()?;
            moved |= self.talk()?;
            if let Some(work) = self.next.take() {
                self.compute(work)?;
                moved = true;
            }
            if !moved {
                self.wait(&bell, heard)?;
            }
        }
        self.finished = true;
        Ok(std::mem::take(&mut self.found))
    }

    /// Jobs and their steps taken so far; a job set aside still passes, to leave the others' micro-batches whole.
    fn attached(&self) -> Vec<(Slot, u64)> {
        let mut first: BTreeMap<Slot, u64> = BTreeMap::new();
        for &(slot, step) in self.shared.goals.keys() {
            first.entry(slot).or_insert(step);
        }
        first.into_iter().collect()
    }

    fn is_done(&self) -> bool {
        self.pipeline.is_idle() && self.outbox.iter().all(VecDeque::is_empty)
    }

    fn wait(&self, bell: &Bell, heard: u64) -> Result<(), PipelineError> {
        let stage = self.number;
        if self.shared.meeting().left {
            return Err(PipelineError::Left { stage });
        }
        let ended = self.shared.ended.load(Ordering::Acquire);
        if bell.wait(heard, self.shared.patience) {
            return Ok(());
        }
        let computing = self.shared.begun.load(Ordering::Acquire) != ended;
        if computing || self.shared.ended.load(Ordering::Acquire) != ended {
            return Ok(());
        }
        let lack = self.pipeline.waits_for();
        Err(PipelineError::Stalled { stage, lack })
    }

    fn tell(&mut self, event: Event) -> Result<(), PipelineError> {
        let stage = self.number;
        match self.pipeline.step(event) {
            Ok(work) => {
                self.next = self.next.or(work);
                Ok(())
            }
            Err(source) => Err(PipelineError::Unexpected { stage, source }),
        }
    }

    /// Sends what waits for credit.
    fn flush(&mut self) -> Result<bool, PipelineError> {
        let mut moved = false;
        for (link, outbox) in self.links.iter_mut().zip(&mut self.outbox) {
            let Some(link) = link else { continue };
            while link.credit() > 0
                && let Some(chunk) = outbox.pop_front()
            {
                let sent = link.send(chunk);
                sent.map_err(|source| broken_link(self.number, source))?;
                moved = true;
            }
        }
        Ok(moved)
    }

    fn receive(&mut self) -> Result<bool, PipelineError> {
        let mut moved = false;
        for side in [BEFORE, BEHIND] {
            while let Some(link) = &mut self.links[side] {
                match link.receive() {
                    Ok(Some(chunk)) => self.take(side, chunk)?,
                    Ok(None) => break,
                    // A neighbour that is through needs nothing more; one that failed has said so.
                    Err(_) => {
                        self.links[side] = None;
                        break;
                    }
                }
                moved = true;
            }
        }
        Ok(moved)
    }

    fn take(&mut self, side: usize, chunk: Chunk) -> Result<(), PipelineError> {
        let header = chunk.header;
        let planned = usize::try_from(header.micro_batch).ok();
        let batch = planned.and_then(|number| self.shared.batches.get(number));
        let expected = batch.map(|batch| self.header(header.micro_batch, batch, 1 - side));
        let size = header.rows * header.width;
        if expected != Some(header) || chunk.values.len() != size {
            let stage = self.number;
            return Err(PipelineError::Chunk { stage, header });
        }
        let number = header.micro_batch;
        if side == BEFORE {
            self.tell(Event::Activation(number))?;
            self.inputs.insert(number, chunk.values);
        } else {
            self.tell(Event::Gradient(number))?;
            self.gradients.insert(number, chunk.values);
        }
        Ok(())
    }

    fn header(&self, micro_batch: MicroBatchNumber, batch: &Batch, to: usize) -> ChunkHeader {
        let direction = match to {
            BEFORE => Direction::Backward,
            _ => Direction::Forward,
        };
        ChunkHeader {
            epoch: self.shared.epoch,
            micro_batch,
            direction,
            rows: batch.rows(),
            width: self.stage.model().shape.hidden,
        }
    }

    fn send(&mut self, number: MicroBatchNumber, to: usize, values: Vec<f32>) {
        let header = self.header(number, &self.shared.batches[number as usize], to);
        self.outbox[to].push_back(Chunk { header, values });
    }

    /// Does what the device is given, and tells that it is done.
    fn compute(&mut self, work: Work) -> Result<(), PipelineError> {
        self.shared.begun.fetch_add(1, Ordering::AcqRel);
        let turn = self.shared.turn.as_ref();
        let turn = turn.map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner));
        match work {
            Work::Forward(number) => {
                let batch = Arc::clone(&self.shared.batches[number as usize]);
                let input = self.inputs.remove(&number);
                match self.stage.forward(number, Arc::clone(&batch), input) {
                    Passed::Hidden(hidden) => self.send(number, BEHIND, hidden),
                    Passed::Outcomes(outcomes) => self.note(&batch, outcomes),
                }
            }
            Work::Backward(number) => {
                let gradient = self.gradients.remove(&number);
                if let Some(gradient) = self.stage.backward(number, gradient) {
                    self.send(number, BEFORE, gradient);
                }
            }
            Work::Apply(slot, step) => {
                if let Some(settled) = self.settled.remove(&(slot, step)) {
                    let tenant = self
                        .tenants
                        .get_mut(&slot)
                        .expect("a job in the plan is here");
                    let state = &mut tenant.optimizer;
                    self.stage.apply(slot, state, &tenant.rule, &settled);
                }
            }
        }
        drop(turn);
        self.shared.ended.fetch_add(1, Ordering::AcqRel);
        self.flush()?;
        self.tell(Event::Done)
    }

    fn note(&mut self, batch: &Batch, outcomes: Vec<JobOutcome>) {
        for (job, outcome) in batch.jobs.iter().zip(outcomes) {
            if let Some(tally) = self.found.tallies.get_mut(&(job.slot, job.step)) {
                tally.add(job.first_block, job.last, outcome);
            }
        }
    }
}

impl Drop for Station<'_> {
    /// Whoever leaves early, by an error or a panic, says so: the others would wait for nothing.
    fn drop(&mut self) {
        if !self.finished {
            self.shared.meeting().left = true;
            self.shared.ring_all();
        }
    }
}

fn broken_link(stage: usize, source: LinkError) -> PipelineError {
    PipelineError::Link { stage, source }
}
