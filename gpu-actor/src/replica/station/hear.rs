//! What a station does about each word, from a neighbour or from its own lead.

use std::cmp::Ordering;
use std::sync::Arc;

use super::super::error::ReplicaError;
use super::super::tenant::Tenant;
use super::{BEFORE, BEHIND, Plan, Station};
use crate::batch::Chunk;
use crate::link::word::{Attach, Pass, Planned, TextNumber, Word};
use crate::pipeline::council::Heard;
use crate::pipeline::{Event, MicroBatch, Part, Share, Slot};
use crate::sample::generator::BARE;
use crate::stage::footprint::Footprint;

/// More jobs than any stage holds at once.
const MOST_SLOTS: Slot = 1 << 16;

impl Station {
    pub(super) fn hear(&mut self, side: usize, word: Word) -> Result<(), ReplicaError> {
        let forward = matches!(
            word,
            Word::Plan(_)
                | Word::Attach(_)
                | Word::Detach { .. }
                | Word::Keep { .. }
                | Word::Forget { .. }
                | Word::Agreement { .. }
                | Word::Close
                | Word::Ahead { .. }
        );
        let between = matches!(
            word,
            Word::Enlist(_)
                | Word::Enlisted { .. }
                | Word::Assist(_)
                | Word::Found { .. }
                | Word::Dismiss { .. }
                | Word::Sums(_)
        );
        if between {
            return Err(self.misfit(word.name(), "it came from within the replica"));
        }
        if forward != (side == BEFORE) {
            return Err(self.misfit(word.name(), "it came from the wrong side"));
        }
        match word {
            Word::Plan(planned) => self.plan(*planned),
            Word::Attach(attach) => self.attach(*attach),
            Word::Detach { slot } => self.detach(slot),
            Word::Keep { slot, step } => self.keep(slot, step),
            Word::Forget { text } => self.forget(text),
            Word::Close => self.close(),
            Word::Ahead { passes } => self.go_ahead(passes),
            Word::Agreement {
                matter,
                agreement,
                against,
            } => self.deliberate(matter, Heard::Agreement(agreement, against)),
            Word::Report { matter, report } => self.deliberate(matter, Heard::Behind(report)),
            Word::Verdict { matter, verdict } => self.deliberate(matter, Heard::Verdict(verdict)),
            Word::Attached { slot } => self.answer(slot, None),
            Word::Refused { slot, problem } => self.answer(slot, Some(problem)),
            word => self.back(word),
        }
    }

    /// The plan goes on with a micro-batch.
    pub(in super::super) fn plan(&mut self, planned: Planned) -> Result<(), ReplicaError> {
        let model = self.stage.model();
        let fault = planned.batch.fault(model.shape.vocab);
        let unknown = |slot: Slot| slot != BARE && !self.tenants.contains_key(&slot);
        let mut jobs = planned.batch.jobs.iter();
        let fault = fault.or_else(|| jobs.any(|job| unknown(job.slot)).then_some("no such job"));
        let fault = fault.or_else(|| self.misplaced(&planned));
        if let Some(fault) = fault {
            return Err(self.misfit("plan", fault));
        }
        let trains = planned.pass == Pass::Train;
        let footprint = match trains {
            true => self.stage.footprint(&planned.batch),
            false => Footprint::default(),
        };
        let jobs = planned.batch.jobs.iter().filter(|job| job.slot != BARE);
        let shares = jobs.map(|job| Share {
            slot: job.slot,
            step: job.step,
            last: planned.goals.iter().any(|goal| goal.slot == job.slot),
        });
        let chunk = planned.batch.chunk();
        let part = Part {
            follows: chunk.is_some_and(Chunk::follows),
            goes_on: chunk.is_some_and(|chunk| !chunk.ends()),
        };
        let micro_batch = MicroBatch {
            number: planned.number,
            bytes: footprint.kept,
            passing: footprint.passing,
            trains,
            shares: shares.collect(),
            part,
        };
        self.open = chunk.filter(|chunk| !chunk.ends());
        if self.links[BEHIND].is_some() {
            self.forth(Word::Plan(Box::new(planned.clone())))?;
        }
        for goal in &planned.goals {
            self.goals.insert((goal.slot, goal.step), *goal);
        }
        let plan = Plan {
            pass: planned.pass,
            batch: Arc::new(planned.batch),
            goals: planned.goals,
            bytes: footprint.kept,
        };
        self.plans.insert(planned.number, plan);
        self.tell(Event::Planned(micro_batch))
    }

    /// Whether rows do not begin where those before them end.
    fn misplaced(&self, planned: &Planned) -> Option<&'static str> {
        let reads = matches!(planned.pass, Pass::Sample { .. });
        let Some(chunk) = planned.batch.chunk() else {
            let begins = planned.batch.sequences.iter().all(|s| s.start == 0);
            return (!reads && !begins).then_some("a sequence does not begin with its first row");
        };
        let of = |chunk: Chunk| (chunk.sequence, chunk.length);
        let before = self.open.map(|before| (before.end(), of(before)));
        let own = chunk.follows().then_some((chunk.start, of(chunk)));
        (reads || before != own).then_some("it is not the chunk behind the one before")
    }

    /// A job comes; the stages behind hear it before its state is read here, so that all read at once, and answer first.
    pub(in super::super) fn attach(&mut self, attach: Attach) -> Result<(), ReplicaError> {
        let slot = attach.slot;
        if self.tenants.contains_key(&slot) || self.answers.contains_key(&slot) {
            return Err(self.misfit("attach", "its slot is taken"));
        }
        if slot > MOST_SLOTS {
            return Err(self.misfit("attach", "there are not so many slots"));
        }
        let last = self.seat.place.is_last();
        if !last {
            self.forth(Word::Attach(Box::new(attach.clone())))?;
        }
        let made = Tenant::new(&attach, &self.stage, &*self.store);
        let problem = match made {
            Ok((tenant, adapter)) => {
                let step = tenant.optimizer.step;
                self.stage.attach_at(slot, adapter);
                self.tenants.insert(slot, tenant);
                self.tell(Event::Attached(slot, step))?;
                None
            }
            Err(problem) => Some(problem),
        };
        self.answers.insert(slot, problem);
        match last {
            true => self.answer(slot, None),
            false => Ok(()),
        }
    }

    /// All stages behind have answered on a job.
    fn answer(&mut self, slot: Slot, behind: Option<String>) -> Result<(), ReplicaError> {
        let Some(own) = self.answers.remove(&slot) else {
            return Err(self.misfit("answer", "nothing was asked"));
        };
        match own.or(behind) {
            None => self.back(Word::Attached { slot }),
            Some(problem) => self.back(Word::Refused { slot, problem }),
        }
    }

    /// A job goes, if it is here: one that was refused may not be.
    pub(in super::super) fn detach(&mut self, slot: Slot) -> Result<(), ReplicaError> {
        // Its last step was agreed on, but the device may not have come to it.
        while self.pipeline.complete().any(|step| step.0 == slot) {
            let Some(work) = self.next.take() else {
                return Err(self.misfit("detach", "a step of the job is open"));
            };
            self.compute(work)?;
        }
        if let Some(tenant) = self.tenants.remove(&slot) {
            // The adapter of a text bears the name of a job whose steps may be shared here meanwhile.
            if !tenant.replicas.is_empty() {
                self.across.forget(&tenant.job);
            }
            self.stage.detach(slot);
            // Of a step that was begun and will not end.
            self.tallies.retain(|matter, _| matter.0 != slot);
            self.tell(Event::Detached(slot))?;
        }
        self.forth(Word::Detach { slot })
    }

    /// A job's state is stored once it has taken so many steps; one that is beyond them says so, as the lead asks in the
    /// middle of a step too, and hears last that it is taken.
    pub(in super::super) fn keep(&mut self, slot: Slot, step: u64) -> Result<(), ReplicaError> {
        let Some(tenant) = self.tenants.get_mut(&slot) else {
            return Err(self.misfit("keep", "there is no such job"));
        };
        let taken = tenant.optimizer.step;
        match taken.cmp(&step) {
            Ordering::Less => {
                tenant.keeps.insert(step);
            }
            Ordering::Equal => self.store_part(slot),
            Ordering::Greater => {
                let job = tenant.job.clone();
                self.back(Word::Beyond { job, step })?;
            }
        }
        self.forth(Word::Keep { slot, step })
    }

    /// A text is done.
    pub(in super::super) fn forget(&mut self, text: TextNumber) -> Result<(), ReplicaError> {
        self.caches.remove(&text);
        self.forth(Word::Forget { text })
    }

    /// Stages hold so many passes from now on.
    pub(in super::super) fn go_ahead(&mut self, passes: Vec<u32>) -> Result<(), ReplicaError> {
        let place = self.seat.place;
        let own = passes.get(place.stage).map(|own| *own as usize);
        self.tell(Event::Ahead(own.unwrap_or_else(|| place.warm_up())))?;
        self.forth(Word::Ahead { passes })
    }

    /// Nothing will follow.
    pub(in super::super) fn close(&mut self) -> Result<(), ReplicaError> {
        self.closed = true;
        self.take_leave();
        self.forth(Word::Close)
    }
}
