//! The shell around the broker: a provider, the coordinator, files and the clock.
//!
//! | file | |
//! | --- | --- |
//! | `market` | the actor: events to the broker, its effects performed |
//! | `hands` | asks the provider on a thread of its own, each call within a bound |
//! | `line` | asks the coordinator; keeps the certificate fresh |
//! | `specifications` | what jobs are, each asked about once |
//! | `thinking` | has a policy's plans and lessons worked out beside the actor |
//! | [`journal`] | the record of machines, synced |
//! | [`files`] | what survives a restart; what was decided |
//! | `recording` | what the provider showed, as a trace |

mod error;
pub mod files;
mod hands;
pub mod journal;
mod line;
mod market;
mod messages;
mod recording;
mod run;
mod settings;
mod specifications;
mod thinking;

pub use error::RunError;
pub use run::run;
pub use settings::{Clocks, MarketSettings, Offered, RECORD, STATE};
