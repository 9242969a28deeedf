//! What is on its way: turns, and the micro-batches that they became.

use std::collections::{BTreeMap, BTreeSet};

use crate::batch::{Batch, JobSlice};
use crate::pipeline::Slot;
use crate::pipeline::council::Matter;
use crate::stage::optim::StepNumbers;
use crate::stage::outcome::JobOutcome;
use crate::train::engine::{Fault, TurnNumber};
use crate::train::tally::Tally;

/// A job in a turn.
#[derive(Debug, Default)]
pub(super) struct Share {
    pub(super) tally: Tally,
    /// Number of the step.
    pub(super) number: u64,
    /// Blocks of all its sequences, when several replicas measure them.
    pub(super) blocks: Option<u64>,
    pub(super) step: Option<Result<StepNumbers, Fault>>,
}

/// A turn on its way.
#[derive(Debug, Default)]
pub(super) struct Open {
    pub(super) jobs: Vec<Slot>,
    pub(super) shares: BTreeMap<Slot, Share>,
    /// Micro-batches whose outcome is missing.
    pub(super) unmeasured: usize,
    /// Steps that are not closed.
    pub(super) steps: BTreeSet<Matter>,
    /// Whether any of them was given to a station.
    pub(super) given: bool,
}

impl Open {
    /// One micro-batch less is missing; with the last one the losses of jobs are complete that several replicas measure.
    pub(super) fn measured(&mut self) {
        self.unmeasured -= 1;
        if self.unmeasured > 0 {
            return;
        }
        for share in self.shares.values_mut() {
            if let Some(blocks) = share.blocks {
                let whole = share.tally.close(blocks);
                debug_assert!(whole, "all shards of a turn were measured");
            }
        }
    }

    /// Whether nothing is missing.
    pub(super) fn is_done(&self) -> bool {
        self.unmeasured == 0 && self.steps.is_empty()
    }
}

/// Names a micro-batch before it has a number.
pub(super) type Ticket = u64;

/// A micro-batch on its way.
#[derive(Debug)]
pub(super) struct Under {
    pub(super) turn: Option<TurnNumber>,
    /// The replica whose job it is, and what that calls it.
    pub(super) assists: Option<(u32, Ticket)>,
    /// By job in it.
    pub(super) jobs: Vec<Rows>,
    /// Whether a backward pass must come back too.
    pub(super) trains: bool,
    /// Whether its outcome is here.
    pub(super) measured: bool,
    /// Whether it is a chunk behind another of the same sequence.
    pub(super) follows: bool,
}

/// A job's rows in a micro-batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    pub(super) slot: Slot,
    /// Number of the step.
    pub(super) step: u64,
    /// Number of their first block, and how many blocks they are.
    pub(super) first_block: u64,
    pub(super) blocks: usize,
    /// How many rows.
    pub(super) rows: usize,
    /// Whether the step ends with them.
    pub(super) last: bool,
}

impl Rows {
    pub(super) fn of(job: &JobSlice) -> Self {
        Self {
            slot: job.slot,
            step: job.step,
            first_block: job.first_block,
            blocks: job.blocks.len(),
            rows: job.rows.len(),
            last: job.last,
        }
    }

    /// Whether an outcome can be that of these rows.
    pub(super) fn fits(&self, outcome: &JobOutcome) -> bool {
        outcome.block_losses.len() == self.blocks && outcome.correct <= self.rows as u64
    }
}

impl Under {
    /// The rows of each job in it.
    pub(super) fn jobs_of(batch: &Batch) -> Vec<Rows> {
        batch.jobs.iter().map(Rows::of).collect()
    }
}
