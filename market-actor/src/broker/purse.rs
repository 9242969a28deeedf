//! What machines cost, second by second, and which job owes it: kept over restarts.
//!
//! - PU-1: what all accounts and what is pending add up to is what was spent.
//! - PU-2: time in which this process did not run is paid too: by the wall clock, at the prices seen last.
//!
//! Money is charged to jobs when they show new tokens, by tokens; what was spent since then is pending, or idle when there is no
//! job at work. Waste is the part for machines that hold no work yet or any more, and for tokens that a job does a second time. A
//! job that was the only one at work for a while shows what it takes alone; what company saves it is told from that.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shared::ids::JobId;
use shared::units::{MicroUsd, Micros};
use shared::wire::market::Money;

use super::told::JobTold;
use crate::money::{Account, Ledger, Usage};
use crate::provider::Kind;

/// Microseconds of an hour: prices are by the hour.
const HOUR: u128 = 3_600_000_000;
/// Jobs that have ended and are still told of by name; older ones are told by tenant.
const MOST_ENDED: usize = 512;

/// A machine that costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// How it is paid.
    pub kind: Kind,
    /// Of it, for an hour.
    pub hourly: MicroUsd,
    /// Of one on demand, for an hour.
    pub on_demand: MicroUsd,
    /// Whether it does work.
    pub works: bool,
}

/// Parts of a millionth of a dollar that are owed, in millionths of a dollar times microseconds of an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Owed {
    spot: u64,
    on_demand: u64,
    waste: u64,
    all_on_demand: u64,
}

/// What a job took while it was alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alone {
    /// Tokens.
    pub tokens: u64,
    /// Machine time.
    pub time: Micros,
}

/// A job as the purse knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    name: String,
    tenant: String,
    /// Tokens that it showed last.
    tokens: u64,
    /// Tokens that it did before and has to do again.
    again: u64,
    alone: Alone,
    ended: bool,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Purse {
    spent: MicroUsd,
    owed: Owed,
    pending: Usage<JobId>,
    /// By number: a name is free again after its job has ended.
    accounts: Ledger<JobId>,
    /// Of jobs that ended long ago, by tenant.
    past: BTreeMap<String, Account>,
    jobs: BTreeMap<JobId, Known>,
}

/// What one job owes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bill {
    /// Its account.
    #[serde(flatten)]
    pub account: Account,
    /// Paid, millionths of a dollar.
    pub spent: MicroUsd,
    /// Saved against the same machines all on demand, millionths of a dollar.
    pub saved: i64,
    /// Saved against the job alone on machines on demand, millionths of a dollar; nothing where it was never seen alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved_by_company: Option<i64>,
}

impl Bill {
    fn of(account: Account, alone: Option<Alone>, hourly: MicroUsd) -> Self {
        let alone = alone.filter(|alone| alone.tokens > 0);
        Self {
            spent: account.spent(),
            saved: account.saved(),
            saved_by_company: alone.map(|alone| {
                let exact = u128::from(account.tokens) * u128::from(alone.time.0);
                let time = exact / u128::from(alone.tokens);
                let time = Micros(u64::try_from(time).unwrap_or(u64::MAX));
                account.saved_against_solo(time, hourly)
            }),
            account,
        }
    }
}

impl Purse {
    /// Paid in all.
    #[must_use]
    pub const fn spent(&self) -> MicroUsd {
        self.spent
    }

    /// Time passes for machines that cost.
    pub fn pay(&mut self, machines: impl Iterator<Item = Cost>, time: Micros) {
        for machine in machines {
            let of = |hourly: MicroUsd| u128::from(hourly.0) * u128::from(time.0);
            let exact = of(machine.hourly);
            let (owed, paid) = match machine.kind {
                Kind::Spot => (&mut self.owed.spot, &mut self.pending.spot),
                Kind::OnDemand => (&mut self.owed.on_demand, &mut self.pending.on_demand),
            };
            let whole = carried(owed, exact);
            paid.0 = paid.0.saturating_add(whole);
            self.spent.0 = self.spent.0.saturating_add(whole);
            if !machine.works {
                let waste = carried(&mut self.owed.waste, exact);
                self.pending.waste.0 = self.pending.waste.0.saturating_add(waste);
            }
            let dear = carried(&mut self.owed.all_on_demand, of(machine.on_demand));
            let all = &mut self.pending.all_on_demand;
            all.0 = all.0.saturating_add(dear);
            self.pending.machine_time = self.pending.machine_time.plus(time);
        }
    }

    /// Jobs show what they did: what is pending is charged to those that have new tokens.
    pub fn charge(&mut self, jobs: &[JobTold]) {
        let mut tokens: BTreeMap<JobId, u64> = BTreeMap::new();
        let (mut fresh, mut twice) = (0u64, 0u64);
        let mut single = None;
        // What the coordinator does not show any more has ended.
        self.jobs.values_mut().for_each(|known| known.ended = true);
        for job in jobs {
            let known = self.jobs.entry(job.id).or_insert_with(|| Known {
                // What it did before it was first seen here is not charged.
                tokens: job.tokens,
                ..Known::default()
            });
            known.name = job.name.to_string();
            known.tenant.clone_from(&job.tenant);
            known.ended = job.ended;
            let more = job.tokens.saturating_sub(known.tokens);
            known.again += known.tokens.saturating_sub(job.tokens);
            known.tokens = job.tokens;
            if more == 0 {
                continue;
            }
            let again = known.again.min(more);
            known.again -= again;
            twice = twice.saturating_add(again);
            fresh = fresh.saturating_add(more);
            single = match tokens.is_empty() {
                true => Some(job.id),
                false => None,
            };
            *tokens.entry(job.id).or_default() += more;
        }
        let live = jobs.iter().filter(|job| job.is_live()).count();
        if fresh == 0 && live > 0 {
            return;
        }
        let mut usage = std::mem::take(&mut self.pending);
        let paid = usage.spot.0.saturating_add(usage.on_demand.0);
        if fresh > 0 {
            let useful = paid.saturating_sub(usage.waste.0);
            let part = u128::from(useful) * u128::from(twice) / u128::from(fresh);
            usage.waste.0 = usage.waste.0.saturating_add(part as u64).min(paid);
        }
        // Looks are short: one that alone has new tokens may have had company.
        let single = single.filter(|_| live == 1);
        if let Some(known) = single.and_then(|id| self.jobs.get_mut(&id)) {
            known.alone.tokens = known.alone.tokens.saturating_add(fresh);
            known.alone.time = known.alone.time.plus(usage.machine_time);
        }
        usage.tokens = tokens;
        self.accounts.charge(&usage);
        self.forget();
    }

    /// Jobs that ended long ago are told by tenant.
    fn forget(&mut self) {
        let ended: Vec<JobId> = self
            .jobs
            .iter()
            .filter(|(_, known)| known.ended)
            .map(|(id, _)| *id)
            .collect();
        for id in ended.iter().take(ended.len().saturating_sub(MOST_ENDED)) {
            let Some(known) = self.jobs.remove(id) else {
                continue;
            };
            if let Some(account) = self.accounts.jobs.remove(id) {
                self.past.entry(known.tenant).or_default().add(&account);
            }
        }
    }

    /// What a job was charged.
    #[must_use]
    pub fn of(&self, job: JobId) -> Account {
        self.accounts.jobs.get(&job).copied().unwrap_or_default()
    }

    /// Whether a job has an account of its own.
    pub(super) fn knows(&self, job: JobId) -> bool {
        self.accounts.jobs.contains_key(&job)
    }

    /// What each job that is told of by name has cost.
    pub fn owed(&self) -> impl Iterator<Item = (JobId, Money)> {
        let accounts = self.accounts.jobs.iter();
        accounts.map(|(id, account)| {
            let (spent, saved) = (account.spent(), account.saved());
            (*id, Money { spent, saved })
        })
    }

    /// Bills by job, with machines on demand at a price for an hour: under its name, and with its number behind that where several
    /// had the name.
    #[must_use]
    pub fn jobs(&self, hourly: MicroUsd) -> BTreeMap<String, Bill> {
        let mut same: BTreeMap<&str, u32> = BTreeMap::new();
        for known in self.jobs.values() {
            *same.entry(&known.name).or_default() += 1;
        }
        let jobs = self.accounts.jobs.iter().filter_map(|(id, account)| {
            let known = self.jobs.get(id)?;
            let name = match same.get(known.name.as_str()) {
                Some(2..) => format!("{} ({})", known.name, id.0),
                _ => known.name.clone(),
            };
            Some((name, Bill::of(*account, Some(known.alone), hourly)))
        });
        jobs.collect()
    }

    /// Bills by tenant; jobs of nobody come under an empty name.
    #[must_use]
    pub fn tenants(&self, hourly: MicroUsd) -> BTreeMap<String, Bill> {
        let of = self
            .jobs
            .iter()
            .map(|(id, known)| (*id, known.tenant.clone()));
        let mut tenants = self.accounts.tenants(&of.collect());
        for (tenant, account) in &self.past {
            tenants.entry(tenant.clone()).or_default().add(account);
        }
        let tenants = tenants.into_iter();
        tenants
            .map(|(tenant, account)| (tenant, Bill::of(account, None, hourly)))
            .collect()
    }

    /// What no job had tokens in.
    #[must_use]
    pub const fn idle(&self) -> Account {
        self.accounts.idle
    }

    /// What is spent and not yet charged to anybody.
    #[must_use]
    pub const fn pending(&self) -> MicroUsd {
        MicroUsd(self.pending.spot.0.saturating_add(self.pending.on_demand.0))
    }
}

/// Whole millionths of a dollar out of what is owed and `more`; the rest stays owed.
fn carried(owed: &mut u64, more: u128) -> u64 {
    let exact = u128::from(*owed) + more;
    *owed = (exact % HOUR) as u64;
    u64::try_from(exact / HOUR).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
