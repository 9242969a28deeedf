//! Training many jobs at once: packing, the session, what it reports.

pub mod event;
pub mod memory;
pub mod pack;
pub mod prepare;
pub mod progress;
pub mod session;
pub mod store;
mod tally;
