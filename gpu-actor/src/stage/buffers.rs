//! Bytes that a pass needs beside its tape and gives back, known before it comes.
//!
//! The buffers of a block and the residual stream are there all the time. Beside them are, at the end, the labelled rows
//! before and after the norm, the gradient there, and what the head sweeps; that of the rows themselves stays until all is
//! back. Then, in a block, the input of one product as one job has it (dropout, a learned scale), what a bottleneck computes,
//! and the gradients of a prefix by block of rows.
//!
//! - `BU-1` What a pass allocates is at most this, its footprint and what threads keep for their tiles.

use kernels::ops::{head, linear};
use shared::model::{ModelShape, Projection};

use super::loss::Labelled;
use super::tape;
use crate::batch::BLOCK;
use crate::peft::layout::{BottleneckSite, LayerSites, Layout, LinearSite};

const FLOAT: u64 = size_of::<f32>() as u64;

/// A job as the buffers of its passes depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Passing<'a> {
    /// Its adapter.
    pub layout: &'a Layout,
    /// Rows of its shortest sequence.
    pub shortest: usize,
    /// Blocks of its longest step.
    pub blocks: u64,
}

/// Bytes of a pass of so many rows that these jobs may share, all of which may be labelled, when sequences reach up to a
/// position.
#[must_use]
pub fn of_pass(shape: &ModelShape, rows: usize, reach: usize, jobs: &[Passing<'_>]) -> u64 {
    let count = rows as u64;
    let always = (tape::work_per_row(shape) + shape.hidden) as u64 * FLOAT;
    let most = |of: &dyn Fn(&Layout) -> u64| {
        let each = jobs.iter().map(|job| of(job.layout));
        each.max().unwrap_or(0)
    };
    let head = most(&|layout| of_head(shape, rows, layout)).max(of_plain_head(shape, rows));
    let block = count * FLOAT * most(&|layout| of_blocks(shape, layout) as u64);
    let block = block.saturating_add(of_prefixes(shape, rows, jobs));
    let labelled = count * Labelled::bytes_per_row(shape.hidden);
    let packed = count * linear::packed(widest(shape)) as u64 * FLOAT;
    // Its room doubles as it grows.
    let table = 2 * (reach * shape.head_dim) as u64 * FLOAT;
    let of_rows = always.saturating_mul(count);
    let end_or_block = head.max(labelled.saturating_add(block));
    [packed, table, end_or_block]
        .into_iter()
        .fold(of_rows, u64::saturating_add)
}

/// Columns of the products that share their rows.
fn widest(shape: &ModelShape) -> usize {
    let qkv = shape.q_width() + 2 * shape.kv_width();
    qkv.max(2 * shape.intermediate).max(shape.hidden)
}

/// Of the head without an adapter: rows before and after the norm, both gradients, and what is swept.
fn of_plain_head(shape: &ModelShape, rows: usize) -> u64 {
    let labelled = Labelled::bytes_per_row(shape.hidden) + (3 * shape.hidden as u64 + 3) * FLOAT;
    let swept = head::held(rows, shape.hidden, shape.vocab, None) as u64;
    labelled.saturating_mul(rows as u64).saturating_add(swept)
}

/// The same for a job, with its adapter there if it has one.
fn of_head(shape: &ModelShape, rows: usize, layout: &Layout) -> u64 {
    let plain = of_plain_head(shape, rows);
    let Some(LinearSite::LowRank { rank, dropout, .. }) = &layout.head else {
        return plain;
    };
    let swept = head::held(rows, shape.hidden, shape.vocab, Some(*rank)) as u64;
    // What the adapter reads in place of the rows, and its gradient.
    let own = if *dropout > 0.0 { 2 * shape.hidden } else { 0 };
    let own = (rows * own) as u64 * FLOAT;
    plain.saturating_add(swept).saturating_add(own)
}

/// Numbers a row that the methods of a job need in a block at once.
fn of_blocks(shape: &ModelShape, layout: &Layout) -> usize {
    let each = layout.layers.iter().map(|sites| of_sites(shape, sites));
    // Queries before their norm, while the gradient goes through it.
    let norms = if shape.qk_norm { shape.q_width() } else { 0 };
    each.max().unwrap_or(0).max(norms)
}

fn of_sites(shape: &ModelShape, sites: &LayerSites) -> usize {
    let linear = Projection::ALL.into_iter().map(|projection| {
        let (_, width) = shape.projection(projection);
        match &sites.linear[projection as usize] {
            Some(LinearSite::LowRank { rank, dropout, .. }) if *dropout > 0.0 => rank + width,
            Some(LinearSite::LowRank { rank, .. }) => *rank,
            Some(LinearSite::ScaleInput(_)) => width,
            _ => 0,
        }
    });
    let bottleneck = |site: &BottleneckSite| 3 * site.size + shape.hidden;
    let halves = [&sites.attention, &sites.feed_forward];
    let bottlenecks = halves.into_iter().flatten().map(bottleneck);
    linear.max().unwrap_or(0) + bottlenecks.max().unwrap_or(0)
}

/// Gradients of prefix keys and values in one layer, by block. A pass has at most the blocks of all jobs' steps, and at most
/// as many as the shortest sequences give its rows.
fn of_prefixes(shape: &ModelShape, rows: usize, jobs: &[Passing<'_>]) -> u64 {
    let (mut all, mut densest) = (0_u64, 0_u64);
    for job in jobs {
        let tokens = job.layout.prefix.as_ref().map_or(0, |site| site.tokens);
        let block = (2 * tokens * shape.kv_width()) as u64 * FLOAT;
        let blocks = rows / job.shortest.max(1) + rows / BLOCK + 1;
        all = all.saturating_add(block.saturating_mul(job.blocks));
        densest = densest.max(block.saturating_mul(blocks as u64));
    }
    all.min(densest)
}
