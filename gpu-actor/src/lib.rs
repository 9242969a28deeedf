//! Holds a frozen backbone (or a slice of it) and trains many adapters on it at once.

#![deny(unsafe_code)]

pub mod actor;
pub mod artifacts;
pub mod batch;
pub mod durable;
pub mod duty;
pub mod link;
pub mod model;
pub mod peft;
pub mod pipeline;
pub mod reclaim;
pub mod replica;
pub mod sample;
pub mod stage;
pub mod train;
