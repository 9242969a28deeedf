//! What an operator set of a market, from the whole of a cluster's settings: what cannot be is told before anything is started.
//!
//! A market and a plan must fit each other: a replica of the backbone stands on `plan.stages` machines, so fewer do no work and
//! cost money, and what is beyond all replicas does none either. With S stages and R replicas n machines do the work of
//!
//! ```text
//! useful(n) = S * min(floor(n / S), R)
//! ```

mod fault;
mod tenants;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shared::config::market::{MarketSection, Provider, seconds};
use shared::config::schema::{ClusterConfig, Stages};
use shared::units::{MicroUsd, Micros};

pub use fault::{Fault, Misfit};
pub use tenants::RuleError;

use crate::money::Budget;
use crate::policy::Safety;
use crate::policy::tenant::Rules;
use crate::problem::offer::{Held, Offer, slot_price};
use crate::problem::throughput::Throughput;
use crate::problem::{MOST_MACHINES, MOST_SLOTS};
use crate::select::pool::{Member, standard};
use crate::select::word;

/// Seconds of a day.
const DAY: u64 = 86_400;
/// Per mille of the budget from which on it is said aloud.
const WARN: u32 = 800;
/// What finishing in time is worth, over the work at the price on demand.
const WORTH: f64 = 1.5;
/// How long a change of machines keeps a cluster from work.
const CHANGE: Micros = Micros::of_millis(5_000);
/// The word of a policy that is learned.
pub const SELECTION: &str = "selection";

/// Who says how many machines are held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// This policy with this foresight.
    Fixed(Member),
    /// One of these, chosen anew for each stretch of work by what all of them would have earned in those before.
    Learned(Vec<Member>),
}

/// What the operator set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Length of a slot.
    pub slot: Micros,
    /// Fewest machines that hold the work.
    pub fewest: u32,
    /// Most machines.
    pub most: u32,
    /// Machines of a replica.
    pub stages: u32,
    /// Most replicas.
    pub replicas: u32,
    /// From the first job on until all work is to be done.
    pub deadline: Micros,
    /// What may be spent; nothing when there is no cap.
    pub budget: Option<Budget>,
    /// What finishing in time is worth, over the work at the price on demand.
    pub worth: f64,
    /// How long a change of machines keeps the cluster from work.
    pub change: Micros,
    /// Of a machine on demand for an hour, where the provider does not say.
    pub on_demand_price: MicroUsd,
    /// Who decides.
    pub choice: Choice,
    /// The net under it.
    pub safety: Safety,
    /// What each tenant allows; `tenants::ALL` is every tenant.
    pub rules: BTreeMap<String, Rules>,
    /// How long a machine that is given up may take to be emptied.
    pub grace: Micros,
    /// After a refusal a kind of machine is not asked of its pool again for so long; nor after the pool took one away, where another
    /// has room.
    pub rest: Micros,
    /// Slots in a row.
    pub hysteresis: u32,
}

impl Terms {
    /// What a cluster's settings say.
    ///
    /// # Errors
    /// Everything that cannot be, as [`misfits`] lists it.
    pub fn of(config: &ClusterConfig) -> Result<Self, Vec<Misfit>> {
        let found = misfits(config);
        if !found.is_empty() {
            return Err(found);
        }
        let (section, need) = (&config.market, need(config));
        let choice = choice(section, day(section)).map_err(|misfit| vec![misfit])?;
        let rules = tenants::rules(&section.rules).map_err(|error| {
            vec![Misfit {
                key: "market.rules",
                fault: error.into(),
            }]
        })?;
        Ok(Self {
            slot: section.slot(),
            fewest: narrow(fewest(section, need.stages)),
            most: narrow(section.most),
            stages: narrow(need.stages),
            replicas: narrow(need.replicas),
            deadline: section.deadline(),
            budget: section.budget().map(|cap| Budget {
                cap,
                warn_per_mille: WARN,
            }),
            worth: WORTH,
            change: CHANGE,
            on_demand_price: section.on_demand_price(),
            choice,
            safety: Safety::default(),
            rules,
            grace: seconds(section.grace_seconds),
            rest: seconds(section.rest_seconds),
            hysteresis: narrow(section.hysteresis),
        })
    }

    /// Machines that do work, of so many.
    #[must_use]
    pub fn useful(&self, machines: u32) -> u32 {
        let stages = self.stages.max(1);
        stages.saturating_mul((machines / stages).min(self.replicas))
    }

    /// The cheapest way to hold as many of `machines` as there are and do work; nothing where fewer can be had than do any.
    #[must_use]
    pub fn fill(&self, offer: &Offer, machines: u32) -> Held {
        let there = offer.fill_most(machines).count();
        let count = self.useful(there).max(self.fewest);
        match count <= there {
            true => offer.fill_most(count),
            false => Held::default(),
        }
    }

    /// Work of a slot by number of machines, in what one useful machine does.
    #[must_use]
    pub fn throughput(&self) -> Throughput {
        let counts = 1..=self.most.min(MOST_MACHINES);
        Throughput::Table(counts.map(|count| f64::from(self.useful(count))).collect())
    }

    /// What all tenants of these jobs allow together: they share the machines.
    #[must_use]
    pub fn rules_of<'a>(&self, tenants: impl Iterator<Item = &'a str>) -> Rules {
        tenants::joined(&self.rules, tenants)
    }
}

/// Machines that a plan needs for work, and the most that it gives work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Need {
    stages: u64,
    replicas: u64,
}

impl Need {
    const fn seats(self) -> u64 {
        self.stages.saturating_mul(self.replicas)
    }
}

/// Machines that the plan gives work, where `market.most` is more: those beyond are never held. Nothing where no market runs.
#[must_use]
pub fn seats_below_most(config: &ClusterConfig) -> Option<u64> {
    let seats = need(config).seats();
    (config.market.runs() && seats < config.market.most).then_some(seats)
}

fn need(config: &ClusterConfig) -> Need {
    let replicas = config.plan.replicas.max(1);
    match config.plan.stages {
        Stages::Count(stages) => Need {
            stages: stages.max(1),
            replicas,
        },
        // A replica is cut over the machines there are: all of them have work.
        Stages::All => Need {
            stages: 1,
            replicas: u64::MAX,
        },
    }
}

fn narrow(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// 0 stands for what the plan needs.
fn fewest(section: &MarketSection, needed: u64) -> u64 {
    match section.fewest {
        0 => needed,
        fewest => fewest,
    }
}

/// A day in slots; 0 where a slot is longer.
fn day(section: &MarketSection) -> u32 {
    narrow(DAY / section.slot_seconds.max(1))
}

fn choice(section: &MarketSection, day: u32) -> Result<Choice, Misfit> {
    let source = word::foresight(&section.forecast, day).map_err(|error| Misfit {
        key: "market.forecast",
        fault: error.into(),
    })?;
    if source.sees_the_future() {
        let word = section.forecast.clone();
        return Err(Misfit {
            key: "market.forecast",
            fault: Fault::Seer { word },
        });
    }
    if section.policy == SELECTION {
        return Ok(Choice::Learned(standard(day.max(12))));
    }
    let policy = word::policy(&section.policy).map_err(|error| Misfit {
        key: "market.policy",
        fault: error.into(),
    })?;
    Ok(Choice::Fixed(Member { policy, source }))
}

/// Everything of section `market` that cannot be, by itself or beside the plan; nothing where no market runs.
#[must_use]
pub fn misfits(config: &ClusterConfig) -> Vec<Misfit> {
    let (section, need) = (&config.market, need(config));
    let mut found = Vec::new();
    if !section.runs() {
        return found;
    }
    let mut add = |key: &'static str, fault: Fault| found.push(Misfit { key, fault });
    let fewest = fewest(section, need.stages);
    for (key, value) in [("market.fewest", fewest), ("market.most", section.most)] {
        if value < need.stages {
            let stages = need.stages;
            add(key, Fault::BelowPlan { value, stages });
        }
    }
    if fewest > section.most && section.most >= need.stages {
        let most = section.most;
        add("market.fewest", Fault::AboveMost { fewest, most });
    }
    let seats = need.seats();
    // Listed nodes are paid for anyway.
    if fewest > seats && fewest <= section.most && section.provider != Provider::Static {
        add("market.fewest", Fault::BeyondPlan { fewest, seats });
    }
    if section.provider == Provider::Static && fewest > config.node.len() as u64 {
        let nodes = config.node.len() as u64;
        add("market.fewest", Fault::AboveFleet { fewest, nodes });
    }
    let (deadline, slot) = (section.deadline(), section.slot());
    let slots = deadline.0 / slot.0.max(1);
    if !(1..=u64::from(MOST_SLOTS / 2)).contains(&slots) {
        add("market.deadline_minutes", Fault::Slots { deadline, slot });
    }
    let price = section.spot_price().min(section.on_demand_price());
    let floor = MicroUsd(slot_price(price, slot).0.saturating_mul(fewest));
    if let Some(budget) = section.budget().filter(|budget| *budget < floor) {
        add("market.budget_usd", Fault::Budget { budget, floor });
    }
    for (key, value) in wanted_of(section) {
        if matches!(value, "" | "none") {
            let provider = section.provider;
            add(key, Fault::Unset { provider });
        }
    }
    if let Err(error) = tenants::rules(&section.rules) {
        add("market.rules", error.into());
    }
    if let Err(misfit) = choice(section, day(section)) {
        found.push(misfit);
    }
    found
}

/// Keys that a provider cannot do without, with their values.
fn wanted_of(section: &MarketSection) -> Vec<(&'static str, &str)> {
    match section.provider {
        Provider::None | Provider::Static | Provider::Local => Vec::new(),
        Provider::Replay => vec![("market.trace", section.trace.as_str())],
        Provider::Aws => vec![
            ("market.aws_region", section.aws_region.as_str()),
            ("market.aws_template", section.aws_template.as_str()),
            ("market.aws_types", section.aws_types.as_str()),
        ],
        Provider::Slurm => vec![
            ("market.slurm_spot", section.slurm_spot.as_str()),
            ("market.slurm_on_demand", section.slurm_on_demand.as_str()),
        ],
    }
}

#[cfg(test)]
mod tests;
