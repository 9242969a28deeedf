//! Which step next on one stage of a pipeline: 1F1B over micro-batches of many jobs, as a pure state machine.
//!
//! Micro-batches pass forward through all stages in one order, the plan's, and backward in the same order. A stage
//! prefers the backward pass, which frees an activation, to the next forward pass, and holds the activations of a bounded
//! number of micro-batches: as many as there are stages from it to the end (PipeDream-Flush, Narayanan and others 2021,
//! figure 4), or as the plan says ([`Event::Ahead`]). More of them keep the last stage busy where micro-batches are
//! unlike or the way between stages is long: the template's third rule (MuxTune, section 3.4.1). A job's rows go forward
//! only with the weights of their own optimizer step, so the step before must have been taken here; meanwhile
//! micro-batches of other jobs fill the pipeline.
//!
//! | id | invariant |
//! | --- | --- |
//! | PI-1 | each planned micro-batch goes forward once, and then backward once if it trains, in the plan's order |
//! | PI-2 | held activations, and what one of them needs while it is computed, fit the budget, but a single micro-batch is always let in |
//! | PI-3 | none goes forward while as many are held as may be, chunks of one sequence counted as one |
//! | PI-4 | a job's rows never meet weights of another step than their own |
//! | PI-5 | a job's step is taken once, after its last backward pass and when all stages agreed |
//! | PI-6 | chunks of one sequence are planned one behind another, come back in reverse, and none before the last went |
//!
//! The first chunk of a sequence is let in as a micro-batch is, and counts the bytes of all; once it is in, so are the
//! others. A micro-batch that is whole is a sequence of one chunk; so *sequence* below is either.
//!
//! It cannot stall: let m be the first sequence that is not done everywhere. All before it are done, so a stage
//! that has not taken its first chunk holds nothing (PI-1) and lets it in (PI-2), one that has lets the others in, and the
//! steps it waits for have all their gradients. When the last chunk went, gradients come back chunk by chunk. [`Pipeline::waits_for`] names what a stage lacks when a message was lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

pub mod council;
mod micro_batch;
#[cfg(test)]
mod tests;

use micro_batch::bytes;
pub use micro_batch::{MicroBatch, Part, Share};

/// Number of a micro-batch in the order of the plan.
pub type MicroBatchNumber = u64;

/// Where a job's adapter lies on this stage.
pub type Slot = usize;

/// A stage's place in its pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// From 0, the stage that embeds.
    pub stage: usize,
    /// At least 1.
    pub stages: usize,
}

impl Place {
    /// Whether the loss is computed here.
    #[must_use]
    pub fn is_last(self) -> bool {
        self.stage + 1 == self.stages
    }

    /// Micro-batches that a stage holds at once while no plan says otherwise.
    #[must_use]
    pub fn warm_up(self) -> usize {
        self.stages - self.stage
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The plan goes on with this one.
    Planned(MicroBatch),
    /// An adapter was attached that has taken so many steps.
    Attached(Slot, u64),
    /// An adapter that nothing is planned for was taken off.
    Detached(Slot),
    /// The output of the stage before is here.
    Activation(MicroBatchNumber),
    /// The gradient from the stage behind is here.
    Gradient(MicroBatchNumber),
    /// At most so many micro-batches are held from now on, and one at least; those that are held already stay.
    Ahead(usize),
    /// All stages have their gradients of a job's step, and its norm is known.
    Agreed(Slot, u64),
    /// The device is done with what it was given.
    Done,
}

/// What the device does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Compute outputs, and on the last stage the loss and its gradient.
    Forward(MicroBatchNumber),
    /// Compute the gradient of the input, and add to those of the adapters.
    Backward(MicroBatchNumber),
    /// Take a job's optimizer step, whose number this is.
    Apply(Slot, u64),
}

/// A message that does not fit the stage's state: a lost epoch or a faulty peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexpected {
    /// The message.
    pub event: Event,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl fmt::Display for Unexpected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.event, self.reason)
    }
}

impl std::error::Error for Unexpected {}

/// What a stage lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Nothing is planned.
    Plan,
    /// The device computes.
    Device(Work),
    /// The output of the stage before.
    Activation(MicroBatchNumber),
    /// The gradient from the stage behind.
    Gradient(MicroBatchNumber),
    /// The agreement on a job's step.
    Agreement(Slot, u64),
    /// A job's adapter.
    Adapter(Slot),
}

/// The state of a stage.
#[derive(Clone, Debug)]
pub struct Pipeline {
    place: Place,
    budget: u64,
    /// Most micro-batches held at once.
    most: usize,
    /// Planned, not yet forward.
    planned: VecDeque<MicroBatch>,
    /// Forward, not yet backward, in the order of the plan; chunks of one sequence are let go from the last.
    held: VecDeque<MicroBatch>,
    activations: BTreeSet<MicroBatchNumber>,
    gradients: BTreeSet<MicroBatchNumber>,
    /// Steps taken, by adapter.
    steps: BTreeMap<Slot, u64>,
    agreed: BTreeSet<(Slot, u64)>,
    /// Steps whose gradients are complete here.
    complete: BTreeSet<(Slot, u64)>,
    working: Option<Work>,
    next: MicroBatchNumber,
    /// Whether the last one planned is a chunk that another must follow, and of which kind.
    open: Option<bool>,
}

impl Pipeline {
    /// A stage that may hold so many bytes of activations.
    ///
    /// # Panics
    /// When the place is not within the pipeline.
    #[must_use]
    pub fn new(place: Place, budget: u64) -> Self {
        assert!(place.stage < place.stages, "a place within the pipeline");
        Self {
            place,
            budget,
            most: place.warm_up(),
            planned: VecDeque::new(),
            held: VecDeque::new(),
            activations: BTreeSet::new(),
            gradients: BTreeSet::new(),
            steps: BTreeMap::new(),
            agreed: BTreeSet::new(),
            complete: BTreeSet::new(),
            working: None,
            next: 0,
            open: None,
        }
    }

    /// Takes an event, and returns what the device shall do now.
    ///
    /// # Errors
    /// [`Unexpected`] when the event does not fit; the state is then as before.
    pub fn step(&mut self, event: Event) -> Result<Option<Work>, Unexpected> {
        if let Err(reason) = self.take(&event) {
            return Err(Unexpected { event, reason });
        }
        if self.working.is_some() {
            return Ok(None);
        }
        self.working = self.choose();
        self.check();
        Ok(self.working)
    }

    fn take(&mut self, event: &Event) -> Result<(), &'static str> {
        match event {
            Event::Planned(micro_batch) => self.plan(micro_batch),
            Event::Attached(slot, step) => {
                self.steps.insert(*slot, *step);
                Ok(())
            }
            Event::Detached(slot) => {
                let shares = |m: &MicroBatch| m.shares.iter().any(|share| share.slot == *slot);
                let mut open = self.planned.iter().chain(&self.held);
                if open.any(shares) || self.complete.iter().any(|step| step.0 == *slot) {
                    return Err("micro-batches of this adapter are under way");
                }
                self.steps.remove(slot);
                Ok(())
            }
            Event::Activation(number) => {
                let first = self.place.stage == 0;
                let passed = self.planned.front().map_or(self.next, |m| m.number);
                if first || *number < passed || !self.activations.insert(*number) {
                    return Err("this activation was here before");
                }
                Ok(())
            }
            Event::Gradient(number) => {
                let held = self.held.iter().any(|m| m.number == *number);
                if !held || !self.gradients.insert(*number) {
                    return Err("no activation waits for this gradient");
                }
                Ok(())
            }
            Event::Ahead(most) => {
                self.most = (*most).max(1);
                Ok(())
            }
            Event::Agreed(slot, step) => {
                let taken = self.steps.get(slot).is_none_or(|taken| taken > step);
                if taken || !self.agreed.insert((*slot, *step)) {
                    return Err("this step was taken before");
                }
                Ok(())
            }
            Event::Done => match self.working.take() {
                Some(work) => {
                    self.finish(work);
                    Ok(())
                }
                None => Err("the device was given nothing"),
            },
        }
    }

    fn plan(&mut self, micro_batch: &MicroBatch) -> Result<(), &'static str> {
        if micro_batch.number != self.next {
            return Err("micro-batches are planned one after another");
        }
        let Part { follows, goes_on } = micro_batch.part;
        if self.open != follows.then_some(micro_batch.trains) {
            return Err("chunks of a sequence are planned one behind another");
        }
        self.open = goes_on.then_some(micro_batch.trains);
        self.next += 1;
        self.planned.push_back(micro_batch.clone());
        Ok(())
    }

    fn finish(&mut self, work: Work) {
        match work {
            Work::Forward(number) => {
                self.activations.remove(&number);
                let micro_batch = self.planned.pop_front().expect("it was planned");
                if !micro_batch.trains {
                    return;
                }
                self.held.push_back(micro_batch);
                if self.place.is_last() {
                    self.gradients.insert(number);
                }
            }
            Work::Backward(number) => {
                self.gradients.remove(&number);
                let at = self.held.iter().position(|m| m.number == number);
                let micro_batch = at.and_then(|at| self.held.remove(at));
                let micro_batch = micro_batch.expect("it was held");
                let last = micro_batch.shares.iter().filter(|share| share.last);
                self.complete.extend(last.map(|s| (s.slot, s.step)));
            }
            Work::Apply(slot, step) => {
                self.complete.remove(&(slot, step));
                self.agreed.remove(&(slot, step));
                self.steps.insert(slot, step + 1);
            }
        }
    }

    fn choose(&self) -> Option<Work> {
        if let Some(&(slot, step)) = self.complete.intersection(&self.agreed).next() {
            return Some(Work::Apply(slot, step));
        }
        let returns = self.returns();
        if let Some(held) = returns.filter(|m| self.gradients.contains(&m.number)) {
            return Some(Work::Backward(held.number));
        }
        let next = self.planned.front()?;
        let ready = self.has_input(next) && self.has_room(next) && self.has_weights(next);
        ready.then_some(Work::Forward(next.number))
    }

    fn has_input(&self, micro_batch: &MicroBatch) -> bool {
        self.place.stage == 0 || self.activations.contains(&micro_batch.number)
    }

    /// What comes back next: of the oldest sequence the last chunk here, once all of them went.
    fn returns(&self) -> Option<&MicroBatch> {
        let behind = self.held.iter().skip(1);
        let own = 1 + behind.take_while(|m| m.part.follows).count();
        let last = self.held.get(own - 1)?;
        // One behind it that is not held came back, or did not go yet.
        let going = self.planned.front().map_or(self.next, |m| m.number);
        let whole = !last.part.goes_on || last.number + 1 < going;
        whole.then_some(last)
    }

    fn has_room(&self, micro_batch: &MicroBatch) -> bool {
        if !micro_batch.trains || micro_batch.part.follows {
            return true;
        }
        let held = bytes(self.held.iter().chain([micro_batch]));
        self.held.is_empty() || (held <= self.budget && self.sequences() < self.most)
    }

    /// Sequences held.
    fn sequences(&self) -> usize {
        self.held.iter().filter(|m| !m.part.follows).count()
    }

    fn has_weights(&self, micro_batch: &MicroBatch) -> bool {
        let mut shares = micro_batch.shares.iter();
        shares.all(|share| self.steps.get(&share.slot) == Some(&share.step))
    }

    /// Bytes of activations held, with what the largest needs while it is computed.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        bytes(self.held.iter())
    }

    /// Steps whose gradients are complete on this stage and that other stages may still lack.
    pub fn complete(&self) -> impl Iterator<Item = (Slot, u64)> + '_ {
        self.complete.iter().copied()
    }

    /// Whether the agreement on a step is here, but the step is not yet taken.
    #[must_use]
    pub fn has_agreed(&self, step: (Slot, u64)) -> bool {
        self.agreed.contains(&step)
    }

    /// Whether all that was planned is done.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let empty = self.planned.is_empty() && self.held.is_empty();
        empty && self.complete.is_empty() && self.working.is_none()
    }

    /// What the stage lacks to go on.
    #[must_use]
    pub fn waits_for(&self) -> Lack {
        if let Some(work) = self.working {
            return Lack::Device(work);
        }
        let forward = self.planned.front().filter(|next| self.has_room(next));
        if let Some(next) = forward.filter(|next| !self.has_input(next)) {
            return Lack::Activation(next.number);
        }
        if let Some(held) = self.returns() {
            return Lack::Gradient(held.number);
        }
        if let Some(&(slot, step)) = self.complete.first() {
            return Lack::Agreement(slot, step);
        }
        let lacking = |share: &&Share| self.steps.get(&share.slot) != Some(&share.step);
        match forward.and_then(|next| next.shares.iter().find(lacking)) {
            Some(share) => Lack::Adapter(share.slot),
            None => Lack::Plan,
        }
    }

    fn check(&self) {
        let held = self.sequences();
        debug_assert!(held <= 1 || self.held_bytes() <= self.budget, "PI-2");
        let begins = match self.working {
            Some(Work::Forward(_)) => self.planned.front().filter(|m| m.trains && !m.part.follows),
            _ => None,
        };
        debug_assert!(begins.is_none() || held < self.most, "PI-3");
    }
}
