//! An adapter folded into the weights of its layers, for servers without adapter support.
//!
//! Each weight is expanded to f32, changed, and rounded once to the format it is kept in. Methods that are not a change of weights
//! (bottleneck, prefix, prompt) are refused. A quantised backbone is merged in its expanded form, never back into
//! blocks, and the report says so.

use kernels::cpu::Cpu;
use kernels::ops::dora;
use serde::Serialize;
use shared::model::Projection;
use thiserror::Error;

use super::layout::{Layout, LinearSite};
use crate::model::Model;

/// Says why an adapter cannot be merged.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MergeError {
    /// The method adds layers or tokens.
    #[error(
        "{method} adds {what}, which no weight of the backbone can hold: serve it as an adapter"
    )]
    NotAWeightChange {
        /// The method.
        method: &'static str,
        /// What it adds.
        what: &'static str,
    },
    /// The family has no bias there.
    #[error("the model's family has no bias at {site}: this BitFit adapter cannot be merged")]
    NoBias {
        /// The layer.
        site: String,
    },
}

/// How far rounding moved the merged weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rounding {
    /// Largest change of a value by rounding, over the largest change of a value by the adapter.
    pub worst_ratio: f64,
    /// Root of the mean square of changes by rounding, over that of changes by the adapter; of the weight where it is largest.
    pub typical_ratio: f64,
    /// Weights and biases changed.
    pub merged: usize,
}

/// Refuses methods that are not a change of weights.
///
/// # Errors
/// [`MergeError::NotAWeightChange`].
pub fn check(layout: &Layout) -> Result<(), MergeError> {
    let refuse = |method, what| Err(MergeError::NotAWeightChange { method, what });
    if layout.prefix.is_some() {
        return refuse("prefix tuning", "keys and values in front of every text");
    }
    if layout.prompt.is_some() {
        return refuse("prompt tuning", "embeddings in front of every text");
    }
    if layout
        .layers
        .iter()
        .any(|l| l.attention.is_some() || l.feed_forward.is_some())
    {
        return refuse("a bottleneck adapter", "layers");
    }
    Ok(())
}

/// The merged weight `(out, in)` and bias `(out)` of a projection, in f32.
#[must_use]
pub fn projection(
    cpu: &Cpu,
    model: &Model,
    layout: &Layout,
    values: &[f32],
    layer: usize,
    p: Projection,
) -> (Vec<f32>, Option<Vec<f32>>) {
    let base = model.layers[layer].projection(p);
    let (out, input) = (base.rows(), base.cols());
    let mut weight = base.to_f32();
    let mut bias = model.layers[layer].bias(p).map(<[f32]>::to_vec);
    match &layout.layers[layer].linear[p as usize] {
        None => {}
        Some(LinearSite::LowRank {
            a,
            b,
            rank,
            scale,
            magnitude,
            ..
        }) => {
            let (a, b) = (&values[a.clone()], &values[b.clone()]);
            add_product(&mut weight, input, a, b, *rank, *scale);
            if let Some(magnitude) = magnitude {
                let mut norms = vec![0.0; out];
                dora::row_norms(cpu, base, a, b, *rank, *scale, &mut norms);
                for (row, weight) in weight.chunks_mut(input).enumerate() {
                    let factor = values[magnitude.start + row] / norms[row];
                    weight.iter_mut().for_each(|w| *w *= factor);
                }
            }
        }
        Some(LinearSite::ScaleInput(range)) => {
            for row in weight.chunks_mut(input) {
                row.iter_mut()
                    .zip(&values[range.clone()])
                    .for_each(|(w, l)| *w *= l);
            }
        }
        Some(LinearSite::ScaleOutput(range)) => {
            for (row, l) in weight.chunks_mut(input).zip(&values[range.clone()]) {
                row.iter_mut().for_each(|w| *w *= l);
            }
            if let Some(bias) = &mut bias {
                bias.iter_mut()
                    .zip(&values[range.clone()])
                    .for_each(|(b, l)| *b *= l);
            }
        }
        Some(LinearSite::Bias(range)) => {
            let bias = bias.get_or_insert_with(|| vec![0.0; out]);
            bias.iter_mut()
                .zip(&values[range.clone()])
                .for_each(|(b, delta)| *b += delta);
        }
        Some(LinearSite::Sparse {
            values: range,
            pattern,
        }) => {
            for (row, weight) in weight.chunks_mut(input).enumerate() {
                let places = pattern.places(row);
                for (&column, delta) in pattern.columns()[places.clone()]
                    .iter()
                    .zip(&values[range.clone()][places])
                {
                    weight[column as usize] += delta;
                }
            }
        }
    }
    (weight, bias)
}

/// W += scale * B A, with A `(rank, in)` and B transposed `(rank, out)`.
pub fn add_product(
    weight: &mut [f32],
    input: usize,
    a: &[f32],
    b: &[f32],
    rank: usize,
    scale: f32,
) {
    let out = weight.len() / input;
    for (row, weight) in weight.chunks_mut(input).enumerate() {
        for r in 0..rank {
            let factor = scale * b[r * out + row];
            weight
                .iter_mut()
                .zip(&a[r * input..][..input])
                .for_each(|(w, a)| *w += factor * a);
        }
    }
}

impl Rounding {
    /// Takes in what was noted elsewhere.
    pub fn add(&mut self, other: Self) {
        self.worst_ratio = self.worst_ratio.max(other.worst_ratio);
        self.typical_ratio = self.typical_ratio.max(other.typical_ratio);
        self.merged += other.merged;
    }

    /// Notes one merged weight: what it was, what it should be, and what rounding makes of it.
    pub fn note(&mut self, before: &[f32], merged: &[f32], rounded: impl Fn(f32) -> f32) {
        let (mut change, mut error) = (0.0f64, 0.0f64);
        let (mut changes, mut errors) = (0.0f64, 0.0f64);
        for (&before, &merged) in before.iter().zip(merged) {
            let by_adapter = f64::from((merged - before).abs());
            let by_rounding = f64::from((rounded(merged) - merged).abs());
            (change, error) = (change.max(by_adapter), error.max(by_rounding));
            changes += by_adapter * by_adapter;
            errors += by_rounding * by_rounding;
        }
        if change > 0.0 {
            self.worst_ratio = self.worst_ratio.max(error / change);
            self.typical_ratio = self.typical_ratio.max((errors / changes).sqrt());
            self.merged += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_typical_ratio_is_of_mean_squares_and_the_worst_of_the_largest() {
        let mut rounding = Rounding::default();
        // Rounding to whole numbers: by 0.25 and 0.0; the adapter: by 0.25 and 1.0.
        rounding.note(&[1.0, 1.0], &[1.25, 2.0], f32::round);
        assert_eq!((rounding.worst_ratio, rounding.merged), (0.25, 1));
        let typical = (0.0625f64 / 1.0625).sqrt();
        assert!((rounding.typical_ratio - typical).abs() < 1e-12);
        // What the adapter does not change says nothing of it.
        rounding.note(&[1.25], &[1.25], f32::round);
        assert_eq!(rounding.merged, 1);
        let mut other = Rounding::default();
        other.note(&[1.0], &[1.25], f32::round);
        rounding.add(other);
        assert_eq!(
            (
                rounding.worst_ratio,
                rounding.typical_ratio,
                rounding.merged
            ),
            (1.0, 1.0, 2)
        );
    }
}
