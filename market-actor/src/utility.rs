//! What finishing is worth, and what a job that is late can still earn.
//!
//! ```text
//! V(T) = value                                  T <= d
//!        value * (hard - T) / (hard - d)        d < T <= hard     (linear: our reading)
//!        0                                      after
//! ```
//!
//! After the soft deadline the only sure way is on-demand, flat out (our reading of the "termination configuration"):
//! with k slots that this takes, [`Finish::worth`] is `max(0, V(d + k) - k * n * p_o)`, 0 meaning that it is not worth it.

use crate::problem::Problem;

/// What finishing after `slots` slots is worth, in millionths of a dollar.
#[must_use]
pub fn value(problem: &Problem, slots: u32) -> f64 {
    let full = problem.value.0 as f64;
    let (soft, hard) = (problem.soft_deadline, problem.hard_deadline);
    if slots <= soft {
        full
    } else if slots >= hard {
        0.0
    } else {
        full * f64::from(hard - slots) / f64::from(hard - soft)
    }
}

/// The sure way to finish: on demand, flat out.
#[derive(Clone, Copy, Debug)]
pub struct Finish<'a> {
    problem: &'a Problem,
    machines: u32,
    rate: f64,
    /// Of all machines for a slot.
    cost: f64,
}

impl<'a> Finish<'a> {
    /// At an on-demand price for the slot, with at most so many machines.
    #[must_use]
    pub fn new(problem: &'a Problem, price: f64, available: Option<u32>) -> Self {
        let machines = problem.fastest(available);
        Self {
            problem,
            machines,
            rate: problem.throughput.at(machines),
            cost: f64::from(machines) * price,
        }
    }

    /// What a job with `remaining` work and `held` machines after `slots` slots earns so, in millionths of a dollar; 0 when
    /// giving up is better.
    #[must_use]
    pub fn worth(&self, slots: u32, remaining: f64, held: u32) -> f64 {
        let share = self.problem.share(held, self.machines);
        let Some(more) = self.problem.slots_at(remaining, share, self.rate) else {
            return 0.0;
        };
        (value(self.problem, slots.saturating_add(more)) - f64::from(more) * self.cost).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::tests::trial;
    use crate::problem::throughput::Throughput;

    #[test]
    fn value_falls_in_a_line_from_soft_to_hard() {
        let problem = trial(0.5, Throughput::per_machine(1.0));
        assert_eq!(value(&problem, 1), 216e6);
        assert_eq!(value(&problem, 24), 216e6);
        assert_eq!(value(&problem, 30), 108e6);
        assert_eq!(value(&problem, 36), 0.0);
        assert_eq!(value(&problem, 99), 0.0);
    }

    #[test]
    fn a_late_job_goes_on_only_while_it_pays() {
        let problem = trial(0.5, Throughput::per_machine(1.0));
        let finish = Finish::new(&problem, 1e6, None);
        assert_eq!(finish.worth(24, 0.0, 0), 216e6);
        assert_eq!(finish.worth(24, 10.0, 0), 198e6 - 12e6);
        assert_eq!(finish.worth(24, 120.0, 12), 0.0);
        assert_eq!(Finish::new(&problem, 1e6, Some(0)).worth(24, 10.0, 0), 0.0);
    }
}
