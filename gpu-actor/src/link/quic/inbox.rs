//! What came and was not taken, and how the link ended.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::super::bell::Bell;
use super::super::{LinkError, Parcel};

struct State {
    waiting: VecDeque<Parcel>,
    /// Chunks among them.
    chunks: usize,
    inward: Option<LinkError>,
    outward: Option<LinkError>,
}

pub(super) struct Inbox {
    state: Mutex<State>,
    /// The stage's.
    bell: Bell,
}

impl Inbox {
    pub(super) fn new(bell: Bell) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            chunks: 0,
            inward: None,
            outward: None,
        };
        Self {
            state: Mutex::new(state),
            bell,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ring(&self) {
        self.bell.ring();
    }

    /// Puts a parcel behind the others; how many chunks wait now.
    pub(super) fn put(&self, parcel: Parcel) -> usize {
        let mut state = self.state();
        state.chunks += usize::from(matches!(parcel, Parcel::Chunk(_)));
        state.waiting.push_back(parcel);
        let chunks = state.chunks;
        drop(state);
        self.ring();
        chunks
    }

    /// The next parcel; none when none is here; the end when none will come.
    pub(super) fn take(&self) -> Result<Option<Parcel>, LinkError> {
        let mut state = self.state();
        let Some(parcel) = state.waiting.pop_front() else {
            return state.inward.clone().map_or(Ok(None), Err);
        };
        state.chunks -= usize::from(matches!(parcel, Parcel::Chunk(_)));
        Ok(Some(parcel))
    }

    /// Why nothing more can be sent, if so.
    pub(super) fn outward_end(&self) -> Option<LinkError> {
        self.state().outward.clone()
    }

    pub(super) fn end_inward(&self, end: LinkError) {
        self.state().inward.get_or_insert(end);
        self.ring();
    }

    pub(super) fn end_outward(&self, end: LinkError) {
        self.state().outward.get_or_insert(end);
        self.ring();
    }

    /// Ends both directions.
    pub(super) fn fail(&self, reason: &str) {
        let mut state = self.state();
        let failed = || LinkError::Failed {
            reason: reason.to_owned(),
        };
        state.inward.get_or_insert_with(failed);
        state.outward.get_or_insert_with(failed);
        drop(state);
        self.ring();
    }
}
