//! Where links of neighbours wait for the stage they are meant for, and stages for their links.
//!
//! A neighbour may hold its post before this node does, or after; both ways the link is found.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use shared::ids::PlanEpoch;
use shared::net::stream::Stream;
use shared::wire::opening::LinkOpening;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

/// A link that came, and what its carrier's end is told to.
#[derive(Debug)]
pub(super) struct Arrival {
    /// What the neighbour said it is.
    pub(super) opening: LinkOpening,
    /// The stream.
    pub(super) stream: Stream,
    /// Dropped when the link is no longer used: whoever brought the stream waits for that.
    pub(super) done: oneshot::Sender<()>,
}

/// The place.
#[derive(Debug, Default)]
pub(super) struct Hall {
    waiting: Mutex<BTreeMap<(PlanEpoch, u32, u32), Arrival>>,
    came: Notify,
}

impl Hall {
    /// Brings a link; a later one for the same seat replaces it.
    pub(super) fn bring(&self, arrival: Arrival) {
        let opening = arrival.opening;
        let seat = (opening.epoch, opening.replica, opening.to_stage);
        self.lock().insert(seat, arrival);
        self.came.notify_waiters();
    }

    /// Waits for the link of a seat, and forgets those of older plans.
    pub(super) async fn take(
        &self,
        epoch: PlanEpoch,
        replica: u32,
        stage: u32,
        patience: Duration,
    ) -> Option<Arrival> {
        let found = async {
            loop {
                let came = self.came.notified();
                tokio::pin!(came);
                // Registered before the look, so that nothing comes unseen between the two.
                came.as_mut().enable();
                {
                    let mut waiting = self.lock();
                    waiting.retain(|(other, ..), _| *other >= epoch);
                    if let Some(arrival) = waiting.remove(&(epoch, replica, stage)) {
                        return arrival;
                    }
                }
                came.await;
            }
        };
        timeout(patience, found).await.ok()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(PlanEpoch, u32, u32), Arrival>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
