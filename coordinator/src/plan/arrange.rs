//! How the jobs of one replica train together: hybrid tasks, buckets, the order of passes, the number of micro-batches.
//!
//! For each number C of micro-batches tried: fuse, bucket, make the template, keep what takes the shortest step by itself. C
//! goes by powers of two from about the number of stages, up and then down while that helps: more micro-batches fill the
//! pipeline and take less memory, fewer fill the device. What comes out with each level on and off is compared by its steady
//! round ([`rounds`]): rounds are what the engine runs and what jobs see.
//!
//! A bucket runs its hybrid tasks inside one clock. On a stage it takes what they take together, less what sharing
//! adapter kernels saves where the rules allow it; what its transfers leave exposed is what the subgraph order leaves.
//!
//! **Never worse than an ablation.** Each level is found by a search that ends early and goes by the step by itself, so with a
//! level on a round can come out longer than with it off. [`weigh`] therefore tries the answers with levels off too, and takes
//! the shortest where it gains more than predictions err by (`ABOUT`): without fuse, without order, without both; and the
//! hybrid tasks and the order that padding leads to, timed without the padding. These are what `explain` shows as the gain of each level.

mod clock;
pub mod rounds;
mod scene;
#[cfg(test)]
mod tests;

use self::clock::Clock;
use self::scene::Scenes;
use super::fuse;
use super::order::template::{Template, Unit};
use super::pipeline::Pipeline;
use super::snapshot::{Options, Task};
use crate::plan::estimate::{is_tried, most_micro_batches};

/// Steps of a template above which buckets are compared by the closed form.
const STEPS: usize = 1 << 16;
/// A level that is on is left out only where that makes a round shorter by more than this part of it: predictions err by as much,
/// and what fewer and larger passes save between stages is not in them.
const ABOUT: u64 = 32;
/// Jobs above which a level is switched off with the number of micro-batches kept.
const REPLANNED: usize = 64;

/// Which levels are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Jobs may share passes.
    pub fuse: bool,
    /// Passes are put in order.
    pub order: bool,
    /// Hybrid tasks that are no runs are looked for.
    pub search: bool,
}

impl Levels {
    /// As the operator wants.
    #[must_use]
    pub fn of(options: &Options) -> Self {
        Self {
            fuse: options.fuse,
            order: options.order,
            search: true,
        }
    }
}

/// What was arranged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrangement {
    /// C.
    pub micro_batches: u64,
    /// Jobs (by their place) that share passes.
    pub hybrid_tasks: Vec<Vec<usize>>,
    /// Hybrid tasks (by their place) that share a clock.
    pub buckets: Vec<Vec<usize>>,
    /// The order of passes.
    pub template: Template,
    /// Passes that each stage may hold at once, by its memory.
    pub ahead: Vec<u64>,
    /// Busy nanoseconds of each stage in a step.
    pub busy: Vec<u64>,
    /// Bytes on each stage at most.
    pub bytes: Vec<u64>,
    /// Nanoseconds of the optimizer steps at the end, on the stage that takes longest.
    pub optimizer: u64,
    /// Runs into which the jobs of each bucket are dealt at most, so that their steps close one after another.
    pub deal: usize,
    /// Nanoseconds of a step while rounds follow each other.
    pub round: u64,
}

impl Arrangement {
    /// Nanoseconds of a step: passes, then the optimizers.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.template.latency.saturating_add(self.optimizer)
    }
}

/// An arrangement, and the rounds of its ablations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weighed {
    /// The shortest of all.
    pub plan: Arrangement,
    /// With each level off.
    pub without: Without,
}

/// Nanoseconds of a round with a level off; nothing where the jobs do not fit without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Without {
    /// Jobs share no passes.
    pub fuse: Option<u64>,
    /// Passes run by the jobs' numbers, one forward one backward.
    pub order: Option<u64>,
    /// Every sequence is padded to the longest of its pass.
    pub align: Option<u64>,
}

/// Arranges jobs on a replica; nothing when they do not fit.
#[must_use]
pub fn arrange(pipeline: &Pipeline<'_>, tasks: &[&Task], options: &Options) -> Option<Arrangement> {
    weigh(pipeline, tasks, options).map(|weighed| weighed.plan)
}

/// Arranges jobs, and tells what each level gains.
#[must_use]
pub fn weigh(pipeline: &Pipeline<'_>, tasks: &[&Task], options: &Options) -> Option<Weighed> {
    let levels = Levels::of(options);
    let scenes = Scenes::new(pipeline, tasks);
    let whole = leveled(&scenes, options, levels);
    let mut options = options.clone();
    if let Some(whole) = whole.as_ref().filter(|_| tasks.len() > REPLANNED) {
        options.micro_batches = Some(whole.micro_batches);
    }
    let off = |fuse: bool, order: bool| {
        let levels = Levels {
            fuse,
            order,
            ..levels
        };
        leveled(&scenes, &options, levels)
    };
    let unfused = levels.fuse.then(|| off(false, levels.order)).flatten();
    let unordered = levels.order.then(|| off(levels.fuse, false)).flatten();
    let neither = (levels.fuse && levels.order)
        .then(|| off(false, false))
        .flatten();
    let (padded, unpadded) = without_padding(&scenes, &options, levels);
    let mut found = [whole, unfused, unordered, neither, unpadded];
    for found in found.iter_mut().flatten() {
        rounds::deal(pipeline, tasks, found, options.order);
    }
    let rounds = found
        .each_ref()
        .map(|found| found.as_ref().map(|found| found.round));
    let [_, unfused, unordered, neither, _] = rounds;
    let plan = preferred(found.into_iter().flatten())?;
    let least = |one: Option<u64>| match (one, neither) {
        (Some(one), Some(both)) => Some(one.min(both)),
        (one, both) => one.or(both),
    };
    // A level that is off already takes nothing away.
    let when = |on: bool, round: Option<u64>| if on { round } else { Some(plan.round) };
    let without = Without {
        fuse: when(levels.fuse, least(unfused)),
        order: when(levels.order, least(unordered)),
        align: when(!pipeline.padded, padded),
    };
    Some(Weighed { plan, without })
}

/// The round that padding leads to, and the same hybrid tasks and order without the pads.
fn without_padding(
    scenes: &Scenes<'_>,
    options: &Options,
    levels: Levels,
) -> (Option<u64>, Option<Arrangement>) {
    let pipeline = scenes.pipeline;
    if pipeline.padded {
        return (None, None);
    }
    let pads = Pipeline {
        padded: true,
        ..pipeline.clone()
    };
    let Some(padded) = with_levels(&pads, scenes.tasks, options, levels) else {
        return (None, None);
    };
    let scene = scenes.at(padded.micro_batches);
    let fusion = scene.fusion();
    let clock = Clock::new(&fusion, &padded.hybrid_tasks);
    let adopted = clock
        .adopt(&padded.buckets, &padded.template)
        .map(|template| scene.arrangement(&clock, padded.buckets.clone(), template));
    (Some(padded.round), adopted)
}

/// Arranges jobs with these levels, without a look at what others would give; nothing when they do not fit.
#[must_use]
pub fn with_levels(
    pipeline: &Pipeline<'_>,
    tasks: &[&Task],
    options: &Options,
    levels: Levels,
) -> Option<Arrangement> {
    with_each(pipeline, tasks, options, &[levels])
}

/// Arranges jobs with each of these levels, and keeps the shortest round; nothing when they do not fit.
#[must_use]
pub fn with_each(
    pipeline: &Pipeline<'_>,
    tasks: &[&Task],
    options: &Options,
    levels: &[Levels],
) -> Option<Arrangement> {
    let scenes = Scenes::new(pipeline, tasks);
    let each = levels.iter().filter_map(|levels| {
        let mut found = leveled(&scenes, options, *levels)?;
        rounds::deal(pipeline, tasks, &mut found, options.order);
        Some(found)
    });
    preferred(each)
}

/// The first, unless another's round is shorter by more than [`ABOUT`]; of those the shortest.
fn preferred(found: impl Iterator<Item = Arrangement>) -> Option<Arrangement> {
    let mut found = found;
    let first = found.next()?;
    let best = found.min_by_key(|found| (found.round, found.step()));
    Some(match best {
        Some(best) if best.round.saturating_add(best.round / ABOUT) < first.round => best,
        _ => first,
    })
}

fn leveled(scenes: &Scenes<'_>, options: &Options, levels: Levels) -> Option<Arrangement> {
    let (pipeline, tasks) = (scenes.pipeline, scenes.tasks);
    if tasks.is_empty() {
        return None;
    }
    let with =
        |micro_batches, search| arrange_with(scenes, micro_batches, Levels { search, ..levels });
    let mut best = choose(pipeline, tasks, options, &|micro_batches| {
        with(micro_batches, false)
    });
    let chosen = best.as_ref().map(|best| best.micro_batches);
    if let Some(micro_batches) = chosen.filter(|_| levels.fuse && levels.search) {
        let found = with(micro_batches, true);
        if better(found.as_ref(), best.as_ref()) {
            best = found;
        }
    }
    best
}

fn better(found: Option<&Arrangement>, best: Option<&Arrangement>) -> bool {
    match (found, best) {
        (Some(found), Some(best)) => found.step() < best.step(),
        (found, _) => found.is_some(),
    }
}

/// The number of micro-batches with the shortest step, without a search beyond runs.
fn choose(
    pipeline: &Pipeline<'_>,
    tasks: &[&Task],
    options: &Options,
    at: &dyn Fn(u64) -> Option<Arrangement>,
) -> Option<Arrangement> {
    let most = most_micro_batches(tasks, !pipeline.padded);
    if let Some(asked) = options.micro_batches
        && let Some(found) = at(asked.clamp(1, most))
    {
        return Some(found);
    }
    let start = (pipeline.len().next_power_of_two() as u64 / 2).clamp(1, most);
    let mut best: Option<Arrangement> = None;
    let mut micro_batches = start;
    while micro_batches <= most && is_tried(micro_batches, best.is_some()) {
        let found = at(micro_batches);
        if better(found.as_ref(), best.as_ref()) {
            best = found;
        } else if best.is_some() {
            break;
        }
        micro_batches *= 2;
    }
    let mut micro_batches = start / 2;
    while micro_batches >= 1
        && best
            .as_ref()
            .is_none_or(|best| best.micro_batches == 2 * micro_batches)
    {
        let found = at(micro_batches);
        if better(found.as_ref(), best.as_ref()) {
            best = found;
        }
        micro_batches /= 2;
    }
    best
}

/// Arranges jobs with so many micro-batches; with a search, nothing where it finds no other hybrid tasks than runs.
fn arrange_with(scenes: &Scenes<'_>, micro_batches: u64, levels: Levels) -> Option<Arrangement> {
    let scene = scenes.at(micro_batches);
    let fusion = scene.fusion();
    if !scene.enters(&fusion) {
        return None;
    }
    let hybrid_tasks = match (levels.fuse, levels.search) {
        (true, true) => {
            let runs = scene.runs(&fusion);
            let found = fuse::improved(&fusion, runs);
            Some(found).filter(|found| found != runs)?
        }
        (true, false) => scene.runs(&fusion).to_vec(),
        (false, _) => scene.alone(),
    };
    let clock = Clock::new(&fusion, &hybrid_tasks);
    let (buckets, template) = clock.order(levels.order)?;
    Some(scene.arrangement(&clock, buckets, template))
}

/// Most bytes under way on a stage.
fn held(units: &[Unit], template: &Template, stage: usize) -> u64 {
    let bytes = |unit: usize| units[template.bucket(unit)].bytes[stage];
    let (mut held, mut done, mut most) = (0u64, 0, 0);
    for (unit, before) in template.before[stage].iter().enumerate() {
        while done < *before {
            held = held.saturating_sub(bytes(done));
            done += 1;
        }
        held = held.saturating_add(bytes(unit));
        most = most.max(held);
    }
    most
}

/// Nanoseconds of the optimizer steps of these jobs, on the stage that takes longest.
#[must_use]
pub fn optimizers(pipeline: &Pipeline<'_>, tasks: &[&Task]) -> u64 {
    let stages = 0..pipeline.len();
    let each = stages.map(|stage| optimizer(pipeline, stage, tasks));
    each.max().unwrap_or(0)
}

fn optimizer(pipeline: &Pipeline<'_>, stage: usize, tasks: &[&Task]) -> u64 {
    let at = &pipeline.stages[stage];
    let device = &pipeline.devices[at.device];
    let model = device.model();
    let (first, last) = (stage == 0, stage + 1 == pipeline.len());
    let values = |task: &&Task| {
        let adapter = &task.adapter;
        let embedding = if first {
            adapter.values_of_embedding(model)
        } else {
            0
        };
        let head = if last {
            adapter.values_of_head(model)
        } else {
            0
        };
        adapter.values_per_block(model) * at.blocks + embedding + head
    };
    let each = tasks.iter().map(|task| device.optimizer(values(task)));
    each.fold(0, u64::saturating_add)
}
