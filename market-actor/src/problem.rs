//! A job with a deadline, in slots: how much work, how many machines it can use, what finishing is worth.
//!
//! Time is cut into slots of a market ([`crate::market::Market`]). In slot t the job holds `n_t^s` spot and `n_t^o`
//! on-demand machines; their sum n is 0 or lies in `[fewest, most]`. The slot brings
//!
//! ```text
//! progress  mu(n_{t-1}, n_t) * H(n_t)          mu: share of the slot that computes, 1 when nothing changes
//! cost      n_t^s * p_t^s + n_t^o * p_t^o      in millionths of a dollar, whole slots are billed
//! ```
//!
//! and the job is done at the first T with the sum of progress at least `work`. Its utility is V(T) minus all cost
//! ([`crate::utility`]). The form is that of Kong et al., arXiv 2512.20967, as far as it could be read; `mu` that differs
//! for growing and shrinking, the share for an exchange of machines, and the loss inside a slot are ours.
//!
//! Work has no unit of its own: it is counted in what the curve H gives in one slot. With H(n) = n it is machine-slots.

pub mod decision;
pub mod episode;
pub mod offer;
pub mod throughput;

use serde::{Deserialize, Serialize};
use shared::units::MicroUsd;
use throughput::{Throughput, ThroughputError};

/// Work below this share of the whole counts as none: sums of floats are not exact.
const NOTHING: f64 = 1e-9;

/// One job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// Work to do, in the units of `throughput`.
    pub work: f64,
    /// Slots within which finishing is worth the full value.
    pub soft_deadline: u32,
    /// Slots after which finishing is worth nothing.
    pub hard_deadline: u32,
    /// Fewest machines that can hold the job.
    pub fewest: u32,
    /// Most machines that it can use.
    pub most: u32,
    /// Work of a slot by number of machines.
    pub throughput: Throughput,
    /// What a change of machines costs.
    pub reconfigure: Reconfigure,
    /// What finishing in time is worth.
    pub value: MicroUsd,
    /// Whether spot machines may vanish inside a slot: then a promise must not rest on them.
    pub reclaims: bool,
}

/// Shares of a slot that still compute when the machines change, and what a reclaim costs on top.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reconfigure {
    /// More machines than in the slot before: launch, load, meet.
    pub grow: f64,
    /// Fewer: meet again.
    pub shrink: f64,
    /// As many, but spot was exchanged for on-demand or back.
    pub replace: f64,
    /// Share of a slot's work that is lost with a machine that vanishes inside a slot: what was done since the last
    /// checkpoint.
    pub lost: f64,
}

/// What is wrong with a job.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProblemError {
    /// No work, or no number.
    #[error("the work is {0}: it must be a number above 0")]
    Work(f64),
    /// Deadlines in the wrong order.
    #[error("deadlines of {soft} and {hard} slots: need 1 <= soft <= hard")]
    Deadlines {
        /// Soft one, slots.
        soft: u32,
        /// Hard one, slots.
        hard: u32,
    },
    /// An empty range of machines.
    #[error("between {fewest} and {most} machines: need 1 <= fewest <= most <= {limit}", limit = MOST_MACHINES)]
    Machines {
        /// Fewest.
        fewest: u32,
        /// Most.
        most: u32,
    },
    /// A share that is none.
    #[error(
        "reconfiguration.{name} is {share}: a share of a slot lies in (0, 1], what is lost in [0, 1]"
    )]
    Share {
        /// Field.
        name: &'static str,
        /// Its value.
        share: f64,
    },
    /// A curve that is none.
    #[error(transparent)]
    Throughput(#[from] ThroughputError),
    /// More slots than a plan is made for.
    #[error("the hard deadline is {0} slots ahead, the limit is {limit}: use longer slots", limit = MOST_SLOTS)]
    Far(u32),
}

/// Most machines of a job that are planned for one by one.
pub const MOST_MACHINES: u32 = 1024;

/// Most slots of a job.
pub const MOST_SLOTS: u32 = 100_000;

impl Default for Reconfigure {
    /// Changes are free.
    fn default() -> Self {
        Self {
            grow: 1.0,
            shrink: 1.0,
            replace: 1.0,
            lost: 0.0,
        }
    }
}

impl Problem {
    /// Checks every field.
    ///
    /// # Errors
    /// Names the first field that cannot be, and its limit.
    pub fn check(&self) -> Result<(), ProblemError> {
        if !(self.work.is_finite() && self.work > 0.0) {
            return Err(ProblemError::Work(self.work));
        }
        if self.soft_deadline == 0 || self.hard_deadline < self.soft_deadline {
            return Err(ProblemError::Deadlines {
                soft: self.soft_deadline,
                hard: self.hard_deadline,
            });
        }
        if self.hard_deadline > MOST_SLOTS {
            return Err(ProblemError::Far(self.hard_deadline));
        }
        if self.fewest == 0 || self.most < self.fewest || self.most > MOST_MACHINES {
            return Err(ProblemError::Machines {
                fewest: self.fewest,
                most: self.most,
            });
        }
        let change = &self.reconfigure;
        for (name, share, least) in [
            ("grow", change.grow, f64::MIN_POSITIVE),
            ("shrink", change.shrink, f64::MIN_POSITIVE),
            ("replace", change.replace, f64::MIN_POSITIVE),
            ("lost", change.lost, 0.0),
        ] {
            if !(least..=1.0).contains(&share) {
                return Err(ProblemError::Share { name, share });
            }
        }
        self.throughput.check()?;
        Ok(())
    }

    /// What a job may hold: nothing, or `fewest..=most` machines, in rising order.
    #[must_use]
    pub fn actions(&self) -> Vec<u32> {
        std::iter::once(0).chain(self.fewest..=self.most).collect()
    }

    /// The nearest number of machines that the job may hold and that is not above `count`.
    #[must_use]
    pub const fn allowed(&self, count: u32) -> u32 {
        if count < self.fewest {
            0
        } else if count > self.most {
            self.most
        } else {
            count
        }
    }

    /// Share of a slot that computes when `before` machines become `after`; an exchange is
    /// [`Reconfigure::replace`] on top of this.
    #[must_use]
    pub const fn share(&self, before: u32, after: u32) -> f64 {
        if after > before {
            self.reconfigure.grow
        } else if after < before {
            self.reconfigure.shrink
        } else {
            1.0
        }
    }

    /// Work of a slot in which `before` machines become `after`.
    #[must_use]
    pub fn gain(&self, before: u32, after: u32) -> f64 {
        self.share(before, after) * self.throughput.at(after)
    }

    /// Whether `progress` is the whole work.
    #[must_use]
    pub fn done(&self, progress: f64) -> bool {
        self.work - progress <= NOTHING * self.work
    }

    /// The fewest machines with the greatest throughput among what the job may hold, given at most `limit`; 0 when that is
    /// below `fewest`.
    #[must_use]
    pub fn fastest(&self, limit: Option<u32>) -> u32 {
        let top = limit.map_or(self.most, |limit| limit.min(self.most));
        let mut best = 0;
        for count in self.fewest..=top {
            if self.throughput.at(count) > self.throughput.at(best) {
                best = count;
            }
        }
        best
    }

    /// The fewest machines that do no less than `count` do; 0 when those do nothing.
    #[must_use]
    pub fn thrifty(&self, count: u32) -> u32 {
        let work = self.throughput.at(count);
        if work <= 0.0 {
            return 0;
        }
        let enough = |fewer: &u32| self.throughput.at(*fewer) >= work;
        (self.fewest..count).find(enough).unwrap_or(count)
    }

    /// Slots that `remaining` work takes flat out on at most `limit` on-demand machines, from `held` machines; nothing
    /// when it would never end.
    #[must_use]
    pub fn slots_flat_out(&self, remaining: f64, held: u32, limit: Option<u32>) -> Option<u32> {
        let share = self.share(held, self.fastest(limit));
        self.slots_flat_out_with(remaining, share, limit)
    }

    /// The same when a share of the first slot computes.
    #[must_use]
    pub fn slots_flat_out_with(
        &self,
        remaining: f64,
        first: f64,
        limit: Option<u32>,
    ) -> Option<u32> {
        self.slots_at(remaining, first, self.throughput.at(self.fastest(limit)))
    }

    /// Slots that `remaining` work takes at `rate` a slot, when a share of the first one computes.
    #[must_use]
    pub fn slots_at(&self, remaining: f64, first: f64, rate: f64) -> Option<u32> {
        if remaining <= NOTHING * self.work {
            return Some(0);
        }
        if rate <= 0.0 {
            return None;
        }
        let rest = remaining - first * rate;
        if rest <= NOTHING * self.work {
            return Some(1);
        }
        let more = ((rest - NOTHING * self.work) / rate).ceil().max(1.0);
        (more < f64::from(MOST_SLOTS)).then(|| 1 + more as u32)
    }

    /// Progress that an even pace has made after `slots` slots (fractions allowed).
    #[must_use]
    pub fn even_pace(&self, slots: f64) -> f64 {
        (self.work * slots / f64::from(self.soft_deadline)).min(self.work)
    }

    /// The fewest machines that bring `progress` to at least `target` in a slot, from `held`; the fastest number when
    /// none does, 0 when nothing is missing.
    #[must_use]
    pub fn least_for(&self, progress: f64, target: f64, held: u32) -> u32 {
        if target - progress <= NOTHING * self.work {
            return 0;
        }
        (self.fewest..=self.most)
            .find(|&count| progress + self.gain(held, count) >= target - NOTHING * self.work)
            .unwrap_or_else(|| self.fastest(None))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The job of the trial: 24 slots, 1 to 12 machines, value 1.5 times its on-demand machine-slots of one dollar.
    pub(crate) fn trial(load: f64, throughput: Throughput) -> Problem {
        let work = load * 12.0 * 24.0;
        Problem {
            work,
            soft_deadline: 24,
            hard_deadline: 36,
            fewest: 1,
            most: 12,
            throughput,
            reconfigure: Reconfigure {
                grow: 0.9,
                shrink: 0.95,
                ..Reconfigure::default()
            },
            value: MicroUsd((1.5e6 * work).round() as u64),
            reclaims: false,
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_limit() {
        let sound = trial(0.5, Throughput::per_machine(1.0));
        assert_eq!(sound.check(), Ok(()));
        let broken = |change: &dyn Fn(&mut Problem)| {
            let mut problem = sound.clone();
            change(&mut problem);
            problem.check().expect_err("it cannot be").to_string()
        };
        assert!(broken(&|p| p.work = f64::NAN).contains("above 0"));
        assert!(broken(&|p| p.hard_deadline = 3).contains("soft <= hard"));
        assert!(broken(&|p| p.hard_deadline = 200_000).contains("100000"));
        assert!(broken(&|p| p.fewest = 0).contains("1 <= fewest"));
        assert!(broken(&|p| p.reconfigure.grow = 0.0).contains("reconfiguration.grow"));
        assert!(broken(&|p| p.reconfigure.lost = 1.5).contains("reconfiguration.lost"));
    }

    #[test]
    fn flat_out_counts_the_slower_first_slot() {
        let problem = trial(0.5, Throughput::per_machine(1.0));
        assert_eq!(problem.slots_flat_out(0.0, 0, None), Some(0));
        assert_eq!(problem.slots_flat_out(10.8, 0, None), Some(1));
        assert_eq!(problem.slots_flat_out(10.9, 0, None), Some(2));
        assert_eq!(problem.slots_flat_out(12.0, 12, None), Some(1));
        assert_eq!(problem.slots_flat_out(22.8, 0, None), Some(2));
        assert_eq!(problem.slots_flat_out(22.9, 0, None), Some(3));
        assert_eq!(problem.slots_flat_out(9.0, 0, Some(0)), None);
        assert_eq!(problem.slots_flat_out(9.0, 4, Some(4)), Some(3));
    }

    #[test]
    fn the_least_number_keeps_a_target() {
        let problem = trial(0.5, Throughput::per_machine(1.0));
        assert_eq!(problem.least_for(5.0, 5.0, 3), 0);
        assert_eq!(problem.least_for(0.0, 6.0, 0), 7);
        assert_eq!(problem.least_for(0.0, 6.0, 6), 6);
        assert_eq!(problem.least_for(0.0, 99.0, 6), 12);
        assert_eq!(problem.allowed(0), 0);
        assert_eq!(problem.allowed(40), 12);
    }
}
