//! What a stage keeps of micro-batches that went forward and have not come back, and the buffers they are kept in.
//!
//! Buffers go round: a micro-batch that came back leaves its own to the next, so that no pass allocates after the
//! first few.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::loss::Labelled;
use super::tape::LayerTape;
use crate::batch::Batch;

/// One micro-batch between its forward and its backward pass.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) batch: Arc<Batch>,
    /// By layer held.
    pub(super) tape: Vec<LayerTape>,
    /// On the last stage.
    pub(super) labelled: Option<Labelled>,
}

/// All of them, by number.
#[derive(Debug)]
pub(super) struct InFlight {
    layers: usize,
    kept: BTreeMap<u64, Kept>,
    free: Vec<Vec<LayerTape>>,
}

impl InFlight {
    /// None yet, on a stage of so many layers.
    pub(super) fn new(layers: usize) -> Self {
        Self {
            layers,
            kept: BTreeMap::new(),
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
        self.free.extend(kept.into_values().map(|kept| kept.tape));
    }

    /// Bytes that the micro-batches kept need, without the buffers that are free.
    pub(super) fn bytes(&self) -> u64 {
        let tapes = self.kept.values().flat_map(|kept| &kept.tape);
        let labelled = self.kept.values().filter_map(|kept| kept.labelled.as_ref());
        tapes.map(LayerTape::bytes).sum::<u64>() + labelled.map(Labelled::bytes).sum::<u64>()
    }
}
