//! Why a plan is so: as data, and as text for people.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;
use shared::ids::{JobId, NodeName};
use shared::units::{Bytes, Micros};

use super::align::Waste;
use super::answer::{Plan, Replica};
use super::arrange::{Arrangement, Without};
use super::long_sequence::LongSequence;
use super::pipeline::Pipeline;
use super::place::{Fleet, holds};
use super::profile::Origin;
use super::snapshot::{Snapshot, Task};

/// Why a plan is so.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// By replica that trains.
    pub replicas: BTreeMap<u32, ReplicaWhy>,
    /// Jobs that wait, in words.
    pub waiting: BTreeMap<JobId, String>,
    /// Jobs that are refused, in words.
    pub refused: BTreeMap<JobId, String>,
    /// What the prediction rests on.
    pub grounds: Vec<String>,
}

/// Why a replica's jobs train so.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplicaWhy {
    /// Blocks of each stage.
    pub blocks: Vec<u64>,
    /// What limits the layout.
    pub limit: Limit,
    /// Bytes at most and bytes offered, by stage.
    pub memory: Vec<(Bytes, Bytes)>,
    /// Predicted time of a step by itself.
    pub step: Micros,
    /// Predicted time of a step while rounds follow each other: what plans are compared by.
    pub round: Micros,
    /// Passes that each stage may hold at once.
    pub ahead: Vec<u64>,
    /// Tokens a second, while rounds follow each other.
    pub tokens_per_second: u64,
    /// Micro-batches of a step.
    pub micro_batches: u64,
    /// Why jobs share passes.
    pub hybrid_tasks: Vec<HybridWhy>,
    /// Hybrid tasks of each bucket, in the order in which they run.
    pub buckets: Vec<Vec<usize>>,
    /// Each level switched off, and the round then. Absent where the jobs would not fit without it.
    pub without_fuse: Option<Micros>,
    /// Buckets, order and eager passes off.
    pub without_order: Option<Micros>,
    /// Every sequence padded to the longest of its pass.
    pub without_align: Option<Micros>,
    /// Pads that there are not.
    pub waste: Waste,
    /// What is left on the table.
    pub left: Left,
    /// The sequence that others wait for, where one is longer than a turn.
    pub long_sequence: Option<LongSequence>,
}

/// What limits a layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Limit {
    /// A stage has less than a tenth of its memory left: fewer nodes would not do.
    Memory {
        /// The stage.
        stage: usize,
    },
    /// A stage computes longest.
    Compute {
        /// The stage.
        stage: usize,
    },
}

/// Why jobs share a pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HybridWhy {
    /// The jobs.
    pub jobs: Vec<JobId>,
    /// Rows of a pass.
    pub rows: u64,
    /// Time of its passes in a step, on the slowest stage.
    pub together: Micros,
    /// The same of the jobs each by itself, one after another.
    pub apart: Micros,
}

/// What is left on the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Left {
    /// Permille of the stages' time that they wait.
    pub bubble_permille: u64,
    /// Time that the last stage waits once it has begun.
    pub last_stage_idle: Micros,
    /// Permille of the slowest stage's passes that are in adapters.
    pub adapters_permille: u64,
}

/// A number with its noun.
#[must_use]
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn micros(nanos: u64) -> Micros {
    Micros(nanos.div_ceil(1000))
}

/// Explains one replica; with the jobs in `tasks`, and the rows of a pass by the first stage's own bound.
#[must_use]
pub fn replica(
    pipeline: &Pipeline<'_>,
    replica: &Replica,
    arrangement: &Arrangement,
    without: Without,
    (tasks, tokens_per_pass): (&[&Task], u64),
) -> ReplicaWhy {
    let step = arrangement.step();
    let tokens: u64 = tasks.iter().map(|task| task.tokens()).sum();
    let memory: Vec<(Bytes, Bytes)> = arrangement
        .bytes
        .iter()
        .zip(&pipeline.stages)
        .map(|(bytes, stage)| (Bytes(*bytes), Bytes(stage.memory)))
        .collect();
    let waste = arrangement.hybrid_tasks.iter().map(|jobs| {
        let tasks: Vec<&Task> = jobs.iter().map(|job| tasks[*job]).collect();
        Waste::of(&tasks)
    });
    ReplicaWhy {
        blocks: pipeline.stages.iter().map(|stage| stage.blocks).collect(),
        limit: limit(arrangement, pipeline, tasks),
        memory,
        step: micros(step),
        round: replica.round(),
        tokens_per_second: (u128::from(tokens) * 1_000_000_000 / u128::from(replica.round.max(1)))
            as u64,
        micro_batches: arrangement.micro_batches,
        ahead: arrangement.ahead.clone(),
        hybrid_tasks: hybrid_tasks(pipeline, replica, arrangement, tasks),
        buckets: arrangement
            .template
            .buckets
            .iter()
            .map(|bucket| arrangement.buckets[*bucket].clone())
            .collect(),
        without_fuse: without.fuse.map(micros),
        without_order: without.order.map(micros),
        without_align: without.align.map(micros),
        waste: waste.fold(Waste::default(), Waste::plus),
        left: left(arrangement, pipeline, tasks),
        long_sequence: LongSequence::of(pipeline, &replica.jobs, tasks, tokens_per_pass),
    }
}

fn limit(arrangement: &Arrangement, pipeline: &Pipeline<'_>, tasks: &[&Task]) -> Limit {
    let resident = |stage: usize| pipeline.resident(stage, tasks, arrangement.micro_batches);
    let full = (0..pipeline.len())
        .filter(|stage| resident(*stage) / 9 >= pipeline.stages[*stage].memory / 10)
        .max_by_key(|stage| resident(*stage));
    match full {
        Some(stage) => Limit::Memory { stage },
        None => {
            let busy = arrangement.busy.iter().enumerate();
            let stage = busy.max_by_key(|(at, busy)| (**busy, std::cmp::Reverse(*at)));
            Limit::Compute {
                stage: stage.map_or(0, |(stage, _)| stage),
            }
        }
    }
}

fn hybrid_tasks(
    pipeline: &Pipeline<'_>,
    replica: &Replica,
    arrangement: &Arrangement,
    tasks: &[&Task],
) -> Vec<HybridWhy> {
    let loads = pipeline.loads(tasks, arrangement.micro_batches);
    let mixes = |jobs: &[usize]| -> Vec<super::mix::Mix> {
        let of = |loads: &Vec<super::mix::Load>| {
            super::mix::Mix::of(jobs.iter().map(|job| &loads[*job]))
        };
        loads.iter().map(of).collect()
    };
    let kinds = pipeline.kinds();
    let beat = |jobs: &[usize]| {
        let beat = pipeline.timing(&kinds, &mixes(jobs)).beat;
        arrangement.micro_batches.saturating_mul(beat)
    };
    let why = |jobs: &Vec<usize>| HybridWhy {
        jobs: jobs.iter().map(|job| replica.jobs[*job]).collect(),
        rows: mixes(jobs).first().map_or(0, |mix| mix.tokens),
        together: micros(beat(jobs)),
        apart: micros(
            jobs.iter()
                .map(|job| beat(&[*job]))
                .fold(0, u64::saturating_add),
        ),
    };
    arrangement.hybrid_tasks.iter().map(why).collect()
}

fn left(arrangement: &Arrangement, pipeline: &Pipeline<'_>, tasks: &[&Task]) -> Left {
    let stages = pipeline.len() as u64;
    let whole = u128::from(arrangement.template.latency.max(1)) * u128::from(stages);
    let busy: u128 = arrangement.busy.iter().map(|busy| u128::from(*busy)).sum();
    let loads = pipeline.loads(tasks, arrangement.micro_batches);
    let kind = pipeline.stages[0].device;
    let (mut adapters, mut all) = (0u128, 1u128);
    for jobs in &arrangement.hybrid_tasks {
        let mix = super::mix::Mix::of(jobs.iter().map(|job| &loads[kind][*job]));
        let device = &pipeline.devices[kind];
        adapters += u128::from(mix.adapters().sum());
        all += u128::from(mix.block(device, pipeline.padded).sum());
    }
    Left {
        bubble_permille: 1000 - (busy * 1000 / whole).min(1000) as u64,
        last_stage_idle: micros(arrangement.template.idle_last),
        adapters_permille: (adapters * 1000 / all) as u64,
    }
}

/// Explains a plan.
#[must_use]
pub fn explain(
    snapshot: &Snapshot,
    fleet: &Fleet,
    plan: &Plan,
    replicas: BTreeMap<u32, ReplicaWhy>,
) -> Explanation {
    let mut grounds = Vec::new();
    for device in &fleet.devices {
        let profile = device.profile();
        let how = match profile.origin {
            Origin::Measured => "was measured",
            Origin::Computed => "was computed, not measured",
        };
        let note = match profile.note.as_str() {
            "" => String::new(),
            note => format!(": {note}"),
        };
        grounds.push(format!("the profile of {} {how}{note}", profile.device));
        if profile.origin == Origin::Measured && !device.estimated.is_empty() {
            let products: BTreeSet<&str> = device.estimated.iter().map(String::as_str).collect();
            let products: Vec<&str> = products.into_iter().collect();
            grounds.push(format!(
                "{}: not measured, from its roofline: {}",
                profile.device,
                products.join(", ")
            ));
        }
    }
    for (number, replica) in &plan.replicas {
        let tasks: Vec<&Task> = replica
            .jobs
            .iter()
            .filter_map(|id| snapshot.tasks.get(id))
            .collect();
        let nodes = replica.seats.iter().map(|seat| seat.node.clone());
        let fewer: Vec<NodeName> = nodes.take(replica.seats.len() - 1).collect();
        if !tasks.is_empty() && !fewer.is_empty() && !holds(snapshot, fleet, &fewer, &tasks) {
            grounds.push(format!(
                "replica {number}: memory asks for {} stages, {} of these nodes would not hold the backbone and a pass",
                replica.seats.len(),
                fewer.len()
            ));
        }
    }
    for (switch, name) in [
        (snapshot.options.fuse, "fuse"),
        (snapshot.options.order, "order"),
        (snapshot.options.align, "align"),
    ] {
        if !switch {
            grounds.push(format!("{name} is switched off"));
        }
    }
    Explanation {
        replicas,
        waiting: plan
            .waiting
            .iter()
            .map(|(id, why)| (*id, why.to_string()))
            .collect(),
        refused: plan
            .refused
            .iter()
            .map(|(id, why)| (*id, why.to_string()))
            .collect(),
        grounds,
    }
}

impl Explanation {
    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (number, why) in &self.replicas {
            why.write(*number, &mut text);
        }
        for (job, why) in &self.waiting {
            let _ = writeln!(text, "job {job} {why}");
        }
        for (job, why) in &self.refused {
            let _ = writeln!(text, "job {job} can never train here: {why}");
        }
        for ground in &self.grounds {
            let _ = writeln!(text, "note: {ground}");
        }
        text
    }
}

impl ReplicaWhy {
    fn write(&self, number: u32, text: &mut String) {
        let blocks: Vec<String> = self.blocks.iter().map(u64::to_string).collect();
        let limit = match &self.limit {
            Limit::Memory { stage } => format!("memory of stage {stage} limits it"),
            Limit::Compute { stage } => format!("stage {stage} computes longest"),
        };
        let _ = writeln!(
            text,
            "replica {number}: blocks {}; {limit}\n  a step of {} in {}, {} tokens/s, predicted",
            blocks.join(" + "),
            self.round,
            counted(self.micro_batches, "micro-batch", "micro-batches"),
            self.tokens_per_second
        );
        if self.ahead.len() > 1 {
            let ahead: Vec<String> = self.ahead.iter().map(u64::to_string).collect();
            let _ = writeln!(
                text,
                "  {} by itself, as rounds overlap; stages hold {} passes at most",
                self.step,
                ahead.join(" + ")
            );
        }
        for (stage, (used, offered)) in self.memory.iter().enumerate() {
            let _ = writeln!(text, "  stage {stage}: at most {used} of {offered}");
        }
        for hybrid in &self.hybrid_tasks {
            let jobs: Vec<String> = hybrid.jobs.iter().map(JobId::to_string).collect();
            let _ = if hybrid.jobs.len() == 1 {
                writeln!(
                    text,
                    "  {} by itself: {} rows, {}",
                    jobs[0], hybrid.rows, hybrid.together
                )
            } else {
                writeln!(
                    text,
                    "  {} share passes of {} rows: {} together, {} apart",
                    jobs.join(", "),
                    hybrid.rows,
                    hybrid.together,
                    hybrid.apart
                )
            };
        }
        for (level, off) in [
            ("fuse", self.without_fuse),
            ("order", self.without_order),
            ("align", self.without_align),
        ] {
            let said = off.map_or_else(
                || "the jobs would not fit".to_owned(),
                |step| format!("a step would take {step}"),
            );
            let _ = writeln!(text, "  without {level} {said}");
        }
        let _ = writeln!(
            text,
            "  {} rows, {} of padding; padding to the longest would add {}, powers of two {}",
            self.waste.rows, self.waste.here, self.waste.zero_padding, self.waste.power_of_two
        );
        let _ = writeln!(
            text,
            "  left: stages wait {:.1} % of the step, adapters take {:.1} % of a block",
            self.left.bubble_permille as f64 / 10.0,
            self.left.adapters_permille as f64 / 10.0
        );
        if let Some(long) = &self.long_sequence {
            let _ = writeln!(text, "  {long}");
        }
    }
}
