//! One sequence through the whole model, forward and back.

use shared::model::{Projection, Target};

use super::adapter::Adapter;
use super::backbone::Backbone;
use super::block::{Block, BlockTape};
use super::dropout::Draw;
use super::linear::{Linear, LinearTape};
use super::matrix::Matrix;
use super::prefix::{self, Prefix};
use super::rms_norm;
use super::tensor::{self, Tensors};

/// A model with one job's adapter, for one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    /// The model.
    pub backbone: &'a Backbone,
    /// The job's adapter.
    pub adapter: Option<&'a Adapter>,
    /// Whose dropout is drawn; none outside training.
    pub draw: Option<Draw>,
}

/// What backward needs of [`Pass::forward`].
#[derive(Clone, Debug)]
pub struct Tape {
    prefix: Option<Prefix>,
    /// Virtual rows in front (prompt tuning).
    virtual_rows: usize,
    blocks: Vec<BlockTape>,
    last: Matrix,
    head: LinearTape,
}

impl<'a> Pass<'a> {
    fn block(&self, layer: usize, first_position: usize) -> Block<'a> {
        Block {
            backbone: self.backbone,
            adapter: self.adapter,
            draw: self.draw,
            layer,
            first_position,
        }
    }

    fn head(&self) -> Linear<'a> {
        Linear {
            module: "base_model.model.lm_head",
            target: Target::LmHead,
            site: (self.backbone.layers.len() * Projection::ALL.len()) as u32,
            weight: &self.backbone.head,
            bias: None,
        }
    }

    /// Logits `(tokens, vocab)`; virtual tokens have none.
    #[must_use]
    pub fn forward(&self, ids: &[u32]) -> (Matrix, Tape) {
        let shape = &self.backbone.shape;
        let rows = ids
            .iter()
            .flat_map(|&id| self.backbone.embedding.row(id as usize));
        let mut x = Matrix::new(ids.len(), shape.hidden, rows.copied().collect());
        let prompt = self.adapter.and_then(Adapter::prompt);
        let virtual_rows = prompt.as_ref().map_or(0, |prompt| prompt.rows);
        if let Some(prompt) = prompt {
            x = prompt.above(&x);
        }
        let prefix = self.adapter.and_then(Prefix::of);
        let first_position = prefix.as_ref().map_or(0, Prefix::tokens);
        let mut blocks = Vec::new();
        for layer in 0..shape.layers {
            let own = prefix
                .as_ref()
                .map(|prefix| prefix.keys_and_values(layer, shape.kv_width()));
            let (y, tape) = self.block(layer, first_position).forward(&x, own.as_ref());
            x = y;
            blocks.push(tape);
        }
        let last = x.rows_between(virtual_rows, x.rows);
        let normed = rms_norm::forward(&last, &self.backbone.final_norm, shape.norm_eps);
        let (logits, head) = self.head().forward(self.adapter, self.draw, &normed);
        let tape = Tape {
            prefix,
            virtual_rows,
            blocks,
            last,
            head,
        };
        (logits, tape)
    }

    /// Reverses [`Self::forward`]: adds the parameters' gradients.
    pub fn backward(&self, tape: &Tape, d_logits: &Matrix, gradient: &mut Tensors) {
        let shape = &self.backbone.shape;
        let d_normed = self
            .head()
            .backward(self.adapter, &tape.head, d_logits, gradient);
        let norm = &self.backbone.final_norm;
        let d_last = rms_norm::backward(&tape.last, norm, shape.norm_eps, &d_normed);
        let mut d_x = Matrix::zeros(tape.virtual_rows, shape.hidden).above(&d_last);
        let first_position = tape.prefix.as_ref().map_or(0, Prefix::tokens);
        let mut d_prefix = tape.prefix.as_ref().map(Prefix::no_gradient);
        for (layer, kept) in tape.blocks.iter().enumerate().rev() {
            let d = self
                .block(layer, first_position)
                .backward(kept, &d_x, gradient);
            d_x = d.input;
            if let Some(d_prefix) = &mut d_prefix {
                prefix::add_layer(d_prefix, layer, &d.prefix.0, &d.prefix.1);
            }
        }
        if let (Some(adapter), Some(prefix), Some(d_prefix)) =
            (self.adapter, &tape.prefix, &d_prefix)
        {
            prefix.backward(adapter, d_prefix, gradient);
        }
        if tape.virtual_rows > 0 {
            let d_prompt = d_x.rows_between(0, tape.virtual_rows);
            tensor::add(gradient, "prompt_embeddings", &d_prompt.values);
        }
    }
}
