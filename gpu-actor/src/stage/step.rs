//! The stage: a frozen slice of the backbone, a bank of adapters, and the passes over them.

use std::sync::Arc;

use kernels::cpu::Cpu;
use kernels::ops::rope::RopeTable;

use super::adapter::Adapter;
use super::block;
use super::cache::KeyValueCache;
use super::embed;
use super::loss::{self, Labelled};
use super::optim::{self, OptimizerState, Rule, StepNumbers};
use super::outcome::JobOutcome;
use super::pass::Pass;
use super::tape::{LayerTape, Work};
use super::timing::{Clock, Meter, Operator, Timings};
use crate::batch::{Batch, JobSlice};
use crate::model::Model;

/// A frozen backbone and the adapters that live on it.
#[derive(Debug)]
pub struct Stage {
    model: Arc<Model>,
    cpu: Cpu,
    bank: Vec<Option<Adapter>>,
    table: RopeTable,
    tape: Vec<LayerTape>,
    work: Work,
    meter: Meter,
}

impl Stage {
    /// A stage that holds the whole model.
    #[must_use]
    pub fn new(model: Arc<Model>, cpu: Cpu) -> Self {
        let table = RopeTable::new(&model.inverse_frequencies(), 0);
        let tape = vec![LayerTape::default(); model.layers.len()];
        Self {
            model,
            cpu,
            bank: Vec::new(),
            table,
            tape,
            work: Work::default(),
            meter: Meter::default(),
        }
    }

    /// The backbone.
    #[must_use]
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The device it computes on.
    #[must_use]
    pub fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// Attaches an adapter and returns its slot.
    pub fn attach(&mut self, mut adapter: Adapter) -> usize {
        adapter.derive(&self.cpu, &self.model);
        let free = self.bank.iter().position(Option::is_none);
        let slot = free.unwrap_or_else(|| {
            self.bank.push(None);
            self.bank.len() - 1
        });
        self.bank[slot] = Some(adapter);
        slot
    }

    /// Takes an adapter off the backbone, which is as it was before.
    pub fn detach(&mut self, slot: usize) -> Option<Adapter> {
        self.bank.get_mut(slot)?.take()
    }

    /// The adapter in a slot.
    #[must_use]
    pub fn adapter(&self, slot: usize) -> Option<&Adapter> {
        self.bank.get(slot)?.as_ref()
    }

    /// The adapter in a slot, to change; call [`Stage::derive`] afterwards.
    pub fn adapter_mut(&mut self, slot: usize) -> Option<&mut Adapter> {
        self.bank.get_mut(slot)?.as_mut()
    }

    /// Recomputes what depends on an adapter's values.
    pub fn derive(&mut self, slot: usize) {
        if let Some(adapter) = self.bank.get_mut(slot).and_then(Option::as_mut) {
            adapter.derive(&self.cpu, &self.model);
        }
    }

    /// Takes an optimizer step from the finished gradient of the adapter in a slot, and derives what depends on it.
    ///
    /// # Errors
    /// What [`optim::step`] finds not finite.
    ///
    /// # Panics
    /// When the slot is empty.
    pub fn step(
        &mut self,
        slot: usize,
        state: &mut OptimizerState,
        rule: &Rule,
        learning_rate: f64,
    ) -> Result<StepNumbers, String> {
        let adapter = self.bank.get_mut(slot).and_then(Option::as_mut);
        let adapter = adapter.expect("a slot that steps has an adapter");
        self.meter.time(Operator::Optimizer, || {
            let numbers = optim::step(&self.cpu, adapter, state, rule, learning_rate)?;
            adapter.derive(&self.cpu, &self.model);
            Ok(numbers)
        })
    }

    /// Measures from now on where time goes, by a clock of the caller; results do not change.
    pub fn measure(&mut self, clock: Clock) {
        self.meter = Meter::new(clock);
    }

    /// The times since the last call, or since [`Stage::measure`].
    pub fn take_timings(&mut self) -> Timings {
        self.meter.take()
    }

    /// Forward and backward of a batch: losses returned, gradients added to each job's tree.
    pub fn train(&mut self, batch: &Batch) -> Vec<JobOutcome> {
        self.within(|stage| stage.train_here(batch))
    }

    /// Runs a pass on the compute threads, so that no operation hands over to them by itself.
    fn within<R: Send>(&mut self, pass: impl FnOnce(&mut Self) -> R + Send) -> R {
        let cpu = self.cpu.clone();
        cpu.enter(|| pass(self))
    }

    fn train_here(&mut self, batch: &Batch) -> Vec<JobOutcome> {
        let labelled = self.losses(batch, true);
        self.backward(batch, &labelled);
        for job in batch.jobs.iter().filter(|job| job.last) {
            if let Some(adapter) = self.bank[job.slot].as_mut() {
                self.meter.time(Operator::GradientSums, || {
                    adapter.close_gradient(&self.model.shape)
                });
            }
        }
        let width = self.model.shape.hidden;
        JobOutcome::all(batch, &labelled, &self.tape, width)
    }

    /// Forward to the losses, and the head's gradient when training.
    fn losses(&mut self, batch: &Batch, training: bool) -> Labelled {
        let hidden = self.forward(batch, training, None);
        let Self {
            model,
            cpu,
            bank,
            table,
            meter,
            ..
        } = self;
        let pass = Pass {
            cpu,
            model,
            batch,
            table,
            training,
            meter,
        };
        pass.time(Operator::Head, || loss::compute(&pass, bank, &hidden))
    }

    /// Forward only: losses of a batch without dropout and without gradients.
    pub fn evaluate(&mut self, batch: &Batch) -> Vec<JobOutcome> {
        self.within(|stage| {
            let labelled = stage.losses(batch, false);
            JobOutcome::all(batch, &labelled, &[], stage.model.shape.hidden)
        })
    }

    /// Logits `(wanted, vocab)` of chosen rows; with caches (one a sequence), keys and values are appended.
    pub fn logits(
        &mut self,
        batch: &Batch,
        wanted: &[usize],
        caches: Option<&mut [KeyValueCache]>,
    ) -> Vec<f32> {
        self.within(|stage| {
            let hidden = stage.forward(batch, false, caches);
            let Self {
                model,
                cpu,
                bank,
                table,
                meter,
                ..
            } = stage;
            let pass = Pass {
                cpu,
                model,
                batch,
                table,
                training: false,
                meter,
            };
            pass.time(Operator::Head, || {
                loss::logits(&pass, bank, &hidden, wanted)
            })
        })
    }

    /// Output of the last block, `(rows, hidden)`.
    fn forward(
        &mut self,
        batch: &Batch,
        training: bool,
        mut caches: Option<&mut [KeyValueCache]>,
    ) -> Vec<f32> {
        let shape = &self.model.shape;
        self.table.ensure(batch.reach());
        self.work.resize(batch.rows(), shape);
        let mut hidden = embed::embed(&self.model, &self.bank, batch);
        let Self {
            model,
            cpu,
            bank,
            table,
            tape,
            work,
            meter,
            ..
        } = self;
        let pass = Pass {
            cpu,
            model,
            batch,
            table,
            training,
            meter,
        };
        for layer in 0..model.layers.len() {
            // Without backward one tape serves every block.
            let tape = &mut tape[if training { layer } else { 0 }];
            tape.resize(batch.rows(), &model.shape);
            let caches = caches.as_deref_mut();
            pass.time(Operator::Elementwise, || {
                block::forward(&pass, bank, layer, &mut hidden, tape, work, caches)
            });
        }
        hidden
    }

    fn backward(&mut self, batch: &Batch, labelled: &Labelled) {
        let width = self.model.shape.hidden;
        let Self {
            model,
            cpu,
            bank,
            table,
            tape,
            work,
            meter,
            ..
        } = self;
        work.d_hidden.fill(0.0);
        for (&row, d) in labelled.rows.iter().zip(labelled.d_hidden.chunks(width)) {
            work.d_hidden[row * width..][..width].copy_from_slice(d);
        }
        let prompted = |job: &JobSlice| {
            bank[job.slot]
                .as_ref()
                .is_some_and(|adapter| adapter.layout.prompt.is_some())
        };
        let below = batch.jobs.iter().any(prompted);
        let pass = Pass {
            cpu,
            model,
            batch,
            table,
            training: true,
            meter,
        };
        for layer in (0..model.layers.len()).rev() {
            let needed = layer > 0 || below;
            pass.time(Operator::Elementwise, || {
                block::backward(&pass, bank, layer, &mut tape[layer], work, needed)
            });
        }
        if below {
            embed::gradients(&pass, bank, &work.d_hidden);
        }
    }
}
