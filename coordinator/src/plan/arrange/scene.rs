//! Jobs on a pipeline, and what all ways to arrange them have in common: computed once for each number of micro-batches,
//! however many ways are tried.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::clock::Clock;
use super::{Arrangement, held, optimizers};
use crate::plan::fuse::{self, Fusion, Objective};
use crate::plan::mix::Load;
use crate::plan::order::template::Template;
use crate::plan::pipeline::Pipeline;
use crate::plan::snapshot::Task;

/// Jobs and a pipeline.
pub(super) struct Scenes<'a> {
    pub(super) pipeline: &'a Pipeline<'a>,
    pub(super) tasks: &'a [&'a Task],
    optimizer: OnceCell<u64>,
    known: RefCell<BTreeMap<u64, Rc<Scene<'a>>>>,
}

impl<'a> Scenes<'a> {
    pub(super) fn new(pipeline: &'a Pipeline<'a>, tasks: &'a [&'a Task]) -> Self {
        Self {
            pipeline,
            tasks,
            optimizer: OnceCell::new(),
            known: RefCell::default(),
        }
    }

    /// With so many micro-batches.
    pub(super) fn at(&self, micro_batches: u64) -> Rc<Scene<'a>> {
        let optimizer = || optimizers(self.pipeline, self.tasks);
        let optimizer = *self.optimizer.get_or_init(optimizer);
        let mut known = self.known.borrow_mut();
        let scene = known.entry(micro_batches);
        let new = || Scene::new(self.pipeline, self.tasks, micro_batches, optimizer);
        Rc::clone(scene.or_insert_with(|| Rc::new(new())))
    }
}

/// Jobs, a pipeline and a number of micro-batches.
pub(super) struct Scene<'a> {
    pub(super) pipeline: &'a Pipeline<'a>,
    jobs: usize,
    micro_batches: u64,
    loads: Vec<Vec<Load>>,
    pub(super) resident: Vec<u64>,
    /// Nanoseconds of the optimizers.
    optimizer: u64,
    enters: OnceCell<bool>,
    runs: OnceCell<Vec<Vec<usize>>>,
}

impl<'a> Scene<'a> {
    fn new(
        pipeline: &'a Pipeline<'a>,
        tasks: &'a [&'a Task],
        micro_batches: u64,
        optimizer: u64,
    ) -> Self {
        Self {
            pipeline,
            jobs: tasks.len(),
            micro_batches,
            loads: pipeline.loads(tasks, micro_batches),
            resident: (0..pipeline.len())
                .map(|stage| pipeline.resident(stage, tasks, micro_batches))
                .collect(),
            optimizer,
            enters: OnceCell::new(),
            runs: OnceCell::new(),
        }
    }

    pub(super) fn fusion(&self) -> Fusion<'_> {
        Fusion::new(
            self.pipeline,
            &self.loads,
            self.micro_batches,
            &self.resident,
        )
    }

    /// Each job a hybrid task of its own.
    pub(super) fn alone(&self) -> Vec<Vec<usize>> {
        (0..self.jobs).map(|job| vec![job]).collect()
    }

    /// Whether a pass of each job by itself fits every stage.
    pub(super) fn enters(&self, fusion: &Fusion<'_>) -> bool {
        let enters = |jobs: &Vec<usize>| {
            let mixes = fusion.mixes(jobs);
            let mut resident = self.resident.iter().enumerate();
            resident.all(|(stage, bytes)| self.pipeline.depth(stage, *bytes, &mixes) >= 1)
        };
        let all = || self.alone().iter().all(enters);
        *self.enters.get_or_init(all)
    }

    /// The best hybrid tasks that are runs.
    pub(super) fn runs(&self, fusion: &Fusion<'_>) -> &[Vec<usize>] {
        let runs = || fuse::runs(fusion, Objective::Step);
        self.runs.get_or_init(runs)
    }

    pub(super) fn arrangement(
        &self,
        clock: &Clock<'_>,
        buckets: Vec<Vec<usize>>,
        template: Template,
    ) -> Arrangement {
        let units = clock.units(&buckets);
        let stages = || 0..self.pipeline.len();
        let busy = stages().map(|stage| {
            let sums = units.iter().map(|unit| unit.times[stage].sum());
            self.micro_batches
                .saturating_mul(sums.fold(0, u64::saturating_add))
        });
        let bytes = stages().map(|stage| {
            let memory = self.pipeline.stages[stage].memory;
            let free = clock.rooms[stage].min(memory);
            (memory - free).saturating_add(held(&units, &template, stage))
        });
        Arrangement {
            micro_batches: self.micro_batches,
            hybrid_tasks: clock.hybrid_tasks.to_vec(),
            ahead: clock.ahead(&buckets, &template),
            busy: busy.collect(),
            bytes: bytes.collect(),
            buckets,
            optimizer: self.optimizer,
            // Of one by itself, until rounds are looked at.
            deal: 1,
            round: template.latency.saturating_add(self.optimizer),
            template,
        }
    }
}
