//! A cluster of real processes gives the bytes that one process gives, whatever happens to it.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(
    clippy::disallowed_methods,
    reason = "processes are waited for on the real clock"
)]

mod cut;
mod disturbed;
mod ended;
mod halted;
mod hostile;
mod hung;
mod inside;
mod joining;
mod leaving;
mod lossy;
mod market;
mod metrics;
mod netem;
mod outage;
mod panics;
mod peace;
mod relay;
mod replicas;
mod rival;
mod run;
mod sandbox;
mod stopped;
mod stored;
mod trace;
