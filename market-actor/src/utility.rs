//! What finishing is worth, and what a job that is late can still earn.
//!
//! ```text
//! V(T) = value                                  T <= d
//!        value * (hard - T) / (hard - d)        d < T <= hard     (linear: our reading)
//!        0                                      after
//! ```
//!
//! After the soft deadline the only sure way is on-demand, flat out (our reading of the "termination configuration"):
//! with k slots that this takes, [`terminal`] is `max(0, V(d + k) - k * n * p_o)`, 0 meaning that it is not worth it.

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

/// What a job with `remaining` work and `held` machines after `slots` slots earns flat out on demand, in millionths of a
/// dollar; 0 when giving up is better.
#[must_use]
pub fn terminal(
    problem: &Problem,
    slots: u32,
    remaining: f64,
    held: u32,
    on_demand_price: f64,
    on_demand_available: Option<u32>,
) -> f64 {
    let Some(more) = problem.slots_flat_out(remaining, held, on_demand_available) else {
        return 0.0;
    };
    let machines = f64::from(problem.fastest(on_demand_available));
    let cost = f64::from(more) * machines * on_demand_price;
    (value(problem, slots.saturating_add(more)) - cost).max(0.0)
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
        assert_eq!(terminal(&problem, 24, 0.0, 0, 1e6, None), 216e6);
        assert_eq!(terminal(&problem, 24, 10.0, 0, 1e6, None), 198e6 - 12e6);
        assert_eq!(terminal(&problem, 24, 120.0, 12, 1e6, None), 0.0);
        assert_eq!(terminal(&problem, 24, 10.0, 0, 1e6, Some(0)), 0.0);
    }
}
