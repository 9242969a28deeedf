//! A cell of a back-test: a market and a job by its load, started at many times.

use serde::{Deserialize, Serialize};
use shared::units::MicroUsd;

use super::Case;
use crate::admission::{Ground, Inadmissible, admit};
use crate::market::Market;
use crate::oracle;
use crate::policy::Safety;
use crate::problem::offer::{Offer, slot_price};
use crate::problem::throughput::Throughput;
use crate::problem::{Problem, Reconfigure};
use crate::select::pool::Library;

/// Days of a market that lie before the first start, where it is long enough.
const DAYS_BEFORE: usize = 5;

/// Microseconds of a day.
const DAY: u64 = 86_400_000_000;

/// How much work a job has.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// A share of what the most machines bring until the soft deadline at one unit each.
    Load(f64),
    /// So many units.
    Amount(f64),
}

/// A job, before it is known what a machine costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Its work.
    pub work: Work,
    /// Slots up to the soft deadline.
    pub soft_deadline: u32,
    /// Slots up to the hard deadline over those up to the soft one, at least 1.
    pub grace: f64,
    /// Fewest machines.
    pub fewest: u32,
    /// Most machines.
    pub most: u32,
    /// Work of a slot by number of machines.
    pub throughput: Throughput,
    /// What changes cost.
    pub reconfigure: Reconfigure,
    /// What finishing in time is worth, over the work at one unit an on-demand machine and slot.
    pub worth: f64,
}

impl Shape {
    /// The job in a market.
    ///
    /// # Errors
    /// When it cannot be, or not be done in time.
    pub fn problem(&self, market: &Market) -> Result<Problem, Inadmissible> {
        let work = match self.work {
            Work::Load(load) => load * f64::from(self.most) * f64::from(self.soft_deadline),
            Work::Amount(work) => work,
        };
        let price = market.slots.last().map_or(MicroUsd(0), |slot| {
            slot_price(slot.on_demand_price, market.slot)
        });
        let hard = (f64::from(self.soft_deadline) * self.grace.max(1.0)).round();
        let problem = Problem {
            work,
            soft_deadline: self.soft_deadline,
            hard_deadline: hard as u32,
            fewest: self.fewest,
            most: self.most,
            throughput: self.throughput.clone(),
            reconfigure: self.reconfigure,
            value: MicroUsd((self.worth * work * price.0 as f64).round().max(0.0) as u64),
            reclaims: false,
        };
        let offer = market.slots.last().map(|slot| Offer::of(slot, market.slot));
        match offer {
            Some(offer) => admit(
                &problem,
                &Ground {
                    offer,
                    fleet: None,
                    budget: None,
                },
            )?,
            None => problem.check()?,
        }
        Ok(problem)
    }
}

/// Slots of a day; 0 when a slot is longer.
#[must_use]
pub const fn day(market: &Market) -> u32 {
    match DAY.checked_div(market.slot.0) {
        Some(slots) => slots as u32,
        None => 0,
    }
}

/// The case of a job in a market, started every `step` slots from the sixth day on, or from the second third of a market that
/// is shorter; there is no start where the market ends before the job may. `cell` is the work of a cell of the oracle's grid.
///
/// # Errors
/// As [`Shape::problem`], and when the best of it would take more memory than [`oracle::MOST_BYTES`].
pub fn case(
    name: String,
    market: Market,
    shape: &Shape,
    step: usize,
    safety: Safety,
) -> Result<Case, Inadmissible> {
    let problem = shape.problem(&market)?;
    // At most 6,000 cells: the oracle's gap is printed.
    let cell = 0.05f64.max(problem.work / 6000.0);
    let bytes = oracle::bytes(&problem, cell);
    if bytes > oracle::MOST_BYTES {
        return Err(Inadmissible::TooVast {
            slots: problem.hard_deadline,
            fewest: problem.fewest,
            most: problem.most,
            bytes,
        });
    }
    let day = day(&market) as usize;
    let first = (DAYS_BEFORE * day.max(12)).min(market.slots.len() / 3);
    // None where the market is shorter than the job.
    let last = (market.slots.len() + 1).saturating_sub(problem.soft_deadline as usize);
    let rehearsed = first.saturating_sub(problem.hard_deadline as usize);
    Ok(Case {
        name,
        starts: (first..last).step_by(step.max(1)).collect(),
        rehearsals: (day.min(rehearsed)..rehearsed).step_by(4).collect(),
        cell,
        library: Library::new(),
        market,
        problem,
        safety,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::episode::tests::market;

    fn shape() -> Shape {
        Shape {
            work: Work::Load(0.5),
            soft_deadline: 24,
            grace: 1.5,
            fewest: 1,
            most: 12,
            throughput: Throughput::per_machine(1.0),
            reconfigure: Reconfigure::default(),
            worth: 1.5,
        }
    }

    #[test]
    fn a_cell_is_the_job_of_the_trial() {
        let market = market(&[(0.25, 4); 400], 1.0);
        let case = case("t".into(), market, &shape(), 8, Safety::default()).unwrap();
        assert_eq!(case.problem.work, 144.0);
        assert_eq!(case.problem.hard_deadline, 36);
        assert_eq!(case.problem.value, MicroUsd(216_000_000));
        assert_eq!((case.starts[0], case.starts[1]), (133, 141));
        assert!(case.starts.iter().all(|start| start + 24 <= 400));
        assert!(case.rehearsals.iter().all(|start| start + 36 <= 133));
    }

    #[test]
    fn a_market_that_is_shorter_than_the_job_has_no_start() {
        for (slots, starts) in [(1, 0), (2, 0), (23, 0), (24, 0), (36, 1)] {
            let market = market(&vec![(0.25, 4); slots], 1.0);
            let case = case("t".into(), market, &shape(), 8, Safety::default()).unwrap();
            assert_eq!(case.starts.len(), starts, "{slots}");
        }
    }

    #[test]
    fn a_job_whose_best_would_take_too_much_memory_is_refused() {
        let market = market(&[(0.25, 4); 50], 1.0);
        let mut vast = shape();
        (vast.soft_deadline, vast.most) = (3_000, 100);
        let refused = case("t".into(), market.clone(), &vast, 8, Safety::default());
        // 4,501 layers of 101 numbers of machines and 6,001 cells.
        let told = refused.expect_err("it is too vast").to_string();
        assert!(
            told.contains("20813 MiB of memory, the limit is 2048 MiB"),
            "{told}"
        );
        vast.soft_deadline = 200;
        assert!(case("t".into(), market, &vast, 8, Safety::default()).is_ok());
    }

    #[test]
    fn work_that_cannot_be_done_in_time_is_refused() {
        let market = market(&[(0.25, 4); 50], 1.0);
        let mut heavy = shape();
        heavy.work = Work::Amount(300.0);
        let refused = heavy.problem(&market).expect_err("24 slots bring 288");
        assert!(refused.to_string().contains("25 slots"), "{refused}");
    }
}
