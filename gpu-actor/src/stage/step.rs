//! The stage: a frozen slice of the backbone and a bank of adapters; their steps, losses and logits.

use std::sync::Arc;

use kernels::cpu::Cpu;
use kernels::ops::rope::RopeTable;

use super::adapter::Adapter;
use super::agreement::{Agreement, Broken, Report};
use super::in_flight::InFlight;
use super::optim::{self, NotTaken, OptimizerState, Rule, Settled, StepNumbers};
use super::tape::Work;
use super::timing::{Clock, Meter, Operator, Timings};
use crate::model::Model;

/// A frozen backbone and the adapters that live on it.
#[derive(Debug)]
pub struct Stage {
    pub(super) model: Arc<Model>,
    pub(super) cpu: Cpu,
    pub(super) bank: Vec<Option<Adapter>>,
    pub(super) table: RopeTable,
    pub(super) in_flight: InFlight,
    pub(super) work: Work,
    pub(super) meter: Meter,
    /// Layers, from the first held, whose tape is made again and not kept.
    pub(super) recomputed: usize,
    /// Most bytes of activations at once since they were last asked for.
    pub(super) peak: u64,
}

impl Stage {
    /// A stage that holds the model, or the layers of it that are there.
    #[must_use]
    pub fn new(model: Arc<Model>, cpu: Cpu) -> Self {
        let table = RopeTable::new(&model.inverse_frequencies(), 0);
        let in_flight = InFlight::new(model.layers.len());
        Self {
            model,
            cpu,
            bank: Vec::new(),
            table,
            in_flight,
            work: Work::default(),
            meter: Meter::default(),
            recomputed: 0,
            peak: 0,
        }
    }

    /// Lets so many layers, from the first held, keep only their input and run forward again before their backward
    /// pass. Less memory for more time; no result changes.
    ///
    /// # Panics
    /// When micro-batches are under way: they kept what was said before.
    pub fn recompute(&mut self, layers: usize) {
        assert!(
            self.in_flight.is_empty(),
            "what a layer keeps is said before micro-batches come"
        );
        self.recomputed = layers.min(self.model.layers.len());
        // Buffers of layers that keep less from now on are too large.
        self.in_flight = InFlight::new(self.model.layers.len());
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

    /// Whether it embeds.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.model.first_layer == 0
    }

    /// Whether it has the head and computes the loss.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.model.span().end == self.model.shape.layers
    }

    /// Attaches an adapter, or the slice of one that belongs to the layers held, and returns its slot.
    ///
    /// # Panics
    /// When the adapter has parameters at other layers.
    pub fn attach(&mut self, adapter: Adapter) -> usize {
        let free = self.bank.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.bank.len());
        self.attach_at(slot, adapter);
        slot
    }

    /// Attaches an adapter, or a slice of one, in a slot of the caller's.
    ///
    /// # Panics
    /// When the slot is taken, or the adapter has parameters at other layers.
    pub fn attach_at(&mut self, slot: usize, mut adapter: Adapter) {
        let (here, there) = (self.model.span(), &adapter.layout.span);
        assert_eq!(here, *there, "an adapter of other layers");
        adapter.derive(&self.cpu, &self.model);
        if self.bank.len() <= slot {
            self.bank.resize_with(slot + 1, || None);
        }
        let before = self.bank[slot].replace(adapter);
        assert!(before.is_none(), "slot {slot} is taken");
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
    ) -> Result<StepNumbers, NotTaken> {
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

    /// What this stage knows of the finished gradient of the adapter in a slot.
    ///
    /// # Panics
    /// When the slot is empty.
    #[must_use]
    pub fn report(&self, slot: usize) -> Report {
        let adapter = self
            .adapter(slot)
            .expect("a slot that steps has an adapter");
        self.meter
            .time(Operator::Optimizer, || optim::report(&self.cpu, adapter))
    }

    /// Finds out what a step of the adapter in a slot would do, once all stages have reported; see [`optim::settle`].
    ///
    /// # Errors
    /// What [`optim::settle`] finds not finite: no stage takes the step then.
    ///
    /// # Panics
    /// When the slot is empty.
    pub fn settle(
        &mut self,
        slot: usize,
        state: &OptimizerState,
        rule: &Rule,
        learning_rate: f64,
        agreement: Agreement,
    ) -> Result<Settled, Broken> {
        let adapter = self.bank.get_mut(slot).and_then(Option::as_mut);
        let adapter = adapter.expect("a slot that steps has an adapter");
        self.meter.time(Operator::Optimizer, || {
            optim::settle(&self.cpu, adapter, state, rule, learning_rate, agreement)
        })
    }

    /// Takes a step that all stages have settled, and derives what depends on the new values.
    ///
    /// # Panics
    /// When the slot is empty.
    pub fn apply(
        &mut self,
        slot: usize,
        state: &mut OptimizerState,
        rule: &Rule,
        settled: &Settled,
    ) -> StepNumbers {
        let adapter = self.bank.get_mut(slot).and_then(Option::as_mut);
        let adapter = adapter.expect("a slot that steps has an adapter");
        self.meter.time(Operator::Optimizer, || {
            let numbers = optim::apply(&self.cpu, adapter, state, rule, settled);
            adapter.derive(&self.cpu, &self.model);
            numbers
        })
    }

    /// Runs a pass on the compute threads, so that no operation hands over to them by itself.
    pub(super) fn within<R: Send>(&mut self, pass: impl FnOnce(&mut Self) -> R + Send) -> R {
        let cpu = self.cpu.clone();
        cpu.enter(|| pass(self))
    }
}
