//! Bytes that a micro-batch needs on a stage between its forward and its backward pass, known before it comes.
//!
//! A layer that keeps its tape needs it until the micro-batch is back. A layer that recomputes keeps its input,
//! `hidden` values a row; its tape is made again in one place that all such layers and micro-batches share, since only
//! one is computed at a time.
//!
//! Of a sequence that passes in chunks the first counts for all: keys and values with their gradients, inputs on a stage
//! behind the first, and what the head keeps if every row counts in the loss. A chunk's whole tape is made again, so it
//! is `passing`, beside that of one layer into which it went forward first; chunks behind the first keep nothing more.
//!
//! - `FP-1` `kept` of whole sequences is exactly what [`super::step::Stage::held_bytes`] grows by.
//! - `FP-2` `passing` is at least the shared tape's size while the micro-batch is computed.
//! - `FP-3` `kept` of a first chunk is at least what is held of its sequence until that is back.

use std::ops::Range;

use shared::model::ModelShape;

use super::carried;
use super::loss::Labelled;
use super::step::Stage;
use super::tape::bytes_per_row_and_layer;
use crate::batch::{Batch, Chunk, NO_TARGET};
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

    /// Of one row of a chunk while it is computed, in these layers as above: its tape, and that of the largest layer.
    #[must_use]
    pub fn of_chunk_row(
        shape: &ModelShape,
        layers: Range<usize>,
        recomputed: usize,
        adapter: Option<&Layout>,
    ) -> u64 {
        let largest = Self::of_row(shape, layers.clone(), layers.len(), adapter).passing;
        Self::of_row(shape, layers, recomputed, adapter).kept + largest
    }

    /// What is held of each row of a sequence that passes in chunks, on so many layers; `first` and `last` say whether
    /// the stage embeds, and whether it has the head.
    #[must_use]
    pub fn of_cut_row(shape: &ModelShape, layers: usize, first: bool, last: bool) -> u64 {
        let keys = layers as u64 * carried::bytes_per_row_and_layer(shape.kv_width());
        let input = if first {
            0
        } else {
            shape.hidden as u64 * FLOAT
        };
        let head = match last {
            true => Labelled::bytes_per_row(shape.hidden),
            false => 0,
        };
        keys + input + head
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
        if let Some(chunk) = batch.chunk() {
            return self.of_chunk(batch, chunk);
        }
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

    fn of_chunk(&self, batch: &Batch, chunk: Chunk) -> Footprint {
        let (shape, span) = (&self.model().shape, self.model().span());
        let mut jobs = batch.jobs.iter();
        let adapter = jobs.find_map(|job| self.adapter(job.slot));
        let adapter = adapter.map(|adapter| &*adapter.layout);
        let tape = Footprint::of_chunk_row(shape, span.clone(), self.recomputed, adapter);
        let row = Footprint::of_cut_row(shape, span.len(), self.is_first(), self.is_last());
        let length = if chunk.follows() { 0 } else { chunk.length };
        Footprint {
            kept: row.saturating_mul(length as u64),
            passing: tape.saturating_mul(chunk.rows as u64),
        }
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
