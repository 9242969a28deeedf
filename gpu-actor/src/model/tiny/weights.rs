//! The random weights of a tiny model.

use shared::model::ModelShape;
use shared::random::{Domain, Stream, unit};

use crate::model::names;

/// One tensor.
pub(super) struct TinyTensor {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) values: Vec<f32>,
}

/// Makes every tensor of a shape, in canonical order.
pub(super) fn make(shape: &ModelShape, seed: u64) -> Vec<TinyTensor> {
    names::expected(shape)
        .into_iter()
        .zip(0u32..)
        .map(|((name, dims), index)| {
            let stream = Stream::new(seed, Domain::TinyModel, [index, 0, 0]);
            let (center, deviation) = distribution(&name, &dims, shape.layers);
            // A uniform number in +-sqrt(3) has deviation one.
            let width = 2.0 * 3f32.sqrt() * deviation;
            let count: usize = dims.iter().product();
            let values = (0..count as u32)
                .step_by(4)
                .flat_map(|element| stream.block(element / 4))
                .take(count)
                .map(|word| center + (unit(word) - 0.5) * width)
                .collect();
            TinyTensor {
                name,
                shape: dims,
                values,
            }
        })
        .collect()
}

/// Center and deviation that keep activations near one, and the residual stream from growing with depth.
fn distribution(name: &str, dims: &[usize], layers: usize) -> (f32, f32) {
    match *dims {
        [_] if name.ends_with("norm.weight") => (1.0, 0.1),
        [_, input] => {
            let even = 1.0 / (input as f32).sqrt();
            let into_residual = name.contains("o_proj") || name.contains("down_proj");
            let share = if into_residual {
                1.0 / (2.0 * layers as f32).sqrt()
            } else {
                1.0
            };
            (0.0, even * share)
        }
        _ => (0.0, 0.1),
    }
}
