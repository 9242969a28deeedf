//! Bytes that a micro-batch needs on a stage between its forward and its backward pass, known before it comes.
//!
//! A layer that keeps its tape needs it until the micro-batch is back. A layer that recomputes keeps its input,
//! `hidden` values a row; its tape is made again in one place that all such layers and micro-batches share, since only
//! one is computed at a time.
//!
//! - `FP-1` `kept` is exactly what [`super::step::Stage::held_bytes`] grows by.
//! - `FP-2` `passing` is at least the shared tape's size while the micro-batch is computed.

use std::ops::Range;

use shared::model::ModelShape;

use super::loss::Labelled;
use super::step::Stage;
use super::tape::bytes_per_row_and_layer;
use crate::batch::{Batch, NO_TARGET};
use crate::peft::layout::{BottleneckSite, LayerSites, Layout, LinearSite};

const FLOAT: u64 = size_of::<f32>() as u64;

/// Bytes of a micro-batch, or of one of its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Held until it is back.
    pub kept: u64,
    /// Of the tape that recomputed layers share, while it is computed.
    pub passing: u64,
}

impl Footprint {
    /// Of one row in these layers, of which the first so many recompute; with the adapter of the row's job, whose sites
    /// are numbered as in the whole model.
    #[must_use]
    pub fn of_row(
        shape: &ModelShape,
        layers: Range<usize>,
        recomputed: usize,
        adapter: Option<&Layout>,
    ) -> Self {
        let mut sum = Self::default();
        for (index, layer) in layers.enumerate() {
            let sites = adapter.map(|layout| &layout.layers[layer]);
            let whole = bytes_per_row_and_layer(shape) + sites.map_or(0, of_sites);
            if index < recomputed {
                sum.kept += shape.hidden as u64 * FLOAT;
                sum.passing = sum.passing.max(whole);
            } else {
                sum.kept += whole;
            }
        }
        sum
    }

    /// All of it at once.
    #[must_use]
    pub fn total(self) -> u64 {
        self.kept.saturating_add(self.passing)
    }

    /// Of so many rows that need so much each.
    #[must_use]
    pub fn times(self, rows: u64) -> Self {
        Self {
            kept: self.kept.saturating_mul(rows),
            passing: self.passing.saturating_mul(rows),
        }
    }
}

impl Stage {
    /// What a micro-batch that trains will need here.
    #[must_use]
    pub fn footprint(&self, batch: &Batch) -> Footprint {
        let shape = &self.model().shape;
        let mut sum = Footprint::default();
        for job in &batch.jobs {
            let adapter = self.adapter(job.slot).map(|adapter| &*adapter.layout);
            let row = Footprint::of_row(shape, self.model().span(), self.recomputed, adapter);
            let own = row.times(job.rows.len() as u64);
            sum.kept += own.kept;
            sum.passing += own.passing;
        }
        if self.is_last() {
            let labelled = batch.targets.iter().filter(|&&target| target != NO_TARGET);
            sum.kept += Labelled::bytes_per_row(shape.hidden) * labelled.count() as u64;
        }
        sum
    }
}

/// Bytes a row that an adapter's sites in one layer keep.
fn of_sites(sites: &LayerSites) -> u64 {
    let linear = sites.linear.iter().flatten().map(|site| match site {
        LinearSite::LowRank {
            rank, magnitude, ..
        } => rank + magnitude.as_ref().map_or(0, Range::len),
        LinearSite::ScaleOutput(range) => range.len(),
        LinearSite::ScaleInput(_) | LinearSite::Bias(_) | LinearSite::Sparse { .. } => 0,
    });
    let halves = [&sites.attention, &sites.feed_forward];
    let bottlenecks = halves.into_iter().flatten().map(of_bottleneck);
    (linear.sum::<usize>() + bottlenecks.sum::<usize>()) as u64 * FLOAT
}

fn of_bottleneck(site: &BottleneckSite) -> usize {
    let input = if site.parallel { 0 } else { site.up_bias.len() };
    site.size + input
}
