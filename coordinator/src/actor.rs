//! The coordinator as a process: a thin shell around [`Coordinator`](crate::life::cluster::Coordinator).
//!
//! | thread | what runs there |
//! | --- | --- |
//! | main | the coordinator actor: inputs in, effects out |
//! | network | connections, files, texts of samples, certificates |
//! | journal | the only one that touches the database: appends in groups, renews the lease |
//! | blocking | samples to token rows |

mod certificates;
mod coordinator;
mod files;
mod journal;
mod nodes;
mod preparing;
mod requests;
mod run;
mod samples;
mod settings;

pub use run::{RunError, run};
pub use settings::{CoordinatorSettings, Language};
