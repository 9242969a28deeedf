//! Whose job goes first: weighted fairness between tenants, with a bound on waiting.
//!
//! Jobs are put in one order, and replicas take from its front:
//!
//! 1. jobs that train and have not had their quantum, by when they began;
//! 2. jobs that have waited for the patience since they came or were paused, the longest first;
//! 3. the others by their tenant's virtual time: `(served + rows of its jobs before this one) / weight`, weighted fair
//!    queueing with a job's step as its packet; of a tenant those that train before those that wait, then by arrival.
//!
//! **Bound.** Let a replica always take at least k jobs of the front. A job that has waited for the patience has only
//! jobs of class 1 and older ones of class 2 before it, no newer job ever passes it, and those of class 1 leave it
//! after a quantum at most. So when q older ones wait with it, it trains after at most
//! `patience + (q / k + 1) x quantum`, unless it fits nowhere, which is refused and not left waiting.

use shared::ids::JobId;
use shared::units::Micros;

use super::snapshot::{Snapshot, Task};

/// Why a job has its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Trains, within its quantum.
    Begun,
    /// Has waited for the patience.
    Patient,
    /// By its tenant's share.
    Fair,
}

/// The class of a job.
#[must_use]
pub fn class(snapshot: &Snapshot, task: &Task) -> Class {
    let since = |then: Micros| snapshot.now.since(then);
    match task.started {
        Some(started) if since(started) < snapshot.options.quantum => Class::Begun,
        None if since(task.queued) >= snapshot.options.patience => Class::Patient,
        _ => Class::Fair,
    }
}

/// All jobs, the first to be taken first.
#[must_use]
pub fn order(snapshot: &Snapshot) -> Vec<JobId> {
    let mut jobs: Vec<(&JobId, &Task)> = snapshot.tasks.iter().collect();
    jobs.sort_by_key(|(id, task)| (task.started.is_none(), task.arrived, **id));
    // Virtual times, tenant by tenant.
    let mut rows = std::collections::BTreeMap::<&str, u64>::new();
    let mut keyed = Vec::with_capacity(jobs.len());
    for (id, task) in jobs {
        let tenant = snapshot.tenant(&task.tenant);
        let before = rows.entry(&task.tenant).or_default();
        let class = class(snapshot, task);
        let key = match class {
            Class::Begun => u128::from(task.started.unwrap_or_default().0),
            Class::Patient => u128::from(task.queued.0),
            Class::Fair => {
                u128::from(tenant.served.saturating_add(*before)) * 1_000_000
                    / u128::from(tenant.weight.max(1))
            }
        };
        *before += task.tokens();
        keyed.push((class, key, task.started.is_none(), task.arrived, *id));
    }
    keyed.sort_unstable();
    keyed.into_iter().map(|key| key.4).collect()
}

/// Jain's index of shares, in permille: 1000 when all have the same, 1000 / n when one has all.
#[must_use]
pub fn jain(shares: &[u64]) -> u64 {
    let sum: u128 = shares.iter().map(|share| u128::from(*share)).sum();
    let squares: u128 = shares.iter().map(|share| u128::from(*share).pow(2)).sum();
    if squares == 0 {
        return 1000;
    }
    (sum * sum * 1000 / (squares * shares.len() as u128)) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::plan::profile::Peak;
    use crate::plan::snapshot::Tenant;
    use crate::plan::testing::{llama_7b, snapshot, task};

    fn problem(tenants: &[(&str, u64, usize)]) -> Snapshot {
        let mut jobs = Vec::new();
        for (name, _, count) in tenants {
            jobs.extend((0..*count).map(|_| {
                let mut job = task(8, &[128; 4]);
                job.tenant = (*name).into();
                job
            }));
        }
        let mut problem = snapshot(llama_7b(), &Peak::A40, 1, jobs);
        for (name, weight, _) in tenants {
            let tenant = Tenant {
                weight: *weight,
                served: 0,
            };
            problem.tenants.insert((*name).into(), tenant);
        }
        problem
    }

    #[test]
    fn shares_of_the_front_follow_the_weights() {
        let problem = problem(&[("a", 1, 30), ("b", 3, 30)]);
        let order = order(&problem);
        for front in [4, 8, 16, 32] {
            let b = order[..front]
                .iter()
                .filter(|id| problem.tasks[id].tenant == "b")
                .count();
            assert!(b.abs_diff(front * 3 / 4) <= 1, "{b} of {front}");
        }
    }

    #[test]
    fn who_was_served_more_goes_later() {
        let mut problem = problem(&[("a", 1, 2), ("b", 1, 2)]);
        problem.tenants.insert(
            "a".into(),
            Tenant {
                weight: 1,
                served: 10_000,
            },
        );
        let tenants: Vec<String> = order(&problem)
            .iter()
            .map(|id| problem.tasks[id].tenant.clone())
            .collect();
        assert_eq!(tenants, ["b", "b", "a", "a"]);
    }

    #[test]
    fn jains_index_has_its_ends() {
        assert_eq!(jain(&[5, 5, 5, 5]), 1000);
        assert_eq!(jain(&[9, 0, 0, 0]), 250);
        assert_eq!(jain(&[]), 1000);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// Seats are taken anew every quantum, newer jobs of a favoured tenant keep coming: nobody waits longer.
        #[test]
        fn waiting_is_bounded(seats in 1usize..4, old in 1usize..12, weight in 1u64..50) {
            let mut problem = problem(&[("a", 1, old), ("b", weight, 0)]);
            problem.options.patience = Micros(5_000);
            problem.options.quantum = Micros(1_000);
            let mut first: BTreeMap<JobId, u64> = BTreeMap::new();
            let bound = 5_000 + (old as u64 / seats as u64 + 1) * 1_000 + 1_000;
            for round in 0..=bound / 1_000 {
                problem.now = Micros(round * 1_000);
                // A new job of the favoured tenant for every seat.
                for seat in 0..seats {
                    let mut job = task(8, &[128; 4]);
                    job.tenant = "b".into();
                    (job.arrived, job.queued) = (problem.now, problem.now);
                    problem.tasks.insert(JobId(10_000 + round * 10 + seat as u64), job);
                }
                let front: Vec<JobId> = order(&problem).into_iter().take(seats).collect();
                let now = problem.now;
                for (id, job) in &mut problem.tasks {
                    if !front.contains(id) {
                        if job.started.take().is_some() {
                            job.queued = now;
                        }
                    } else if job.started.is_none() {
                        job.started = Some(now);
                        first.entry(*id).or_insert(now.0);
                    }
                }
            }
            for id in (1..=old as u64).map(JobId) {
                prop_assert!(first.get(&id).is_some_and(|at| *at <= bound), "{id:?} {first:?}");
            }
        }
    }
}
