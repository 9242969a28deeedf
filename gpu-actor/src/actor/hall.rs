//! Where links of neighbours wait for the stage they are meant for, and stages for their links.
//!
//! A neighbour may hold its post before this node does, or after; both ways the link is found.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use shared::ids::{NodeName, PlanEpoch};
use shared::net::stream::Stream;
use shared::wire::opening::LinkOpening;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

/// A link that came, and what its carrier's end is told to.
#[derive(Debug)]
pub(super) struct Arrival<S = Stream> {
    /// Whose certificate the caller has.
    pub(super) from: NodeName,
    /// What the neighbour said it is.
    pub(super) opening: LinkOpening,
    /// The stream.
    pub(super) stream: S,
    /// Dropped when the link is no longer used: whoever brought the stream waits for that.
    pub(super) done: oneshot::Sender<()>,
}

/// The place.
#[derive(Debug)]
pub(super) struct Hall<S = Stream> {
    waiting: Mutex<Waiting<S>>,
    came: Notify,
}

/// By plan, replica and stage, the replica and stage at the other end, and whose certificate was shown for that: nobody
/// stands in the way of another.
type Waiting<S> = BTreeMap<(PlanEpoch, [u32; 2], [u32; 2], NodeName), Arrival<S>>;

impl<S> Default for Hall<S> {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            came: Notify::new(),
        }
    }
}

impl<S> Hall<S> {
    /// Brings a link; a later one of the same node for the same seat replaces it.
    pub(super) fn bring(&self, arrival: Arrival<S>) {
        let opening = arrival.opening;
        let to = [opening.replica, opening.to_stage];
        let from = [opening.from_replica, opening.from_stage];
        let seat = (opening.epoch, to, from, arrival.from.clone());
        self.lock().insert(seat, arrival);
        self.came.notify_waiters();
    }

    /// Waits for the link of a seat, given by replica and stage, from another and its node, and forgets those of older
    /// plans.
    pub(super) async fn take(
        &self,
        epoch: PlanEpoch,
        to: [u32; 2],
        (from, node): ([u32; 2], &NodeName),
        patience: Duration,
    ) -> Option<Arrival<S>> {
        let seat = (epoch, to, from, node.clone());
        let found = async {
            loop {
                let came = self.came.notified();
                tokio::pin!(came);
                // Registered before the look, so that nothing comes unseen between the two.
                came.as_mut().enable();
                {
                    let mut waiting = self.lock();
                    waiting.retain(|(other, ..), _| *other >= epoch);
                    if let Some(arrival) = waiting.remove(&seat) {
                        return arrival;
                    }
                }
                came.await;
            }
        };
        timeout(patience, found).await.ok()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting<S>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn arrival(epoch: u64, stage: u32, stream: &'static str) -> Arrival<&'static str> {
        let opening = LinkOpening {
            epoch: PlanEpoch(epoch),
            from_replica: 0,
            replica: 0,
            from_stage: stage - 1,
            to_stage: stage,
            credits: 4,
            narrow: false,
        };
        let (done, _) = oneshot::channel();
        Arrival {
            from: NodeName::new("a").unwrap(),
            opening,
            stream,
            done,
        }
    }

    async fn take(
        hall: &Hall<&'static str>,
        epoch: u64,
        patience: Duration,
    ) -> Option<&'static str> {
        let from = ([0, 0], &NodeName::new("a").unwrap());
        let taken = hall.take(PlanEpoch(epoch), [0, 1], from, patience).await;
        taken.map(|arrival| arrival.stream)
    }

    #[tokio::test]
    async fn a_link_is_found_whether_it_comes_before_the_stage_or_after() {
        let hall = Hall::default();
        hall.bring(arrival(3, 1, "before"));
        assert_eq!(take(&hall, 3, LONG).await, Some("before"));
        let (found, ()) = tokio::join!(take(&hall, 4, LONG), async {
            // The one that waits is polled first.
            tokio::task::yield_now().await;
            hall.bring(arrival(4, 2, "of another stage"));
            hall.bring(arrival(4, 1, "after"));
        });
        assert_eq!(found, Some("after"));
    }

    #[tokio::test]
    async fn a_later_link_replaces_one_and_those_of_older_plans_are_forgotten() {
        let hall = Hall::default();
        hall.bring(arrival(3, 1, "old"));
        hall.bring(arrival(4, 1, "first"));
        hall.bring(arrival(4, 1, "second"));
        assert_eq!(take(&hall, 4, LONG).await, Some("second"));
        assert!(hall.lock().is_empty());
    }

    #[tokio::test]
    async fn a_node_that_links_for_the_seat_of_another_is_not_in_its_way() {
        let hall = Hall::default();
        hall.bring(arrival(4, 1, "right"));
        hall.bring(Arrival {
            from: NodeName::new("b").unwrap(),
            ..arrival(4, 1, "of another node")
        });
        assert_eq!(take(&hall, 4, LONG).await, Some("right"));
    }

    #[tokio::test]
    async fn who_waits_in_vain_is_told_so() {
        let hall = Hall::default();
        assert_eq!(take(&hall, 4, Duration::from_millis(5)).await, None);
    }
}
