//! Prefix tuning's reparameterisation: embedding, linear, tanh, linear (Li and Liang 2021, section 4.3).
//!
//! Prefix = W2 tanh(W1 E + b1) + b2 with E `(tokens, kv_width)`. It is computed once per step over a handful of
//! virtual tokens, in plain loops of f64 rounded once, so there is nothing to make fast and nothing to vary.
//!
//! Every layer's keys and values come from the same inner values. Their gradient is summed by layer, and the layers'
//! [`Share`]s are added in order: a stage of a pipeline has those of its own layers, and gets the others.

use shared::model::ModelShape;

use super::agreement::Share;
use crate::peft::layout::{PrefixSite, ProjectionSite};

/// The prefix as the file has it, `(tokens, 2 * layers * kv_width)`, of the layers that the site has here.
pub(crate) fn prefix(site: &PrefixSite, values: &[f32], shape: &ModelShape) -> Vec<f32> {
    if let Some(direct) = &site.direct {
        return values[direct.clone()].to_vec();
    }
    let projection = site
        .projection
        .as_ref()
        .expect("a prefix is direct or projected");
    let inner = inner(projection, site.tokens, values, shape.kv_width());
    let width = 2 * site.layers.len() * shape.kv_width();
    let (second, bias) = (
        &values[projection.second.clone()],
        &values[projection.second_bias.clone()],
    );
    let mut out = vec![0.0; site.tokens * width];
    for (token, row) in out.chunks_mut(width).enumerate() {
        let inner = &inner[token * projection.hidden..][..projection.hidden];
        for (c, value) in row.iter_mut().enumerate() {
            let weights = &second[c * projection.hidden..][..projection.hidden];
            *value = (dot(weights, inner) + f64::from(bias[c])) as f32;
        }
    }
    out
}

/// tanh(W1 E + b1), `(tokens, hidden)`.
fn inner(site: &ProjectionSite, tokens: usize, values: &[f32], kv: usize) -> Vec<f64> {
    let (first, bias) = (
        &values[site.first.clone()],
        &values[site.first_bias.clone()],
    );
    let embedding = &values[site.embedding.clone()];
    let mut out = vec![0.0; tokens * site.hidden];
    for (token, row) in out.chunks_mut(site.hidden).enumerate() {
        let input: Vec<f64> = embedding[token * kv..][..kv]
            .iter()
            .map(|&x| f64::from(x))
            .collect();
        for (j, value) in row.iter_mut().enumerate() {
            // Each stage computes it for itself: the platform's function may differ between two machines.
            *value = libm::tanh(dot(&first[j * kv..][..kv], &input) + f64::from(bias[j]));
        }
    }
    out
}

fn dot(a: &[f32], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(&a, b)| f64::from(a) * b).sum()
}

/// Maps the prefix's gradient to those parameters that belong to layers; `total` is in flat storage order.
///
/// The rest is [`finish`]'s, from the shares of all layers.
pub(super) fn gradient(
    site: &PrefixSite,
    values: &[f32],
    d_prefix: &[f32],
    shape: &ModelShape,
    total: &mut [f32],
) -> Vec<Share> {
    if let Some(direct) = &site.direct {
        total[direct.clone()].copy_from_slice(d_prefix);
        return Vec::new();
    }
    let p = site
        .projection
        .as_ref()
        .expect("a prefix is direct or projected");
    let (kv, hidden) = (shape.kv_width(), p.hidden);
    let width = 2 * site.layers.len() * kv;
    let inner = inner(p, site.tokens, values, kv);
    let weights = &values[p.second.clone()];
    let (mut second, mut second_bias) = (vec![0.0; width * hidden], vec![0.0; width]);
    let share = |layer| Share {
        layer,
        values: vec![0.0; site.tokens * hidden],
    };
    let mut shares: Vec<Share> = site.layers.clone().map(share).collect();
    for token in 0..site.tokens {
        let inner = &inner[token * hidden..][..hidden];
        for c in 0..width {
            let d = f64::from(d_prefix[token * width + c]);
            second_bias[c] += d;
            let d_inner = &mut shares[c / (2 * kv)].values[token * hidden..][..hidden];
            for j in 0..hidden {
                second[c * hidden + j] += d * inner[j];
                d_inner[j] += d * f64::from(weights[c * hidden + j]);
            }
        }
    }
    round(&second, &mut total[p.second.clone()]);
    round(&second_bias, &mut total[p.second_bias.clone()]);
    shares
}

/// Maps the shares of all layers, in their order, to the parameters in front of the inner values.
///
/// # Panics
/// When the prefix is direct.
pub(super) fn finish<'a>(
    site: &PrefixSite,
    values: &[f32],
    shares: impl Iterator<Item = &'a Share>,
    total: &mut [f32],
) {
    let p = site
        .projection
        .as_ref()
        .expect("a direct prefix has no shares");
    let (kv, hidden) = (p.embedding.len() / site.tokens, p.hidden);
    let mut d_inner = vec![0.0; site.tokens * hidden];
    for share in shares {
        d_inner
            .iter_mut()
            .zip(&share.values)
            .for_each(|(sum, part)| *sum += part);
    }
    let inner = inner(p, site.tokens, values, kv);
    for (d, value) in d_inner.iter_mut().zip(&inner) {
        *d *= 1.0 - value * value;
    }
    let (input, weights) = (&values[p.embedding.clone()], &values[p.first.clone()]);
    let mut embedding = vec![0.0; site.tokens * kv];
    let (mut first, mut first_bias) = (vec![0.0; hidden * kv], vec![0.0; hidden]);
    for token in 0..site.tokens {
        for j in 0..hidden {
            let d = d_inner[token * hidden + j];
            first_bias[j] += d;
            for c in 0..kv {
                first[j * kv + c] += d * f64::from(input[token * kv + c]);
                embedding[token * kv + c] += d * f64::from(weights[j * kv + c]);
            }
        }
    }
    round(&embedding, &mut total[p.embedding.clone()]);
    round(&first, &mut total[p.first.clone()]);
    round(&first_bias, &mut total[p.first_bias.clone()]);
}

fn round(sums: &[f64], out: &mut [f32]) {
    for (out, &sum) in out.iter_mut().zip(sums) {
        *out = sum as f32;
    }
}
