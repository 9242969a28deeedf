//! Bytes of a stage: what lies there always, and what each micro-batch under way adds (Eq 5 of the MuxTune paper, and
//! what it leaves out).
//!
//! ```text
//! always:          driver and libraries
//!                  + blocks, embedding on the first stage, head on the last (a tied table on both)
//!                  + for each job: values, gradients and moments of its adapter
//!                  + for each job, on a processor: its values and moments once more, on their way to the store
//!                  + for each job whose step is more than one pass: sums that wait for their neighbours, at most
//!                    floor(log2 blocks) of each value
//!                  + for each job that is cut within a sequence: keys and values carried, and their gradients in f32
//! while computing: buffers of one block over the rows of the largest pass
//! each micro-batch under way: rows x blocks x (what backward needs of a block) + what it needs of adapters
//! ```
//!
//! What backward needs of a block and row: inputs of both norms, q, k and v after rotation, the attention's output and
//! its log-sum-exp, gate and up; that is the engine's tape, in the width that the device computes in.
//!
//! A job's gradient is a tree of sums over the blocks of its step (ADR 5). After k of n blocks one sum waits for each binary
//! one of k, and no k below n has more of them than floor(log2 n). They wait between the passes of a step, and between turns
//! where a step is spread over several (ADR 18): then of all such jobs at once, while others pass. A turn ends between
//! sequences, so that no keys and values wait with them.

use shared::model::{ModelShape, Projection};

use super::profile::{Compute, Weights};
use super::snapshot::Task;

/// Bytes of a value in a sum of gradients, f32 on every device.
const SUM: u64 = size_of::<f32>() as u64;

/// Copies of a job's state that wait for the store beside it, which by default takes one after every step. Of a GPU they lie
/// in its machine's memory.
fn copies(compute: Compute) -> u64 {
    match compute {
        Compute::F32 => 1,
        Compute::Bf16 => 0,
    }
}

/// Sums that wait at most of each value, between the passes of a step.
#[must_use]
pub fn waiting_sums(task: &Task) -> u64 {
    u64::from(task.blocks().max(1).ilog2())
}

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
    /// Copies of each job's state on their way to the store.
    pub copies: u64,
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
            copies: copies(compute),
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

    /// What a job keeps on a stage at all times, in passes of so many rows of it; `spread`: whether its step may take
    /// several turns, however large a pass is.
    #[must_use]
    pub fn resident(
        &self,
        task: &Task,
        model: &ModelShape,
        part: (u64, bool, bool),
        micro_batch_rows: u64,
        spread: bool,
    ) -> u64 {
        let (blocks, first, last) = part;
        let mut values = task.adapter.values_per_block(model) * blocks;
        if first {
            values += task.adapter.values_of_embedding(model);
        }
        if last {
            values += task.adapter.values_of_head(model);
        }
        let longest = task.longest_of_all();
        let carried = if longest > micro_batch_rows {
            longest
                .saturating_mul(self.carried_per_row)
                .saturating_mul(blocks)
        } else {
            0
        };
        let several = spread || task.tokens() > micro_batch_rows;
        let sums = if several { waiting_sums(task) } else { 0 };
        // All but its gradients.
        let stored = task.bytes_per_value.saturating_sub(SUM);
        values
            .saturating_mul(task.bytes_per_value + self.copies * stored + sums * SUM)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::snapshot::BLOCK;
    use crate::plan::testing::{llama_7b, task};

    fn resident(task: &Task, rows: u64, spread: bool) -> u64 {
        let model = llama_7b();
        let sizes = Sizes::new(&model, Weights::Bf16, Weights::Bf16, Compute::Bf16);
        sizes.resident(task, &model, (32, true, true), rows, spread)
    }

    #[test]
    fn sums_wait_where_a_step_is_more_than_one_pass_or_turn() {
        let job = task(8, &[500, 500]);
        let (whole, cut) = (resident(&job, 1000, false), resident(&job, 500, false));
        let values = job.adapter.values_per_block(&llama_7b()) * 32;
        // Sixteen blocks: after fifteen of them four sums wait.
        assert_eq!(cut - whole, 4 * 4 * values);
        assert_eq!(resident(&job, 1000, true), cut);
        assert_eq!(resident(&job, 500, true), cut);
        let one = task(8, &[64]);
        assert_eq!(resident(&one, 64, true), resident(&one, 64, false));
    }

    proptest! {
        /// However a step is cut between blocks, no more sums wait than are counted, and for some cut as many do.
        #[test]
        fn no_cut_keeps_more_sums_than_are_counted(lengths in prop::collection::vec(1u32..2_000, 1..40)) {
            let job = task(8, &lengths);
            let blocks: u64 = lengths.iter().map(|rows| u64::from(*rows).div_ceil(BLOCK)).sum();
            let most = (0..blocks).map(u64::count_ones).max();
            prop_assert_eq!(u64::from(most.unwrap_or(0)), waiting_sums(&job));
        }
    }
}
