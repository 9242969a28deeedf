//! Words every spotmux crate shares: ids, jobs, model shapes, keyed randomness.
//!
//! The rule of entry: used by two crates, and a word or a manner. Nothing here does I/O, reads a clock or
//! knows a tensor, but `net`, `artifact`, `process` and two files of `telemetry`, which are shells; this file only lists the
//! rooms.
//!
//! | room | one line |
//! | --- | --- |
//! | [`ids`] | names and numbers that identify jobs, nodes, plans, leaderships |
//! | [`units`] | bytes and time with names |
//! | [`config`] | the settings of a cluster: `cluster.toml` and what is said over it |
//! | [`job`] | what a tenant asks for: method, optimizer, schedule, data, limits |
//! | [`life`] | the states of a job as its owner sees them |
//! | [`plan`] | which node holds which layers, which jobs train there |
//! | [`wire`] | what travels between processes |
//! | [`actor`] | why actors and threads end, and how often they are started again |
//! | [`telemetry`] | what processes measure of themselves, and where it is read |
//! | [`model`] | layer, head and vocabulary sizes of a backbone; the sites an adapter may attach to |
//! | `net` | connections between processes: QUIC with TLS both ways; feature `net` |
//! | `artifact` | the store of artifacts: a folder or a bucket; feature `artifact` |
//! | `process` | a process of the system: whether it lives, and asking it to end; feature `process` |
//! | [`hexadecimal`] | bytes as lower-case digits |
//! | [`random`] | counter-based randomness: nothing is drawn in an order |
//! | [`recompute`] | layers whose activations are made again and not kept |
//! | [`samples`] | what became of the records of a file of samples |
//! | [`strict_json`] | JSON without a key twice |
//! | [`strict_toml`] | TOML whose faults are told with the path of the key and the nearest valid name |
//! | [`suggest`] | the valid name nearest to a wrong one |

#![forbid(unsafe_code)]

pub mod actor;
#[cfg(feature = "artifact")]
pub mod artifact;
pub mod config;
pub mod excerpt;
pub mod hexadecimal;
pub mod ids;
pub mod job;
pub mod life;
pub mod model;
#[cfg(feature = "net")]
pub mod net;
pub mod plan;
#[cfg(feature = "process")]
pub mod process;
pub mod random;
pub mod recompute;
pub mod samples;
pub mod strict_json;
pub mod strict_toml;
pub mod suggest;
pub mod telemetry;
pub mod units;
pub mod wire;
