//! What a job costs, to the millionth of a dollar: shares that add up, what was saved, what was wasted, when to pause.
//!
//! - MONEY-1: the parts of a split add up to the whole, exactly ([`split`]).
//! - MONEY-2: what all jobs were charged is what the machines cost; a slot in which no job had tokens is charged to nobody and
//!   stays in [`Ledger::idle`].
//!
//! A fused step carries tokens of several jobs, so its machine time and money are split by tokens. The saving is against two
//! worlds that did not happen: the same machines all on demand, and each job alone on its own machines (solo), which takes
//! the time that its own measured rate gives.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shared::ids::JobName;
use shared::units::{MicroUsd, Micros};

use crate::problem::episode::Record;

/// What fused machines did over some time, and what they cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(deserialize = "K: Ord + Deserialize<'de>"))]
pub struct Usage<K: Ord = JobName> {
    /// Tokens by job.
    pub tokens: BTreeMap<K, u64>,
    /// Machine time: machines times duration.
    pub machine_time: Micros,
    /// Paid for spot machines.
    pub spot: MicroUsd,
    /// Paid for on-demand machines.
    pub on_demand: MicroUsd,
    /// The part of what was paid that brought no work: changes, reclaims, work done twice.
    pub waste: MicroUsd,
    /// What the same machine time would have cost all on demand.
    pub all_on_demand: MicroUsd,
}

/// What one job, or one tenant, owes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Tokens trained.
    pub tokens: u64,
    /// Its share of machine time.
    pub machine_time: Micros,
    /// Its share of spot.
    pub spot: MicroUsd,
    /// Its share of on-demand.
    pub on_demand: MicroUsd,
    /// Its share of the waste; a part of the two above.
    pub waste: MicroUsd,
    /// What its share would have cost all on demand.
    pub all_on_demand: MicroUsd,
}

/// All accounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(deserialize = "K: Ord + Deserialize<'de>"))]
pub struct Ledger<K: Ord = JobName> {
    /// By job.
    pub jobs: BTreeMap<K, Account>,
    /// What no job had tokens in.
    pub idle: Account,
}

/// What a job may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// At most this.
    pub cap: MicroUsd,
    /// Per mille of the cap from which on it is said aloud.
    pub warn_per_mille: u32,
}

/// What a budget says of the next slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Verdict {
    /// Go on.
    Within {
        /// Left after the slot.
        left: MicroUsd,
    },
    /// Go on, and say it.
    NearCap {
        /// Left after the slot.
        left: MicroUsd,
    },
    /// The slot would pass the cap: pause before it, while the state can still be saved.
    Pause {
        /// Left now.
        left: MicroUsd,
        /// What the slot would cost.
        next: MicroUsd,
    },
}

/// Splits `whole` by weights; the parts add up to it. Each part is its exact share rounded down, and what is left goes, one
/// each, to the largest remainders, the first of equals. Without any weight there is no part: `None`.
#[must_use]
pub fn split(whole: u64, weights: &[u64]) -> Option<Vec<u64>> {
    let sum: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
    if sum == 0 {
        return None;
    }
    let mut parts = Vec::with_capacity(weights.len());
    let mut rests = Vec::with_capacity(weights.len());
    let mut left = whole;
    for (at, &weight) in weights.iter().enumerate() {
        let exact = u128::from(whole) * u128::from(weight);
        let part = (exact / sum) as u64;
        left -= part;
        parts.push(part);
        rests.push((std::cmp::Reverse(exact % sum), at));
    }
    rests.sort_unstable();
    for (_, at) in rests.into_iter().take(left as usize) {
        parts[at] += 1;
    }
    debug_assert_eq!(
        parts.iter().map(|&part| u128::from(part)).sum::<u128>(),
        u128::from(whole),
        "MONEY-1"
    );
    Some(parts)
}

impl Account {
    /// What is owed.
    #[must_use]
    pub const fn spent(&self) -> MicroUsd {
        MicroUsd(self.spot.0.saturating_add(self.on_demand.0))
    }

    /// Saved against the same machines all on demand; below 0 when spot was dearer.
    #[must_use]
    pub const fn saved(&self) -> i64 {
        self.all_on_demand.less(self.spent())
    }

    /// Saved against the job alone: it would have taken `solo_time` of machine time at `hourly` a machine.
    #[must_use]
    pub fn saved_against_solo(&self, solo_time: Micros, hourly: MicroUsd) -> i64 {
        let alone = crate::problem::offer::slot_price(hourly, solo_time);
        alone.less(self.spent())
    }

    /// Adds another.
    pub const fn add(&mut self, other: &Self) {
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.machine_time = self.machine_time.plus(other.machine_time);
        self.spot = plus(self.spot, other.spot);
        self.on_demand = plus(self.on_demand, other.on_demand);
        self.waste = plus(self.waste, other.waste);
        self.all_on_demand = plus(self.all_on_demand, other.all_on_demand);
    }
}

impl<K: Ord> Default for Usage<K> {
    fn default() -> Self {
        Self {
            tokens: BTreeMap::new(),
            machine_time: Micros(0),
            spot: MicroUsd(0),
            on_demand: MicroUsd(0),
            waste: MicroUsd(0),
            all_on_demand: MicroUsd(0),
        }
    }
}

impl<K: Ord> Default for Ledger<K> {
    fn default() -> Self {
        Self {
            jobs: BTreeMap::new(),
            idle: Account::default(),
        }
    }
}

impl Usage {
    /// A slot of an episode: tokens are those that its machines trained in it.
    #[must_use]
    pub fn of(record: &Record, length: Micros, tokens: BTreeMap<JobName, u64>) -> Self {
        let count = u64::from(record.decision.held.count());
        let on_demand_price = record.offer.on_demand_price.round() as u64;
        Self {
            tokens,
            machine_time: Micros(length.0.saturating_mul(count)),
            spot: MicroUsd(record.cost.0.saturating_sub(record.on_demand_cost.0)),
            on_demand: record.on_demand_cost,
            waste: record.waste,
            all_on_demand: MicroUsd(count.saturating_mul(on_demand_price)),
        }
    }
}

impl<K: Ord + Clone> Ledger<K> {
    /// Charges what was used to the jobs that used it, by tokens.
    pub fn charge(&mut self, usage: &Usage<K>) {
        let weights: Vec<u64> = usage.tokens.values().copied().collect();
        let whole = Account {
            tokens: 0,
            machine_time: usage.machine_time,
            spot: usage.spot,
            on_demand: usage.on_demand,
            waste: usage.waste,
            all_on_demand: usage.all_on_demand,
        };
        let parts = |whole: u64| split(whole, &weights);
        let (Some(time), Some(spot), Some(on_demand), Some(waste), Some(all)) = (
            parts(usage.machine_time.0),
            parts(usage.spot.0),
            parts(usage.on_demand.0),
            parts(usage.waste.0),
            parts(usage.all_on_demand.0),
        ) else {
            self.idle.add(&whole);
            return;
        };
        for (at, (job, tokens)) in usage.tokens.iter().enumerate() {
            let part = Account {
                tokens: *tokens,
                machine_time: Micros(time[at]),
                spot: MicroUsd(spot[at]),
                on_demand: MicroUsd(on_demand[at]),
                waste: MicroUsd(waste[at]),
                all_on_demand: MicroUsd(all[at]),
            };
            self.jobs.entry(job.clone()).or_default().add(&part);
        }
    }

    /// Accounts of tenants, by which tenant each job is of; jobs of nobody come under an empty name.
    #[must_use]
    pub fn tenants(&self, of: &BTreeMap<K, String>) -> BTreeMap<String, Account> {
        let mut tenants: BTreeMap<String, Account> = BTreeMap::new();
        for (job, account) in &self.jobs {
            let tenant = of.get(job).cloned().unwrap_or_default();
            tenants.entry(tenant).or_default().add(account);
        }
        tenants
    }

    /// Everything, what is idle included.
    #[must_use]
    pub fn whole(&self) -> Account {
        let mut sum = self.idle;
        for account in self.jobs.values() {
            sum.add(account);
        }
        sum
    }
}

impl Budget {
    /// What to do when `spent` is gone and the next slot costs at most `next`.
    #[must_use]
    pub const fn verdict(&self, spent: MicroUsd, next: MicroUsd) -> Verdict {
        let left = self.cap.0.saturating_sub(spent.0);
        if next.0 > left {
            return Verdict::Pause {
                left: MicroUsd(left),
                next,
            };
        }
        let left = left - next.0;
        let used = (self.cap.0 - left) as u128 * 1000;
        if used >= self.cap.0 as u128 * self.warn_per_mille as u128 {
            Verdict::NearCap {
                left: MicroUsd(left),
            }
        } else {
            Verdict::Within {
                left: MicroUsd(left),
            }
        }
    }
}

const fn plus(a: MicroUsd, b: MicroUsd) -> MicroUsd {
    MicroUsd(a.0.saturating_add(b.0))
}

#[cfg(test)]
mod tests;
