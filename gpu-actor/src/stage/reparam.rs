//! Prefix tuning's reparameterisation: embedding, linear, tanh, linear (Li and Liang 2021, section 4.3).
//!
//! Prefix = W2 tanh(W1 E + b1) + b2 with E `(tokens, kv_width)`. It is computed once per step over a handful of
//! virtual tokens, in plain loops of f64 rounded once, so there is nothing to make fast and nothing to vary.

use shared::model::ModelShape;

use crate::peft::layout::{PrefixSite, ProjectionSite};

/// The prefix as the file has it, `(tokens, 2 * layers * kv_width)`.
pub(crate) fn prefix(site: &PrefixSite, values: &[f32], shape: &ModelShape) -> Vec<f32> {
    if let Some(direct) = &site.direct {
        return values[direct.clone()].to_vec();
    }
    let projection = site
        .projection
        .as_ref()
        .expect("a prefix is direct or projected");
    let inner = inner(projection, site.tokens, values, shape.kv_width());
    let width = 2 * shape.layers * shape.kv_width();
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
            *value = (dot(&first[j * kv..][..kv], &input) + f64::from(bias[j])).tanh();
        }
    }
    out
}

fn dot(a: &[f32], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(&a, b)| f64::from(a) * b).sum()
}

/// Maps the prefix's gradient to the parameters'; `total` is in flat storage order.
pub(super) fn gradient(
    site: &PrefixSite,
    values: &[f32],
    d_prefix: &[f32],
    shape: &ModelShape,
    total: &mut [f32],
) {
    if let Some(direct) = &site.direct {
        total[direct.clone()].copy_from_slice(d_prefix);
        return;
    }
    let p = site
        .projection
        .as_ref()
        .expect("a prefix is direct or projected");
    let (kv, hidden) = (shape.kv_width(), p.hidden);
    let width = 2 * shape.layers * kv;
    let inner = inner(p, site.tokens, values, kv);
    let mut sums = Sums::new(site.tokens, kv, hidden, width);
    for token in 0..site.tokens {
        let d_row = &d_prefix[token * width..][..width];
        let inner_row = &inner[token * hidden..][..hidden];
        let d_inner = sums.second_layer(d_row, inner_row, &values[p.second.clone()]);
        let input = &values[p.embedding.clone()][token * kv..][..kv];
        sums.first_layer(token, &d_inner, input, &values[p.first.clone()]);
    }
    for (range, sum) in [
        (&p.embedding, &sums.embedding),
        (&p.first, &sums.first),
        (&p.first_bias, &sums.first_bias),
        (&p.second, &sums.second),
        (&p.second_bias, &sums.second_bias),
    ] {
        for (out, &value) in total[range.clone()].iter_mut().zip(sum) {
            *out = value as f32;
        }
    }
}

struct Sums {
    embedding: Vec<f64>,
    first: Vec<f64>,
    first_bias: Vec<f64>,
    second: Vec<f64>,
    second_bias: Vec<f64>,
}

impl Sums {
    fn new(tokens: usize, kv: usize, hidden: usize, width: usize) -> Self {
        Self {
            embedding: vec![0.0; tokens * kv],
            first: vec![0.0; hidden * kv],
            first_bias: vec![0.0; hidden],
            second: vec![0.0; width * hidden],
            second_bias: vec![0.0; width],
        }
    }

    /// Adds one token's share of the second layer; returns the gradient before tanh, `(hidden)`.
    fn second_layer(&mut self, d_row: &[f32], inner: &[f64], weights: &[f32]) -> Vec<f64> {
        let hidden = inner.len();
        let mut d_inner = vec![0.0; hidden];
        for (c, &d) in d_row.iter().enumerate() {
            let d = f64::from(d);
            self.second_bias[c] += d;
            for j in 0..hidden {
                self.second[c * hidden + j] += d * inner[j];
                d_inner[j] += d * f64::from(weights[c * hidden + j]);
            }
        }
        for (d, value) in d_inner.iter_mut().zip(inner) {
            *d *= 1.0 - value * value;
        }
        d_inner
    }

    /// Adds one token's share of the first layer and of its embedding.
    fn first_layer(&mut self, token: usize, d_inner: &[f64], input: &[f32], weights: &[f32]) {
        let kv = input.len();
        for (j, &d) in d_inner.iter().enumerate() {
            self.first_bias[j] += d;
            for c in 0..kv {
                self.first[j * kv + c] += d * f64::from(input[c]);
                self.embedding[token * kv + c] += d * f64::from(weights[j * kv + c]);
            }
        }
    }
}
