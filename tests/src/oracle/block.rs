//! One transformer block: x += attention(norm(x)), x += feed-forward(norm(x)), each with its bottleneck if any.

use shared::model::{Projection, Target};

use super::activation;
use super::adapter::Adapter;
use super::attention::{self, AttentionTape};
use super::backbone::{self, Backbone, Layer};
use super::bottleneck::{Bottleneck, BottleneckTape};
use super::dropout::Draw;
use super::linear::{Linear, LinearTape};
use super::matrix::Matrix;
use super::rms_norm;
use super::rotary::{self, Direction};
use super::tensor::Tensors;

/// A block with the adapter of one job.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// The model.
    pub backbone: &'a Backbone,
    /// The job's adapter.
    pub adapter: Option<&'a Adapter>,
    /// Whose dropout is drawn; none outside training.
    pub draw: Option<Draw>,
    /// Number of the block.
    pub layer: usize,
    /// Position of the first row.
    pub first_position: usize,
}

/// What backward needs of [`Block::forward`].
#[derive(Clone, Debug)]
pub struct BlockTape {
    input: Matrix,
    middle: Matrix,
    linears: Vec<LinearTape>,
    raw_q: Matrix,
    raw_k: Matrix,
    attention: AttentionTape,
    gate: Matrix,
    up: Matrix,
    bottlenecks: [Option<BottleneckTape>; 2],
}

/// Gradients of a block's inputs.
#[derive(Clone, Debug)]
pub struct BlockGradient {
    /// Of the residual stream.
    pub input: Matrix,
    /// Of the prefix's keys and values in this block.
    pub prefix: (Matrix, Matrix),
}

impl Block<'_> {
    fn weights(&self) -> &Layer {
        &self.backbone.layers[self.layer]
    }

    fn epsilon(&self) -> f64 {
        self.backbone.shape.norm_eps
    }

    fn bottleneck(&self, module: &str) -> Option<Bottleneck> {
        self.adapter?.bottleneck(self.layer, module)
    }

    fn linear<R>(&self, projection: Projection, run: impl FnOnce(Linear<'_>) -> R) -> R {
        run(Linear {
            module: &backbone::module(self.layer, projection),
            target: Target::Block(projection),
            site: (self.layer * Projection::ALL.len() + projection as usize) as u32,
            weight: self.weights().projection(projection),
            bias: self.weights().bias(projection),
        })
    }

    fn project(&self, p: Projection, x: &Matrix, tapes: &mut Vec<LinearTape>) -> Matrix {
        let (y, tape) = self.linear(p, |linear| linear.forward(self.adapter, self.draw, x));
        tapes.push(tape);
        y
    }

    /// The block's output `(rows, hidden)`; `prefix` are keys and values in front of the sequence.
    #[must_use]
    pub fn forward(&self, x: &Matrix, prefix: Option<&(Matrix, Matrix)>) -> (Matrix, BlockTape) {
        let weights = self.weights();
        let mut linears = Vec::new();

        let normed = rms_norm::forward(x, &weights.attention_norm, self.epsilon());
        let raw_q = self.project(Projection::Q, &normed, &mut linears);
        let raw_k = self.project(Projection::K, &normed, &mut linears);
        let v = self.project(Projection::V, &normed, &mut linears);
        let (q, k) = (self.place(&raw_q, 0), self.place(&raw_k, 1));
        let (attended, attention) = attention::forward(self.backbone.heads(), &q, &k, &v, prefix);
        let mut output = self.project(Projection::O, &attended, &mut linears);
        let after_attention = self.add_bottleneck("self_attn", &normed, &mut output);
        let mut middle = x.clone();
        middle.add(&output);

        let normed = rms_norm::forward(&middle, &weights.feed_forward_norm, self.epsilon());
        let gate = self.project(Projection::Gate, &normed, &mut linears);
        let up = self.project(Projection::Up, &normed, &mut linears);
        let inner = activation::swiglu(&gate, &up);
        let mut output = self.project(Projection::Down, &inner, &mut linears);
        let after_feed_forward = self.add_bottleneck("mlp", &normed, &mut output);
        let mut y = middle.clone();
        y.add(&output);

        let tape = BlockTape {
            input: x.clone(),
            middle,
            linears,
            raw_q,
            raw_k,
            attention,
            gate,
            up,
            bottlenecks: [after_attention, after_feed_forward],
        };
        (y, tape)
    }

    /// Norms q (0) or k (1) per head where the family does, and rotates it.
    fn place(&self, raw: &Matrix, which: usize) -> Matrix {
        let normed = self
            .head_norm(which)
            .map(|norm| rms_norm::forward(raw, norm, self.epsilon()));
        let x = normed.as_ref().unwrap_or(raw);
        rotary::turn(
            x,
            &self.backbone.frequencies,
            self.first_position,
            Direction::Forth,
        )
    }

    /// Reverses [`Self::place`].
    fn place_backward(&self, raw: &Matrix, which: usize, dy: &Matrix) -> Matrix {
        let back = Direction::Back;
        let dx = rotary::turn(dy, &self.backbone.frequencies, self.first_position, back);
        match self.head_norm(which) {
            Some(norm) => rms_norm::backward(raw, norm, self.epsilon(), &dx),
            None => dx,
        }
    }

    fn head_norm(&self, which: usize) -> Option<&[f64]> {
        let (q, k) = self.weights().head_norms.as_ref()?;
        Some(if which == 0 { q } else { k })
    }

    fn add_bottleneck(
        &self,
        module: &str,
        normed: &Matrix,
        output: &mut Matrix,
    ) -> Option<BottleneckTape> {
        let bottleneck = self.bottleneck(module)?;
        let input = if bottleneck.parallel {
            normed
        } else {
            &*output
        };
        let (added, tape) = bottleneck.forward(input);
        output.add(&added);
        Some(tape)
    }

    /// Reverses [`Self::add_bottleneck`]: adds to the gradients of the sub-layer's output and normed input.
    fn bottleneck_backward(
        &self,
        module: &str,
        tape: Option<&BottleneckTape>,
        d_output: &mut Matrix,
        d_normed: &mut Matrix,
        gradient: &mut Tensors,
    ) {
        let (Some(bottleneck), Some(tape)) = (self.bottleneck(module), tape) else {
            return;
        };
        let d_input = bottleneck.backward(tape, d_output, gradient);
        if bottleneck.parallel {
            d_normed.add(&d_input);
        } else {
            d_output.add(&d_input);
        }
    }

    fn project_backward(
        &self,
        p: Projection,
        tape: &BlockTape,
        dy: &Matrix,
        gradient: &mut Tensors,
    ) -> Matrix {
        let tape = &tape.linears[p as usize];
        self.linear(p, |linear| {
            linear.backward(self.adapter, tape, dy, gradient)
        })
    }

    /// Reverses [`Self::forward`].
    #[must_use]
    pub fn backward(&self, tape: &BlockTape, dy: &Matrix, gradient: &mut Tensors) -> BlockGradient {
        let weights = self.weights();

        let mut d_output = dy.clone();
        let mut d_normed = Matrix::zeros(dy.rows, dy.columns);
        let kept = tape.bottlenecks[1].as_ref();
        self.bottleneck_backward("mlp", kept, &mut d_output, &mut d_normed, gradient);
        let d_inner = self.project_backward(Projection::Down, tape, &d_output, gradient);
        let (d_gate, d_up) = activation::swiglu_backward(&tape.gate, &tape.up, &d_inner);
        d_normed.add(&self.project_backward(Projection::Gate, tape, &d_gate, gradient));
        d_normed.add(&self.project_backward(Projection::Up, tape, &d_up, gradient));
        let norm = &weights.feed_forward_norm;
        let mut d_middle = rms_norm::backward(&tape.middle, norm, self.epsilon(), &d_normed);
        d_middle.add(dy);

        let mut d_output = d_middle.clone();
        let mut d_normed = Matrix::zeros(dy.rows, dy.columns);
        let kept = tape.bottlenecks[0].as_ref();
        self.bottleneck_backward("self_attn", kept, &mut d_output, &mut d_normed, gradient);
        let d_attended = self.project_backward(Projection::O, tape, &d_output, gradient);
        let d = attention::backward(self.backbone.heads(), &tape.attention, &d_attended);
        let d_q = self.place_backward(&tape.raw_q, 0, &d.q);
        let d_k = self.place_backward(&tape.raw_k, 1, &d.k);
        d_normed.add(&self.project_backward(Projection::Q, tape, &d_q, gradient));
        d_normed.add(&self.project_backward(Projection::K, tape, &d_k, gradient));
        d_normed.add(&self.project_backward(Projection::V, tape, &d.v, gradient));
        let norm = &weights.attention_norm;
        let mut d_input = rms_norm::backward(&tape.input, norm, self.epsilon(), &d_normed);
        d_input.add(&d_middle);
        BlockGradient {
            input: d_input,
            prefix: d.prefix,
        }
    }
}
