//! The largest numbers that planning takes from files, flags, traces and nodes.
//!
//! They lie far above any machine or job. Within them no sum or product of the planner leaves 64 bits, and nothing is
//! counted one by one for longer than seconds: what is outside is refused by its key before anything is computed.
//! Sizes of a backbone have their own, [`shared::model::config::limits`]; those of jobs stand in `shared::job`.

use shared::model::ModelShape;
use shared::model::config::limits;
use thiserror::Error;

use super::snapshot::{Machine, Snapshot, Task};

/// A number and what it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The key as users write it, its unit included.
    pub key: &'static str,
    /// The least.
    pub least: u64,
    /// The most.
    pub most: u64,
}

/// A number outside of its bound.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{key} = {value} is not within {least} and {most}")]
pub struct OutOfBounds {
    /// The key.
    pub key: String,
    /// What was given.
    pub value: String,
    /// The least.
    pub least: u64,
    /// The most.
    pub most: u64,
}

/// Compute threads of a node.
pub const THREADS: Bound = Bound::new("threads", 1, 1 << 16);
/// Memory of a node in bytes: a pebibyte.
pub const MEMORY: Bound = Bound::new("memory_bytes", 1, 1 << 50);
/// Memory of a node in GiB.
pub const MEMORY_GIB: Bound = Bound::new("memory_gib", 0, 1 << 20);
/// Dollars for a node and hour.
pub const PRICE: Bound = Bound::new("price_usd_hour", 0, 1_000_000);
/// Losses of a node in a thousand hours.
pub const LOSSES: Bound = Bound::new("losses_per_1000_hours", 0, 1_000_000);
/// Nodes of a plan.
pub const NODES: Bound = Bound::new("nodes", 1, 4_096);
/// Jobs of a plan.
pub const JOBS: Bound = Bound::new("jobs", 0, 100_000);
/// Operations or bytes a second.
pub const RATE: Bound = Bound::new("a rate per second", 1, 1_000_000_000_000_000_000);
/// Nanoseconds of anything that is waited for: eleven days.
pub const NANOS: Bound = Bound::new("nanoseconds", 0, 1_000_000_000_000_000);
/// Rows of an optimizer step of one job.
pub const ROWS: Bound = Bound::new("rows of a step", 0, 1 << 36);
/// Rank, inner size, virtual tokens or changed values of an adapter.
pub const WIDTH: Bound = Bound::new("rank, size or tokens of an adapter", 1, limits::POSITIONS);
/// Weight of a tenant.
pub const WEIGHT: Bound = Bound::new("weight of a tenant", 1, 1_000_000);
/// Hours from now to a deadline: a century.
pub const HOURS: Bound = Bound::new("deadline in hours", 0, 876_000);
/// Percent that company may add to a step.
pub const PERCENT: Bound = Bound::new("max_added_latency in percent", 0, 1_000_000);

impl Bound {
    /// A number by its key.
    #[must_use]
    pub const fn new(key: &'static str, least: u64, most: u64) -> Self {
        Self { key, least, most }
    }

    /// The same bound of another key.
    #[must_use]
    pub const fn named(self, key: &'static str) -> Self {
        Self { key, ..self }
    }

    fn refused(&self, value: String) -> OutOfBounds {
        OutOfBounds {
            key: self.key.to_owned(),
            value,
            least: self.least,
            most: self.most,
        }
    }

    /// The number, when it is within.
    ///
    /// # Errors
    /// [`OutOfBounds`].
    pub fn check(&self, value: u64) -> Result<u64, OutOfBounds> {
        if (self.least..=self.most).contains(&value) {
            return Ok(value);
        }
        Err(self.refused(value.to_string()))
    }

    /// A number with a fraction, when it is one and within.
    ///
    /// # Errors
    /// [`OutOfBounds`].
    pub fn check_real(&self, value: f64) -> Result<f64, OutOfBounds> {
        if value >= self.least as f64 && value <= self.most as f64 {
            return Ok(value);
        }
        Err(self.refused(value.to_string()))
    }

    /// The nearest number within: for what a node says of itself, which nobody can be asked about.
    #[must_use]
    pub fn nearest(&self, value: u64) -> u64 {
        value.clamp(self.least, self.most)
    }
}

/// Checks the sizes of a backbone.
///
/// # Errors
/// [`OutOfBounds`] with the key of `config.json`.
pub fn check_model(model: &ModelShape) -> Result<(), OutOfBounds> {
    let sizes = [
        ("num_hidden_layers", model.layers, limits::LAYERS),
        ("hidden_size", model.hidden, limits::HIDDEN),
        (
            "intermediate_size",
            model.intermediate,
            limits::INTERMEDIATE,
        ),
        ("vocab_size", model.vocab, limits::VOCAB),
        ("num_attention_heads", model.heads, limits::HEADS),
        ("num_key_value_heads", model.kv_heads, limits::HEADS),
        ("head_dim", model.head_dim, limits::HEAD_DIM),
        (
            "max_position_embeddings",
            model.max_positions,
            limits::POSITIONS,
        ),
    ];
    for (key, value, most) in sizes {
        Bound::new(key, 1, most).check(value as u64)?;
    }
    Ok(())
}

fn check_machine(machine: &Machine) -> Result<(), OutOfBounds> {
    MEMORY.check(machine.memory.0)?;
    PRICE.check(machine.price.0 / 1_000_000)?;
    LOSSES.check(machine.losses_per_kilohour).map(drop)
}

fn check_task(task: &Task) -> Result<(), OutOfBounds> {
    WIDTH.check(task.adapter.width)?;
    ROWS.check(task.tokens()).map(drop)
}

/// Checks all numbers of a problem.
///
/// # Errors
/// [`OutOfBounds`] with the first that is outside.
pub fn check(snapshot: &Snapshot) -> Result<(), OutOfBounds> {
    check_model(&snapshot.model)?;
    // None at all is told by its own name.
    NODES.check((snapshot.nodes.len() as u64).max(1))?;
    JOBS.check(snapshot.tasks.len() as u64)?;
    snapshot.nodes.values().try_for_each(check_machine)?;
    snapshot.tasks.values().try_for_each(check_task)?;
    for tenant in snapshot.tenants.values() {
        WEIGHT.check(tenant.weight.max(1))?;
    }
    for link in [&snapshot.inside, &snapshot.between] {
        RATE.check(link.bytes_per_second.max(1))?;
        NANOS.check(link.latency_nanos)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
