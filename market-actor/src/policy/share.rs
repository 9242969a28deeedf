//! Several jobs want the machines of one spot pool: who gets how many.
//!
//! Each job says what its slot is worth with 0, 1, 2, .. spot machines (from its own plan: [`super::horizon::Horizon`]). The
//! machines go one step at a time to the job whose next step is worth most for each machine in it; a step is what lies
//! between two corners of the worth's concave hull, so that a job whose first machine alone is worthless is not shut out.
//! Worth is in money, so tenants are compared by what they lose, times a weight.
//!
//! - SHARE-1: no more is granted than there is, and to no job more than it wants.
//! - SHARE-2: a grant is 0 or at least the job's `fewest` machines less what it would hold on demand anyway; it is a corner.
//! - SHARE-3: a job that wants spot and got none for `patience` rounds is served before all others, longest wait first: up to
//!   its first corner. So with a pool that can hold at least one job, of J jobs none waits more than `patience + J` rounds.
//! - SHARE-4: jobs of equal worth, weight and wait are served in the order of their names, not of their arrival.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a job wants of a pool in a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Worth of the slot by number of spot machines, from 0; millionths of a dollar, never falling.
    pub worth: Vec<f64>,
    /// Weight of its tenant; 1 is usual.
    pub weight: f64,
}

/// A pool's memory of who waited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    /// Rounds without spot after which a job is served first.
    pub patience: u32,
    /// Rounds in a row that a job wanted spot and got none.
    waits: BTreeMap<String, u32>,
}

/// A job's next step.
struct Step {
    machines: u32,
    /// Worth of one machine of it.
    each: f64,
}

impl Shares {
    /// Nobody has waited yet.
    #[must_use]
    pub const fn new(patience: u32) -> Self {
        Self {
            patience,
            waits: BTreeMap::new(),
        }
    }

    /// How long a job has waited.
    #[must_use]
    pub fn waited(&self, job: &str) -> u32 {
        self.waits.get(job).copied().unwrap_or(0)
    }

    /// Shares `available` machines among jobs, and remembers who got none. Jobs that are not named any more are
    /// forgotten.
    pub fn grant(
        &mut self,
        claims: &BTreeMap<String, Claim>,
        available: u32,
    ) -> BTreeMap<String, u32> {
        let mut left = available;
        let mut granted: BTreeMap<String, u32> =
            claims.keys().map(|job| (job.clone(), 0)).collect();
        let mut steps: BTreeMap<&str, Vec<Step>> = claims
            .iter()
            .map(|(job, claim)| (job.as_str(), hull(claim)))
            .collect();
        // SHARE-3: who waited too long, longest first.
        let mut waiting: Vec<&str> = claims
            .keys()
            .map(String::as_str)
            .filter(|job| self.waited(job) >= self.patience && !steps[*job].is_empty())
            .collect();
        waiting.sort_by_key(|job| std::cmp::Reverse(self.waited(job)));
        for job in waiting {
            take(job, &mut steps, &mut granted, &mut left);
        }
        loop {
            let mut best: Option<(&str, f64)> = None;
            for (&job, steps) in &steps {
                if let Some(step) = steps.first()
                    && step.machines <= left
                    && best.is_none_or(|(_, each)| step.each > each)
                {
                    best = Some((job, step.each));
                }
            }
            let Some((job, _)) = best else { break };
            take(job, &mut steps, &mut granted, &mut left);
        }
        self.waits.retain(|job, _| claims.contains_key(job));
        for (job, claim) in claims {
            let wants = !hull(claim).is_empty();
            if wants && granted[job] == 0 {
                *self.waits.entry(job.clone()).or_insert(0) += 1;
            } else {
                self.waits.remove(job);
            }
        }
        debug_assert!(granted.values().sum::<u32>() <= available, "SHARE-1");
        granted
    }
}

/// Gives a job its next step if there are machines for it.
fn take(
    job: &str,
    steps: &mut BTreeMap<&str, Vec<Step>>,
    granted: &mut BTreeMap<String, u32>,
    left: &mut u32,
) {
    let Some(own) = steps.get_mut(job) else {
        return;
    };
    if own.first().is_none_or(|step| step.machines > *left) {
        return;
    }
    let step = own.remove(0);
    *left -= step.machines;
    if let Some(count) = granted.get_mut(job) {
        *count += step.machines;
    }
}

/// Steps between the corners of the concave hull of a worth, falling; steps that bring nothing are left out.
fn hull(claim: &Claim) -> Vec<Step> {
    let worth = &claim.worth;
    let mut steps = Vec::new();
    let mut at = 0;
    while at + 1 < worth.len() {
        let mut best = (at, 0.0);
        for next in at + 1..worth.len() {
            let each = (worth[next] - worth[at]) / (next - at) as f64;
            if each > best.1 * (1.0 + 1e-12) {
                best = (next, each);
            }
        }
        if best.0 == at || best.1 * claim.weight <= 1e-6 {
            break;
        }
        steps.push(Step {
            machines: (best.0 - at) as u32,
            each: best.1 * claim.weight,
        });
        at = best.0;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(worth: &[f64]) -> Claim {
        Claim {
            worth: worth.to_vec(),
            weight: 1.0,
        }
    }

    fn grant(shares: &mut Shares, claims: &[(&str, Claim)], available: u32) -> Vec<u32> {
        let claims: BTreeMap<String, Claim> = claims
            .iter()
            .map(|(job, claim)| ((*job).to_owned(), claim.clone()))
            .collect();
        shares.grant(&claims, available).into_values().collect()
    }

    #[test]
    fn machines_go_where_they_are_worth_most() {
        let mut shares = Shares::new(9);
        let steep = claim(&[0.0, 9.0, 12.0, 13.0]);
        let flat = claim(&[0.0, 4.0, 8.0, 12.0]);
        assert_eq!(
            grant(&mut shares, &[("a", steep.clone()), ("b", flat.clone())], 4),
            [1, 3]
        );
        assert_eq!(grant(&mut shares, &[("a", steep), ("b", flat)], 9), [3, 3]);
        // Worth nothing alone, much together.
        let gang = claim(&[0.0, 0.0, 0.0, 30.0]);
        assert_eq!(
            grant(
                &mut shares,
                &[("a", gang), ("b", claim(&[0.0, 5.0, 9.0]))],
                4
            ),
            [3, 1]
        );
    }

    #[test]
    fn nobody_starves() {
        let mut shares = Shares::new(3);
        let rich = claim(&[0.0, 100.0, 200.0, 300.0, 400.0]);
        let poor = claim(&[0.0, 0.0, 1.0]);
        let claims = [
            ("a", rich.clone()),
            ("b", rich),
            ("c", poor.clone()),
            ("d", poor),
        ];
        let mut longest = [0u32; 4];
        for _ in 0..60 {
            let given = grant(&mut shares, &claims, 4);
            assert!(given.iter().sum::<u32>() <= 4);
            for (longest, job) in longest.iter_mut().zip(["a", "b", "c", "d"]) {
                *longest = (*longest).max(shares.waited(job));
            }
        }
        assert!(longest.iter().all(|rounds| *rounds <= 3 + 4), "{longest:?}");
        assert!(longest[2] >= 3, "the poor were never short: {longest:?}");
    }

    proptest! {
        /// SHARE-1, SHARE-2, SHARE-4 over random worths.
        #[test]
        fn grants_are_corners_and_fit(
            worths in proptest::collection::vec(proptest::collection::vec(0u32..50, 1..9), 1..7),
            available in 0u32..20,
        ) {
            let claims: BTreeMap<String, Claim> = worths
                .iter()
                .enumerate()
                .map(|(at, steps)| {
                    let mut sum = 0.0;
                    let worth = steps.iter().map(|step| { sum += f64::from(*step); sum }).collect();
                    (format!("job-{at}"), Claim { worth, weight: 1.0 })
                })
                .collect();
            let granted = Shares::new(5).grant(&claims, available);
            prop_assert!(granted.values().sum::<u32>() <= available);
            for (job, count) in &granted {
                let mut corners = vec![0];
                for step in hull(&claims[job]) {
                    corners.push(corners[corners.len() - 1] + step.machines);
                }
                prop_assert!(corners.contains(count));
            }
            prop_assert_eq!(Shares::new(5).grant(&claims, available), granted);
        }
    }
}
