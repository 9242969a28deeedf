//! What is refused before it costs anything: a job that cannot be done as asked, each with the number that would work.

use serde::{Deserialize, Serialize};
use shared::units::MicroUsd;
use thiserror::Error;

use crate::oracle;
use crate::problem::offer::Offer;
use crate::problem::{MOST_SLOTS, Problem, ProblemError};

/// What there is for a job at its admission.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ground {
    /// The offer of the slot it would begin in.
    pub offer: Offer,
    /// Machines that there can ever be of both kinds; nothing when there is no end of them.
    pub fleet: Option<u32>,
    /// What it may spend; nothing when there is no cap.
    pub budget: Option<MicroUsd>,
}

/// Why a job is refused.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Inadmissible {
    /// A field that cannot be.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// Not even flat out.
    #[error(
        "the deadline is {slots} slots ahead, flat out on {machines} machines takes {needed}: a deadline of {needed} slots, or \
         work of at most {work:.1}, would do"
    )]
    TooSoon {
        /// Slots up to the soft deadline.
        slots: u32,
        /// Slots that it takes.
        needed: u32,
        /// Machines counted on.
        machines: u32,
        /// Work that would be done in time.
        work: f64,
    },
    /// Not by far: no plan is made for so many slots.
    #[error(
        "the work is {asked:e}, flat out on {machines} machines it takes more than {limit} slots, the most that are planned for: work of \
         at most {work:.1}, which is done within the deadline of {slots} slots, would do",
        limit = MOST_SLOTS
    )]
    TooMuch {
        /// Slots up to the soft deadline.
        slots: u32,
        /// Machines counted on.
        machines: u32,
        /// Its work.
        asked: f64,
        /// Work that would be done in time.
        work: f64,
    },
    /// More than the best of a back-test is looked for in.
    #[error(
        "the best plan of a job of {slots} slots on {fewest} to {most} machines is looked for in {} MiB of memory, the limit is {} MiB: \
         use longer slots, an earlier deadline or a narrower range of machines",
        bytes >> 20, oracle::MOST_BYTES >> 20
    )]
    TooVast {
        /// Slots up to the hard deadline.
        slots: u32,
        /// Fewest machines.
        fewest: u32,
        /// Most machines.
        most: u32,
        /// What it would take.
        bytes: u64,
    },
    /// No number of machines does any of it.
    #[error(
        "no number of machines up to {most} can be had: on-demand machines have run out and none is promised"
    )]
    NoMachine {
        /// Most that the job would use.
        most: u32,
    },
    /// More machines at least than there are.
    #[error(
        "the job needs at least {fewest} machines, there are {fleet}: a least number of {fleet} or fewer would do"
    )]
    TooLarge {
        /// Fewest of the job.
        fewest: u32,
        /// All there are.
        fleet: u32,
    },
    /// Less money than it costs at today's lowest price.
    #[error(
        "the budget is {} dollars, the work costs at least {} at the lowest price of now: a budget of {} dollars would do",
        cap.dollars(), floor.dollars(), floor.dollars()
    )]
    TooPoor {
        /// The cap.
        cap: MicroUsd,
        /// What it costs at least.
        floor: MicroUsd,
    },
    /// No pool is there.
    #[error("zone {zone:?} is not known; known are: {}", known.join(", "))]
    UnknownZone {
        /// What was asked for.
        zone: String,
        /// What there is.
        known: Vec<String>,
    },
}

/// What the work of a job costs at least: all of it at the best rate per machine, each at the lower of the two prices.
#[must_use]
pub fn floor(problem: &Problem, offer: &Offer) -> MicroUsd {
    let best = (problem.fewest..=problem.most)
        .map(|n| problem.throughput.at(n) / f64::from(n.max(1)))
        .fold(0.0, f64::max);
    let price = if offer.spot_available > 0 {
        offer.spot_price.min(offer.on_demand_price)
    } else {
        offer.on_demand_price
    };
    if best <= 0.0 {
        return MicroUsd(u64::MAX);
    }
    MicroUsd((problem.work / best * price).ceil() as u64)
}

/// Whether a job can be taken.
///
/// # Errors
/// The first reason why not.
pub fn admit(problem: &Problem, ground: &Ground) -> Result<(), Inadmissible> {
    problem.check()?;
    if let Some(fleet) = ground.fleet
        && problem.fewest > fleet
    {
        return Err(Inadmissible::TooLarge {
            fewest: problem.fewest,
            fleet,
        });
    }
    let limit = match (ground.offer.on_demand_available, ground.fleet) {
        (Some(offered), Some(fleet)) => Some(offered.min(fleet)),
        (one, other) => one.or(other),
    };
    let machines = problem.fastest(limit);
    let rate = problem.throughput.at(machines);
    if machines == 0 || rate <= 0.0 {
        return Err(Inadmissible::NoMachine { most: problem.most });
    }
    let slots = problem.soft_deadline;
    let work = (f64::from(slots - 1) + problem.share(0, machines)) * rate;
    match problem.slots_flat_out(problem.work, 0, limit) {
        None => {
            return Err(Inadmissible::TooMuch {
                slots,
                machines,
                asked: problem.work,
                work,
            });
        }
        Some(needed) if needed > slots => {
            return Err(Inadmissible::TooSoon {
                slots,
                needed,
                machines,
                work,
            });
        }
        Some(_) => {}
    }
    let floor = floor(problem, &ground.offer);
    match ground.budget {
        Some(cap) if cap < floor => Err(Inadmissible::TooPoor { cap, floor }),
        _ => Ok(()),
    }
}

/// The place of a zone among those known; `zone` may be its end, such as `1a` of `us-east-1a`, where only one ends so.
///
/// # Errors
/// When there is none, or several end so.
pub fn zone(zone: &str, known: &[String]) -> Result<usize, Inadmissible> {
    if let Some(at) = known.iter().position(|own| own == zone) {
        return Ok(at);
    }
    let mut ends = known
        .iter()
        .enumerate()
        .filter(|(_, own)| !zone.is_empty() && own.ends_with(zone));
    match (ends.next(), ends.next()) {
        (Some((at, _)), None) => Ok(at),
        _ => Err(Inadmissible::UnknownZone {
            zone: zone.to_owned(),
            known: known.to_vec(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::tests::trial;
    use crate::problem::throughput::Throughput;

    fn ground() -> Ground {
        Ground {
            offer: Offer {
                spot_price: 300_000.0,
                spot_available: 4,
                on_demand_price: 1_000_000.0,
                on_demand_available: None,
            },
            fleet: None,
            budget: None,
        }
    }

    #[test]
    fn a_refusal_names_a_number_that_would_work() {
        let job = trial(0.5, Throughput::per_machine(1.0));
        assert_eq!(admit(&job, &ground()), Ok(()));

        let mut soon = job.clone();
        soon.soft_deadline = 9;
        let Err(Inadmissible::TooSoon { needed, work, .. }) = admit(&soon, &ground()) else {
            panic!("it is too soon");
        };
        let mut later = soon.clone();
        (later.soft_deadline, later.hard_deadline) = (needed, 36);
        assert_eq!(admit(&later, &ground()), Ok(()));
        let mut less = soon;
        less.work = work;
        assert_eq!(admit(&less, &ground()), Ok(()));

        // Machines are there, but no plan is made for so long.
        let mut endless = job.clone();
        endless.work = 1e300;
        let refused = admit(&endless, &ground()).expect_err("it is too much");
        let Inadmissible::TooMuch { work, .. } = refused else {
            panic!("{refused}");
        };
        assert!(refused.to_string().contains("12 machines"), "{refused}");
        endless.work = work;
        assert_eq!(admit(&endless, &ground()), Ok(()));

        let mut capped = ground();
        capped.budget = Some(MicroUsd(10_000_000));
        let Err(Inadmissible::TooPoor { floor, .. }) = admit(&job, &capped) else {
            panic!("it is too poor");
        };
        // 144 machine-slots at 0.3 dollars.
        assert_eq!(floor, MicroUsd(43_200_000));
        capped.budget = Some(floor);
        assert_eq!(admit(&job, &capped), Ok(()));

        let mut small = ground();
        small.fleet = Some(3);
        let mut wide = job;
        wide.fewest = 4;
        let Err(Inadmissible::TooLarge { fleet, .. }) = admit(&wide, &small) else {
            panic!("it is too large");
        };
        assert_eq!(fleet, 3);
        small.offer.on_demand_available = Some(0);
        wide.fewest = 1;
        assert_eq!(
            admit(&wide, &small),
            Err(Inadmissible::NoMachine { most: 12 })
        );
    }

    #[test]
    fn zones_are_found_by_name_or_by_an_end_that_only_one_has() {
        let known = ["us-east-1a".to_owned(), "us-west-2a".to_owned()];
        assert_eq!(zone("us-east-1a", &known), Ok(0));
        assert_eq!(zone("2a", &known), Ok(1));
        assert!(zone("a", &known).is_err() && zone("", &known).is_err());
        let told = zone("1c", &known).expect_err("there is none").to_string();
        assert!(told.contains("us-east-1a, us-west-2a"), "{told}");
    }
}
