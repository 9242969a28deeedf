//! Where machines may be: what all tenants and jobs at work allow together.
//!
//! - BR-9: no machine is counted on where not all tenants and jobs at work may be: others are asked for in its place, and it is given
//!   up when as many serve. A job that leaves no pool beside what those before it allow is paused, and that is said aloud; the
//!   others go on. Who had a place keeps it; of the rest who was submitted first comes first.
//! - BR-11: no machine of spot is counted on in a pool that took too many by the rules of tenants at work: until that is long enough
//!   ago, what stands there counts as standing where it may not be, and nothing is asked for there. Other pools go on.

use std::collections::BTreeSet;

use shared::ids::JobId;

use super::told::{JobTold, Unasked};
use super::{Broker, Effect, say};
use crate::market::Pool;
use crate::policy::tenant::Rules;
use crate::provider::{Kind, Want};
use crate::terms::Terms;

/// Jobs or places that one message names at most.
const MOST_NAMED: usize = 8;

/// What was found.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// What all jobs that have a place allow.
    rules: Rules,
    /// These jobs.
    kept: BTreeSet<JobId>,
    /// Live jobs that have none beside them.
    apart: BTreeSet<JobId>,
    /// Those of which that was said.
    told: BTreeSet<JobId>,
    /// Pools whose spot is left alone (BR-11).
    left: BTreeSet<Pool>,
}

impl Places {
    /// Finds them anew among pools; while none is known all have one.
    fn found(&self, terms: &Terms, jobs: &[JobTold], pools: &[&Pool]) -> Self {
        let mut live: Vec<&JobTold> = jobs.iter().filter(|job| job.is_live()).collect();
        live.sort_by_key(|job| (!self.kept.contains(&job.id), job.id));
        let mut own = Self {
            rules: terms.rules_of([].into_iter()),
            told: self.told.clone(),
            left: self.left.clone(),
            ..Self::default()
        };
        let mut all = own.rules.clone();
        let mut tenants = BTreeSet::new();
        for job in live {
            let new = tenants.insert(job.tenant.as_str()) || !job.zones.is_empty();
            if new {
                let more = with(own.rules.clone(), terms, job);
                all = with(all, terms, job);
                let fits = |pool: &&Pool| more.allows(pool);
                if !pools.is_empty() && !pools.iter().any(fits) {
                    tenants.remove(job.tenant.as_str());
                    own.apart.insert(job.id);
                    continue;
                }
                own.rules = more;
            }
            own.kept.insert(job.id);
        }
        if own.kept.is_empty() {
            // Nobody has a place: nobody is in the way of another.
            own.apart.clear();
            own.rules = all;
        }
        own.told.retain(|job| own.apart.contains(job));
        own
    }
}

/// What is allowed with one job more.
fn with(rules: Rules, terms: &Terms, job: &JobTold) -> Rules {
    let mut rules = rules.and(&terms.rules_of([job.tenant.as_str()].into_iter()));
    if !job.zones.is_empty() {
        rules.within.insert(job.zones.clone());
    }
    rules
}

impl Broker {
    /// What all tenants and jobs at work allow, but those that are paused for want of a place.
    pub(super) fn rules(&self) -> Rules {
        self.places.rules.clone()
    }

    /// Whether machines of a pool are where they may be (BR-9).
    pub(super) fn is_allowed(&self, pool: &Pool) -> bool {
        self.places.rules.allows(pool)
    }

    /// Whether a machine counts: it is where it may be, and its pool is not left alone (BR-9, BR-11).
    pub(super) fn counts(&self, want: &Want) -> bool {
        let left = want.kind == Kind::Spot && self.is_left_alone(&want.pool);
        self.is_allowed(&want.pool) && !left
    }

    /// Whether spot of a pool is left alone (BR-11).
    pub(super) fn is_left_alone(&self, pool: &Pool) -> bool {
        self.places.left.contains(pool)
    }

    /// Finds the pools whose spot is left alone in this slot.
    pub(super) fn leave(&mut self, rules: &Rules) {
        let (number, length) = (self.history.number(), self.terms.slot);
        let losses = self.stretch.iter();
        let losses = losses.flat_map(|own| own.losses_by_pool(number));
        let left = losses.filter(|(_, losses)| rules.leaves(losses, length));
        self.places.left = left.map(|(pool, _)| pool.clone()).collect();
    }

    /// Jobs or pools are others than before.
    pub(super) fn place(&mut self) {
        let shown = self.sightings.iter().map(|one| &one.pool);
        let held = self.custody.standing().map(|held| &held.want.pool);
        let pools: Vec<&Pool> = match self.sightings.is_empty() {
            true => Vec::new(),
            false => shown.chain(held).collect(),
        };
        let found = self.places.found(&self.terms, &self.jobs, &pools);
        self.due |= found.rules != self.places.rules;
        self.places = found;
    }

    /// Whether a job has no place beside those before it.
    pub(super) fn is_apart(&self, job: JobId) -> bool {
        self.places.apart.contains(&job)
    }

    /// Says aloud who has no place and is paused.
    pub(super) fn tell_apart(&mut self, effects: &mut Vec<Effect>) {
        for job in self.jobs.iter().filter(|job| self.is_apart(job.id)) {
            if !self.places.told.contains(&job.id) {
                let kept = |job: &&JobTold| self.places.kept.contains(&job.id);
                let what = format!(
                    "no pool is where job {} and those before it at work may be together ({}): it is paused, its state is kept; resume it \
                     when they are done, or cancel it and submit it with other market.zones",
                    asking(job),
                    named(self.jobs.iter().filter(kept).filter(|job| places(job)))
                );
                say(effects, true, what);
            }
        }
        self.places.told = self.places.apart.clone();
    }

    /// Why no pool is where all may be.
    pub(super) fn no_pool(&self) -> Unasked {
        let places = self.sightings.iter().map(|one| &one.pool);
        let places = places.flat_map(|pool| [&pool.region, &pool.zone]);
        let known: BTreeSet<&String> = places.filter(|name| !name.is_empty()).collect();
        let live = self.jobs.iter().filter(|job| job.is_live());
        Unasked::NoPool {
            known: known.into_iter().cloned().collect(),
            asked: named(live.filter(|job| !job.zones.is_empty())),
        }
    }
}

/// Whether a job says where machines may be, itself or by its tenant.
fn places(job: &JobTold) -> bool {
    !job.zones.is_empty() || !job.tenant.is_empty()
}

fn asking(job: &JobTold) -> String {
    let zones: Vec<&str> = job.zones.iter().map(String::as_str).collect();
    match (zones.is_empty(), job.tenant.is_empty()) {
        (false, _) => format!("{} in {}", job.name, zones.join(" or ")),
        (true, false) => format!("{} of {}", job.name, job.tenant),
        (true, true) => job.name.to_string(),
    }
}

/// Some of them by name, with where they may be.
fn named<'a>(jobs: impl Iterator<Item = &'a JobTold>) -> String {
    let mut names: Vec<String> = jobs.take(MOST_NAMED + 1).map(asking).collect();
    if names.len() > MOST_NAMED {
        names[MOST_NAMED] = "others".to_owned();
    }
    match names.is_empty() {
        true => "by the rules of tenants".to_owned(),
        false => names.join(", "),
    }
}
