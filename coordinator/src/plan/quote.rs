//! What a job will take and cost, and its chance to be done in time; for jobs of a plan and for jobs not yet sent.
//!
//! ```text
//! work    = its steps, with the company that it has until each of them ends, while rounds follow each other (`course`)
//! finish  = wait + work
//! range   = ± 10 % of it with a measured profile, ± 50 % with a computed one, and the losses on top
//! losses  = Poisson with the summed loss rate of the replica's nodes; each costs the move of the largest stage
//! cost    = its share of the rows of the replica, by the time x the price of the replica's nodes; none without a price
//! chance  = sum over k of P(k losses) x P(finish x u + k x move <= time to the deadline), u even over the range
//! ```

mod course;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use shared::ids::JobId;
use shared::units::{MicroUsd, Micros};

use self::course::Course;
use super::answer::{Plan, Replica};
use super::fair;
use super::pipeline::Pipeline;
use super::place::{Fleet, NoPlace};
use super::profile::Origin;
use super::snapshot::{Snapshot, Task};
use super::solve::{NoPlan, solve};

/// Numbers of losses on either side of the likeliest that are counted one by one, besides [`DEVIATIONS`]; others are as good as never.
const LOSSES: f64 = 64.0;
/// Standard deviations of them.
const DEVIATIONS: f64 = 12.0;
/// Losses above which their number is taken for what is expected.
const MANY: f64 = 1e8;

/// What a job costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// At the earliest end.
    pub least: MicroUsd,
    /// Expected.
    #[serde(rename = "cost")]
    pub expected: MicroUsd,
    /// At the latest end.
    pub most: MicroUsd,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} to {})", self.expected, self.least, self.most)
    }
}

/// A quote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Quote {
    /// A step in the company that it begins with, while rounds follow each other.
    pub step: Micros,
    /// A step alone on the same replica.
    pub alone: Micros,
    /// The first over the second, in permille.
    pub slowdown_permille: u64,
    /// Until it trains.
    pub wait: Micros,
    /// From now to its end: the best of the range.
    pub earliest: Micros,
    /// Expected.
    pub expected: Micros,
    /// The worst of the range, with the losses to expect.
    pub latest: Micros,
    /// What it costs; absent where no price of its nodes is known.
    #[serde(flatten)]
    pub cost: Option<Cost>,
    /// Chance to keep the deadline, in permille.
    pub chance_permille: Option<u64>,
}

impl fmt::Display for Quote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "done in {} ({} to {}), after {} of waiting; {}; a step of {}, {:.2} of alone",
            self.expected,
            self.earliest,
            self.latest,
            self.wait,
            self.cost
                .map_or_else(|| "no price is known".into(), |cost| cost.to_string()),
            self.step,
            self.slowdown_permille as f64 / 1000.0
        )?;
        if let Some(chance) = self.chance_permille {
            let percent = chance as f64 / 10.0;
            write!(f, "; {percent:.1} % to keep the deadline")?;
        }
        Ok(())
    }
}

/// Quotes a job of a plan; nothing when it is refused or unknown.
///
/// # Errors
/// [`NoPlace`] when a profile is missing.
pub fn quote(snapshot: &Snapshot, plan: &Plan, job: JobId) -> Result<Option<Quote>, NoPlace> {
    Ok(quotes(snapshot, plan)?.remove(&job))
}

/// Quotes all jobs of a plan but those that are refused.
///
/// # Errors
/// [`NoPlace`] when a profile is missing.
pub fn quotes(snapshot: &Snapshot, plan: &Plan) -> Result<BTreeMap<JobId, Quote>, NoPlace> {
    let fleet = Fleet::new(snapshot)?;
    let mut order = fair::order(snapshot);
    order.retain(|job| plan.waiting.contains_key(job));
    let mut quotes = BTreeMap::new();
    for (number, replica) in &plan.replicas {
        let Some(pipeline) = fleet.pipeline(snapshot, &replica.seats) else {
            continue;
        };
        let mut waiting = order.clone();
        waiting.retain(|job| plan.waiting[job].replica == *number);
        let courses = course::all(snapshot, &pipeline, replica, &waiting);
        for (job, course) in courses {
            let quote = on(snapshot, &pipeline, replica, &snapshot.tasks[&job], course);
            quotes.extend(quote.map(|quote| (job, quote)));
        }
    }
    Ok(quotes)
}

/// Quotes a job that was not sent yet: as if it had been.
///
/// # Errors
/// [`NoPlan`] when there is no plan; [`None`] when it would be refused (the plan's explanation says why).
pub fn quote_new(
    snapshot: &Snapshot,
    previous: Option<&Plan>,
    task: Task,
) -> Result<Option<Quote>, NoPlan> {
    let mut with = snapshot.clone();
    let next = with
        .tasks
        .keys()
        .last()
        .map_or(JobId(1), |last| JobId(last.0 + 1));
    with.tasks.insert(next, task);
    let (plan, _) = solve(&with, previous)?;
    Ok(quote(&with, &plan, next)?)
}

fn on(
    snapshot: &Snapshot,
    pipeline: &Pipeline<'_>,
    replica: &Replica,
    task: &Task,
    course: Course,
) -> Option<Quote> {
    let whole = |time: f64| Micros(time.round() as u64);
    let (step, alone) = (whole(course.step), whole(course.alone));
    let mut price = 0u64;
    let mut losses = 0u64;
    for seat in &replica.seats {
        let machine = snapshot.nodes.get(&seat.node)?;
        price += machine.price.0;
        losses += machine.losses_per_kilohour;
    }
    let measured = pipeline
        .stages
        .iter()
        .all(|stage| pipeline.devices[stage.device].profile().origin == Origin::Measured);
    let spread = if measured { 0.1 } else { 0.5 };
    let move_nanos = pipeline.stages.iter().map(|stage| {
        let profile = pipeline.devices[stage.device].profile();
        let bytes = stage.blocks * pipeline.sizes[stage.device].block;
        profile.reconfiguration.move_nanos(bytes)
    });
    let recovery = move_nanos.max().unwrap_or(0) as f64 / 1e3;
    let work = course.end - course.begin;
    let hours = work / 3.6e9;
    let rate = losses as f64 / 1000.0 * hours;
    let share = course.shared / work.max(1.0);
    let paid = |time: f64| MicroUsd((time / 3.6e9 * price as f64 * share).round() as u64);
    let (low, high) = (work * (1.0 - spread), work * (1.0 + spread));
    let expected = work + rate * recovery;
    // Two standard deviations of losses above what is expected.
    let worst = high + (rate + 2.0 * rate.sqrt()) * recovery;
    let begin = course.begin;
    let chance = task.deadline.map(|deadline| {
        let left = snapshot.now;
        let left = deadline.since(left).0 as f64 - begin;
        chance(left, work, spread, rate, recovery)
    });
    Some(Quote {
        step,
        alone,
        slowdown_permille: step.0.saturating_mul(1000) / alone.0.max(1),
        wait: whole(begin),
        earliest: whole(begin + low),
        expected: whole(begin + expected),
        latest: whole(begin + worst),
        cost: (price > 0).then(|| Cost {
            least: paid(low),
            expected: paid(expected),
            most: paid(worst),
        }),
        chance_permille: chance,
    })
}

/// Permille of the ways in which so many losses as come (Poisson, `rate` expected) and a work within its spread (even) leave time.
///
/// Weights are relative to the likeliest number of losses, so that none is lost to the range of numbers.
fn chance(left: f64, work: f64, spread: f64, rate: f64, recovery: f64) -> u64 {
    let within = |losses: f64| {
        let most = (left - losses * recovery) / work.max(1.0);
        ((most - (1.0 - spread)) / (2.0 * spread)).clamp(0.0, 1.0)
    };
    if rate >= MANY {
        return (within(rate) * 1000.0).round() as u64;
    }
    let mode = rate.floor();
    let reach = (LOSSES + DEVIATIONS * rate.sqrt()).ceil();
    let (mut sum, mut all) = (within(mode), 1.0);
    let (mut up, mut down) = (1.0, 1.0);
    for way in 1..=reach as u32 {
        let (more, less) = (mode + f64::from(way), mode - f64::from(way));
        up *= rate / more;
        (sum, all) = (sum + up * within(more), all + up);
        if less >= 0.0 {
            down *= (less + 1.0) / rate;
            (sum, all) = (sum + down * within(less), all + down);
        }
    }
    (sum / all * 1000.0).round().clamp(0.0, 1000.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the definition says it.
    fn summed(left: f64, work: f64, spread: f64, rate: f64, recovery: f64) -> u64 {
        let (mut sum, mut weight) = (0.0, (-rate).exp());
        for losses in 0..200_u32 {
            let most = (left - f64::from(losses) * recovery) / work;
            let within = ((most - (1.0 - spread)) / (2.0 * spread)).clamp(0.0, 1.0);
            sum += weight * within;
            weight *= rate / f64::from(losses + 1);
        }
        (sum * 1000.0).round() as u64
    }

    #[test]
    fn few_losses_are_as_their_sum_and_many_are_no_zero() {
        for rate in [0.0, 0.3, 1.0, 7.5, 40.0] {
            for left in [900.0, 1_000.0, 1_100.0, 1_400.0, 3_000.0] {
                let wanted = summed(left, 1_000.0, 0.15, rate, 20.0);
                assert_eq!(
                    chance(left, 1_000.0, 0.15, rate, 20.0),
                    wanted,
                    "{rate} {left}"
                );
            }
        }
        // 4,500 losses of 60 s are 270,000 s: with as much again there is time, with half as much there is not.
        for rate in [95.0, 4_500.0, 1e7, 1e12] {
            let lost = rate * 60.0;
            assert_eq!(
                chance(2.0 * lost + 2e6, 1e6, 0.15, rate, 60.0),
                1000,
                "{rate}"
            );
            assert_eq!(chance(0.5 * lost, 1e6, 0.15, rate, 60.0), 0, "{rate}");
        }
    }
}
