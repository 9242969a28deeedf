//! What every operation of a pass can see.

use kernels::cpu::Cpu;
use kernels::ops::rope::RopeTable;

use super::adapter::Adapter;
use super::timing::{Meter, Operator};
use crate::batch::Batch;
use crate::model::{LayerWeights, Model};

/// What every operation of a pass can see.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass<'a> {
    pub(super) cpu: &'a Cpu,
    pub(super) model: &'a Model,
    pub(super) batch: &'a Batch,
    pub(super) table: &'a RopeTable,
    /// Whether dropout applies and the tape is written for backward.
    pub(super) training: bool,
    /// Whether forward only fills a tape once more: outputs of blocks are of no use then.
    pub(super) again: bool,
    pub(super) meter: &'a Meter,
}

impl Pass<'_> {
    /// The weights of a layer that the stage holds, by its number in the whole model.
    pub(super) fn weights(&self, layer: usize) -> &LayerWeights {
        &self.model.layers[layer - self.model.first_layer]
    }

    /// Does the work, and counts the time as the operator's.
    pub(super) fn time<R>(&self, operator: Operator, work: impl FnOnce() -> R) -> R {
        self.meter.time(operator, work)
    }
}

/// The adapters of a pass, by [`JobSlice::slot`]; an empty slot is the bare backbone.
pub(super) type Bank = [Option<Adapter>];
