//! A fleet of GPUs in virtual time, under the planner's own predictions: what co-scheduling is worth over a week.
//!
//! Jobs arrive, wait in one queue (first come, first served), train on an instance with others or alone, and end.
//! An instance is some GPUs that hold the backbone together; its jobs all take one step in the time that the planner's
//! cost model predicts for them together, while rounds follow each other: a job alone has nothing that fills its drain, and
//! one padded pass for all neither. What the planner decides in a cluster, it decides here, by the same code.
//!
//! | system | an instance takes | a step |
//! | --- | --- | --- |
//! | [`System::Spotmux`] | jobs while they fit and bring tokens | fused, ordered, aligned |
//! | [`System::Single`] | one job | one micro-batch after another; "HF-PEFT" and "NeMo" in the paper |
//! | [`System::Spatial`] | jobs while they fit and bring tokens | all in one pass, padded to the longest; "SL-PEFT" |
//! | [`System::Temporal`] | jobs while they fit and bring tokens | each by itself, interleaved |
//!
//! A job's length in a trace is what it takes alone on an instance of [`System::Single`]. Every system has the number of
//! GPUs to an instance that trains most tokens a second and GPU with a mix of the jobs to come, unless one is set.
//! Failures take an instance's jobs back to their last checkpoint and to the head of the queue.
//!
//! **What this is not.** Times are of a cost model. With a profile computed from peaks the ratios are what roofline and
//! launches predict, not what was measured; the report says which.

mod cluster;
mod instance;
mod jobs;
pub mod limits;
mod report;
#[cfg(test)]
mod tests;
mod timeline;
pub mod trace;

use coordinator::plan::profile::Profile;
use coordinator::plan::snapshot::Snapshot;

pub use cluster::run;
pub use instance::{System, best_width};
pub use jobs::{Job, Mix, jobs};
pub use limits::BadSetting;
pub use report::{Comparison, Ended, Outcome, PAPER};
pub use timeline::svg;

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The backbone and how it is kept; nodes and jobs of it are not looked at.
    pub base: Snapshot,
    /// The devices.
    pub profile: Profile,
    /// GPUs in all.
    pub gpus: usize,
    /// GPUs to an instance; absent: the best of [`WIDTHS`] for each system that the GPUs are enough for.
    pub width: Option<usize>,
    /// Micro-batches of a step in the three that it is compared with; absent: the best number for each.
    pub micro_batches: Option<u64>,
    /// Seconds that are simulated.
    pub horizon_s: u64,
    /// Failures and reclaims.
    pub losses: Losses,
    /// Price of a GPU and hour in millionths of a dollar.
    pub price: u64,
    /// Everything drawn derives from it.
    pub seed: u64,
}

/// GPUs to an instance that are tried.
pub const WIDTHS: [usize; 3] = [1, 2, 4];

/// Failures and reclaims, as a Poisson series for each GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Losses {
    /// Of one GPU in a thousand hours.
    pub per_kilohour: u64,
    /// Until the instance is back, in seconds.
    pub recovery_s: u64,
    /// A job loses at most so many seconds of training.
    pub checkpoint_s: u64,
}

impl Default for Losses {
    fn default() -> Self {
        Self {
            per_kilohour: 5,
            recovery_s: 120,
            checkpoint_s: 600,
        }
    }
}

/// Simulates all systems over the same jobs.
///
/// # Errors
/// [`BadSetting`] when it is too much, or when the backbone does not fit an instance.
pub fn compare(
    setting: &Setting,
    mix: &Mix,
    jobs: &[Job],
    source: &str,
) -> Result<Comparison, BadSetting> {
    setting.check(jobs.len())?;
    let outcomes = System::ALL
        .iter()
        .map(|system| run(setting, mix, jobs, *system))
        .collect::<Result<Vec<_>, _>>()?;
    let single = outcomes
        .iter()
        .find(|outcome| outcome.system == System::Single);
    let capacity = single.map_or(0, |single| single.instances as u64 * setting.horizon_s);
    let came = jobs.iter().map(|job| u128::from(job.arrival.runtime_s));
    Ok(Comparison {
        offered: came.sum::<u128>() as f64 / capacity.max(1) as f64,
        source: source.to_owned(),
        gpus: setting.gpus,
        device: setting.profile.device.clone(),
        origin: setting.profile.origin,
        outcomes,
    })
}
