//! Who trains now, who waits and why, and who never can.
//!
//! A replica takes jobs from the front of the order of [`super::fair`], as many as fit in memory; of those no more than
//! the rule of [`Saturation`] lets join, and no more than let every job that bounds its added latency keep the bound.
//! Memory and latency are asked of the front's length by bisection, since a longer front needs more memory and has longer
//! steps; saturation too, where the whole front does not keep the rule. Behind a front that memory
//! ended, up to [`BACKFILL`] later jobs that still fit are let in, unless the one they pass has waited for the patience.
//!
//! A job that does not fit a replica even alone is refused, with the limit and the largest rank, length and batch that
//! would fit.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use shared::units::{Bytes, Micros};

use super::estimate::{Estimate, Loads, most_micro_batches};
use super::mix::Load;
use super::pipeline::Pipeline;
use super::snapshot::{Options, Saturation, Task};

/// Jobs that are tried behind a front that memory ended.
pub const BACKFILL: usize = 16;

/// Why a job waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Why {
    /// With it, the replica would not hold all.
    Memory,
    /// With it, the replica would train fewer tokens a second, or not enough more.
    Saturated {
        /// Tokens a second of those that train.
        rate: u64,
    },
    /// With it, a step of this much would break a job's bound on added latency.
    Latency {
        /// Of the step in company.
        step: Micros,
    },
}

/// A job that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// The replica whose turn it waits for.
    pub replica: u32,
    /// Why.
    #[serde(flatten)]
    pub why: Why,
    /// Predicted time until it trains.
    pub estimate: Micros,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = self.estimate;
        match self.why {
            Why::Memory => write!(f, "waits for memory, about {about}"),
            Why::Saturated { rate } => {
                write!(
                    f,
                    "waits, as those that train pass {rate} tokens/s, and with it they would pass fewer, or not enough more \
                     (plan.saturation); about {about}"
                )
            }
            Why::Latency { step } => write!(
                f,
                "waits, as a step of {step} breaks its own max_added_latency or another's; about {about}"
            ),
        }
    }
}

/// A job that can never train on what is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The stage that is too small.
    pub stage: u64,
    /// What it would need with the smallest passes.
    pub needed: Bytes,
    /// What its node offers.
    pub offered: Bytes,
    /// The largest rank (or size) that would fit, all else as it is.
    pub largest_rank: Option<u64>,
    /// The longest sequences that would fit, all else as it is.
    pub largest_length: Option<u64>,
    /// The most sequences of a step that would fit, all else as it is.
    pub largest_batch: Option<u64>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "stage {} would need {} and offers {}",
            self.stage, self.needed, self.offered
        )?;
        let ways = [
            ("rank", self.largest_rank),
            ("max_length", self.largest_length),
            ("batch_size", self.largest_batch),
        ];
        let mut any = false;
        for (what, largest) in ways {
            if let Some(largest) = largest {
                write!(f, "; {what} up to {largest} fits")?;
                any = true;
            }
        }
        if !any {
            write!(f, "; no rank, length or batch fits: add nodes or memory")?;
        }
        Ok(())
    }
}

/// The front of a replica's jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Those that train, by their place in the order.
    pub jobs: Vec<usize>,
    /// Why the others wait.
    pub why: Option<Why>,
    /// What is predicted of those that train.
    pub estimate: Option<Estimate>,
}

/// The largest count in `0..=most` that `holds`, which holds of all smaller ones too.
fn largest(most: usize, mut holds: impl FnMut(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if holds(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

/// Takes the front of these jobs, which are in order; `patient[i]`: no later job may pass job i.
#[must_use]
pub fn admit(
    pipeline: &Pipeline<'_>,
    tasks: &[&Task],
    patient: &[bool],
    options: &Options,
) -> Admitted {
    let loads = Loads::new(tasks);
    let of = |count: usize| {
        let jobs: Vec<usize> = (0..count).collect();
        loads.estimate(pipeline, &jobs, options.fuse)
    };
    let mut why = None;
    // All at once is the usual case.
    let fits = if of(tasks.len()).is_some() {
        tasks.len()
    } else {
        why = Some(Why::Memory);
        largest(tasks.len(), |count| count == 0 || of(count).is_some())
    };
    let mut jobs: Vec<usize> = (0..fits).collect();
    if fits < tasks.len() && !patient[fits] {
        for job in (fits + 1..tasks.len()).take(BACKFILL) {
            jobs.push(job);
            if loads.estimate(pipeline, &jobs, options.fuse).is_none() {
                jobs.pop();
            }
            if patient[job] {
                break;
            }
        }
    }
    let front = |count: usize| loads.estimate(pipeline, &jobs[..count], options.fuse);
    let rate = |count: usize| front(count).map_or(0, |estimate| estimate.rate());
    let step = |jobs: &[usize]| {
        let estimate = loads.estimate(pipeline, jobs, options.fuse);
        estimate.map_or(u64::MAX, |estimate| estimate.step)
    };
    // Those behind the first so many, each by itself.
    let apart = |few: usize, count: usize| {
        let alone = jobs[few..count].iter().map(|job| step(&[*job]));
        let apart = alone.fold(step(&jobs[..few]), u64::saturating_add);
        options.saturation.is_no_slower(apart, step(&jobs[..count]))
    };
    let mut count = joining(jobs.len(), options.saturation, rate, apart);
    if count < jobs.len() {
        let rate = rate(count) / 1000;
        why = Some(Why::Saturated { rate });
    }
    let bounded: Vec<(usize, u64)> = (0..count)
        .filter_map(|at| {
            let more = tasks[jobs[at]].max_added_latency?;
            let alone = loads.estimate(pipeline, &[jobs[at]], options.fuse)?;
            Some((
                at,
                alone
                    .step
                    .saturating_add(alone.step.saturating_mul(more) / 1000),
            ))
        })
        .collect();
    if !bounded.is_empty() {
        let keeps = |few: usize| {
            let step = front(few).map_or(0, |estimate| estimate.step);
            let mut among = bounded.iter().filter(|(at, _)| *at < few);
            few <= 1 || among.all(|(_, bound)| step <= *bound)
        };
        let kept = largest(count, keeps);
        if kept < count {
            let longer = front(kept + 1).map_or(0, |estimate| estimate.step);
            why = Some(Why::Latency {
                step: Micros(longer / 1000),
            });
            let behind = jobs[kept + 1..count].iter().copied().zip(kept + 1..);
            let behind: Vec<(usize, usize)> = behind.take(BACKFILL).collect();
            jobs.truncate(kept);
            // One whose bound holds nobody up, nor its own, passes the one at which the front ended.
            let bound = |at: usize| bounded.iter().find(|bound| bound.0 == at);
            let mut bounds: Vec<u64> = (0..kept).filter_map(bound).map(|bound| bound.1).collect();
            let waits = kept < patient.len() && patient[kept];
            for (job, at) in behind.into_iter().take_while(|_| !waits) {
                jobs.push(job);
                let own = bound(at).map(|bound| bound.1);
                let step = step(&jobs);
                match bounds.iter().chain(&own).all(|bound| step <= *bound) {
                    true => bounds.extend(own),
                    false => drop(jobs.pop()),
                }
            }
            count = jobs.len();
        }
    }
    jobs.truncate(count);
    let estimate = loads.estimate(pipeline, &jobs, options.fuse);
    Admitted {
        jobs,
        why,
        estimate,
    }
}

/// How many of a front join, by the tokens a second of its first so many; `apart(few, count)`: the step of the first `count` is no
/// longer than that of the first `few` and each of the others by itself.
///
/// With [`Saturation::NoLoss`] a front is held to the best of the shorter ones looked at: all halves of it, and the one
/// with a job less. A job whose own tokens are dear makes them fewer a second for all and still gains by company: it joins
/// where by itself it would take no less. With [`Saturation::Growth`] it ends where it has all but so many permille of the whole front's.
fn joining(
    most: usize,
    saturation: Saturation,
    rate: impl Fn(usize) -> u64,
    apart: impl Fn(usize, usize) -> bool,
) -> usize {
    let known = std::cell::RefCell::new(BTreeMap::new());
    let rate = |count: usize| -> u128 {
        let found = known.borrow().get(&count).copied();
        let found = found.unwrap_or_else(|| rate(count));
        known.borrow_mut().insert(count, found);
        u128::from(found)
    };
    let keeps = |count: usize| {
        let halves = std::iter::successors(Some(count / 2), |half| Some(half / 2));
        let mut shorter = halves.take_while(|half| *half > 0).chain([count - 1]);
        let joins = |few| saturation.joins(rate(few), rate(count)) || apart(few, count);
        count < 2 || shorter.all(joins)
    };
    match saturation {
        Saturation::Off => most,
        Saturation::NoLoss { .. } if most == 0 || keeps(most) => most,
        Saturation::NoLoss { .. } => largest(most, |count| count == 0 || keeps(count)),
        Saturation::Growth { permille } => {
            let enough = rate(most) * u128::from(1000 - permille.min(1000)) / 1000;
            let below = largest(most, |few| few == 0 || rate(few) < enough);
            (below + 1).min(most)
        }
    }
}

/// Whether a job alone fits a replica.
#[must_use]
pub fn fits(pipeline: &Pipeline<'_>, task: &Task) -> bool {
    Loads::new(&[task]).estimate(pipeline, &[0], true).is_some()
}

/// Tells why a job fits no replica, and what would.
#[must_use]
pub fn refuse(pipelines: &[Pipeline<'_>], task: &Task) -> Option<Refusal> {
    let anywhere = |task: &Task| pipelines.iter().any(|pipeline| fits(pipeline, task));
    if anywhere(task) {
        return None;
    }
    let shortage = |pipeline: &Pipeline<'_>| tightest(pipeline, task);
    let (stage, needed, offered) = pipelines
        .iter()
        .filter_map(shortage)
        .min_by_key(|(_, needed, offered)| needed.saturating_sub(*offered))?;
    let most = |most: usize, with: &dyn Fn(usize) -> Task| {
        let found = largest(most, |size| size == 0 || anywhere(&with(size)));
        (found > 0).then_some(found as u64)
    };
    let with_rank = |rank: usize| Task {
        adapter: super::adapter::Adapter {
            width: rank as u64,
            ..task.adapter.clone()
        },
        ..task.clone()
    };
    let with_length = |length: usize| task.shortened(u32::try_from(length).unwrap_or(u32::MAX));
    let with_batch = |batch: usize| Task {
        lengths: task.lengths.iter().take(batch).copied().collect(),
        ..task.clone()
    };
    let longest = task
        .longest_of_all()
        .saturating_sub(task.adapter.prompt_rows()) as usize;
    Some(Refusal {
        stage,
        needed: Bytes(needed),
        offered: Bytes(offered),
        largest_rank: most(task.adapter.width as usize, &with_rank),
        largest_length: most(longest, &with_length),
        largest_batch: most(task.lengths.len(), &with_batch),
    })
}

/// The stage that lacks most with the smallest passes: its number, need and offer.
fn tightest(pipeline: &Pipeline<'_>, task: &Task) -> Option<(u64, u64, u64)> {
    let micro_batches = most_micro_batches(&[task], !pipeline.padded);
    let loads = pipeline.loads(&[task], micro_batches);
    let mixes: Vec<_> = loads
        .iter()
        .map(|loads: &Vec<Load>| super::mix::Mix::of(loads))
        .collect();
    (0..pipeline.len())
        .map(|stage| {
            let at = &pipeline.stages[stage];
            let resident = pipeline.resident(stage, &[task], micro_batches);
            let rows = mixes[at.device].peak_rows(pipeline.padded);
            let buffers = pipeline.sizes[at.device].buffers(rows);
            let pass = buffers.saturating_add(pipeline.under_way(stage, &mixes));
            let needed = resident.saturating_add(pass);
            (stage as u64, needed, at.memory)
        })
        .max_by_key(|(_, needed, offered)| needed.saturating_sub(*offered))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_LOSS: Saturation = Saturation::NO_LOSS;
    const GROWTH: Saturation = Saturation::GROWTH;

    /// Company is always slower than the same apart.
    fn never(_: usize, _: usize) -> bool {
        false
    }

    #[test]
    fn a_job_of_dear_tokens_joins_where_company_costs_nobody_time() {
        // The fifth passes a tenth of the tokens that the others do in that time.
        let dear = |jobs: usize| if jobs < 5 { 1_000 } else { 820 };
        assert_eq!(joining(5, NO_LOSS, dear, never), 4);
        assert_eq!(joining(5, NO_LOSS, dear, |_, _| true), 5);
        assert_eq!(joining(5, NO_LOSS, dear, |few, _| few < 4), 4);
        assert!(NO_LOSS.is_no_slower(100, 102) && !NO_LOSS.is_no_slower(100, 103));
        assert!(!GROWTH.is_no_slower(100, 50));
    }

    #[test]
    fn throughput_that_hardly_grows_keeps_nobody_waiting() {
        // A processor: a job alone has all but two percent of what many have.
        let flat = |jobs: usize| 1_000 + jobs.min(20) as u64;
        assert_eq!(joining(40, NO_LOSS, flat, never), 40);
        assert_eq!(
            joining(40, GROWTH, flat, never),
            14,
            "the paper's rule, nearly in turn"
        );
        assert_eq!(joining(40, Saturation::Off, flat, never), 40);
        for rule in [NO_LOSS, GROWTH, Saturation::Off] {
            assert_eq!(joining(0, rule, flat, never), 0);
            assert_eq!(joining(1, rule, flat, never), 1);
        }
    }

    #[test]
    fn throughput_that_falls_does() {
        // Memory for passes is gone with the tenth job.
        let falls = |jobs: usize| if jobs < 10 { 900 + jobs as u64 } else { 600 };
        assert_eq!(joining(40, NO_LOSS, falls, never), 9);
        // By less than what is predicted can be wrong.
        let wavers = |jobs: usize| if jobs < 10 { 1_000 } else { 985 };
        assert_eq!(joining(40, NO_LOSS, wavers, never), 40);
    }

    #[test]
    fn slow_falls_do_not_add_up() {
        // Each job takes a little, and none of the steps alone is more than noise.
        let sinks = |jobs: usize| 2_000 - 15 * jobs as u64;
        let kept = joining(40, NO_LOSS, sinks, never);
        assert!((2..6).contains(&kept), "{kept}");
    }
}
