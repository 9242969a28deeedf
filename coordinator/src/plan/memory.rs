//! Bytes of a stage: what lies there always, and what each micro-batch under way adds (Eq 5 of the MuxTune paper, and
//! what it leaves out).
//!
//! ```text
//! always:          driver and libraries
//!                  + blocks, embedding on the first stage, head on the last (a tied table on both)
//!                  + for each job: values, gradients and moments of its adapter
//!                  + for each job that is cut within a sequence: keys and values carried, and their gradients in f32
//! while computing: buffers of one block over the rows of the largest pass
//! each micro-batch under way: rows x blocks x (what backward needs of a block) + what it needs of adapters
//! ```
//!
//! What backward needs of a block and row: inputs of both norms, q, k and v after rotation, the attention's output and
//! its log-sum-exp, gate and up; that is the engine's tape, in the width that the device computes in.

use shared::model::{ModelShape, Projection};

use super::profile::{Compute, Weights};
use super::snapshot::Task;

/// Sizes of a backbone on one kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// One block.
    pub block: u64,
    /// The embedding.
    pub embedding: u64,
    /// Last norm and head.
    pub head: u64,
    /// What backward needs of one block and row.
    pub tape_per_row: u64,
    /// Buffers of one block and row, forward and backward.
    pub buffers_per_row: u64,
    /// Keys and values of one block and row, and their gradients.
    pub carried_per_row: u64,
    /// What goes from stage to stage, per row.
    pub wire_per_row: u64,
}

impl Sizes {
    /// Of a model kept and computed so.
    #[must_use]
    pub fn new(model: &ModelShape, blocks: Weights, tables: Weights, compute: Compute) -> Self {
        let value = compute.width();
        let products: u64 = Projection::ALL
            .iter()
            .map(|projection| {
                let (out, input) = model.projection(*projection);
                (out * input) as u64
            })
            .sum();
        let biases: usize = Projection::ALL
            .iter()
            .filter(|projection| model.has_bias(**projection))
            .map(|projection| model.projection(*projection).0)
            .sum();
        let (hidden, inner) = (model.hidden as u64, model.intermediate as u64);
        let (q, kv) = (model.q_width() as u64, model.kv_width() as u64);
        let norms = 2 * hidden + 2 * model.head_dim as u64 + biases as u64;
        let table = tables.bytes((model.vocab * model.hidden) as u64);
        let head_norms = if model.qk_norm {
            q + kv + (model.heads + model.kv_heads) as u64
        } else {
            0
        };
        let kept = 2 * hidden + 2 + 2 * q + 2 * kv + model.heads as u64 + head_norms + 2 * inner;
        Self {
            block: blocks.bytes(products) + norms * value,
            embedding: table,
            head: table + hidden * value,
            tape_per_row: kept * value,
            buffers_per_row: (6 * hidden + 4 * inner + 4 * q) * value,
            carried_per_row: 2 * kv * (value + 4),
            wire_per_row: hidden * value,
        }
    }

    /// The backbone's part on a stage.
    #[must_use]
    pub fn backbone(&self, blocks: u64, first: bool, last: bool) -> u64 {
        let embedding = if first { self.embedding } else { 0 };
        let head = if last { self.head } else { 0 };
        blocks
            .saturating_mul(self.block)
            .saturating_add(embedding)
            .saturating_add(head)
    }

    /// What a job keeps on a stage at all times.
    #[must_use]
    pub fn resident(
        &self,
        task: &Task,
        model: &ModelShape,
        part: (u64, bool, bool),
        micro_batch_rows: u64,
    ) -> u64 {
        let (blocks, first, last) = part;
        let mut values = task.adapter.values_per_block(model) * blocks;
        if first {
            values += task.adapter.values_of_embedding(model);
        }
        if last {
            values += task.adapter.values_of_head(model);
        }
        let carried = if task.longest() > micro_batch_rows {
            task.longest()
                .saturating_mul(self.carried_per_row)
                .saturating_mul(blocks)
        } else {
            0
        };
        values
            .saturating_mul(task.bytes_per_value)
            .saturating_add(carried)
    }

    /// What a micro-batch keeps on a stage until it comes back.
    #[must_use]
    pub fn under_way(&self, rows: u64, adapter_bytes_per_block: u64, blocks: u64) -> u64 {
        let block = rows
            .saturating_mul(self.tape_per_row)
            .saturating_add(adapter_bytes_per_block);
        block
            .saturating_mul(blocks)
            .saturating_add(rows.saturating_mul(self.wire_per_row))
    }

    /// Buffers while a pass of so many rows is computed.
    #[must_use]
    pub fn buffers(&self, rows: u64) -> u64 {
        rows.saturating_mul(self.buffers_per_row + 2 * self.wire_per_row)
    }
}
