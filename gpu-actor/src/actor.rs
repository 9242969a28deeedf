//! The gpu-actor as a process: a thin shell around [`Duty`](crate::duty::Duty) and one stage of a replica.
//!
//! | thread | what runs there |
//! | --- | --- |
//! | main | the stage actor: notices in, effects out; nothing that takes long |
//! | network | connections, links, the uplink to the coordinator |
//! | stage | the device: a lead or a follower, for as long as its post is held |
//! | keeper, export | states and adapters into the store |
//!
//! Bulk values go from the stage's thread to the network and back; no mailbox sees them.

mod beside;
mod device_thread;
mod error;
mod export;
mod fetching;
mod hall;
mod holder;
mod inbound;
mod introduction;
mod leading;
mod links;
mod metered;
mod meters;
mod opener;
pub mod reclaim;
mod resident;
mod respite;
mod run;
mod running;
mod service;
mod settings;
mod stage;
mod stored_sample;
mod tasks;
mod traces;
mod uplink;

pub use error::RunError;
pub use run::run;
pub use settings::{Fetch, NodeSettings};
