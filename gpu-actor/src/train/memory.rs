//! Memory of a session, predicted before anything is allocated.

use serde::Serialize;
use shared::job::{JobSpec, OptimizerKind};
use shared::model::ModelShape;
use shared::recompute::Recompute;

use crate::batch::BLOCK;
use crate::peft::layout::Layout;
use crate::stage::footprint::Footprint;

/// Bytes a session will need at its peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Estimate {
    /// Weights of the backbone.
    pub backbone: u64,
    /// What backward keeps of forward, for one pass, with the tape of one layer that is made again.
    pub tape: u64,
    /// What chunks of the longest sequence hand each other, if it is cut: keys and values, and their gradients.
    pub carried: u64,
    /// Buffers of one block, of the head and of gradients under way.
    pub buffers: u64,
    /// Values, gradients and moments of all jobs.
    pub adapters: u64,
}

impl Estimate {
    /// All together.
    #[must_use]
    pub fn total(&self) -> u64 {
        let parts = [self.tape, self.carried, self.buffers, self.adapters];
        parts.into_iter().fold(self.backbone, u64::saturating_add)
    }
}

/// Rows of passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Most of a pass of whole sequences.
    pub pass: usize,
    /// Most of a chunk: longer sequences are cut.
    pub chunk: usize,
    /// Of the longest sequence. Longer than a pass and not cut, it gets a pass of its own.
    pub longest: usize,
}

impl Rows {
    /// Of the largest pass.
    fn most(self) -> usize {
        let chunk = self.chunk.max(BLOCK).checked_next_multiple_of(BLOCK);
        self.pass.max(self.longest.min(chunk.unwrap_or(usize::MAX)))
    }

    /// Of the longest sequence, if it is cut.
    fn cut(self) -> usize {
        if self.longest > self.chunk.max(BLOCK) {
            self.longest
        } else {
            0
        }
    }
}

/// Predicts the peak for these jobs on one stage. Layers that recompute keep less.
#[must_use]
pub fn predict(
    shape: &ModelShape,
    backbone: u64,
    jobs: &[(&JobSpec, &Layout)],
    sizes: Rows,
    recompute: Recompute,
) -> Estimate {
    let rows = sizes.most() as u64;
    let float = size_of::<f32>() as u64;
    let row = |adapter: Option<&Layout>| {
        let (layers, recomputed) = (0..shape.layers, recompute.of(shape.layers));
        match sizes.cut() {
            0 => Footprint::of_row(shape, layers, recomputed, adapter).total(),
            _ => Footprint::of_chunk_row(shape, layers, recomputed, adapter),
        }
    };
    let adapted = jobs.iter().map(|(_, layout)| row(Some(layout)));
    let row = adapted.max().unwrap_or_else(|| row(None));
    let width = 6 * shape.hidden + 4 * shape.intermediate + 4 * shape.q_width();
    let largest = jobs
        .iter()
        .map(|(_, layout)| layout.len as u64)
        .max()
        .unwrap_or(0);
    Estimate {
        backbone,
        tape: rows.saturating_mul(row),
        carried: Footprint::of_cut_row(shape, shape.layers, true, true)
            .saturating_mul(sizes.cut() as u64),
        buffers: rows
            .saturating_mul(width as u64 * float)
            .saturating_add(2 * largest * float),
        adapters: jobs
            .iter()
            .map(|(spec, layout)| adapter_bytes(spec, layout))
            .fold(0, u64::saturating_add),
    }
}

/// Bytes of one job: values, gradient, and one or two moments.
#[must_use]
pub fn adapter_bytes(spec: &JobSpec, layout: &Layout) -> u64 {
    let copies = match spec.optimizer.kind {
        OptimizerKind::AdamW => 4,
        OptimizerKind::Sgd => 3,
    };
    (layout.len * copies * size_of::<f32>()) as u64
}
