//! Section `market`: who has machines, and how many of them are held.

use serde::{Deserialize, Serialize};

use crate::units::{MicroUsd, Micros};

/// Who has machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// Nobody: no market actor runs.
    #[default]
    None,
    /// The nodes that the file lists.
    Static,
    /// Processes of this machine.
    Local,
    /// Processes of this machine whose life follows a trace.
    Replay,
    /// Instances of EC2.
    Aws,
    /// Jobs of a Slurm cluster.
    Slurm,
}

impl std::fmt::Display for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Static => "static",
            Self::Local => "local",
            Self::Replay => "replay",
            Self::Aws => "aws",
            Self::Slurm => "slurm",
        })
    }
}

/// Who has machines, and how many of them are held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MarketSection {
    /// Who has machines.
    pub provider: Provider,
    /// Policy, as `spotmux market backtest` writes it.
    pub policy: String,
    /// What it is told of the slots to come.
    pub forecast: String,
    /// Length of a slot: what is decided stands so long.
    pub slot_seconds: u64,
    /// Fewest machines that hold work; 0: as many as the plan needs.
    pub fewest: u64,
    /// Most machines.
    pub most: u64,
    /// From the first job on until all work is to be done.
    pub deadline_minutes: u64,
    /// What may be spent; 0 when there is no cap.
    pub budget_usd: u64,
    /// Of a spot machine for an hour, where the provider does not say.
    pub spot_cents: u64,
    /// Of a machine on demand for an hour, where the provider does not say.
    pub on_demand_cents: u64,
    /// A machine whose node has not joined after so long is given back.
    pub boot_seconds: u64,
    /// A machine that is given up may take so long to be emptied.
    pub grace_seconds: u64,
    /// A kind of machine that was refused is not asked for again for so long.
    pub rest_seconds: u64,
    /// Slots in a row in which spot must be cheaper before it takes the place of on-demand.
    pub hysteresis: u64,
    /// Time between looks at the provider and the coordinator.
    pub look_ms: u64,
    /// Of `replay`: the trace, relative to the file.
    pub trace: String,
    /// Of `replay`: which pool of a trace that has several, `zone` or `zone/machine`; `none`: it has one.
    pub trace_pool: String,
    /// Of `replay`: length of a slot of the trace.
    pub trace_slot_minutes: u64,
    /// Of `replay`: seconds of the trace that pass in one.
    pub speed: u64,
    /// Of `replay` and `slurm`: how long before its end a machine is told.
    pub notice_ms: u64,
    /// Of `replay`: of a thousand machines that are taken, so many are not told.
    pub abrupt_per_mille: u64,
    /// Of `replay`: of a thousand spot machines, so many are said to be at risk in a slot of the trace.
    pub risk_per_mille: u64,
    /// Of `local` and `replay`: machines that are gone and whose logs are kept, the newest.
    pub kept_logs: u64,
    /// Of `replay`: seed of whom it takes.
    pub seed: u64,
    /// What tenants allow, `"team-a: no-spot, *: max-spot-cents=40"`; `none`: everything.
    pub rules: String,
    /// Of `aws`: the region.
    pub aws_region: String,
    /// Of `aws`: where the API is; `default`: that of the region.
    pub aws_endpoint: String,
    /// Of `aws`: name of the launch template, whose user data starts a gpu-actor.
    pub aws_template: String,
    /// Of `aws`: types of instances that will do, commas between.
    pub aws_types: String,
    /// Of `slurm`: the partition whose jobs may be preempted.
    pub slurm_spot: String,
    /// Of `slurm`: the partition whose jobs are not.
    pub slurm_on_demand: String,
    /// Of `slurm`: folder of `sbatch` and its kin; `path`: those on the path.
    pub slurm_commands: String,
    /// Of `slurm`: what a job runs, `{name}` its node; `default`: this program, where all nodes have it at the same place.
    pub slurm_command: String,
}

impl Default for MarketSection {
    fn default() -> Self {
        Self {
            provider: Provider::None,
            policy: "horizon".into(),
            forecast: "real".into(),
            slot_seconds: 1800,
            fewest: 0,
            most: 4,
            deadline_minutes: 1440,
            budget_usd: 0,
            spot_cents: 30,
            on_demand_cents: 100,
            boot_seconds: 600,
            grace_seconds: 120,
            rest_seconds: 60,
            hysteresis: 2,
            look_ms: 2000,
            trace: "none".into(),
            trace_pool: "none".into(),
            trace_slot_minutes: 30,
            speed: 1,
            notice_ms: 120_000,
            abrupt_per_mille: 0,
            risk_per_mille: 0,
            kept_logs: 50,
            seed: 1,
            rules: "none".into(),
            aws_region: "us-east-1".into(),
            aws_endpoint: "default".into(),
            aws_template: "none".into(),
            aws_types: "none".into(),
            slurm_spot: "spot".into(),
            slurm_on_demand: "normal".into(),
            slurm_commands: "path".into(),
            slurm_command: "default".into(),
        }
    }
}

impl MarketSection {
    /// Whether a market actor runs.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.provider != Provider::None
    }

    /// Length of a slot.
    #[must_use]
    pub fn slot(&self) -> Micros {
        seconds(self.slot_seconds)
    }

    /// From the first job on until all work is to be done.
    #[must_use]
    pub fn deadline(&self) -> Micros {
        seconds(self.deadline_minutes.saturating_mul(60))
    }

    /// What may be spent, if there is a cap.
    #[must_use]
    pub fn budget(&self) -> Option<MicroUsd> {
        (self.budget_usd > 0).then(|| MicroUsd(self.budget_usd.saturating_mul(1_000_000)))
    }

    /// Of a spot machine for an hour.
    #[must_use]
    pub fn spot_price(&self) -> MicroUsd {
        MicroUsd(self.spot_cents.saturating_mul(10_000))
    }

    /// Of a machine on demand for an hour.
    #[must_use]
    pub fn on_demand_price(&self) -> MicroUsd {
        MicroUsd(self.on_demand_cents.saturating_mul(10_000))
    }
}

/// So many seconds.
#[must_use]
pub const fn seconds(count: u64) -> Micros {
    Micros::of_millis(count.saturating_mul(1000))
}
