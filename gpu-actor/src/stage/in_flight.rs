//! What a stage keeps of micro-batches that went forward and have not come back, and the buffers they are kept in.
//!
//! Buffers go round: a micro-batch that came back leaves its own to the next, so that no pass allocates after the
//! first few.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::carried::Carried;
use super::loss::Labelled;
use super::tape::LayerTape;
use crate::batch::{Batch, Chunk};
use crate::model::Model;

/// One micro-batch between its forward and its backward pass.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) batch: Arc<Batch>,
    /// By layer held; none of a chunk that runs forward again before it comes back.
    pub(super) tape: Option<Vec<LayerTape>>,
    /// What such a chunk came in as; none on the first stage, which embeds.
    pub(super) input: Option<Vec<f32>>,
    /// On the last stage.
    pub(super) labelled: Option<Labelled>,
}

/// All of them, by number.
#[derive(Debug)]
pub(super) struct InFlight {
    layers: usize,
    kept: BTreeMap<u64, Kept>,
    /// Of sequences that pass in chunks, the oldest first: they come back in the order in which they went.
    carried: VecDeque<Carried>,
    /// Of a held-out one, which does not come back.
    measured: Option<Carried>,
    free: Vec<Vec<LayerTape>>,
}

impl InFlight {
    /// None yet, on a stage of so many layers.
    pub(super) fn new(layers: usize) -> Self {
        Self {
            layers,
            kept: BTreeMap::new(),
            carried: VecDeque::new(),
            measured: None,
            free: Vec::new(),
        }
    }

    /// A tape for all layers, used before if there is one.
    pub(super) fn tape(&mut self) -> Vec<LayerTape> {
        let fresh = || vec![LayerTape::default(); self.layers];
        self.free.pop().unwrap_or_else(fresh)
    }

    /// Whether no micro-batch is between its two passes.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Takes out what goes with a chunk on its way forward: of the sequence that went last, or of a new one.
    ///
    /// # Panics
    /// When the chunk before it did not go.
    pub(super) fn carry(&mut self, chunk: Chunk, model: &Model, trains: bool) -> Carried {
        if !chunk.follows() {
            return Carried::new(model, chunk);
        }
        let last = match trains {
            true => self.carried.pop_back(),
            false => self.measured.take(),
        };
        let mut carried = last.expect("chunks of a sequence go one after another");
        carried.turn_to(chunk);
        carried
    }

    /// Keeps it for the next chunk, and for the way back if there is one.
    pub(super) fn put_down(&mut self, carried: Carried, chunk: Chunk, trains: bool) {
        if trains {
            self.carried.push_back(carried);
        } else {
            self.measured = (!chunk.ends()).then_some(carried);
        }
    }

    /// Takes out what goes with a chunk on its way back.
    ///
    /// # Panics
    /// When no sequence is under way in chunks, or the oldest is another.
    pub(super) fn carry_back(&mut self, chunk: Chunk) -> Carried {
        let oldest = self.carried.pop_front();
        let mut carried = oldest.expect("a chunk goes forward before it comes back");
        carried.turn_to(chunk);
        carried.turn_back();
        carried
    }

    /// Keeps it for the chunk before, if there is one.
    pub(super) fn put_back(&mut self, carried: Carried, chunk: Chunk) {
        if chunk.follows() {
            self.carried.push_front(carried);
        }
    }

    /// Takes a tape back.
    pub(super) fn reuse(&mut self, tape: Vec<LayerTape>) {
        self.free.push(tape);
    }

    /// Keeps a micro-batch until [`Self::release`].
    ///
    /// # Panics
    /// When one with this number is kept.
    pub(super) fn keep(&mut self, number: u64, kept: Kept) {
        let before = self.kept.insert(number, kept);
        assert!(before.is_none(), "micro-batch {number} went forward twice");
    }

    pub(super) fn release(&mut self, number: u64) -> Option<Kept> {
        self.kept.remove(&number)
    }

    /// Leaves all buffers to the micro-batches to come.
    pub(super) fn forget(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        self.free
            .extend(kept.into_values().filter_map(|kept| kept.tape));
        self.carried.clear();
        self.measured = None;
    }

    /// Bytes that the micro-batches kept need, without the buffers that are free.
    pub(super) fn bytes(&self) -> u64 {
        let kept = || self.kept.values();
        let tapes = kept().flat_map(|kept| kept.tape.iter().flatten());
        let labelled = kept().filter_map(|kept| kept.labelled.as_ref());
        let inputs = kept().filter_map(|kept| kept.input.as_ref());
        let carried = self.carried.iter().chain(&self.measured);
        tapes.map(LayerTape::bytes).sum::<u64>()
            + labelled.map(Labelled::bytes).sum::<u64>()
            + inputs
                .map(|input| size_of_val(&input[..]) as u64)
                .sum::<u64>()
            + carried.map(Carried::bytes).sum::<u64>()
    }
}
