//! The loss of an optimizer step and its gradient.
//!
//! Loss = sum over all sequences of the step of their token losses / number of tokens that count in all of them.

use data::rows::TokenRow;

use super::adapter::Adapter;
use super::backbone::Backbone;
use super::cross_entropy::{self, SequenceLoss};
use super::dropout::Draw;
use super::sequence::Pass;
use super::tensor::{self, Tensors};

/// What a step found out.
#[derive(Clone, Debug)]
pub struct StepOutcome {
    /// The loss before the update.
    pub loss: f64,
    /// By sequence.
    pub sequences: Vec<SequenceLoss>,
    /// The gradient of the loss.
    pub gradient: Tensors,
}

/// Loss and gradient of a step over these rows. `draw` is (seed, step) in training with dropout.
#[must_use]
pub fn gradient(
    backbone: &Backbone,
    adapter: &Adapter,
    rows: &[&TokenRow],
    draw: Option<(u64, u32)>,
) -> StepOutcome {
    let total: usize = rows.iter().map(|row| row.trained()).sum();
    let weight = 1.0 / total as f64;
    let mut gradient = tensor::zeros_like(&adapter.parameters);
    let mut sequences = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let pass = Pass {
            backbone,
            adapter: Some(adapter),
            draw: draw.map(|(seed, step)| Draw {
                seed,
                step,
                sequence: number as u32,
            }),
        };
        let (logits, tape) = pass.forward(&row.ids);
        sequences.push(cross_entropy::loss(&logits, &row.labels));
        let d_logits = cross_entropy::backward(&logits, &row.labels, weight);
        pass.backward(&tape, &d_logits, &mut gradient);
    }
    let loss = weight * sequences.iter().map(|sequence| sequence.sum).sum::<f64>();
    StepOutcome {
        loss,
        sequences,
        gradient,
    }
}

/// The loss of one row without dropout.
#[must_use]
pub fn loss(backbone: &Backbone, adapter: Option<&Adapter>, row: &TokenRow) -> SequenceLoss {
    let pass = Pass {
        backbone,
        adapter,
        draw: None,
    };
    cross_entropy::loss(&pass.forward(&row.ids).0, &row.labels)
}

#[cfg(test)]
mod tests;
