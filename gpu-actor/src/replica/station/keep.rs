//! A station's part in making states durable: what it gives to the keeper, and what that has done.

use super::super::error::ReplicaError;
use super::super::watch::{Deed, Span};
use super::{Station, Told};
use crate::artifacts::keeper::{Done, Task};
use crate::artifacts::part::Part;
use crate::link::word::Word;
use crate::pipeline::Slot;
use shared::units::Bytes;

impl Station {
    /// Passes on what the keeper has done.
    pub(super) fn stored(&mut self) -> Result<bool, ReplicaError> {
        let mut moved = false;
        while let Some(done) = self.keeper.poll() {
            moved = true;
            match done {
                Done::Part { job, step, outcome } => {
                    self.storing -= 1;
                    self.back(Word::Part { job, step, outcome })?;
                }
                sealed @ Done::Manifest { .. } => self.told.push_back(Told::Sealed(sealed)),
            }
        }
        Ok(moved)
    }

    /// Copies a job's state of this stage and gives it to the keeper.
    pub(super) fn store_part(&mut self, slot: Slot) {
        let start = self.watch.now();
        let (Some(tenant), Some(adapter)) = (self.tenants.get(&slot), self.stage.adapter(slot))
        else {
            return;
        };
        let part = Part {
            layers: self.stage.model().span(),
            values: adapter.values.clone(),
            optimizer: tenant.optimizer.clone(),
        };
        let bytes = part.values.len() * size_of::<f32>();
        let bytes = Bytes(bytes as u64 + part.optimizer.bytes());
        let (job, step) = (tenant.job.clone(), part.optimizer.step);
        let jobs = vec![(job.clone(), step)];
        self.storing += 1;
        self.keeper.keep(Task::Part { job, part });
        if self.watch.is_on() {
            let end = self.watch.now();
            self.watch.tell(Span {
                deed: Deed::Keep,
                micro_batch: None,
                jobs,
                bytes,
                start,
                end,
            });
        }
    }
}
