//! The end of the model: final norm, LM head and the loss of each job's labelled rows.
//!
//! Only rows with a target are computed. Loss of a job = sum over its labelled rows of coefficient * nll, where
//! the coefficient is the row's weight over the weight of the whole optimizer step, so a step's loss and gradient
//! do not depend on how it was cut into passes. A job's loss never sees another job's rows.
//!
//! A row whose sum of squares is infinite has an infinite loss, though the norm makes zeros of it: it is no number to
//! learn from.

use std::ops::Range;

use kernels::ops::head::{self, HeadAdapter};
use kernels::ops::thin::{self, Part};
use kernels::ops::{elementwise, rms_norm};
use shared::model::Projection;

use super::adapter::Adapter;
use super::dropout::{self, Drop};
use super::pass::{Bank, Pass};
use super::sums;
use crate::batch::{Batch, JobSlice, NO_TARGET};
use crate::peft::layout::LinearSite;

/// Labelled rows of a batch and what the head made of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Labelled {
    /// Batch row of each labelled row, ascending.
    pub(super) rows: Vec<usize>,
    /// Negative log-likelihood of each.
    pub(super) losses: Vec<f32>,
    /// Whether the target was the most likely token.
    pub(super) correct: Vec<bool>,
    /// Gradient of the residual stream, `(labelled, hidden)`; empty when not training.
    pub(super) d_hidden: Vec<f32>,
}

impl Labelled {
    /// Bytes of each labelled row, when training.
    pub(super) fn bytes_per_row(hidden: usize) -> u64 {
        (size_of::<usize>() + size_of::<bool>() + (1 + hidden) * size_of::<f32>()) as u64
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> u64 {
        let rows = size_of_val(&self.rows[..]) + size_of_val(&self.correct[..]);
        (rows + size_of_val(&self.losses[..]) + size_of_val(&self.d_hidden[..])) as u64
    }
}

/// Chosen rows of the last block's output before and after the final norm, `(rows, hidden)`.
struct Ends {
    x: Vec<f32>,
    normed: Vec<f32>,
    root: Vec<f32>,
}

impl Ends {
    fn of(pass: &Pass<'_>, hidden: &[f32], rows: &[usize]) -> Self {
        let shape = &pass.model.shape;
        let (width, eps) = (shape.hidden, shape.norm_eps as f32);
        let mut x = Vec::with_capacity(rows.len() * width);
        for &row in rows {
            x.extend_from_slice(&hidden[row * width..][..width]);
        }
        let (mut normed, mut root) = (vec![0.0; x.len()], vec![0.0; rows.len()]);
        let norm = &pass.model.final_norm;
        rms_norm::forward(pass.cpu, &x, norm, eps, width, &mut normed, &mut root);
        Self { x, normed, root }
    }
}

/// Computes losses, and gradients when training, from the last block's output `(rows, hidden)`.
pub(super) fn compute(pass: &Pass<'_>, bank: &mut Bank, hidden: &[f32]) -> Labelled {
    let (model, batch) = (pass.model, pass.batch);
    let width = model.shape.hidden;
    let rows: Vec<usize> = (0..batch.rows())
        .filter(|&row| batch.targets[row] != NO_TARGET)
        .collect();
    let count = rows.len();
    let Ends { x, normed, root } = Ends::of(pass, hidden, &rows);
    let targets: Vec<u32> = rows.iter().map(|&row| batch.targets[row]).collect();
    let coefficients: Vec<f32> = rows.iter().map(|&row| batch.coefficients[row]).collect();
    let (mut losses, mut correct) = (vec![0.0; count], vec![false; count]);
    let mut d_normed = vec![0.0; if pass.training { x.len() } else { 0 }];
    // Jobs with an adapter on the head go another way; runs of the others are computed together.
    for run in runs(batch, bank, &rows) {
        let (from, to) = (run.from, run.to);
        let range = from * width..to * width;
        let dx = pass.training.then(|| &mut d_normed[range.clone()]);
        let (loss, right) = (&mut losses[from..to], &mut correct[from..to]);
        let input = head::Rows {
            x: &normed[range],
            targets: &targets[from..to],
            coefficients: &coefficients[from..to],
        };
        match run.job {
            None => head::loss_and_gradient(pass.cpu, &input, model.head(), loss, right, dx),
            Some(job) => adapted(pass, bank, job, &rows[from..to], &input, loss, right, dx),
        }
    }
    let mut d_hidden = vec![0.0; d_normed.len()];
    if pass.training {
        let (norm, d) = (&model.final_norm, &mut d_hidden);
        rms_norm::backward(pass.cpu, &d_normed, &x, norm, &root, width, d, false);
    }
    Labelled {
        rows,
        losses,
        correct,
        d_hidden,
    }
}

/// A run of labelled rows `[from, to)`; `job` is set when that job adapts the head.
struct Run<'a> {
    from: usize,
    to: usize,
    job: Option<&'a JobSlice>,
}

fn head_site<'a>(bank: &'a Bank, job: &JobSlice) -> Option<&'a LinearSite> {
    bank.get(job.slot)?.as_ref()?.layout.head.as_ref()
}

fn runs<'a>(batch: &'a Batch, bank: &Bank, rows: &[usize]) -> Vec<Run<'a>> {
    let mut list: Vec<Run<'a>> = Vec::new();
    let mut from = 0;
    for job in &batch.jobs {
        let to = from
            + rows[from..]
                .iter()
                .take_while(|&&row| row < job.rows.end)
                .count();
        let job = head_site(bank, job).map(|_| job);
        match list.last_mut() {
            Some(run) if run.job.is_none() && job.is_none() => run.to = to,
            _ => list.push(Run { from, to, job }),
        }
        from = to;
    }
    // A job that adapts the head is kept without labelled rows too: its blocks must reach the tree.
    list.retain(|run| run.from < run.to || run.job.is_some());
    list
}

#[expect(
    clippy::too_many_arguments,
    reason = "the head's results and the job's place"
)]
fn adapted(
    pass: &Pass<'_>,
    bank: &mut Bank,
    job: &JobSlice,
    rows: &[usize],
    input: &head::Rows<'_>,
    losses: &mut [f32],
    correct: &mut [bool],
    mut dx: Option<&mut [f32]>,
) {
    let Adapter {
        layout,
        values,
        seed,
        gradient,
        ..
    } = bank[job.slot]
        .as_mut()
        .expect("only adapted jobs come here");
    let Some(LinearSite::LowRank {
        a,
        b,
        rank,
        scale,
        dropout,
        ..
    }) = &layout.head
    else {
        unreachable!("only low-rank methods reach the head: JobSpec::problems refuses the others");
    };
    let width = pass.model.shape.hidden;
    let drop = (pass.training && *dropout > 0.0).then(|| Drop {
        seed: *seed,
        share: *dropout,
        // Sites are counted block by block; the head follows the last.
        site: (layout.layers.len() * Projection::ALL.len()) as u32,
        step: job.step,
    });
    let dropped = drop.as_ref().map(|drop| {
        let mut dropped = input.x.to_vec();
        dropout::apply_chosen(pass, job, drop, rows, &mut dropped, width);
        dropped
    });
    let mut d_input = vec![0.0; dropped.as_ref().map_or(0, Vec::len)];
    let pair = HeadAdapter {
        rank: *rank,
        a: &values[a.clone()],
        b: &values[b.clone()],
        scale: *scale,
        input: dropped.as_deref(),
    };
    let blocks = sums::labelled_blocks(job, rows);
    let sums = pass.training.then(|| {
        let (a, b) = gradient.slots(a, b, job.last);
        head::AdapterSums {
            first_block: job.first_block,
            blocks: &blocks,
            nodes_a: a.nodes,
            nodes_b: b.nodes,
            gradient_a: a.gradient,
            gradient_b: b.gradient,
            d_input: drop.is_some().then_some(&mut d_input[..]),
        }
    });
    let head = pass.model.head();
    let d_normed = dx.as_deref_mut();
    head::loss_and_gradient_adapted(
        pass.cpu, input, head, &pair, losses, correct, d_normed, sums,
    );
    if let (Some(drop), Some(dx)) = (&drop, dx) {
        dropout::apply_chosen(pass, job, drop, rows, &mut d_input, width);
        elementwise::add(pass.cpu, dx, &d_input);
    }
}

/// Logits `(wanted, vocab)` of chosen rows from the last block's output `(rows, hidden)`.
pub(super) fn logits(pass: &Pass<'_>, bank: &Bank, hidden: &[f32], wanted: &[usize]) -> Vec<f32> {
    let Ends { normed, .. } = Ends::of(pass, hidden, wanted);
    let mut out = vec![0.0; wanted.len() * pass.model.shape.vocab];
    head::logits(pass.cpu, &normed, pass.model.head(), &mut out);
    adapt_logits(pass, bank, wanted, &normed, &mut out);
    out
}

/// Adds each job's head adapter to logits `(wanted, vocab)` of chosen rows with normed inputs `(wanted, hidden)`.
fn adapt_logits(
    pass: &Pass<'_>,
    bank: &Bank,
    wanted: &[usize],
    normed: &[f32],
    logits: &mut [f32],
) {
    let (hidden, vocab) = (pass.model.shape.hidden, pass.model.shape.vocab);
    for (index, row) in wanted.iter().enumerate() {
        let Some(job) = pass.batch.jobs.iter().find(|job| job.rows.contains(row)) else {
            continue;
        };
        let Some(LinearSite::LowRank {
            a, b, rank, scale, ..
        }) = head_site(bank, job)
        else {
            continue;
        };
        let values = &bank[job.slot]
            .as_ref()
            .expect("the site is this adapter's")
            .values;
        let mut low = vec![0.0; *rank];
        let part = |matrix: &Range<usize>, scale| Part {
            rows: 0..1,
            rank: *rank,
            matrix: &values[matrix.clone()],
            scale,
            low: 0,
        };
        let (x, y) = (
            &normed[index * hidden..][..hidden],
            &mut logits[index * vocab..][..vocab],
        );
        thin::shrink(pass.cpu, &[part(a, 1.0)], x, hidden, &mut low);
        thin::grow(pass.cpu, &[part(b, *scale)], &low, y, vocab);
    }
}
