//! A backbone product with the adapters of every job in the batch.
//!
//! Dispatch: each job's rows reach the product as they are, or scaled (IA3 on an input). Aggregate: what the job
//! adds to its own rows of the output. The reverses mirror both. Per row:
//!
//! - low rank: y = W x + s B A drop(x), times m / ||W + s B A|| for DoRA; then the backbone's bias;
//! - scaled output: y = l * (W x + bias); scaled input: y = W (l * x) + bias;
//! - bias: y = W x + bias + b; sparse: y = W x + (M * D) x + bias.
//!
//! A row's arithmetic depends on its own job's method alone: company changes which rows a call carries, never the
//! order of a row's additions.

use std::ops::Range;

use kernels::ops::thin::{self, Part};
use kernels::ops::{elementwise, linear, sparse};
use shared::model::Projection;

use super::adapter::Adapter;
use super::dropout::{self, Drop};
use super::pass::{Bank, Pass};
use super::tape::SiteTape;
use super::timing::Operator;
use crate::batch::JobSlice;
use crate::peft::layout::LinearSite;

pub(super) fn site<'a>(
    bank: &'a Bank,
    job: &JobSlice,
    layer: usize,
    p: Projection,
) -> Option<(&'a Adapter, &'a LinearSite)> {
    let adapter = bank.get(job.slot)?.as_ref()?;
    Some((
        adapter,
        adapter.layout.layers[layer].linear[p as usize].as_ref()?,
    ))
}

/// The vector that scales a job's input to this projection, if its method does that.
pub(super) fn input_scale<'a>(
    bank: &'a Bank,
    job: &JobSlice,
    layer: usize,
    p: Projection,
) -> Option<&'a [f32]> {
    match site(bank, job, layer, p)? {
        (adapter, LinearSite::ScaleInput(range)) => Some(&adapter.values[range.clone()]),
        _ => None,
    }
}

pub(super) fn rows_of<'a>(buffer: &'a [f32], rows: &Range<usize>, width: usize) -> &'a [f32] {
    &buffer[rows.start * width..rows.end * width]
}

pub(super) fn rows_of_mut<'a>(
    buffer: &'a mut [f32],
    rows: &Range<usize>,
    width: usize,
) -> &'a mut [f32] {
    &mut buffer[rows.start * width..rows.end * width]
}

/// Maximal runs of rows whose jobs scale no input of these projections, and the jobs that do.
pub(super) fn split_runs<'a>(
    pass: &Pass<'a>,
    bank: &Bank,
    layer: usize,
    projections: &[Projection],
) -> (Vec<Range<usize>>, Vec<&'a JobSlice>) {
    let (mut plain, mut scaled): (Vec<Range<usize>>, Vec<_>) = (Vec::new(), Vec::new());
    for job in &pass.batch.jobs {
        if projections
            .iter()
            .any(|&p| input_scale(bank, job, layer, p).is_some())
        {
            scaled.push(job);
        } else if let Some(run) = plain.last_mut().filter(|run| run.end == job.rows.start) {
            run.end = job.rows.end;
        } else {
            plain.push(job.rows.clone());
        }
    }
    (plain, scaled)
}

/// Products that share an input `(rows, in)`; each output `(rows, out)` is overwritten.
pub(super) fn forward(
    pass: &Pass<'_>,
    bank: &Bank,
    layer: usize,
    x: &[f32],
    outputs: &mut [(Projection, &mut Vec<f32>)],
    sites: &mut [SiteTape; 7],
) {
    let weights = pass.weights(layer);
    let projections: Vec<Projection> = outputs.iter().map(|(p, _)| *p).collect();
    let (plain, scaled) = split_runs(pass, bank, layer, &projections);
    let width = weights.projection(projections[0]).cols();
    for run in plain {
        let mut pairs: Vec<_> = outputs
            .iter_mut()
            .map(|(p, y)| {
                let weight = weights.projection(*p);
                (weight, rows_of_mut(y, &run, weight.rows()))
            })
            .collect();
        pass.time(Operator::FrozenProducts, || {
            linear::forward_many(pass.cpu, rows_of(x, &run, width), &mut pairs)
        });
    }
    for job in scaled {
        for (p, y) in outputs.iter_mut() {
            let weight = weights.projection(*p);
            let mut input = rows_of(x, &job.rows, width).to_vec();
            if let Some(scale) = input_scale(bank, job, layer, *p) {
                elementwise::scale_columns(pass.cpu, &mut input, scale);
            }
            let y = rows_of_mut(y, &job.rows, weight.rows());
            pass.time(Operator::FrozenProducts, || {
                linear::forward(pass.cpu, &input, weight, y)
            });
        }
    }
    for (p, y) in outputs {
        let tape = &mut sites[*p as usize];
        pass.time(Operator::Adapters, || {
            aggregate(pass, bank, layer, *p, x, y, tape)
        });
    }
}

/// Fills the tape of a product whose output nobody wants; false, and nothing done, when a method keeps that output.
pub(super) fn refill(
    pass: &Pass<'_>,
    bank: &Bank,
    layer: usize,
    p: Projection,
    x: &[f32],
    tape: &mut SiteTape,
) -> bool {
    let mut jobs = pass.batch.jobs.iter();
    let keeps = |job| match site(bank, job, layer, p) {
        Some((_, LinearSite::ScaleOutput(_))) => true,
        Some((_, LinearSite::LowRank { magnitude, .. })) => magnitude.is_some(),
        _ => false,
    };
    if jobs.any(keeps) {
        return false;
    }
    tape.outputs.clear();
    let width = pass.weights(layer).projection(p).cols();
    let pairs = pairs(pass, bank, layer, p);
    pass.time(Operator::Adapters, || {
        shrink(pass, bank, &pairs, (x, width), tape)
    });
    true
}

/// Adds what each job's method adds, and the backbone's bias.
fn aggregate(
    pass: &Pass<'_>,
    bank: &Bank,
    layer: usize,
    p: Projection,
    x: &[f32],
    y: &mut [f32],
    tape: &mut SiteTape,
) {
    let weights = pass.weights(layer);
    let (out, width) = (weights.projection(p).rows(), weights.projection(p).cols());
    low_rank(pass, bank, layer, p, (x, width), (y, out), tape);
    tape.outputs.clear();
    let bias = weights.bias(p);
    for job in &pass.batch.jobs {
        let y = rows_of_mut(y, &job.rows, out);
        let found = site(bank, job, layer, p);
        if let Some((
            adapter,
            LinearSite::LowRank {
                magnitude: Some(m), ..
            },
        )) = found
        {
            let inverse = &adapter.derived.inverse_norms[layer][p as usize];
            elementwise::scale_columns(pass.cpu, y, inverse);
            if pass.training {
                tape.outputs.extend_from_slice(y);
            }
            elementwise::scale_columns(pass.cpu, y, &adapter.values[m.clone()]);
        }
        if let Some((adapter, LinearSite::Sparse { values, pattern })) = found {
            let values = &adapter.values[values.clone()];
            sparse::forward(pass.cpu, pattern, values, rows_of(x, &job.rows, width), y);
        }
        if let Some(bias) = bias {
            elementwise::add_bias(pass.cpu, y, bias);
        }
        match found {
            Some((adapter, LinearSite::Bias(range))) => {
                elementwise::add_bias(pass.cpu, y, &adapter.values[range.clone()]);
            }
            Some((adapter, LinearSite::ScaleOutput(range))) => {
                if pass.training {
                    tape.outputs.extend_from_slice(y);
                }
                elementwise::scale_columns(pass.cpu, y, &adapter.values[range.clone()]);
            }
            _ => {}
        }
    }
}

/// One job's low-rank pair at a site, with its place in the tape.
pub(super) struct Pair<'a> {
    pub(super) job: &'a JobSlice,
    pub(super) a: Range<usize>,
    pub(super) b: Range<usize>,
    pub(super) rank: usize,
    pub(super) scale: f32,
    pub(super) drop: Option<Drop>,
    pub(super) low: usize,
}

impl Pair<'_> {
    /// The half A at some rows, without a scale: the pair's intermediates start at `low`.
    pub(super) fn down<'b>(&self, bank: &'b Bank, rows: Range<usize>, low: usize) -> Part<'b> {
        self.part(bank, &self.a, 1.0, rows, low)
    }

    /// The half B at the job's rows, with the pair's scale.
    pub(super) fn up<'b>(&self, bank: &'b Bank) -> Part<'b> {
        self.part(bank, &self.b, self.scale, self.job.rows.clone(), self.low)
    }

    fn part<'b>(
        &self,
        bank: &'b Bank,
        matrix: &Range<usize>,
        scale: f32,
        rows: Range<usize>,
        low: usize,
    ) -> Part<'b> {
        let adapter = bank[self.job.slot].as_ref().expect("a pair has an adapter");
        Part {
            rows,
            rank: self.rank,
            matrix: &adapter.values[matrix.clone()],
            scale,
            low,
        }
    }
}

pub(super) fn pairs<'a>(
    pass: &Pass<'a>,
    bank: &Bank,
    layer: usize,
    p: Projection,
) -> Vec<Pair<'a>> {
    let mut low = 0;
    let mut found = Vec::new();
    for job in &pass.batch.jobs {
        let Some((
            adapter,
            LinearSite::LowRank {
                a,
                b,
                rank,
                scale,
                dropout,
                ..
            },
        )) = site(bank, job, layer, p)
        else {
            continue;
        };
        let drop = (pass.training && *dropout > 0.0).then(|| Drop {
            seed: adapter.seed,
            share: *dropout,
            site: (layer * Projection::ALL.len() + p as usize) as u32,
            step: job.step,
        });
        let (a, b, rank, scale) = (a.clone(), b.clone(), *rank, *scale);
        found.push(Pair {
            job,
            a,
            b,
            rank,
            scale,
            drop,
            low,
        });
        low += job.rows.len() * rank;
    }
    found
}

fn low_rank(
    pass: &Pass<'_>,
    bank: &Bank,
    layer: usize,
    p: Projection,
    (x, width): (&[f32], usize),
    (y, out): (&mut [f32], usize),
    tape: &mut SiteTape,
) {
    let pairs = pairs(pass, bank, layer, p);
    shrink(pass, bank, &pairs, (x, width), tape);
    if pairs.is_empty() {
        return;
    }
    let ups: Vec<Part<'_>> = pairs.iter().map(|pair| pair.up(bank)).collect();
    thin::grow(pass.cpu, &ups, &tape.low, y, out);
}

/// low = A drop(x) of every pair.
fn shrink(
    pass: &Pass<'_>,
    bank: &Bank,
    pairs: &[Pair<'_>],
    (x, width): (&[f32], usize),
    tape: &mut SiteTape,
) {
    let total = pairs
        .iter()
        .map(|pair| pair.job.rows.len() * pair.rank)
        .sum();
    tape.low.resize(total, 0.0);
    if pairs.is_empty() {
        return;
    }
    let plain: Vec<Part<'_>> = pairs
        .iter()
        .filter(|pair| pair.drop.is_none())
        .map(|pair| pair.down(bank, pair.job.rows.clone(), pair.low))
        .collect();
    thin::shrink(pass.cpu, &plain, x, width, &mut tape.low);
    for pair in pairs.iter().filter(|pair| pair.drop.is_some()) {
        let input = dropped_input(pass, pair, x, width);
        let low = &mut tape.low[pair.low..][..pair.job.rows.len() * pair.rank];
        let part = pair.down(bank, 0..pair.job.rows.len(), 0);
        thin::shrink(pass.cpu, &[part], &input, width, low);
    }
}

/// The job's rows of the input with dropout applied, `(rows, in)`.
pub(super) fn dropped_input(pass: &Pass<'_>, pair: &Pair<'_>, x: &[f32], width: usize) -> Vec<f32> {
    let mut input = rows_of(x, &pair.job.rows, width).to_vec();
    if let Some(drop) = &pair.drop {
        dropout::apply(pass, pair.job, drop, &mut input, width);
    }
    input
}
