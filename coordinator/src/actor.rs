//! The coordinator as a process: a thin shell around [`Coordinator`](crate::life::cluster::Coordinator).
//!
//! | thread | what runs there |
//! | --- | --- |
//! | main | the coordinator actor: inputs in, effects out |
//! | network | connections, files, texts of samples, certificates |
//! | journal | the only one that touches the database: appends in groups, renews the lease |
//! | blocking | samples to token rows; how jobs train together |

mod coordinator;
mod error;
mod farewell;
mod files;
mod journal;
mod leadership;
mod library;
mod logging;
mod messages;
mod meters;
mod nodes;
mod planner;
mod preparer;
mod preparing;
mod recall;
mod renewal;
mod requests;
mod run;
mod samples;
mod settings;

pub use error::RunError;
pub use run::run;
pub use settings::{BackboneFiles, CoordinatorSettings, Language};
