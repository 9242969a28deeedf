//! The engine's own backbone in f64, whatever format it is held in: what the judge computes on.

use gpu_actor::model::{LayerWeights, Model};
use kernels::weight::Weight;

use crate::oracle::backbone::{Backbone, Layer};
use crate::oracle::matrix::Matrix;
use crate::oracle::rotary;

/// The backbone that the judge uses for a model.
#[must_use]
pub fn backbone(model: &Model) -> Backbone {
    let shape = model.shape.clone();
    Backbone {
        embedding: matrix(model.embedding()),
        head: matrix(model.head()),
        final_norm: vector(&model.final_norm),
        layers: model.layers.iter().map(layer).collect(),
        frequencies: rotary::frequencies(&shape.rope, shape.head_dim),
        shape,
    }
}

fn layer(weights: &LayerWeights) -> Layer {
    let norms = weights.q_norm.as_deref().zip(weights.k_norm.as_deref());
    Layer {
        projections: weights.projections.iter().map(matrix).collect(),
        biases: weights
            .biases
            .iter()
            .map(|bias| bias.as_deref().map(vector))
            .collect(),
        attention_norm: vector(&weights.attention_norm),
        feed_forward_norm: vector(&weights.feed_forward_norm),
        head_norms: norms.map(|(q, k)| (vector(q), vector(k))),
    }
}

fn matrix(weight: &Weight) -> Matrix {
    Matrix::new(weight.rows(), weight.cols(), vector(&weight.to_f32()))
}

fn vector(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}
