//! One replica as the planner sees it: stages on devices, with links between them, and what passes take there.

use shared::model::ModelShape;

use super::curve::LARGEST;
use super::device::{Both, Device};
use super::memory::Sizes;
use super::mix::{Load, Mix};
use super::profile::Link;
use super::snapshot::Task;

/// A stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Which of the kinds of devices.
    pub device: usize,
    /// Blocks it holds, at least one.
    pub blocks: u64,
    /// Memory that its node offers.
    pub memory: u64,
    /// To the next stage; of no meaning on the last.
    pub link: Link,
}

/// The stages of a replica and what their devices take.
#[derive(Clone, Debug)]
pub struct Pipeline<'a> {
    /// Kinds of devices.
    pub devices: &'a [Device],
    /// Sizes of the backbone, by kind of device.
    pub sizes: &'a [Sizes],
    /// From the embedding to the head, at least one.
    pub stages: Vec<Stage>,
    /// Whether sequences of a pass are padded to the longest.
    pub padded: bool,
}

/// Stages that are alike: computed once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The first of them.
    pub stage: usize,
    /// How many of them there are.
    pub count: u64,
}

/// What a hybrid task takes of a pipeline, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Its forward through all stages but the last, and the links between.
    pub warm: u64,
    /// Its backward through all stages but the last, and the links between.
    pub drain: u64,
    /// Forward and backward on the stage (or link) that takes longest.
    pub beat: u64,
}

impl Pipeline<'_> {
    /// Number of stages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.stages.len()
    }

    /// Whether there is none; not in a sound plan.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> Option<&ModelShape> {
        self.devices.first().map(Device::model)
    }

    /// What jobs load their passes with, by kind of device.
    #[must_use]
    pub fn loads(&self, tasks: &[&Task], micro_batches: u64) -> Vec<Vec<Load>> {
        let of = |device: &Device| {
            let loads = tasks.iter();
            loads
                .map(|task| Load::new(device, task, micro_batches, !self.padded))
                .collect()
        };
        self.devices.iter().map(of).collect()
    }

    /// Forward and backward on every stage; `mixes` by kind of device.
    #[must_use]
    pub fn times(&self, mixes: &[Mix]) -> Vec<Both<u64>> {
        let blocks: Vec<Both<u64>> = self.per_block(mixes);
        let last = self.stages.len() - 1;
        let of = |(index, stage): (usize, &Stage)| {
            self.time(mixes, &blocks, stage, index == 0, index == last)
        };
        self.stages.iter().enumerate().map(of).collect()
    }

    fn per_block(&self, mixes: &[Mix]) -> Vec<Both<u64>> {
        let devices = self.devices.iter().zip(mixes);
        devices
            .map(|(device, mix)| mix.block(device, self.padded))
            .collect()
    }

    fn time(
        &self,
        mixes: &[Mix],
        blocks: &[Both<u64>],
        stage: &Stage,
        first: bool,
        last: bool,
    ) -> Both<u64> {
        let (device, mix) = (&self.devices[stage.device], &mixes[stage.device]);
        let mut time = blocks[stage.device].times(stage.blocks);
        if first {
            time = time.plus(mix.embedding(device, self.padded));
        }
        if last {
            time = time.plus(mix.head(device));
        }
        // So that sums over stages stay within 64 bits.
        Both {
            forward: time.forward.min(LARGEST),
            backward: time.backward.min(LARGEST),
        }
    }

    /// Nanoseconds of a transfer from a stage to the next, or back.
    #[must_use]
    pub fn transfer(&self, stage: usize, mixes: &[Mix]) -> u64 {
        let at = &self.stages[stage];
        let rows = mixes[at.device].rows(self.padded);
        let bytes = rows.saturating_mul(self.sizes[at.device].wire_per_row);
        at.link.nanos(bytes).min(LARGEST)
    }

    /// The kinds of its stages; first and last are kinds of their own.
    #[must_use]
    pub fn kinds(&self) -> Vec<Kind> {
        let last = self.stages.len().saturating_sub(1);
        let mut kinds: Vec<Kind> = Vec::new();
        for (stage, at) in self.stages.iter().enumerate() {
            let inner = |stage: usize| stage > 0 && stage < last;
            let alike = |kind: &&mut Kind| {
                inner(kind.stage) && inner(stage) && self.stages[kind.stage] == *at
            };
            match kinds.iter_mut().find(alike) {
                Some(kind) => kind.count += 1,
                None => kinds.push(Kind { stage, count: 1 }),
            }
        }
        kinds
    }

    /// What a hybrid task takes of stages of these [`kinds`](Self::kinds).
    #[must_use]
    pub fn timing(&self, kinds: &[Kind], mixes: &[Mix]) -> Timing {
        let blocks = self.per_block(mixes);
        let last = self.stages.len() - 1;
        let mut timing = Timing::default();
        for kind in kinds {
            let (index, stage) = (kind.stage, &self.stages[kind.stage]);
            let time = self.time(mixes, &blocks, stage, index == 0, index == last);
            timing.beat = timing.beat.max(time.sum());
            if index < last {
                let transfer = self.transfer(index, mixes);
                timing.warm += (time.forward + transfer) * kind.count;
                timing.drain += (time.backward + transfer) * kind.count;
                // Each direction is a way of its own.
                timing.beat = timing.beat.max(transfer);
            }
        }
        timing
    }

    /// Bytes that lie on a stage at all times with these jobs, the buffers of their largest pass left out.
    #[must_use]
    pub fn resident(&self, stage: usize, tasks: &[&Task], micro_batches: u64) -> u64 {
        let at = &self.stages[stage];
        let (device, sizes) = (&self.devices[at.device], &self.sizes[at.device]);
        let (first, last) = (stage == 0, stage + 1 == self.stages.len());
        let least = tasks.iter().map(|task| task.tokens()).min().unwrap_or(0);
        let of = |task: &&Task| {
            let rows = task.tokens().div_ceil(micro_batches.max(1));
            // Half as long again as the shortest: no turn needs to take all of it (SP-2 of the engine).
            let spread = task.tokens() > least.saturating_add(least / 2);
            let part = (at.blocks, first, last);
            sizes.resident(task, device.model(), part, rows, spread)
        };
        let jobs = tasks.iter().map(of).fold(0, u64::saturating_add);
        let backbone = sizes.backbone(at.blocks, first, last);
        let workspace = device.profile().workspace_bytes;
        workspace.saturating_add(backbone).saturating_add(jobs)
    }

    /// Bytes that a pass keeps on a stage until it comes back.
    #[must_use]
    pub fn under_way(&self, stage: usize, mixes: &[Mix]) -> u64 {
        let at = &self.stages[stage];
        let mix = &mixes[at.device];
        self.sizes[at.device].under_way(mix.peak_rows(self.padded), mix.kept, at.blocks)
    }

    /// Bytes left on a stage for passes under way: memory less what lies there and the buffers of a pass.
    #[must_use]
    pub fn room(&self, stage: usize, resident: u64, mixes: &[Mix]) -> u64 {
        let at = &self.stages[stage];
        let buffers = self.sizes[at.device].buffers(mixes[at.device].peak_rows(self.padded));
        at.memory.saturating_sub(resident.saturating_add(buffers))
    }

    /// How many passes like this one a stage can hold under way.
    #[must_use]
    pub fn depth(&self, stage: usize, resident: u64, mixes: &[Mix]) -> u64 {
        self.room(stage, resident, mixes) / self.under_way(stage, mixes).max(1)
    }
}
