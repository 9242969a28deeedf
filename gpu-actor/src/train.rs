//! Training many jobs at once: packing, the session, what it reports.

pub mod engine;
pub mod event;
pub mod flat;
pub mod identity;
pub mod job_state;
pub mod local;
pub mod memory;
pub mod pack;
pub mod prepare;
pub mod progress;
pub mod proof;
mod run;
pub mod seal;
pub mod session;
pub mod shard;
pub mod spread;
pub mod store;
pub mod tally;
