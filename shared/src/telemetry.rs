//! What a process measures of itself, and where it is read.
//!
//! | file | pure | one line |
//! | --- | --- | --- |
//! | [`names`] | yes | every series: its name with its unit, its kind, its help, its labels |
//! | `registry` | no | the series of one process; feature `telemetry` |
//! | `serve` | no | `/metrics` and `/healthz` over HTTP; feature `telemetry` |

pub mod names;
#[cfg(feature = "telemetry")]
pub mod registry;
#[cfg(feature = "telemetry")]
pub mod serve;
