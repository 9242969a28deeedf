//! Memory of a session, predicted before anything is allocated.

use serde::Serialize;
use shared::job::{JobSpec, OptimizerKind};
use shared::model::ModelShape;

use crate::peft::layout::{Layout, LinearSite};
use crate::stage::tape;

/// Bytes a session will need at its peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Estimate {
    /// Weights of the backbone.
    pub backbone: u64,
    /// What backward keeps of forward, for one pass.
    pub tape: u64,
    /// Buffers of one block, of the head and of gradients under way.
    pub buffers: u64,
    /// Values, gradients and moments of all jobs.
    pub adapters: u64,
}

impl Estimate {
    /// All together.
    #[must_use]
    pub fn total(&self) -> u64 {
        let parts = [self.tape, self.buffers, self.adapters];
        parts.into_iter().fold(self.backbone, u64::saturating_add)
    }
}

/// Predicts the peak for these jobs. `longest_row` may exceed `tokens_per_pass`: such a row gets a pass of its own.
#[must_use]
pub fn predict(
    shape: &ModelShape,
    backbone: u64,
    jobs: &[(&JobSpec, &Layout)],
    tokens_per_pass: usize,
    longest_row: usize,
) -> Estimate {
    let rows = tokens_per_pass.max(longest_row) as u64;
    let float = size_of::<f32>() as u64;
    let low_rank = jobs
        .iter()
        .map(|(_, layout)| kept_per_row(layout))
        .max()
        .unwrap_or(0);
    let width = 6 * shape.hidden + 4 * shape.intermediate + 4 * shape.q_width();
    let largest = jobs
        .iter()
        .map(|(_, layout)| layout.len as u64)
        .max()
        .unwrap_or(0);
    Estimate {
        backbone,
        tape: rows.saturating_mul(tape::bytes_per_row(shape) + low_rank * float),
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

/// Values the tape keeps per row for a method.
fn kept_per_row(layout: &Layout) -> u64 {
    let mut kept = 0;
    for sites in &layout.layers {
        for site in sites.linear.iter().flatten() {
            kept += match site {
                LinearSite::LowRank {
                    rank, magnitude, ..
                } => rank + magnitude.as_ref().map_or(0, |range| range.len()),
                LinearSite::ScaleOutput(range) => range.len(),
                LinearSite::ScaleInput(_) | LinearSite::Bias(_) | LinearSite::Sparse { .. } => 0,
            };
        }
        for site in [&sites.attention, &sites.feed_forward]
            .into_iter()
            .flatten()
        {
            kept += site.size + site.up_bias.len();
        }
    }
    kept as u64
}
