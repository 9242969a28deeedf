//! The exact reverse of [`super::linear`]: gradients of inputs and of every method's parameters.

use kernels::ops::sparse::{self, Values};
use kernels::ops::thin::{self, Part};
use kernels::ops::{elementwise, linear as product};
use shared::model::Projection;

use super::adapter::Adapter;
use super::gradient::Slot;
use super::linear::{Pair, dropped_input, pairs, rows_of, rows_of_mut, split_runs};
use super::pass::{Bank, Pass};
use super::tape::SiteTape;
use super::timing::Operator;
use super::{dropout, sums};
use crate::batch::JobSlice;
use crate::peft::layout::LinearSite;

/// Gradients of products that share an input `x` `(rows, in)`.
///
/// `d_outputs` `(rows, out)` are consumed. `dx` `(rows, in)` is overwritten; `None` when nothing below trains.
pub(super) fn backward(
    pass: &Pass<'_>,
    bank: &mut Bank,
    layer: usize,
    x: &[f32],
    d_outputs: &mut [(Projection, &mut Vec<f32>)],
    mut dx: Option<&mut [f32]>,
    sites: &[SiteTape; 7],
) {
    for (p, dy) in d_outputs.iter_mut() {
        let tape = &sites[*p as usize];
        pass.time(Operator::Adapters, || {
            reverse_output(pass, bank, layer, *p, dy, tape)
        });
    }
    let weights = pass.weights(layer);
    let projections: Vec<Projection> = d_outputs.iter().map(|(p, _)| *p).collect();
    let width = weights.projection(projections[0]).cols();
    let (plain, scaled) = split_runs(pass, bank, layer, &projections);
    if let Some(dx) = dx.as_deref_mut() {
        for run in plain {
            let parts: Vec<_> = d_outputs
                .iter()
                .map(|(p, dy)| {
                    let weight = weights.projection(*p);
                    (rows_of(dy, &run, weight.rows()), weight)
                })
                .collect();
            pass.time(Operator::FrozenProducts, || {
                product::backward_many(pass.cpu, &parts, rows_of_mut(dx, &run, width), false)
            });
        }
    }
    for job in scaled {
        let dx = dx
            .as_deref_mut()
            .map(|dx| rows_of_mut(dx, &job.rows, width));
        let x = rows_of(x, &job.rows, width);
        pass.time(Operator::Adapters, || {
            reverse_input(pass, bank, layer, job, x, d_outputs, dx)
        });
    }
    for (p, dy) in d_outputs {
        let (tape, x) = (&sites[*p as usize], (x, width));
        pass.time(Operator::Adapters, || {
            reverse_low_rank(pass, bank, layer, *p, x, dy, dx.as_deref_mut(), tape);
            reverse_sparse(pass, bank, layer, *p, x, dy, dx.as_deref_mut());
        });
    }
}

/// Reverses what was done to the output last: learned scales and biases.
fn reverse_output(
    pass: &Pass<'_>,
    bank: &mut Bank,
    layer: usize,
    p: Projection,
    dy: &mut [f32],
    tape: &SiteTape,
) {
    let out = pass.weights(layer).projection(p).rows();
    let mut saved = 0;
    for job in &pass.batch.jobs {
        let Some(adapter) = bank.get_mut(job.slot).and_then(Option::as_mut) else {
            continue;
        };
        let Adapter {
            layout,
            values,
            gradient,
            derived,
            ..
        } = adapter;
        let (range, scale) = match &layout.layers[layer].linear[p as usize] {
            Some(LinearSite::Bias(range)) => {
                let dy = rows_of(dy, &job.rows, out);
                sums::columns(pass, job, dy, None, out, gradient.slot(range, job.closes));
                continue;
            }
            Some(LinearSite::ScaleOutput(range)) => (range, &values[range.clone()]),
            Some(LinearSite::LowRank {
                magnitude: Some(range),
                ..
            }) => (range, &derived.dora_scale[layer][p as usize][..]),
            _ => continue,
        };
        let dy = rows_of_mut(dy, &job.rows, out);
        let outputs = &tape.outputs[saved..saved + dy.len()];
        saved += dy.len();
        let slot = gradient.slot(range, job.closes);
        sums::columns(pass, job, dy, Some(outputs), out, slot);
        elementwise::scale_columns(pass.cpu, dy, scale);
    }
}

/// One job whose method scales the input of at least one of the products; `x` and `dx` are its rows.
fn reverse_input(
    pass: &Pass<'_>,
    bank: &mut Bank,
    layer: usize,
    job: &JobSlice,
    x: &[f32],
    d_outputs: &[(Projection, &mut Vec<f32>)],
    mut dx: Option<&mut [f32]>,
) {
    if let Some(dx) = dx.as_deref_mut() {
        dx.fill(0.0);
    }
    for (p, dy) in d_outputs {
        let weight = pass.weights(layer).projection(*p);
        let mut d_input = vec![0.0; x.len()];
        let dy = rows_of(dy, &job.rows, weight.rows());
        pass.time(Operator::FrozenProducts, || {
            product::backward(pass.cpu, dy, weight, &mut d_input, false)
        });
        let Adapter {
            layout,
            values,
            gradient,
            ..
        } = bank[job.slot]
            .as_mut()
            .expect("only jobs with a scaled input come here");
        if let Some(LinearSite::ScaleInput(range)) = &layout.layers[layer].linear[*p as usize] {
            let slot = gradient.slot(range, job.closes);
            sums::columns(pass, job, &d_input, Some(x), weight.cols(), slot);
            elementwise::scale_columns(pass.cpu, &mut d_input, &values[range.clone()]);
        }
        if let Some(dx) = dx.as_deref_mut() {
            elementwise::add(pass.cpu, dx, &d_input);
        }
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "a site's reverse needs both sides of the product"
)]
fn reverse_low_rank(
    pass: &Pass<'_>,
    bank: &mut Bank,
    layer: usize,
    p: Projection,
    (x, width): (&[f32], usize),
    dy: &[f32],
    dx: Option<&mut [f32]>,
    tape: &SiteTape,
) {
    let out = pass.weights(layer).projection(p).rows();
    let pairs = pairs(pass, bank, layer, p);
    if pairs.is_empty() {
        return;
    }
    // d_low = scale * dy B
    let mut d_low = vec![0.0; tape.low.len()];
    let ups: Vec<Part<'_>> = pairs.iter().map(|pair| pair.up(bank)).collect();
    thin::shrink(pass.cpu, &ups, dy, out, &mut d_low);
    if let Some(dx) = dx {
        let downs: Vec<Part<'_>> = pairs
            .iter()
            .filter(|pair| pair.drop.is_none())
            .map(|pair| pair.down(bank, pair.job.rows.clone(), pair.low))
            .collect();
        thin::grow(pass.cpu, &downs, &d_low, dx, width);
        for pair in pairs.iter().filter(|pair| pair.drop.is_some()) {
            grow_dropped(pass, bank, pair, &d_low, dx, width);
        }
    }
    for pair in &pairs {
        let low = pair.low..pair.low + pair.job.rows.len() * pair.rank;
        let dropped = pair
            .drop
            .is_some()
            .then(|| dropped_input(pass, pair, x, width));
        let input = dropped
            .as_deref()
            .unwrap_or_else(|| rows_of(x, &pair.job.rows, width));
        let dy = rows_of(dy, &pair.job.rows, out);
        let gradient = &mut bank[pair.job.slot]
            .as_mut()
            .expect("a pair has an adapter")
            .gradient;
        let left = (&d_low[low.clone()], pair.rank);
        let slot = gradient.slot(&pair.a, pair.job.closes);
        sums::outer(pass, pair.job, left, (input, width), 1.0, slot);
        let left = (&tape.low[low], pair.rank);
        let slot = gradient.slot(&pair.b, pair.job.closes);
        sums::outer(pass, pair.job, left, (dy, out), pair.scale, slot);
    }
}

/// dx += mask * (d_low A) for one job with dropout.
fn grow_dropped(
    pass: &Pass<'_>,
    bank: &Bank,
    pair: &Pair<'_>,
    d_low: &[f32],
    dx: &mut [f32],
    width: usize,
) {
    let rows = pair.job.rows.len();
    let mut d_input = vec![0.0; rows * width];
    let part = pair.down(bank, 0..rows, 0);
    thin::grow(
        pass.cpu,
        &[part],
        &d_low[pair.low..][..rows * pair.rank],
        &mut d_input,
        width,
    );
    let drop = pair
        .drop
        .as_ref()
        .expect("only pairs with dropout come here");
    dropout::apply(pass, pair.job, drop, &mut d_input, width);
    elementwise::add(pass.cpu, rows_of_mut(dx, &pair.job.rows, width), &d_input);
}

fn reverse_sparse(
    pass: &Pass<'_>,
    bank: &mut Bank,
    layer: usize,
    p: Projection,
    (x, width): (&[f32], usize),
    dy: &[f32],
    mut dx: Option<&mut [f32]>,
) {
    let out = pass.weights(layer).projection(p).rows();
    for job in &pass.batch.jobs {
        let Some(Adapter {
            layout,
            values,
            gradient,
            ..
        }) = bank.get_mut(job.slot).and_then(Option::as_mut)
        else {
            continue;
        };
        let Some(LinearSite::Sparse {
            values: range,
            pattern,
        }) = &layout.layers[layer].linear[p as usize]
        else {
            continue;
        };
        let (x, dy) = (rows_of(x, &job.rows, width), rows_of(dy, &job.rows, out));
        if let Some(dx) = dx.as_deref_mut() {
            let dx = rows_of_mut(dx, &job.rows, width);
            sparse::backward(pass.cpu, pattern, &values[range.clone()], dy, dx);
        }
        let (blocks, first_block) = (sums::blocks(job), job.first_block);
        let Slot { nodes, gradient } = gradient.slot(range, job.closes);
        let sum = Values {
            first_block,
            blocks: &blocks,
            x,
            dy,
            nodes,
            gradient,
        };
        pass.time(Operator::GradientSums, || {
            sparse::gradient(pass.cpu, pattern, sum)
        });
    }
}
