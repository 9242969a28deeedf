//! Training many jobs at once: packing, the session, what it reports.

pub mod event;
mod meeting;
pub mod memory;
pub mod pack;
pub mod pipeline_error;
pub mod pipelined;
pub mod prepare;
pub mod progress;
pub mod session;
mod station;
pub mod store;
mod tally;
