//! Events in memory, and those who follow them.
//!
//! - `HI-1` A client is told events in the order of their numbers, each once: those that only the journal has go before those
//!   in memory, and it follows once it has all of them.
//! - `HI-2` Who follows is told when the cluster has ended, after the last event: no other end of its answers means that.

use std::collections::{BTreeMap, VecDeque};

use shared::ids::{EventNumber, JobId};
use shared::wire::request::Reply;
use shared::wire::view::EventView;

use super::{Effect, Handle};
use crate::record::Record;

/// Who follows, and how far it was told.
#[derive(Clone, Copy, Debug)]
struct Follower {
    job: Option<JobId>,
    told: EventNumber,
}

/// The newest events.
#[derive(Clone, Debug)]
pub(super) struct History {
    events: VecDeque<EventView>,
    last: EventNumber,
    kept: usize,
    answered: usize,
    followers: BTreeMap<Handle, Follower>,
}

impl History {
    pub(super) fn new(recent: &[Record], last: EventNumber, kept: usize, answered: usize) -> Self {
        let mut this = Self {
            events: VecDeque::new(),
            last,
            kept: kept.max(1),
            answered: answered.max(1),
            followers: BTreeMap::new(),
        };
        recent.iter().for_each(|record| this.push(record.view()));
        this.last = last;
        this
    }

    pub(super) fn push(&mut self, event: EventView) {
        self.last = event.number;
        self.events.push_back(event);
        while self.events.len() > self.kept {
            self.events.pop_front();
        }
    }

    #[cfg(test)]
    pub(super) fn followers(&self) -> usize {
        self.followers.len()
    }

    /// Keeps so many from now on.
    #[cfg(test)]
    pub(super) fn keep_only(&mut self, kept: usize) {
        self.kept = kept;
        let surplus = self.events.len().saturating_sub(kept);
        self.events.drain(..surplus);
    }

    pub(super) fn forget(&mut self, handle: Handle) {
        self.followers.remove(&handle);
    }

    /// Answers with events after a number.
    pub(super) fn ask(
        &mut self,
        handle: Handle,
        job: Option<JobId>,
        after: EventNumber,
        follow: bool,
    ) -> Vec<Effect> {
        let first = self
            .events
            .front()
            .map_or_else(|| self.last.next(), |event| event.number);
        if after.0 < first.0.saturating_sub(1) {
            // HI-1: it asks for the rest when it has these.
            return vec![Effect::Recall {
                handle,
                job,
                after,
                until: EventNumber(first.0 - 1),
                follow,
            }];
        }
        let mut effects = self.pages(handle, job, after);
        if follow {
            let told = self.last;
            self.followers.insert(handle, Follower { job, told });
        } else {
            effects.push(Effect::Answer {
                handle,
                reply: Reply::Done,
                last: true,
            });
        }
        effects
    }

    /// Tells followers what is new.
    pub(super) fn follow(&mut self) -> Vec<Effect> {
        let last = self.last;
        let behind: Vec<_> = self
            .followers
            .iter()
            .filter(|(_, f)| f.told < last)
            .collect();
        let news: Vec<Effect> = behind
            .into_iter()
            .flat_map(|(handle, follower)| self.pages(*handle, follower.job, follower.told))
            .collect();
        self.followers
            .values_mut()
            .for_each(|follower| follower.told = last);
        news
    }

    /// Nothing follows any more: whoever follows has been told all.
    pub(super) fn end(&mut self) -> Vec<Effect> {
        let followers = std::mem::take(&mut self.followers);
        let done = |handle| Effect::Answer {
            handle,
            reply: Reply::Done,
            last: true,
        };
        followers.into_keys().map(done).collect()
    }

    fn pages(&self, handle: Handle, job: Option<JobId>, after: EventNumber) -> Vec<Effect> {
        // Numbers have no gaps, so the place of the first one wanted is known.
        let first = self.events.front().map_or(0, |event| event.number.0);
        let skip = after.0.saturating_add(1).saturating_sub(first) as usize;
        let wanted = self.events.iter().skip(skip);
        let of_job = |event: &&EventView| job.is_none() || event.job == job;
        let events: Vec<EventView> = wanted.filter(of_job).cloned().collect();
        let page = |events: &[EventView]| Effect::Answer {
            handle,
            reply: Reply::Events(events.to_vec()),
            last: false,
        };
        events.chunks(self.answered).map(page).collect()
    }
}
