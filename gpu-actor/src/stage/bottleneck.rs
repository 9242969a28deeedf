//! Bottleneck adapters: output += up(f(down(input) + bias)) + bias, serial or parallel.
//!
//! Serial adapters are fed by the sub-layer's output, parallel ones by its normed input; both add to the output
//! before the residual sum (Houlsby et al. 2019; Pfeiffer et al. 2020; He et al. 2022).

use std::ops::Range;

use kernels::cpu::Cpu;
use kernels::ops::elementwise::{self, Activation};
use kernels::ops::thin::{self, Part};
use shared::job::NonLinearity;

use super::adapter::Adapter;
use super::linear::{rows_of, rows_of_mut};
use super::pass::{Bank, Pass};
use super::sums;
use super::tape::BottleneckTape;
use crate::batch::JobSlice;
use crate::peft::layout::BottleneckSite;

/// Which half of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    Attention,
    FeedForward,
}

fn site<'a>(
    bank: &'a Bank,
    job: &JobSlice,
    layer: usize,
    half: Half,
) -> Option<(&'a Adapter, &'a BottleneckSite)> {
    let adapter = bank.get(job.slot)?.as_ref()?;
    let sites = &adapter.layout.layers[layer];
    let site = match half {
        Half::Attention => sites.attention.as_ref(),
        Half::FeedForward => sites.feed_forward.as_ref(),
    };
    Some((adapter, site?))
}

/// Whether an adapter behind a layer's feed-forward half is fed by its output.
pub(super) fn reads_output(pass: &Pass<'_>, bank: &Bank, layer: usize) -> bool {
    let mut jobs = pass.batch.jobs.iter();
    jobs.any(|job| {
        let found = site(bank, job, layer, Half::FeedForward);
        found.is_some_and(|(_, site)| !site.parallel)
    })
}

fn activation(f: NonLinearity) -> Activation {
    match f {
        NonLinearity::Relu => Activation::Relu,
        NonLinearity::Gelu => Activation::Gelu,
        NonLinearity::Silu => Activation::Silu,
    }
}

/// Adds each job's bottleneck to its rows of the sub-layer's output `y` `(rows, hidden)`.
pub(super) fn forward(
    pass: &Pass<'_>,
    bank: &Bank,
    layer: usize,
    half: Half,
    normed: &[f32],
    y: &mut [f32],
    tape: &mut BottleneckTape,
) {
    let hidden = pass.model.shape.hidden;
    tape.inputs.clear();
    tape.inner.clear();
    for job in &pass.batch.jobs {
        let Some((adapter, site)) = site(bank, job, layer, half) else {
            continue;
        };
        let rows = job.rows.len();
        let y = rows_of_mut(y, &job.rows, hidden);
        let mut inner = vec![0.0; rows * site.size];
        let input = if site.parallel {
            rows_of(normed, &job.rows, hidden)
        } else {
            &*y
        };
        let down = part(adapter, &site.down, rows, site.size);
        thin::shrink(pass.cpu, &[down], input, hidden, &mut inner);
        elementwise::add_bias(
            pass.cpu,
            &mut inner,
            &adapter.values[site.down_bias.clone()],
        );
        if pass.training {
            if !site.parallel {
                tape.inputs.extend_from_slice(y);
            }
            tape.inner.extend_from_slice(&inner);
        }
        elementwise::activate(pass.cpu, activation(site.non_linearity), &mut inner);
        let up = part(adapter, &site.up, rows, site.size);
        thin::grow(pass.cpu, &[up], &inner, y, hidden);
        elementwise::add_bias(pass.cpu, y, &adapter.values[site.up_bias.clone()]);
    }
}

fn part<'a>(adapter: &'a Adapter, matrix: &Range<usize>, rows: usize, size: usize) -> Part<'a> {
    let matrix = &adapter.values[matrix.clone()];
    Part {
        rows: 0..rows,
        rank: size,
        matrix,
        scale: 1.0,
        low: 0,
    }
}

/// A parallel adapter's share of the gradient of the sub-layer's normed input.
#[derive(Clone, Debug)]
pub(super) struct Beside {
    job_rows: Range<usize>,
    d_input: Vec<f32>,
}

impl Beside {
    /// Adds the shares to the rows they belong to; other rows are not touched.
    pub(super) fn add_all(cpu: &Cpu, shares: &[Self], d_normed: &mut [f32], hidden: usize) {
        for share in shares {
            elementwise::add(
                cpu,
                rows_of_mut(d_normed, &share.job_rows, hidden),
                &share.d_input,
            );
        }
    }
}

/// Reverses [`forward`]: `dy` becomes the gradient of the sub-layer's own output.
pub(super) fn backward(
    pass: &Pass<'_>,
    bank: &mut Bank,
    layer: usize,
    half: Half,
    normed: &[f32],
    dy: &mut [f32],
    tape: &BottleneckTape,
) -> Vec<Beside> {
    let hidden = pass.model.shape.hidden;
    let (mut input_at, mut inner_at) = (0, 0);
    let mut beside = Vec::new();
    for job in &pass.batch.jobs {
        let Some((adapter, found)) = site(bank, job, layer, half) else {
            continue;
        };
        let (site, rows) = (found.clone(), job.rows.len());
        let before = &tape.inner[inner_at..inner_at + rows * site.size];
        inner_at += before.len();
        let input = if site.parallel {
            rows_of(normed, &job.rows, hidden)
        } else {
            input_at += rows * hidden;
            &tape.inputs[input_at - rows * hidden..input_at]
        };
        let dy = rows_of_mut(dy, &job.rows, hidden);
        let f = activation(site.non_linearity);
        let mut d_inner = vec![0.0; before.len()];
        thin::shrink(
            pass.cpu,
            &[part(adapter, &site.up, rows, site.size)],
            dy,
            hidden,
            &mut d_inner,
        );
        elementwise::activate_backward(pass.cpu, f, before, &mut d_inner);
        let mut after = before.to_vec();
        elementwise::activate(pass.cpu, f, &mut after);

        let down = part(adapter, &site.down, rows, site.size);
        let mut d_input = vec![0.0; rows * hidden];
        thin::grow(pass.cpu, &[down], &d_inner, &mut d_input, hidden);

        let gradient = &mut bank[job.slot]
            .as_mut()
            .expect("the site is this adapter's")
            .gradient;
        let (slot, low) = (gradient.slot(&site.up, job.closes), (&after[..], site.size));
        sums::outer(pass, job, low, (dy, hidden), 1.0, slot);
        let slot = gradient.slot(&site.up_bias, job.closes);
        sums::columns(pass, job, dy, None, hidden, slot);
        let (slot, low) = (
            gradient.slot(&site.down, job.closes),
            (&d_inner[..], site.size),
        );
        sums::outer(pass, job, low, (input, hidden), 1.0, slot);
        let slot = gradient.slot(&site.down_bias, job.closes);
        sums::columns(pass, job, &d_inner, None, site.size, slot);

        if site.parallel {
            beside.push(Beside {
                job_rows: job.rows.clone(),
                d_input,
            });
        } else {
            elementwise::add(pass.cpu, dy, &d_input);
        }
    }
    beside
}
