//! How the jobs of one replica train together: hybrid tasks, buckets, the order of passes, the number of micro-batches.
//!
//! For each number C of micro-batches tried: fuse, bucket, make the template, keep what takes the shortest step. C goes
//! by powers of two from about the number of stages, up and then down while that helps: more micro-batches fill the
//! pipeline and take less memory, fewer fill the device.
//!
//! A bucket runs its hybrid tasks inside one clock. On a stage it takes what they take together, less what sharing
//! adapter kernels saves where the rules allow it; what its transfers leave exposed is what the subgraph order leaves.

use super::device::Both;
use super::fuse::{self, Fusion, Objective};
use super::mix::{Load, Mix};
use super::order::subgraph::{Graph, Subgraph, schedule};
use super::order::template::{self, Eagerness, Rooms, Template, Unit, closed_form};
use super::order::{adapters, buckets};
use super::pipeline::Pipeline;
use super::snapshot::{Options, Task};
use crate::plan::estimate::most_micro_batches;

/// Steps of a template above which buckets are compared by the closed form.
const STEPS: usize = 1 << 16;

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
    /// Busy nanoseconds of each stage in a step.
    pub busy: Vec<u64>,
    /// Bytes on each stage at most.
    pub bytes: Vec<u64>,
    /// Nanoseconds of the optimizer steps at the end, on the stage that takes longest.
    pub optimizer: u64,
}

impl Arrangement {
    /// Nanoseconds of a step: passes, then the optimizers.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.template.latency + self.optimizer
    }
}

/// Arranges jobs on a replica; nothing when they do not fit.
#[must_use]
pub fn arrange(pipeline: &Pipeline<'_>, tasks: &[&Task], options: &Options) -> Option<Arrangement> {
    if tasks.is_empty() {
        return None;
    }
    let levels = Levels::of(options);
    let with = |micro_batches, search| {
        arrange_with(pipeline, tasks, micro_batches, Levels { search, ..levels })
    };
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
    if let Some(asked) = options.micro_batches
        && let Some(found) = at(asked.max(1))
    {
        return Some(found);
    }
    let most = most_micro_batches(tasks, !pipeline.padded);
    let start = (pipeline.len().next_power_of_two() as u64 / 2).clamp(1, most);
    let mut best: Option<Arrangement> = None;
    let mut micro_batches = start;
    while micro_batches <= most {
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

/// Arranges jobs with so many micro-batches.
#[must_use]
pub fn arrange_with(
    pipeline: &Pipeline<'_>,
    tasks: &[&Task],
    micro_batches: u64,
    levels: Levels,
) -> Option<Arrangement> {
    let loads = pipeline.loads(tasks, micro_batches);
    let resident: Vec<u64> = (0..pipeline.len())
        .map(|stage| pipeline.resident(stage, tasks, micro_batches))
        .collect();
    let fusion = Fusion::new(pipeline, &loads, micro_batches, &resident);
    let alone: Vec<Vec<usize>> = (0..tasks.len()).map(|job| vec![job]).collect();
    let enters = |jobs: &Vec<usize>| {
        let mixes = fusion.mixes(jobs);
        (0..pipeline.len()).all(|stage| pipeline.depth(stage, resident[stage], &mixes) >= 1)
    };
    if !alone.iter().all(enters) {
        return None;
    }
    let hybrid_tasks = if levels.fuse {
        if levels.search {
            fuse::fuse(&fusion)
        } else {
            fuse::runs(&fusion, Objective::Step)
        }
    } else {
        alone
    };
    let clock = Clock::new(&fusion, &hybrid_tasks);
    let (buckets, template) = clock.order(levels.order)?;
    let optimizer = optimizers(pipeline, tasks);
    let units = clock.units(&buckets);
    let busy = (0..pipeline.len())
        .map(|stage| {
            let sums = units.iter().map(|unit| unit.times[stage].sum());
            micro_batches * sums.sum::<u64>()
        })
        .collect();
    let bytes = (0..pipeline.len())
        .map(|stage| {
            let at = &pipeline.stages[stage];
            at.memory - clock.rooms[stage] + held(&units, &template, stage)
        })
        .collect();
    Some(Arrangement {
        micro_batches,
        hybrid_tasks,
        buckets,
        template,
        busy,
        bytes,
        optimizer,
    })
}

/// Most bytes under way on a stage.
fn held(units: &[Unit], template: &Template, stage: usize) -> u64 {
    let bytes = |unit: usize| units[template.bucket(unit)].bytes[stage];
    let (mut held, mut done, mut most) = (0u64, 0, 0);
    for (unit, before) in template.before[stage].iter().enumerate() {
        while done < *before {
            held -= bytes(done);
            done += 1;
        }
        held += bytes(unit);
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
    let values = |task: &&Task| task.adapter.values_per_block(device.model()) * at.blocks;
    tasks
        .iter()
        .map(|task| device.optimizer(values(task)))
        .sum()
}

/// What hybrid tasks take on each stage, to be put into buckets.
struct Clock<'a> {
    pipeline: &'a Pipeline<'a>,
    micro_batches: u64,
    mixes: Vec<Vec<Mix>>,
    times: Vec<Vec<Both<u64>>>,
    jobs: Vec<usize>,
    loads: &'a [Vec<Load>],
    hybrid_tasks: &'a [Vec<usize>],
    /// Bytes for passes under way, by stage.
    rooms: Vec<u64>,
}

impl<'a> Clock<'a> {
    fn new(fusion: &'a Fusion<'a>, hybrid_tasks: &'a [Vec<usize>]) -> Self {
        let pipeline = fusion.pipeline;
        let mixes: Vec<Vec<Mix>> = hybrid_tasks.iter().map(|jobs| fusion.mixes(jobs)).collect();
        let rooms = (0..pipeline.len())
            .map(|stage| {
                let each = mixes
                    .iter()
                    .map(|mixes| pipeline.room(stage, fusion.resident[stage], mixes));
                each.min().unwrap_or(0)
            })
            .collect();
        Self {
            pipeline,
            micro_batches: fusion.micro_batches,
            times: mixes.iter().map(|mixes| pipeline.times(mixes)).collect(),
            jobs: hybrid_tasks.iter().map(Vec::len).collect(),
            mixes,
            loads: fusion.loads,
            hybrid_tasks,
            rooms,
        }
    }

    fn units(&self, buckets: &[Vec<usize>]) -> Vec<Unit> {
        buckets.iter().map(|bucket| self.unit(bucket)).collect()
    }

    fn unit(&self, bucket: &[usize]) -> Unit {
        let stages = self.pipeline.len();
        let merged: Option<Vec<Mix>> = adapters::fusible(bucket, &self.jobs).then(|| {
            let jobs = || bucket.iter().flat_map(|task| &self.hybrid_tasks[*task]);
            let of = |loads: &Vec<Load>| Mix::of(jobs().map(|job| &loads[*job]));
            self.loads.iter().map(of).collect()
        });
        let mut unit = Unit {
            times: Vec::with_capacity(stages),
            transfers: Vec::with_capacity(stages),
            bytes: Vec::with_capacity(stages),
        };
        for (stage, at) in self.pipeline.stages.iter().enumerate() {
            let mut time = Both::default();
            let mut apart = Both::default();
            let mut bytes = 0u64;
            for task in bucket {
                time = time.plus(self.times[*task][stage]);
                apart = apart.plus(self.mixes[*task][at.device].adapters());
                bytes += self.pipeline.under_way(stage, &self.mixes[*task]);
            }
            if let Some(merged) = &merged {
                let shared = merged[at.device].adapters();
                let saved = |apart: u64, shared: u64| apart.saturating_sub(shared) * at.blocks;
                time.forward -= saved(apart.forward, shared.forward).min(time.forward);
                time.backward -= saved(apart.backward, shared.backward).min(time.backward);
            }
            unit.times.push(time);
            unit.bytes.push(bytes);
            unit.transfers.push(if stage + 1 == stages {
                0
            } else {
                self.exposed(bucket, stage)
            });
        }
        unit
    }

    /// What of the transfers of a bucket no computing of it hides.
    fn exposed(&self, bucket: &[usize], stage: usize) -> u64 {
        let graph = |task: &usize| -> Graph {
            vec![Subgraph {
                compute: self.times[*task][stage].forward,
                transfer: self.pipeline.transfer(stage, &self.mixes[*task]),
                after: Vec::new(),
            }]
        };
        let graphs: Vec<Graph> = bucket.iter().map(graph).collect();
        let compute: u64 = graphs.iter().flatten().map(|node| node.compute).sum();
        schedule(&graphs).end.saturating_sub(compute)
    }

    /// Whether one pass of every unit fits every stage.
    fn fit(&self, units: &[Unit]) -> bool {
        units.iter().all(|unit| {
            let each = unit.bytes.iter().zip(&self.rooms);
            { each }.all(|(bytes, room)| bytes <= room)
        })
    }

    /// Buckets and their template.
    fn order(&self, ordered: bool) -> Option<(Vec<Vec<usize>>, Template)> {
        let count = self.times.len();
        let eagerness = if ordered {
            Eagerness::Memory
        } else {
            Eagerness::OneForwardOneBackward
        };
        let rooms = Rooms {
            bytes: &self.rooms,
            eagerness,
        };
        let make = |units: &[Unit]| {
            let order = template::order(units, ordered);
            template::template(units, order, self.micro_batches, rooms)
        };
        if !ordered {
            let buckets: Vec<Vec<usize>> = (0..count).map(|task| vec![task]).collect();
            let units = self.units(&buckets);
            return self.fit(&units).then(|| (buckets, make(&units)));
        }
        let sizes: Vec<u64> = self.times.iter().map(|times| times[0].sum()).collect();
        let quick = count * self.micro_batches as usize * self.pipeline.len() > STEPS;
        let mut best: Option<(u64, Vec<Vec<usize>>)> = None;
        for parts in buckets::numbers(count) {
            let buckets = buckets::even(&sizes, parts);
            let units = self.units(&buckets);
            let fits = self.fit(&units);
            if !fits {
                continue;
            }
            let latency = if quick {
                closed_form(&units, &template::order(&units, true), self.micro_batches)
            } else {
                make(&units).latency
            };
            if best.as_ref().is_none_or(|(held, _)| latency <= *held) {
                best = Some((latency, buckets));
            }
        }
        let (_, buckets) = best?;
        let units = self.units(&buckets);
        let eager = make(&units);
        let plain = template::template(
            &units,
            template::order(&units, true),
            self.micro_batches,
            Rooms {
                bytes: &self.rooms,
                eagerness: Eagerness::OneForwardOneBackward,
            },
        );
        if plain.latency < eager.latency {
            return Some((buckets, plain));
        }
        Some((buckets, eager))
    }
}
