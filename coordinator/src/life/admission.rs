//! Who may begin on a replica as it stands: the planner's memory model, its rule of saturation and its bound on added
//! latency, asked job by job in the order of tenants' shares.
//!
//! A job begins on the first of the replicas with the fewest jobs that takes it. It waits, with the reason, when with it
//!
//! - the replica's stages would not hold all, by the memory model with the smallest passes;
//! - the rule of saturation says so, by default because tokens a second would fall by more than what is predicted can be
//!   wrong: asked only where all devices were measured, as nobody shall wait for a guess;
//! - the step of a job would take longer than alone by more than the bound, however long steps are spread over turns
//!   (`turns`).
//!
//! **Starvation.** A job that has waited for the patience (waited: not trained, not been paused) is asked for memory alone, and while memory is short for it no
//! later job begins. Nothing that trains is halted for it, so it begins when enough of those that train have ended.
//!
//! **Never.** A job that fits no replica even alone is refused, with the stage that is too small and the largest rank,
//! length and batch that would fit.
//!
//! | id | invariant |
//! | --- | --- |
//! | AD-1 | what trains is never asked again |
//! | AD-2 | a replica without jobs takes any job that fits it |
//! | AD-3 | no job begins after one that has waited for the patience and still lacks memory |

use std::collections::BTreeMap;

use shared::ids::{JobId, NodeName};
use shared::job::{JobSpec, TrainSpec};
use shared::model::ModelShape;
use shared::units::{Bytes, MicroUsd, Micros};

use super::layout::Seats;
use super::placement::Pace;
use crate::plan::admit::{self, Refusal, Wait, Why};
use crate::plan::arrange::optimizers;
use crate::plan::bounds;
use crate::plan::device::Device;
use crate::plan::estimate::Loads;
use crate::plan::fair;
use crate::plan::pipeline::Pipeline;
use crate::plan::place::{Fleet, NoPlace, Seat};
use crate::plan::profile::{Link, Origin, Profile, Weights, processor};
use crate::plan::snapshot::{Machine, Options, Saturation, Snapshot, Task, Tenant};
use crate::record::Measure;

mod arranged;
mod turns;

pub use arranged::{Levels, of_answer};

/// What admission goes by.
#[derive(Clone, Debug)]
pub struct Admission {
    /// Of devices; processors are brought to a node's threads. Without one of its device, a node has conservative figures.
    pub profiles: Vec<Profile>,
    /// How the weights of layers are kept.
    pub blocks: Weights,
    /// How embedding and head are kept.
    pub tables: Weights,
    /// When a job that fits in memory joins; asked only where all devices were measured.
    pub saturation: Saturation,
    /// Most that company may add to a job's step; 0: no bound.
    pub max_added_latency: Micros,
    /// How long a job waits before it is passed by none.
    pub patience: Micros,
    /// Weights of tenants; who is not here weighs 1.
    pub tenants: BTreeMap<String, u64>,
    /// Rows of a pass.
    pub tokens_per_pass: u64,
    /// Levels of co-scheduling that are on.
    pub levels: Levels,
}

/// A node as admission sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its device, as it says.
    pub device: String,
    /// Compute threads.
    pub threads: u32,
    /// Memory it offers.
    pub memory: Bytes,
}

impl Admission {
    /// The profile of a node's device. What a node offers is for layers, adapters and activations: the program itself is
    /// not counted.
    #[must_use]
    pub fn profile(&self, member: &Member) -> Profile {
        let alike = |profile: &&Profile| {
            let (device, _) = processor::parts(&profile.device);
            device == member.device || profile.device == member.device
        };
        let profile = match self.profiles.iter().find(alike) {
            Some(profile) => profile.with_threads(member.threads),
            None => processor::unmeasured(&member.device, member.threads, member.memory.0),
        };
        Profile {
            workspace_bytes: 0,
            ..profile
        }
    }

    /// What a node's device takes of a pass; nothing where it was not measured.
    #[must_use]
    pub fn pace(&self, member: &Member, shape: &ModelShape) -> Option<Pace> {
        let profile = self.profile(member);
        if profile.origin != Origin::Measured {
            return None;
        }
        let device = Device::new(&profile, shape, self.blocks, self.tables).ok()?;
        let rows = self.tokens_per_pass.max(1);
        let layer = device.block.forward.at(rows) + device.block.backward.at(rows);
        let attention = device.attention(rows.min(shape.max_positions as u64), rows);
        // Half of the rows count in the loss, as is usual.
        let counted = rows.div_ceil(2);
        Some(Pace {
            embedding: device.embedding.forward.at(rows) + device.embedding.backward.at(rows),
            layer: layer + attention.sum(),
            head: device.head.forward.at(counted) + device.head.backward.at(counted),
        })
    }
}

/// A job as the planner sees it; `rows` is what was told of its rows.
#[must_use]
pub fn task(spec: &JobSpec, rows: &Measure, submitted: Micros) -> Task {
    let tenant = spec.tenant.as_deref().unwrap_or_default();
    let steps = steps(&spec.train, rows.rows);
    Task::of(
        spec,
        tenant,
        &rows.lengths,
        rows.counted_permille,
        steps,
        submitted,
    )
}

/// Optimizer steps in all.
fn steps(train: &TrainSpec, rows: u64) -> u64 {
    let samples = (train.batch_size.saturating_mul(train.accumulation)).max(1) as u64;
    train.steps.unwrap_or_else(|| {
        let epoch = rows.div_ceil(samples);
        ((train.epochs() * epoch as f64).round() as u64).max(1)
    })
}

/// The question of who may begin, for one moment.
#[derive(Debug)]
pub struct Gate {
    snapshot: Snapshot,
    fleet: Fleet,
    measured: bool,
    patience: Micros,
    added: Micros,
    /// Whether sequences are cut where parts of the plan are full.
    align: bool,
    /// Rows of a pass.
    tokens_per_pass: u64,
    seats: BTreeMap<u32, Vec<Seat>>,
    on: BTreeMap<u32, Vec<JobId>>,
    /// Whether one that waited for the patience lacks memory: then nobody passes it. AD-3
    shut: bool,
}

/// What a gate is made of.
#[derive(Debug)]
pub struct Scene<'a> {
    /// The backbone.
    pub shape: &'a ModelShape,
    /// Nodes with seats.
    pub members: BTreeMap<NodeName, Member>,
    /// Their seats, by replica.
    pub seats: &'a Seats,
    /// Jobs on each replica.
    pub on: BTreeMap<u32, Vec<JobId>>,
    /// All jobs that have not ended and whose rows are known.
    pub tasks: BTreeMap<JobId, Task>,
    /// What each tenant was served, those without a job too.
    pub served: BTreeMap<String, u64>,
    /// Now, by the clock that jobs were submitted by.
    pub now: Micros,
}

impl Gate {
    /// Opens it.
    ///
    /// # Errors
    /// [`NoPlace`] when the planner cannot say what the seats hold, as when a profile lacks an operation of the backbone.
    pub fn new(admission: &Admission, scene: Scene<'_>) -> Result<Self, NoPlace> {
        let mut profiles = BTreeMap::new();
        let mut nodes = BTreeMap::new();
        let mut measured = true;
        for (node, member) in &scene.members {
            let profile = admission.profile(member);
            measured &= profile.origin == Origin::Measured;
            let machine = Machine {
                device: profile.device.clone(),
                memory: Bytes(bounds::MEMORY.nearest(member.memory.0)),
                site: String::new(),
                price: MicroUsd(0),
                losses_per_kilohour: 0,
            };
            nodes.insert(node.clone(), machine);
            profiles.insert(profile.device.clone(), profile);
        }
        let link = profiles
            .values()
            .find_map(|profile| profile.link("between"));
        let link = link.cloned().unwrap_or_else(Link::assumed);
        let tenant = |(name, served): (String, u64)| {
            let weight = admission.tenants.get(&name).copied().unwrap_or(1);
            (name, Tenant { weight, served })
        };
        let named = admission.tenants.keys().map(|name| (name.clone(), 0));
        let tenants: BTreeMap<String, u64> = named.chain(scene.served).collect();
        let snapshot = Snapshot {
            model: scene.shape.clone(),
            blocks: admission.blocks,
            tables: admission.tables,
            profiles,
            nodes,
            inside: link.clone(),
            between: link,
            tasks: scene.tasks,
            tenants: tenants.into_iter().map(tenant).collect(),
            options: Options {
                patience: admission.patience,
                fuse: admission.levels.fuse,
                order: admission.levels.order,
                saturation: admission.saturation,
                tokens_per_pass: admission.tokens_per_pass.max(1),
                ..Options::default()
            },
            now: scene.now,
        };
        let fleet = match snapshot.nodes.is_empty() {
            // No node, no seat, no question.
            true => Fleet::empty(),
            false => Fleet::new(&snapshot)?,
        };
        let seat = |seat: &shared::plan::Seat| Seat {
            node: seat.node.clone(),
            first: u64::from(seat.first_layer),
            end: u64::from(seat.end_layer),
        };
        let seats = scene.seats.iter();
        Ok(Self {
            fleet,
            measured,
            patience: admission.patience,
            added: admission.max_added_latency,
            align: admission.levels.align,
            tokens_per_pass: admission.tokens_per_pass.max(1),
            seats: seats
                .map(|(replica, seats)| (*replica, seats.iter().map(seat).collect()))
                .collect(),
            on: scene.on,
            shut: false,
            snapshot,
        })
    }

    /// Jobs that wait, the first to be asked first: by their tenants' shares, those that were patient before.
    #[must_use]
    pub fn order(&self, waiting: &[JobId]) -> Vec<JobId> {
        let mut order = fair::order(&self.snapshot);
        order.retain(|job| waiting.contains(job));
        // Of those that nothing is known of, none waits for another.
        let unknown = waiting
            .iter()
            .filter(|job| !self.snapshot.tasks.contains_key(job));
        unknown.copied().chain(order.iter().copied()).collect()
    }

    fn pipeline(&self, replica: u32) -> Option<Pipeline<'_>> {
        self.fleet
            .pipeline(&self.snapshot, self.seats.get(&replica)?)
    }

    /// The question as the planner takes it: nobody waits for a guess there either.
    #[must_use]
    pub fn into_snapshot(mut self) -> Snapshot {
        if !self.measured {
            self.snapshot.options.saturation = Saturation::Off;
        }
        self.snapshot
    }

    /// A step of a job alone on a replica, and whether that rests on measured profiles; nothing when it does not fit.
    #[must_use]
    pub fn alone(&self, replica: u32, job: JobId) -> Option<(Micros, bool)> {
        let task = self.snapshot.tasks.get(&job)?;
        let pipeline = self.pipeline(replica)?;
        let found = Loads::new(&[task]).estimate(&pipeline, &[0], true)?;
        let step = found.step.saturating_add(optimizers(&pipeline, &[task]));
        Some((Micros(step.div_ceil(1000)), self.measured))
    }

    /// Whether a job may begin on a replica.
    ///
    /// # Errors
    /// Why it waits.
    pub fn takes(&self, replica: u32, job: JobId) -> Result<(), Wait> {
        let (Some(task), Some(pipeline)) = (self.snapshot.tasks.get(&job), self.pipeline(replica))
        else {
            return Ok(());
        };
        let here = self.on.get(&replica).into_iter().flatten();
        let mut tasks: Vec<Task> = here
            .filter_map(|other| self.snapshot.tasks.get(other))
            .cloned()
            .collect();
        let known = tasks.len();
        tasks.push(task.clone());
        let patient = self.is_patient(task);
        let mut options = self.snapshot.options.clone();
        if patient || !self.measured {
            options.saturation = Saturation::Off;
        }
        let bounded = !patient && self.added.0 > 0;
        let together: Vec<&Task> = tasks.iter().collect();
        if bounded && self.spread(&pipeline, &together).is_none() {
            for task in &mut tasks {
                task.max_added_latency = self.bound(&pipeline, task);
            }
        }
        if self.shut {
            return Err(self.wait(replica, &pipeline, Why::Memory));
        }
        let all: Vec<&Task> = tasks.iter().collect();
        // None passes another here: they are asked one by one.
        let first = vec![true; all.len()];
        let admitted = admit::admit(&pipeline, &all, &first, &options);
        // AD-1, AD-2: only the last one is in question, and alone it needs to fit and no more.
        if admitted.jobs.contains(&known) {
            return Ok(());
        }
        Err(self.wait(replica, &pipeline, admitted.why.unwrap_or(Why::Memory)))
    }

    /// Permille of its step alone that the bound comes to.
    fn bound(&self, pipeline: &Pipeline<'_>, task: &Task) -> Option<u64> {
        let alone = Loads::new(&[task]).estimate(pipeline, &[0], true)?;
        Some(self.added.0.saturating_mul(1_000_000) / alone.step.max(1))
    }

    fn is_patient(&self, task: &Task) -> bool {
        self.snapshot.now.since(task.queued) >= self.patience
    }

    /// A wait, and after how long the first of a replica's jobs is predicted to end.
    fn wait(&self, replica: u32, pipeline: &Pipeline<'_>, why: Why) -> Wait {
        let here = self.on.get(&replica).into_iter().flatten();
        let tasks: Vec<&Task> = here
            .filter_map(|job| self.snapshot.tasks.get(job))
            .collect();
        let all: Vec<usize> = (0..tasks.len()).collect();
        let step = Loads::new(&tasks).estimate(pipeline, &all, true);
        let step = step.map_or(0, |estimate| estimate.step.div_ceil(1000));
        let left = tasks.iter().map(|task| task.steps).min().unwrap_or(0);
        Wait {
            replica,
            why,
            estimate: Micros(left.saturating_mul(step)),
        }
    }

    /// A job begins on a replica: the next ones are asked beside it.
    pub fn begin(&mut self, replica: u32, job: JobId) {
        self.on.entry(replica).or_default().push(job);
    }

    /// A job waits: when it was patient and memory is short, none passes it.
    pub fn waits(&mut self, job: JobId, wait: &Wait) {
        let patient = self
            .snapshot
            .tasks
            .get(&job)
            .is_some_and(|task| self.is_patient(task));
        self.shut |= patient && wait.why == Why::Memory;
    }

    /// Why a job can never train on the replicas that stand; nothing when it can.
    #[must_use]
    pub fn never(&self, job: JobId) -> Option<Refusal> {
        let task = self.snapshot.tasks.get(&job)?;
        let pipelines: Vec<Pipeline<'_>> = self
            .seats
            .keys()
            .filter_map(|replica| self.pipeline(*replica))
            .collect();
        if pipelines.is_empty() {
            return None;
        }
        admit::refuse(&pipelines, task)
    }
}

#[cfg(test)]
mod tests;
