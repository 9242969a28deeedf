//! The products with frozen weights that a pass cannot do without, alone: forward, and backward to the input.

use gpu_actor::model::Model;
use kernels::cpu::Cpu;
use kernels::ops::linear;
use shared::model::Projection;

use crate::clock::Stopwatch;

/// Seconds of all products of a pass with so many rows, of which so many count in the loss; the best of `repeats`.
pub(crate) fn seconds(
    cpu: &Cpu,
    model: &Model,
    rows: usize,
    labelled: usize,
    repeats: usize,
) -> f64 {
    let mut buffers = Buffers::new(model, rows, labelled);
    let times = (0..repeats.max(1)).map(|_| {
        let clock = Stopwatch::start();
        cpu.enter(|| buffers.pass(cpu, model));
        clock.seconds()
    });
    times.fold(f64::INFINITY, f64::min)
}

#[derive(Debug)]
struct Buffers {
    labelled: usize,
    /// Inputs by projection, `(rows, in)`.
    inputs: Vec<Vec<f32>>,
    /// Outputs by projection, `(rows, out)`.
    outputs: Vec<Vec<f32>>,
    /// `(labelled, hidden)` and `(labelled, vocab)`.
    head_input: Vec<f32>,
    logits: Vec<f32>,
}

impl Buffers {
    fn new(model: &Model, rows: usize, labelled: usize) -> Self {
        let shape = &model.shape;
        // Any numbers do, as long as none is subnormal.
        let numbers = |count: usize| {
            (0..count)
                .map(|i| (i % 17) as f32 * 0.01 + 0.1)
                .collect::<Vec<f32>>()
        };
        let widths = Projection::ALL.map(|projection| shape.projection(projection));
        Self {
            labelled,
            inputs: widths
                .iter()
                .map(|(_, input)| numbers(rows * input))
                .collect(),
            outputs: widths
                .iter()
                .map(|(output, _)| numbers(rows * output))
                .collect(),
            head_input: numbers(labelled * shape.hidden),
            logits: numbers(labelled * shape.vocab),
        }
    }

    fn pass(&mut self, cpu: &Cpu, model: &Model) {
        for layer in &model.layers {
            for (index, weight) in layer.projections.iter().enumerate() {
                linear::forward(cpu, &self.inputs[index], weight, &mut self.outputs[index]);
            }
        }
        if self.labelled > 0 {
            linear::forward(cpu, &self.head_input, model.head(), &mut self.logits);
            linear::backward(cpu, &self.logits, model.head(), &mut self.head_input, false);
        }
        for layer in model.layers.iter().rev() {
            for (index, weight) in layer.projections.iter().enumerate() {
                linear::backward(
                    cpu,
                    &self.outputs[index],
                    weight,
                    &mut self.inputs[index],
                    false,
                );
            }
        }
    }
}
