//! A workload as a question to the planner: on so many stages of this machine, with each level switched off in turn.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::Context;
use coordinator::life::admission::{self, of_answer};
use coordinator::plan::align::{self, Chunk};
use coordinator::plan::answer::Replica;
use coordinator::plan::arrange::{Arrangement, Levels, weigh, with_levels};
use coordinator::plan::pipeline::Pipeline;
use coordinator::plan::place::{Fleet, Seat, Seats, place};
use coordinator::plan::profile::{Link, Profile};
use coordinator::plan::snapshot::{Machine, Options, Snapshot, Task};
use gpu_actor::model::Model;
use serde::Serialize;
use shared::ids::{JobId, JobName, NodeName};
use shared::plan::arrangement::Arrangement as Orders;
use shared::units::{Bytes, MicroUsd, Micros};

use crate::exit::{Exit, Failure, OrExit};
use crate::measuring::gather;
use crate::measuring::workload::Workload;

/// Links in memory: what a stage gives its neighbour is not copied but handed over.
const LINK_NANOS: u64 = 20_000;
const LINK_BYTES: u64 = 4_000_000_000;

/// What is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Off {
    /// Nothing.
    Nothing,
    /// Jobs share no passes.
    Fuse,
    /// Passes run by the jobs' numbers, one forward one backward.
    Order,
    /// Sequences are whole and padded to the longest of their passes.
    Align,
    /// All three: each job by itself, padded to its own longest.
    All,
}

impl Off {
    /// All that are compared.
    pub(crate) const EACH: [Self; 5] = [
        Self::Nothing,
        Self::Fuse,
        Self::Order,
        Self::Align,
        Self::All,
    ];

    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "all levels on",
            Self::Fuse => "without fuse",
            Self::Order => "without order",
            Self::Align => "without align",
            Self::All => "without all three",
        }
    }
}

/// What the planner says.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// What was off.
    pub(crate) off: Off,
    /// The jobs as they are trained: with the pads where there are some.
    pub(crate) workload: Workload,
    /// How they train together.
    pub(crate) orders: Orders<JobName>,
    /// Most rows of a pass.
    pub(crate) pass_rows: u64,
    /// Micro-batches of a step of a hybrid task at most, as they are carried out.
    pub(crate) micro_batches: u64,
    /// Hybrid tasks, as they are carried out.
    pub(crate) hybrid_tasks: usize,
    /// Nanoseconds of a round, predicted.
    pub(crate) predicted: u64,
}

/// The question.
pub(crate) struct Question<'a> {
    workload: &'a Workload,
    snapshot: Snapshot,
    fleet: Fleet,
    seats: Seats,
}

impl<'a> Question<'a> {
    /// A workload on so many stages, each a device of this profile with a part of this memory.
    ///
    /// # Errors
    /// [`Exit::WouldNotFit`] when the model does not fit, [`Exit::BadInput`] when the profile is of another.
    pub(crate) fn new(
        model: &Model,
        profile: &Profile,
        stages: usize,
        memory: u64,
        workload: &'a Workload,
    ) -> Result<Self, Failure> {
        let (blocks, tables) = gather::kept(model);
        let link = Link {
            name: "memory".into(),
            latency_nanos: LINK_NANOS,
            bytes_per_second: LINK_BYTES,
        };
        let machine = Machine {
            device: profile.device.clone(),
            memory: Bytes(memory / stages.max(1) as u64),
            site: "here".into(),
            price: MicroUsd(0),
            losses_per_kilohour: 0,
        };
        let name = |at: usize| NodeName::new(format!("stage-{at:02}")).or_exit(Exit::Internal);
        let nodes = (0..stages).map(|at| Ok((name(at)?, machine.clone())));
        let tasks = workload.tasks()?;
        let snapshot = Snapshot {
            model: model.shape.clone(),
            blocks,
            tables,
            profiles: BTreeMap::from([(profile.device.clone(), profile.clone())]),
            nodes: nodes.collect::<Result<_, Failure>>()?,
            inside: link.clone(),
            between: link,
            tasks: (1..).map(JobId).zip(tasks).collect(),
            tenants: BTreeMap::new(),
            options: Options {
                stages: u32::try_from(stages).ok(),
                replicas: Some(1),
                ..Options::default()
            },
            now: Micros(0),
        };
        let fleet = Fleet::new(&snapshot).or_exit(Exit::BadInput)?;
        let tasks: Vec<&Task> = snapshot.tasks.values().collect();
        let layout = place(&snapshot, &fleet, &tasks, &[]).or_exit(Exit::WouldNotFit)?;
        let seats = layout.replicas.into_iter().next();
        Ok(Self {
            seats: seats
                .context("the planner laid out no replica")
                .or_exit(Exit::Internal)?,
            workload,
            fleet,
            snapshot,
        })
    }

    /// Layers of each stage.
    pub(crate) fn spans(&self) -> Vec<Range<usize>> {
        let span = |seat: &Seat| seat.first as usize..seat.end as usize;
        self.seats.iter().map(span).collect()
    }

    /// The planner's answer with something off.
    ///
    /// # Errors
    /// [`Exit::WouldNotFit`] when the jobs do not fit so.
    pub(crate) fn planned(&self, off: Off) -> Result<Planned, Failure> {
        let pipeline = self.fleet.pipeline(&self.snapshot, &self.seats);
        let pipeline = pipeline
            .context("a node of the question is gone")
            .or_exit(Exit::Internal)?;
        let tasks: Vec<&Task> = self.snapshot.tasks.values().collect();
        let found = arranged(&pipeline, &tasks, &self.snapshot.options, off);
        let arrangement = found.ok_or_else(|| {
            let message = format!("the jobs do not fit {}", off.name());
            Failure::new(Exit::WouldNotFit, message)
        })?;
        let padded = matches!(off, Off::Align | Off::All);
        let workload = if padded {
            self.workload.padded(&arrangement.hybrid_tasks)
        } else {
            self.workload.clone()
        };
        let cut = |task: &Task| match padded {
            true => align::whole(task, arrangement.micro_batches),
            false => align::cut(task, arrangement.micro_batches),
        };
        let chunks: Vec<Vec<Chunk>> = workload.tasks()?.iter().map(cut).collect();
        let parts = (0..arrangement.micro_batches as usize).map(|part| {
            let rows = |job: &usize| chunks[*job].get(part).map_or(0, Chunk::rows);
            let tasks = arrangement.hybrid_tasks.iter();
            let passes = tasks.map(|jobs| jobs.iter().map(rows).sum::<u64>());
            passes.max().unwrap_or(0)
        });
        let pass_rows = parts.max().unwrap_or(0);
        let specs = workload.specs()?;
        let predicted = arrangement.round;
        let replica = Replica {
            seats: self.seats.clone(),
            jobs: self.snapshot.tasks.keys().copied().collect(),
            arrangement: Some(arrangement),
            round: predicted,
            chunks,
        };
        let name = |job: &JobId| {
            let at = usize::try_from(job.0).ok()?.checked_sub(1)?;
            specs.get(at).map(|spec| spec.name.clone())
        };
        let levels = admission::Levels {
            fuse: !matches!(off, Off::Fuse | Off::All),
            order: !matches!(off, Off::Order | Off::All),
            align: !padded,
        };
        let orders = of_answer(&replica, levels, pass_rows).renamed(name);
        let parts = orders.hybrid_tasks().map(|task| u64::from(task.parts));
        Ok(Planned {
            off,
            micro_batches: parts.max().unwrap_or(0),
            hybrid_tasks: orders.hybrid_tasks().count(),
            orders,
            workload,
            pass_rows,
            predicted,
        })
    }
}

/// How jobs train together with something off.
fn arranged(
    pipeline: &Pipeline<'_>,
    tasks: &[&Task],
    options: &Options,
    off: Off,
) -> Option<Arrangement> {
    let levels = Levels {
        fuse: !matches!(off, Off::Fuse | Off::All),
        order: !matches!(off, Off::Order | Off::All),
        search: true,
    };
    let pads = Pipeline {
        padded: true,
        ..pipeline.clone()
    };
    match off {
        Off::Nothing => weigh(pipeline, tasks, options).map(|weighed| weighed.plan),
        Off::Fuse | Off::Order => with_levels(pipeline, tasks, options, levels),
        Off::Align | Off::All => with_levels(&pads, tasks, options, levels),
    }
}
