//! What happens to jobs on a replica.

use shared::ids::JobName;

use crate::train::event::Event;

/// Something that happened to a job.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplicaEvent {
    /// In training; checkpoints that are due are told as `Durable` once they are.
    Training(Event),
    /// The state after a step is in the store, whole.
    Durable {
        /// The job.
        job: JobName,
        /// Steps taken.
        step: u64,
        /// Size of its parts.
        bytes: u64,
    },
    /// The state after a step could not be stored; the one before stays the newest.
    NotDurable {
        /// The job.
        job: JobName,
        /// Steps taken.
        step: u64,
        /// The store's reason.
        reason: String,
    },
    /// It waits for an order.
    Paused {
        /// The job.
        job: JobName,
        /// Steps taken.
        step: u64,
    },
    /// It trains again.
    Resumed {
        /// The job.
        job: JobName,
    },
    /// A replica will not share its steps; it is led here alone.
    NotShared {
        /// The job.
        job: JobName,
        /// The replica.
        replica: u32,
        /// Why.
        reason: String,
    },
    /// It is off the backbone; its last state is durable, unless `NotDurable` was told of it.
    Cancelled {
        /// The job.
        job: JobName,
        /// Steps taken.
        step: u64,
    },
}
