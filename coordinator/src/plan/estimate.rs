//! A quick prediction of a step: all jobs in even groups, as few as memory allows. For choosing layouts and admissions.
//!
//! The real plan is at least as good in what it chooses (groups by cost, order, buckets); this one costs a few
//! evaluations. The number of micro-batches is the best power of two.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::fuse::Fusion;
use super::mix::Load;
use super::pipeline::Pipeline;
use super::snapshot::Task;

/// Micro-batches of a step above which more are tried only where no fewer fit.
pub const MANY_MICRO_BATCHES: u64 = 256;
/// Most micro-batches of a step that are tried.
pub const MOST_MICRO_BATCHES: u64 = 1 << 14;

/// Whether so many micro-batches are tried, once something was found with fewer or nothing was.
#[must_use]
pub fn is_tried(micro_batches: u64, found: bool) -> bool {
    !found || micro_batches <= MANY_MICRO_BATCHES
}

/// Loads of jobs by the number of micro-batches, each computed once.
#[derive(Debug)]
pub struct Loads<'a> {
    tasks: &'a [&'a Task],
    known: RefCell<BTreeMap<u64, std::rc::Rc<Vec<Vec<Load>>>>>,
}

/// What is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Micro-batches of a step.
    pub micro_batches: u64,
    /// Hybrid tasks.
    pub groups: usize,
    /// Nanoseconds of a step.
    pub step: u64,
    /// Tokens of a step.
    pub tokens: u64,
}

impl Estimate {
    /// Tokens in a thousand seconds: slow devices pass less than one a second.
    #[must_use]
    pub fn rate(&self) -> u64 {
        let rate = u128::from(self.tokens) * 1_000_000_000_000 / u128::from(self.step.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

impl<'a> Loads<'a> {
    /// Of these jobs.
    #[must_use]
    pub fn new(tasks: &'a [&'a Task]) -> Self {
        Self {
            tasks,
            known: RefCell::default(),
        }
    }

    /// The jobs.
    #[must_use]
    pub fn tasks(&self) -> &'a [&'a Task] {
        self.tasks
    }

    fn at(&self, pipeline: &Pipeline<'_>, micro_batches: u64) -> std::rc::Rc<Vec<Vec<Load>>> {
        let mut known = self.known.borrow_mut();
        let loads = known
            .entry(micro_batches)
            .or_insert_with(|| pipeline.loads(self.tasks, micro_batches).into());
        std::rc::Rc::clone(loads)
    }

    /// Predicts a step of these jobs (by their place) on a pipeline; nothing when they do not fit.
    ///
    /// All pipelines asked about must have the same kinds of devices.
    #[must_use]
    pub fn estimate(
        &self,
        pipeline: &Pipeline<'_>,
        jobs: &[usize],
        fuse: bool,
    ) -> Option<Estimate> {
        let tasks: Vec<&Task> = jobs.iter().map(|job| self.tasks[*job]).collect();
        let most = most_micro_batches(&tasks, !pipeline.padded);
        let mut best: Option<Estimate> = None;
        let mut micro_batches = 1;
        while micro_batches <= most && is_tried(micro_batches, best.is_some()) {
            let found = self.estimate_with(pipeline, jobs, fuse, micro_batches);
            match (best, found) {
                (Some(held), Some(found)) if found.step >= held.step => break,
                (_, Some(_)) => best = found,
                (_, None) => {}
            }
            micro_batches *= 2;
        }
        best
    }

    /// The same with so many micro-batches.
    #[must_use]
    pub fn estimate_with(
        &self,
        pipeline: &Pipeline<'_>,
        jobs: &[usize],
        fuse: bool,
        micro_batches: u64,
    ) -> Option<Estimate> {
        let tasks: Vec<&Task> = jobs.iter().map(|job| self.tasks[*job]).collect();
        let resident: Vec<u64> = (0..pipeline.len())
            .map(|stage| pipeline.resident(stage, &tasks, micro_batches))
            .collect();
        let loads = self.at(pipeline, micro_batches);
        let fusion = Fusion::new(pipeline, &loads, micro_batches, &resident);
        let (groups, step) = grouped(&fusion, jobs, fuse)?;
        Some(Estimate {
            micro_batches,
            groups,
            step,
            tokens: tasks.iter().map(|task| task.tokens()).sum(),
        })
    }
}

/// The most micro-batches worth a try: what the longest step can be cut into.
#[must_use]
pub fn most_micro_batches(tasks: &[&Task], cut: bool) -> u64 {
    let most = tasks.iter().map(|task| task.most_micro_batches(cut)).max();
    most.unwrap_or(1).clamp(1, MOST_MICRO_BATCHES)
}

/// Even groups, as few as fit: their number and the time of a step.
fn grouped(fusion: &Fusion<'_>, jobs: &[usize], fuse: bool) -> Option<(usize, u64)> {
    let mut count = if fuse { 1 } else { jobs.len() };
    loop {
        let groups: Vec<Vec<usize>> = (0..count)
            .map(|group| jobs.iter().copied().skip(group).step_by(count).collect())
            .collect();
        // Groups are alike; the first is the largest.
        let alone = count >= jobs.len();
        let fits = if alone {
            groups.iter().all(|group| enters(fusion, group)) && !jobs.is_empty()
        } else {
            fusion.fits(&fusion.mixes(groups.first()?))
        };
        if fits {
            return Some((count, fusion.step(&fusion.timings(&groups))));
        }
        if alone {
            return None;
        }
        count = (2 * count).min(jobs.len());
    }
}

/// Whether one pass of these jobs fits every stage.
fn enters(fusion: &Fusion<'_>, group: &[usize]) -> bool {
    let mixes = fusion.mixes(group);
    let mut stages = 0..fusion.pipeline.len();
    stages.all(|stage| fusion.pipeline.depth(stage, fusion.resident[stage], &mixes) >= 1)
}
