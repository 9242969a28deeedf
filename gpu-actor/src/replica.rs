//! One copy of the backbone, cut into stages that meet by their links only, and the jobs that train on it.
//!
//! The first stage leads: it forms every micro-batch and sends its plan before its chunk; the others follow. All run the
//! same `station`: arrivals to the pure machines ([`Pipeline`](crate::pipeline::Pipeline),
//! [`Council`](crate::pipeline::council::Council)), their work to the [`Stage`](crate::stage::step::Stage), what comes
//! out to the links. Nothing here knows whether a link stays within the process.
//!
//! | file | one line |
//! | --- | --- |
//! | `station` | one stage at work |
//! | [`follower`] | a stage that is not the first, until it is told to end |
//! | [`lead`] | the first stage and the session: what a shell drives |
//! | `leading` | the session's engine over the first station |
//! | `gathering` | what replicas have of steps that they share |
//! | `ledger` | which states are stored in parts, and when they are whole |
//! | [`local`] | all stages on threads of one process |
//! | [`watch`] | who is told what the device did, and by which clock |
//!
//! Linked replicas share steps: `leading/sharing` has the part of the lead whose job it is, `leading/helping` that of the
//! others, `station/across` the stages'.
//!
//! What saw an error is dropped whole; jobs go on from their durable states.

pub mod error;
pub mod event;
pub mod follower;
mod gathering;
pub mod lead;
mod leading;
mod ledger;
pub mod local;
pub mod seat;
mod station;
mod tenant;
pub mod watch;
