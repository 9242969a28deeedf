//! Task level: which jobs share a pass (space) and which alternate (time).
//!
//! Jobs are put in the order of their rows; a hybrid task is a run of them (MuxTune, section 3.3). The time of a step
//! with hybrid tasks k, after the paper's appendix A, generalised to unequal stages and directions:
//!
//! ```text
//! max over k of warm(k) + min over k of drain(k) + C x sum over k of beat(k)
//! ```
//!
//! With equal stages and backward = forward = t it is `(S-1)(t_first + t_last) + 2 C sum t`. The paper's Eq 6 charges
//! a further hybrid task with `L / S = 2 t (S-1+C) / S` instead of `2 C t`, too little for C, S > 1, and so splits too
//! much; [`Objective::Average`] keeps it for comparison.
//!
//! **Exact for runs.** The sum has optimal substructure. The minimum is chosen along the way: "one hybrid task pays its
//! drain", and the cheapest choice pays the smallest. The maximum is a bound on all, lowered step by step below what the
//! answer before has (`fuse/dynamic.rs` has the proof). With more steps than [`PASSES`] allows, as with thousands of
//! jobs, the best of those taken stands.
//!
//! **Beyond runs** a local search moves and swaps jobs between hybrid tasks while that helps, at most [`TRIES`] times.

mod dynamic;
mod search;
#[cfg(test)]
mod tests;

use super::mix::{Load, Mix};
use super::pipeline::{Kind, Pipeline, Timing};

/// Runs looked at: for more than a thousand jobs, runs are at most this divided by their number long.
pub const RUNS: usize = 1 << 20;
/// Runs times bounds looked at.
pub const PASSES: usize = 1 << 22;
/// Moves and swaps tried by the local search.
pub const TRIES: usize = 512;

/// What is to be small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// The time of a whole step.
    Step,
    /// Eq 6 of the paper: the sum of average stage latencies.
    Average,
}

/// Jobs to be fused on a replica.
#[derive(Clone, Debug)]
pub struct Fusion<'a> {
    /// Where.
    pub pipeline: &'a Pipeline<'a>,
    /// By kind of device, then by job.
    pub loads: &'a [Vec<Load>],
    /// C, at least 1.
    pub micro_batches: u64,
    /// Bytes on each stage before any pass.
    pub resident: &'a [u64],
    kinds: Vec<Kind>,
}

impl<'a> Fusion<'a> {
    /// Of these loads.
    #[must_use]
    pub fn new(
        pipeline: &'a Pipeline<'a>,
        loads: &'a [Vec<Load>],
        micro_batches: u64,
        resident: &'a [u64],
    ) -> Self {
        Self {
            pipeline,
            loads,
            micro_batches,
            resident,
            kinds: pipeline.kinds(),
        }
    }

    /// What a hybrid task takes.
    #[must_use]
    pub fn timing(&self, mixes: &[Mix]) -> Timing {
        self.pipeline.timing(&self.kinds, mixes)
    }

    /// Number of jobs.
    #[must_use]
    pub fn jobs(&self) -> usize {
        self.loads.first().map_or(0, Vec::len)
    }

    /// A hybrid task of these jobs, by kind of device.
    #[must_use]
    pub fn mixes(&self, jobs: &[usize]) -> Vec<Mix> {
        let of = |loads: &Vec<Load>| Mix::of(jobs.iter().map(|job| &loads[*job]));
        self.loads.iter().map(of).collect()
    }

    /// Whether a pass can be under way on every stage as often as a full pipeline needs it: `S - s` times on stage s.
    #[must_use]
    pub fn fits(&self, mixes: &[Mix]) -> bool {
        let stages = self.pipeline.len();
        // Of stages that are alike the first holds the most passes.
        self.kinds.iter().all(|kind| {
            let stage = kind.stage;
            let needed = ((stages - stage) as u64).min(self.micro_batches);
            self.pipeline.depth(stage, self.resident[stage], mixes) >= needed
        })
    }

    /// The time of a step with these hybrid tasks.
    #[must_use]
    pub fn step(&self, timings: &[Timing]) -> u64 {
        let warm = timings.iter().map(|timing| timing.warm).max().unwrap_or(0);
        let drain = timings.iter().map(|timing| timing.drain).min().unwrap_or(0);
        let beats = timings.iter().map(|timing| timing.beat);
        let beats = beats.fold(0, u64::saturating_add);
        let passes = self.micro_batches.saturating_mul(beats);
        passes.saturating_add(warm).saturating_add(drain)
    }

    /// Eq 6 for these hybrid tasks.
    #[must_use]
    pub fn average(&self, timings: &[Timing]) -> u64 {
        let each = timings.iter().map(|timing| self.average_of(timing));
        each.fold(0, u64::saturating_add)
    }

    fn average_of(&self, timing: &Timing) -> u64 {
        let passes = self.micro_batches.saturating_mul(timing.beat);
        let latency = passes.saturating_add(timing.warm + timing.drain);
        latency / self.pipeline.len() as u64
    }

    /// What hybrid tasks take.
    #[must_use]
    pub fn timings(&self, groups: &[Vec<usize>]) -> Vec<Timing> {
        let of = |jobs: &Vec<usize>| self.timing(&self.mixes(jobs));
        groups.iter().map(of).collect()
    }
}

/// Jobs by their rows, ties by their place.
fn by_rows(fusion: &Fusion<'_>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..fusion.jobs()).collect();
    if let Some(loads) = fusion.loads.first() {
        order.sort_by_key(|job| (loads[*job].tokens, *job));
    }
    order
}

/// The best hybrid tasks that are runs; jobs within one in their order.
#[must_use]
pub fn runs(fusion: &Fusion<'_>, objective: Objective) -> Vec<Vec<usize>> {
    let order = by_rows(fusion);
    let mut groups = dynamic::partition(fusion, &order, objective);
    tidy(&mut groups);
    groups
}

/// The best hybrid tasks found: runs, then better than runs where a small search finds it.
#[must_use]
pub fn fuse(fusion: &Fusion<'_>) -> Vec<Vec<usize>> {
    improved(fusion, &runs(fusion, Objective::Step))
}

/// The same from runs that were found already.
#[must_use]
pub fn improved(fusion: &Fusion<'_>, runs: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut groups = runs.to_vec();
    search::improve(fusion, &mut groups);
    tidy(&mut groups);
    groups
}

fn tidy(groups: &mut Vec<Vec<usize>>) {
    groups.retain(|group| !group.is_empty());
    for group in groups.iter_mut() {
        group.sort_unstable();
    }
    groups.sort_unstable();
}
