//! A stage at work: the real pipeline machine, its device in virtual time, and messages to its neighbours.

use std::collections::{BTreeMap, BTreeSet};

use gpu_actor::pipeline::{Event, Pipeline, Place, Slot, Unexpected, Work};
use shared::ids::PlanEpoch;
use shared::units::Micros;

use crate::world::links::{LinkKey, Message};
use crate::world::{Awaited, World};

/// What a stage keeps.
#[derive(Debug)]
pub(crate) struct Stage {
    pipeline: Pipeline,
    working: Option<Work>,
    since: Option<Micros>,
    /// Steps taken here, by adapter.
    taken: BTreeMap<Slot, u64>,
    reported: BTreeSet<(Slot, u64)>,
    saves: Vec<(Slot, u64)>,
}

impl Stage {
    pub(crate) fn new(place: Place, budget: u64) -> Self {
        Self {
            pipeline: Pipeline::new(place, budget),
            working: None,
            since: None,
            taken: BTreeMap::new(),
            reported: BTreeSet::new(),
            saves: Vec::new(),
        }
    }

    fn feed(&mut self, event: Event) -> Result<Option<Work>, Unexpected> {
        if let Event::Attached(slot, step) = &event {
            self.taken.insert(*slot, *step);
        }
        let work = self.pipeline.step(event)?;
        self.working = work.or(self.working);
        Ok(work)
    }

    /// Since when the device is at its work, while it is.
    pub(crate) fn works_since(&self) -> Option<Micros> {
        self.since.filter(|_| self.working.is_some())
    }

    /// Saves that can be answered now: their step is taken here.
    fn saved(&mut self) -> Vec<(Slot, u64)> {
        let taken = &self.taken;
        let ready = |(slot, step): &(Slot, u64)| taken.get(slot).is_some_and(|t| t >= step);
        let (ready, left) = self.saves.iter().copied().partition(ready);
        self.saves = left;
        ready
    }
}

impl World {
    /// Gives an event to the pipeline of a stage, and its work to the device.
    pub(crate) fn feed(&mut self, node: usize, epoch: PlanEpoch, event: Event) {
        let Some(post) = self.nodes[node].post_of(epoch).filter(|post| !post.broken) else {
            return;
        };
        match post.machine.feed(event) {
            Ok(Some(_)) => {
                let now = self.now();
                if let Some(post) = self.nodes[node].post_of(epoch) {
                    post.machine.since = Some(now);
                }
                let delay = self.millis(1, 4);
                let delay = delay.max(self.nodes[node].hangs_until.since(now));
                self.soon(node, delay, Awaited::Device(epoch));
            }
            Ok(None) => {}
            Err(unexpected) => self.check.fail("SIM-9", unexpected.to_string()),
        }
    }

    pub(crate) fn device_done(&mut self, node: usize, epoch: PlanEpoch) {
        let Some(post) = self.nodes[node].post_of(epoch).filter(|post| !post.broken) else {
            return;
        };
        let work = post.machine.working.take();
        let (first, last) = (post.stage == 0, post.is_last());
        self.feed(node, epoch, Event::Done);
        match work {
            Some(Work::Forward(number)) if !last => {
                self.pass(node, true, Message::Activation(number));
            }
            Some(Work::Backward(number)) if !first => {
                self.pass(node, false, Message::Gradient(number));
            }
            Some(Work::Apply(slot, step)) => {
                if let Some(post) = self.nodes[node].post_of(epoch) {
                    post.machine.taken.insert(slot, step + 1);
                }
                if first {
                    self.step_taken(node, epoch, slot);
                }
            }
            _ => {}
        }
        self.tell_complete(node, epoch);
        self.answer_saves(node, epoch);
    }

    /// Steps whose gradients are complete here are told to the first stage.
    fn tell_complete(&mut self, node: usize, epoch: PlanEpoch) {
        let Some(post) = self.nodes[node].post_of(epoch) else {
            return;
        };
        let machine = &mut post.machine;
        let complete: Vec<(Slot, u64)> = machine.pipeline.complete().collect();
        let fresh = complete
            .into_iter()
            .filter(|step| machine.reported.insert(*step));
        let fresh: Vec<(Slot, u64)> = fresh.collect();
        let first = post.stage == 0;
        for (slot, step) in fresh {
            if first {
                self.complete(node, epoch, slot, step);
            } else {
                self.pass(node, false, Message::Complete(slot, step));
            }
        }
    }

    /// Asks all stages for the state of an adapter after a step; the first one is answered.
    pub(crate) fn save(&mut self, node: usize, epoch: PlanEpoch, slot: Slot, step: u64) {
        if let Some(post) = self.nodes[node].post_of(epoch) {
            post.machine.saves.push((slot, step));
            self.answer_saves(node, epoch);
        }
    }

    fn answer_saves(&mut self, node: usize, epoch: PlanEpoch) {
        let Some(post) = self.nodes[node].post_of(epoch) else {
            return;
        };
        let (last, first) = (post.is_last(), post.stage == 0);
        for (slot, step) in post.machine.saved() {
            match (last, first) {
                (false, _) => self.pass(node, true, Message::Save(slot, step)),
                (true, false) => self.pass(node, false, Message::Saved(slot, step)),
                (true, true) => self.saved(node, epoch, slot, step),
            }
        }
    }

    /// Sends to the stage behind or before.
    pub(crate) fn pass(&mut self, node: usize, behind: bool, message: Message) {
        let Some(post) = self.nodes[node]
            .process
            .post
            .as_ref()
            .filter(|post| !post.broken)
        else {
            return;
        };
        let (key, end) = post.link(behind);
        self.send_chunk(key, end, message);
    }

    /// A message from a neighbour.
    pub(crate) fn chunk(&mut self, key: LinkKey, end: usize, message: Message) {
        let Some(link) = self.links.get(&key).filter(|link| !link.dead) else {
            return;
        };
        let Some((node, process)) = link.ends[end] else {
            return;
        };
        let epoch = PlanEpoch(key.0);
        let same = self.nodes[node].running && self.nodes[node].incarnation == process;
        let Some(post) = self.nodes[node]
            .post_of(epoch)
            .filter(|post| same && !post.broken)
        else {
            return;
        };
        let (first, last) = (post.stage == 0, post.is_last());
        let onward =
            |message: &Message| !last && end == 1 && !matches!(message, Message::Activation(_));
        match &message {
            Message::Save(slot, step) => return self.save(node, epoch, *slot, *step),
            message if onward(message) => self.pass(node, true, message.clone()),
            _ => {}
        }
        match message {
            Message::Attach(slot, step) => self.feed(node, epoch, Event::Attached(slot, step)),
            Message::Plan(batch) => self.feed(node, epoch, Event::Planned(batch)),
            Message::Activation(number) => self.feed(node, epoch, Event::Activation(number)),
            Message::Gradient(number) => self.feed(node, epoch, Event::Gradient(number)),
            Message::Agree(slot, step) => self.feed(node, epoch, Event::Agreed(slot, step)),
            Message::Complete(slot, step) if first => self.complete(node, epoch, slot, step),
            Message::Saved(slot, step) if first => self.saved(node, epoch, slot, step),
            other => self.pass(node, false, other),
        }
    }
}
