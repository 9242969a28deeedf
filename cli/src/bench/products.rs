//! The products with frozen weights that a pass cannot do without, alone: forward, and backward to the input.
//!
//! Made twice: by ours, which read the weights as the model holds them, and by the `gemm` crate on the same numbers
//! as 32-bit floats, on the same threads. The lowest block has no product back to its input: nothing below trains.

use gpu_actor::model::Model;
use kernels::cpu::Cpu;
use kernels::ops::linear;
use kernels::peer;
use kernels::weight::{Format, Weight};
use shared::model::Projection::{self, Down, Gate, K, O, Q, Up, V};

use super::load::PassShape;
use crate::clock::Stopwatch;
use crate::exit::{Exit, Failure, OrExit};

/// Times each pass is made; the best counts.
const REPEATS: usize = 3;
/// Projections that read one input, bottom up.
const GROUPS: [&[Projection]; 4] = [&[Q, K, V], &[O], &[Gate, Up], &[Down]];

/// Seconds of the same products.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seconds {
    /// By our kernels.
    pub(crate) own: f64,
    /// By the `gemm` crate.
    pub(crate) gemm: f64,
}

/// Who multiplies.
#[derive(Clone, Copy, Debug)]
enum Maker {
    Own,
    Gemm,
}

/// The frozen weights, as the model holds them and as 32-bit numbers.
#[derive(Debug)]
pub(crate) struct Products<'a> {
    cpu: &'a Cpu,
    model: &'a Model,
    held: Weights,
    plain: Weights,
}

#[derive(Clone, Debug)]
struct Weights {
    layers: Vec<[Weight; 7]>,
    head: Weight,
}

impl<'a> Products<'a> {
    /// Makes ready; a model that is held as 32-bit numbers is not copied.
    ///
    /// # Errors
    /// [`Exit::Internal`] when a weight has no 32-bit form.
    pub(crate) fn new(cpu: &'a Cpu, model: &'a Model) -> Result<Self, Failure> {
        let held = Weights {
            layers: model.layers.iter().map(|l| l.projections.clone()).collect(),
            head: model.head().clone(),
        };
        let mut plain = held.clone();
        for weight in plain.layers.iter_mut().flatten().chain([&mut plain.head]) {
            *weight = weight.convert(Format::F32).or_exit(Exit::Internal)?;
        }
        Ok(Self {
            cpu,
            model,
            held,
            plain,
        })
    }

    /// Seconds of all products of a pass, the best of some; both makers in turns, so that a busy moment hits both.
    pub(crate) fn seconds(&self, shape: PassShape) -> Seconds {
        let mut buffers = Buffers::new(self.model, shape);
        let mut timed = |maker, weights| {
            let clock = Stopwatch::start();
            self.cpu.enter(|| buffers.pass(self.cpu, maker, weights));
            clock.seconds()
        };
        let mut best = Seconds {
            own: f64::INFINITY,
            gemm: f64::INFINITY,
        };
        for _ in 0..REPEATS {
            best.own = best.own.min(timed(Maker::Own, &self.held));
            best.gemm = best.gemm.min(timed(Maker::Gemm, &self.plain));
        }
        best
    }
}

#[derive(Debug)]
struct Buffers {
    groups: Vec<Group>,
    /// `(labelled, hidden)`, `(labelled, vocab)` and `(labelled, hidden)`.
    head_input: Vec<f32>,
    logits: Vec<f32>,
    head_gradient: Vec<f32>,
}

/// Products of one input.
#[derive(Debug)]
struct Group {
    projections: &'static [Projection],
    /// `(rows, in)`.
    input: Vec<f32>,
    /// `(rows, out)` each.
    outputs: Vec<Vec<f32>>,
    /// `(rows, in)`.
    gradient: Vec<f32>,
}

/// Any numbers do, as long as none is subnormal.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i % 17) as f32 * 0.01 + 0.1).collect()
}

impl Buffers {
    fn new(model: &Model, PassShape { rows, labelled }: PassShape) -> Self {
        let shape = &model.shape;
        let group = |projections: &'static [Projection]| {
            let (_, input) = shape.projection(projections[0]);
            let outputs = projections.iter().map(|&p| shape.projection(p).0);
            Group {
                projections,
                input: numbers(rows * input),
                outputs: outputs.map(|out| numbers(rows * out)).collect(),
                gradient: numbers(rows * input),
            }
        };
        Self {
            groups: GROUPS.map(group).into(),
            head_input: numbers(labelled * shape.hidden),
            logits: numbers(labelled * shape.vocab),
            head_gradient: numbers(labelled * shape.hidden),
        }
    }

    fn pass(&mut self, cpu: &Cpu, maker: Maker, weights: &Weights) {
        for layer in &weights.layers {
            for group in &mut self.groups {
                group.forward(cpu, maker, layer);
            }
        }
        if !self.logits.is_empty() {
            self.head(cpu, maker, &weights.head);
        }
        for (index, layer) in weights.layers.iter().enumerate().rev() {
            let lowest = usize::from(index == 0);
            for group in self.groups[lowest..].iter_mut().rev() {
                group.backward(cpu, maker, layer);
            }
        }
    }

    fn head(&mut self, cpu: &Cpu, maker: Maker, head: &Weight) {
        let (x, y, dx) = (&self.head_input, &mut self.logits, &mut self.head_gradient);
        match maker {
            Maker::Own => {
                linear::forward(cpu, x, head, y);
                linear::backward(cpu, y, head, dx, false);
            }
            Maker::Gemm => {
                peer::forward(cpu, x, head, y);
                peer::backward(cpu, y, head, dx, false);
            }
        }
    }
}

impl Group {
    fn forward(&mut self, cpu: &Cpu, maker: Maker, layer: &[Weight; 7]) {
        let weights = self.projections.iter().map(|&p| &layer[p as usize]);
        let products = weights.zip(self.outputs.iter_mut().map(Vec::as_mut_slice));
        match maker {
            Maker::Own => linear::forward_many(cpu, &self.input, &mut products.collect::<Vec<_>>()),
            Maker::Gemm => products.for_each(|(w, y)| peer::forward(cpu, &self.input, w, y)),
        }
    }

    fn backward(&mut self, cpu: &Cpu, maker: Maker, layer: &[Weight; 7]) {
        let weights = self.projections.iter().map(|&p| &layer[p as usize]);
        let parts: Vec<(&[f32], &Weight)> = self
            .outputs
            .iter()
            .map(Vec::as_slice)
            .zip(weights)
            .collect();
        match maker {
            Maker::Own => linear::backward_many(cpu, &parts, &mut self.gradient, false),
            Maker::Gemm => {
                for (index, (dy, w)) in parts.into_iter().enumerate() {
                    peer::backward(cpu, dy, w, &mut self.gradient, index > 0);
                }
            }
        }
    }
}
