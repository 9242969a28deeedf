//! The shell around the broker: a provider, the coordinator, files and the clock.
//!
//! | file | |
//! | --- | --- |
//! | `market` | the actor: events to the broker, its effects performed |
//! | `hands` | asks the provider, each call within a bound |
//! | `line` | asks the coordinator; keeps the certificate fresh |
//! | [`journal`] | the record of machines, synced; what was decided |

mod error;
mod hands;
pub mod journal;
mod line;
mod market;
mod messages;
mod run;
mod settings;

pub use error::RunError;
pub use run::run;
pub use settings::{MarketSettings, Offered};
