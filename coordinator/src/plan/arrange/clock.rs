//! Hybrid tasks put into buckets, and the order in which these run.

use super::STEPS;
use crate::plan::device::Both;
use crate::plan::fuse::Fusion;
use crate::plan::mix::{Load, Mix};
use crate::plan::order::subgraph::{Graph, Subgraph, schedule};
use crate::plan::order::template::{self, Eagerness, Rooms, Template, Unit, closed_form};
use crate::plan::order::{adapters, buckets};
use crate::plan::pipeline::Pipeline;

/// A part of a step, one in so many, that going further ahead must gain: a pass ahead keeps its activations on every stage
/// before the last, and neither a prediction nor a machine's steps are as exact as this.
const WORTH: u64 = 1_000;

/// Whether a step of `further` is worth the memory of passes ahead against one of `held` without them.
fn pays(further: u64, held: u64) -> bool {
    further < held - held / WORTH
}

/// What hybrid tasks take on each stage, to be put into buckets.
pub(super) struct Clock<'a> {
    pipeline: &'a Pipeline<'a>,
    micro_batches: u64,
    mixes: Vec<Vec<Mix>>,
    times: Vec<Vec<Both<u64>>>,
    jobs: Vec<usize>,
    loads: &'a [Vec<Load>],
    pub(super) hybrid_tasks: &'a [Vec<usize>],
    /// Bytes for passes under way, by stage.
    pub(super) rooms: Vec<u64>,
}

impl<'a> Clock<'a> {
    pub(super) fn new(fusion: &'a Fusion<'a>, hybrid_tasks: &'a [Vec<usize>]) -> Self {
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

    /// What each bucket takes.
    pub(super) fn units(&self, buckets: &[Vec<usize>]) -> Vec<Unit> {
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
                bytes = bytes.saturating_add(self.pipeline.under_way(stage, &self.mixes[*task]));
            }
            if let Some(merged) = &merged {
                let shared = merged[at.device].adapters();
                let saved = |apart: u64, shared: u64| {
                    apart.saturating_sub(shared).saturating_mul(at.blocks)
                };
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
        let compute = graphs.iter().flatten().map(|node| node.compute);
        let compute = compute.fold(0, u64::saturating_add);
        schedule(&graphs).end.saturating_sub(compute)
    }

    /// Buckets and an order found elsewhere, timed here; nothing where memory does not suffice for them.
    pub(super) fn adopt(&self, buckets: &[Vec<usize>], order: &Template) -> Option<Template> {
        let units = self.units(buckets);
        let held = |stage: usize| super::held(&units, order, stage);
        let mut rooms = self.rooms.iter().enumerate();
        if !rooms.all(|(stage, room)| held(stage) <= *room) {
            return None;
        }
        Some(template::retimed(&units, order))
    }

    /// Whether one pass of every unit fits every stage.
    fn fit(&self, units: &[Unit]) -> bool {
        units.iter().all(|unit| {
            let each = unit.bytes.iter().zip(&self.rooms);
            { each }.all(|(bytes, room)| bytes <= room)
        })
    }

    /// Buckets and their template.
    pub(super) fn order(&self, ordered: bool) -> Option<(Vec<Vec<usize>>, Template)> {
        let count = self.times.len();
        let eagerness = if ordered {
            Eagerness::Memory
        } else {
            Eagerness::ONE_FORWARD_ONE_BACKWARD
        };
        let rooms = Rooms {
            bytes: &self.rooms,
            eagerness,
        };
        // Buckets are compared with as many passes ahead as memory allows.
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
        let mut template: Option<Template> = None;
        for beyond in self.beyond(units.len()) {
            let rooms = Rooms {
                eagerness: Eagerness::Beyond(beyond),
                ..rooms
            };
            let order = template::order(&units, true);
            let found = template::template(&units, order, self.micro_batches, rooms);
            let held = template.as_ref();
            if held.is_none_or(|held| pays(found.latency, held.latency)) {
                template = Some(found);
            }
        }
        template.map(|template| (buckets, template))
    }

    /// Units beyond those of 1F1B worth a try, the fewest first: none, powers of two and all; of large steps, and where
    /// no stage goes ahead of another, few of these.
    fn beyond(&self, buckets: usize) -> Vec<usize> {
        let (stages, all) = (self.pipeline.len(), buckets * self.micro_batches as usize);
        if stages == 1 {
            return vec![0];
        }
        let mut tries = vec![0];
        if all * stages > STEPS {
            tries.extend([stages, 4 * stages]);
        } else {
            let powers = (0..usize::BITS).map(|power| 1usize << power);
            tries.extend(powers.take_while(|beyond| *beyond < all));
        }
        tries.push(all);
        tries
    }

    /// Passes that each stage may hold at once: as far as the template goes ahead, and no more than its memory holds of the
    /// largest pass, but one at least.
    pub(super) fn ahead(&self, buckets: &[Vec<usize>], template: &Template) -> Vec<u64> {
        let stages = self.pipeline.len();
        let passes = buckets.iter().map(Vec::len).max().unwrap_or(1);
        let of = |stage: usize| {
            let beyond = match stage + 1 == stages {
                true => 0,
                false => template.beyond,
            };
            let each = self.mixes.iter();
            let largest = each.map(|mixes| self.pipeline.under_way(stage, mixes));
            let fit = self.rooms[stage] / largest.max().unwrap_or(0).max(1);
            let planned = ((stages - stage + beyond) * passes) as u64;
            planned.min(fit).max(1)
        };
        (0..stages).map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_ahead_that_gain_less_than_a_thousandth_are_left_out() {
        // Some microseconds of a step of a second.
        assert!(!pays(1_000_000_000 - 5_000, 1_000_000_000));
        assert!(!pays(999_000_000, 1_000_000_000));
        assert!(pays(998_999_999, 1_000_000_000));
        assert!(!pays(5, 5) && pays(4, 5));
    }
}
