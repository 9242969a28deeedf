//! What a station tells who looks: what its device did, and what its links carried meanwhile.

use shared::ids::JobName;
use shared::units::{Bytes, Micros};

use super::super::watch::{Deed, Span};
use super::{Plan, Station};
use crate::batch::Batch;
use crate::link::ChunkHeader;
use crate::pipeline::MicroBatchNumber;

impl Station {
    /// Tells of a pass that ends now.
    pub(super) fn watch_plan(
        &mut self,
        deed: Deed,
        number: MicroBatchNumber,
        plan: &Plan,
        start: Micros,
    ) {
        if !self.watch.is_on() {
            return;
        }
        let end = self.watch.now();
        let span = Span {
            deed,
            micro_batch: Some(number),
            jobs: self.jobs_of(&plan.batch),
            bytes: Bytes(plan.bytes),
            start,
            end,
        };
        self.watch.tell(span);
    }

    /// Tells of a chunk that had to wait for its link until now.
    pub(super) fn watch_credit(&mut self, header: ChunkHeader, start: Micros) {
        if self.watch.is_on() {
            let end = self.watch.now();
            self.watch_chunk(Deed::Credit, header, (start, end));
        }
    }

    /// Tells what links carried since the last look.
    pub(super) fn watch_links(&mut self) {
        if !self.watch.is_on() {
            return;
        }
        let links = self.links.iter_mut().flatten();
        let transits: Vec<_> = links.flat_map(|link| link.transits()).collect();
        for transit in transits {
            let deed = match transit.inward {
                true => Deed::Receive,
                false => Deed::Send,
            };
            self.watch_chunk(deed, transit.header, (transit.start, transit.end));
        }
    }

    fn watch_chunk(&mut self, deed: Deed, header: ChunkHeader, (start, end): (Micros, Micros)) {
        let bytes = header.rows * header.width * size_of::<f32>();
        let plan = self.plans.get(&header.micro_batch);
        let span = Span {
            deed,
            micro_batch: Some(header.micro_batch),
            jobs: plan.map_or_else(Vec::new, |plan| self.jobs_of(&plan.batch)),
            bytes: Bytes(bytes as u64),
            start,
            end,
        };
        self.watch.tell(span);
    }

    /// Jobs of a batch, each with its step under way.
    fn jobs_of(&self, batch: &Batch) -> Vec<(JobName, u64)> {
        let jobs = batch.jobs.iter();
        let named = jobs.filter_map(|job| {
            let tenant = self.tenants.get(&job.slot)?;
            Some((tenant.job.clone(), job.step))
        });
        named.collect()
    }
}
