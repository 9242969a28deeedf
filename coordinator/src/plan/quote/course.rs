//! How the jobs of a replica get on, event by event: who ends leaves the others a shorter round, and makes room for one that waits.
//!
//! ```text
//! step of a job = the longer of the round of those that train and its own step alone: each needs what the one before has learned
//! next event    = the least of (steps left) x (step); behind it those that wait join, in their order, while each fits and no
//!                 more train than at first
//! round         = at first the plan's; of others the quick prediction (`estimate`), brought to the plan's by their ratio at first
//! ```
//!
//! What trains is not paused for another, as on a running cluster. A round is predicted anew when somebody joins, or when a
//! sixteenth of the rows or jobs that it was predicted for has gone; after [`PREDICTIONS`] of them it goes by rows alone. Each
//! event ends a job, so there are no more of them than jobs.

use std::collections::{BTreeMap, VecDeque};

use shared::ids::JobId;

use crate::plan::answer::Replica;
use crate::plan::arrange::optimizers;
use crate::plan::estimate::Loads;
use crate::plan::pipeline::Pipeline;
use crate::plan::snapshot::{Snapshot, Task};

/// Predictions of a course at most.
const PREDICTIONS: usize = 2_048;
/// A round is predicted anew when so much of what it was predicted for has gone.
const GONE: u64 = 16;

/// The way of a job, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Course {
    /// Until it trains.
    pub(super) begin: f64,
    /// Until it has taken its last step.
    pub(super) end: f64,
    /// A step in the company that it begins with.
    pub(super) step: f64,
    /// A step alone.
    pub(super) alone: f64,
    /// Its share of the rows, summed over its time.
    pub(super) shared: f64,
}

/// The ways of all jobs of a replica, of those that wait for it in their order.
pub(super) fn all(
    snapshot: &Snapshot,
    pipeline: &Pipeline<'_>,
    replica: &Replica,
    waiting: &[JobId],
) -> BTreeMap<JobId, Course> {
    let known = |id: &&JobId| snapshot.tasks.contains_key(*id);
    let trains: Vec<JobId> = replica.jobs.iter().filter(known).copied().collect();
    let ids: Vec<JobId> = trains
        .iter()
        .chain(waiting.iter().filter(known))
        .copied()
        .collect();
    let tasks: Vec<&Task> = ids.iter().map(|id| &snapshot.tasks[id]).collect();
    let loads = Loads::new(&tasks);
    let mut pace = Pace::new(
        pipeline,
        &loads,
        snapshot.options.fuse,
        replica,
        trains.len(),
    );
    let mut courses = vec![Course::default(); ids.len()];
    let mut left: Vec<f64> = tasks.iter().map(|task| task.steps as f64).collect();
    let mut training: Vec<usize> = (0..trains.len()).collect();
    let mut queue: VecDeque<usize> = (trains.len()..ids.len()).collect();
    let most = trains.len().max(1);
    let mut clock = 0.0;
    loop {
        while let Some(next) = queue.front().copied().filter(|_| training.len() < most) {
            training.push(next);
            if training.len() > 1 && !pace.fits(&training) {
                training.pop();
                break;
            }
            queue.pop_front();
            pace.joined();
            courses[next].begin = clock;
        }
        if training.is_empty() {
            break;
        }
        let round = pace.round(&training);
        let step = |job: usize| round.max(pace.alone[job]);
        let rest = |job: &usize| left[*job] * step(*job);
        let time = training.iter().map(rest).fold(f64::INFINITY, f64::min);
        let rows: u64 = training.iter().map(|job| tasks[*job].tokens()).sum();
        clock += time;
        let mut stay = Vec::with_capacity(training.len());
        for job in training {
            let course = &mut courses[job];
            if course.step == 0.0 {
                course.step = step(job);
            }
            course.shared += time * tasks[job].tokens() as f64 / rows.max(1) as f64;
            if left[job] * step(job) <= time {
                course.end = clock;
            } else {
                left[job] -= time / step(job);
                stay.push(job);
            }
        }
        training = stay;
    }
    for (course, alone) in courses.iter_mut().zip(&pace.alone) {
        course.alone = *alone;
    }
    ids.into_iter().zip(courses).collect()
}

/// Rounds of those that train.
struct Pace<'a> {
    pipeline: &'a Pipeline<'a>,
    loads: &'a Loads<'a>,
    fuse: bool,
    /// Microseconds of a step of each job alone.
    alone: Vec<f64>,
    /// What the plan says over what is predicted for those that train at first.
    ratio: f64,
    /// What was predicted last: microseconds, and for how many rows and jobs; nothing where somebody joined since.
    last: Option<(f64, u64, usize)>,
    predictions: usize,
}

impl<'a> Pace<'a> {
    fn new(
        pipeline: &'a Pipeline<'a>,
        loads: &'a Loads<'a>,
        fuse: bool,
        replica: &Replica,
        first: usize,
    ) -> Self {
        let mut this = Self {
            pipeline,
            loads,
            fuse,
            alone: Vec::new(),
            ratio: 1.0,
            last: None,
            predictions: 0,
        };
        let jobs = 0..loads.tasks().len();
        this.alone = jobs
            .map(|job| this.predicted(&[job]).unwrap_or_default())
            .collect();
        let all: Vec<usize> = (0..first).collect();
        let round = replica.round().0 as f64;
        if first > 0 && round > 0.0 {
            let predicted = this.predicted(&all).filter(|time| *time > 0.0);
            this.ratio = predicted.map_or(1.0, |time| round / time);
            this.last = Some((round, this.rows(&all), first));
        }
        this
    }

    fn rows(&self, jobs: &[usize]) -> u64 {
        let tasks = self.loads.tasks();
        jobs.iter().map(|job| tasks[*job].tokens()).sum()
    }

    /// Microseconds of a step of these by itself; nothing where they do not fit.
    fn predicted(&self, jobs: &[usize]) -> Option<f64> {
        let found = self.loads.estimate(self.pipeline, jobs, self.fuse)?;
        let tasks: Vec<&Task> = jobs.iter().map(|job| self.loads.tasks()[*job]).collect();
        let step = found.step.saturating_add(optimizers(self.pipeline, &tasks));
        Some(step.div_ceil(1000) as f64)
    }

    fn fits(&mut self, jobs: &[usize]) -> bool {
        self.predictions += 1;
        self.predictions > PREDICTIONS
            || self
                .loads
                .estimate(self.pipeline, jobs, self.fuse)
                .is_some()
    }

    fn joined(&mut self) {
        if self.predictions <= PREDICTIONS {
            self.last = None;
        }
    }

    /// Microseconds of a round of these.
    fn round(&mut self, jobs: &[usize]) -> f64 {
        if let [only] = jobs {
            return self.alone[*only];
        }
        let (rows, count) = (self.rows(jobs), jobs.len());
        if let Some((round, of_rows, of_jobs)) = self.last {
            let few = |gone: u64, all: u64| gone.saturating_mul(GONE) < all;
            let same = few(of_rows.abs_diff(rows), of_rows)
                && few(of_jobs.abs_diff(count) as u64, of_jobs as u64);
            if same {
                return round;
            }
            if self.predictions > PREDICTIONS {
                return round * rows as f64 / of_rows.max(1) as f64;
            }
        }
        self.predictions += 1;
        let before = self.last.map_or(0.0, |(round, ..)| round);
        let round = self
            .predicted(jobs)
            .map_or(before, |time| time * self.ratio);
        self.last = Some((round, rows, count));
        round
    }
}
