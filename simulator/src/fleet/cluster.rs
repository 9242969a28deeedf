//! The events of a fleet: arrivals, ends, losses.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use super::instance::{Company, Oracle, Pace, System, best_width};
use super::jobs::{Job, Mix};
use super::report::{Ended, Outcome};
use super::trace::unit;
use super::{BadSetting, Losses, Setting};
use crate::dice::Dice;

const SECOND: u64 = 1_000_000_000;

/// How often the fleet is looked at, in seconds.
pub(super) const SAMPLE_S: u64 = 3_600;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Of an instance: lost.
    Lost(usize),
    /// Of an instance: back.
    Back(usize),
    /// A job of an instance is done, if its company is still the one with this number.
    Done(usize, u64),
    /// The next job comes.
    Comes,
    /// The fleet is looked at.
    Looked,
}

#[derive(Default)]
struct Instance {
    /// Jobs and steps to go, by number.
    jobs: BTreeMap<usize, f64>,
    company: Company,
    pace: Option<Pace>,
    since: u64,
    number: u64,
    lost: bool,
    /// Jobs, as the order of instances has them; absent while it is lost.
    rank: Option<usize>,
}

impl Instance {
    /// One without jobs.
    fn new() -> Self {
        Self {
            rank: Some(0),
            ..Self::default()
        }
    }
}

struct Fleet<'a> {
    oracle: Oracle<'a>,
    jobs: &'a [Job],
    /// Steps of each job in all.
    steps: Vec<f64>,
    alone: Vec<u64>,
    instances: Vec<Instance>,
    /// Those that are not lost: jobs, then number.
    order: BTreeSet<(usize, usize)>,
    queue: VecDeque<(usize, f64)>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    begun: BTreeMap<usize, u64>,
    outcome: Outcome,
    losses: Losses,
    now: u64,
}

/// Simulates one system.
///
/// # Errors
/// [`BadSetting`] when it is too much, or when the backbone does not fit an instance.
pub fn run(
    setting: &Setting,
    mix: &Mix,
    jobs: &[Job],
    system: System,
) -> Result<Outcome, BadSetting> {
    setting.check(jobs.len())?;
    let width = best_width(setting, mix, system)?;
    let single = best_width(setting, mix, System::Single)?;
    let mut alone = Oracle::new(setting, mix, System::Single, single)?;
    let alone: Vec<u64> = (0..mix.kinds.len())
        .map(|kind| {
            let pace = alone.pace(&Company::from([(kind, 1)]));
            pace.map_or(u64::MAX, |pace| pace.step)
        })
        .collect();
    let oracle = Oracle::new(setting, mix, system, width)?;
    let steps = jobs
        .iter()
        .map(|job| (job.arrival.runtime_s * SECOND) as f64 / alone[job.kind] as f64)
        .collect();
    let instances = setting.gpus / width;
    let mut fleet = Fleet {
        outcome: Outcome::new(setting, system, width, instances),
        oracle,
        jobs,
        steps,
        alone,
        instances: (0..instances).map(|_| Instance::new()).collect(),
        order: (0..instances).map(|at| (0, at)).collect(),
        queue: VecDeque::new(),
        events: BinaryHeap::new(),
        begun: BTreeMap::new(),
        losses: setting.losses,
        now: 0,
    };
    fleet.schedule_losses(setting);
    let mut next = 0;
    if let Some(job) = jobs.first() {
        fleet
            .events
            .push(Reverse((job.arrival.at_s * SECOND, Event::Comes)));
    }
    fleet
        .events
        .push(Reverse((SAMPLE_S * SECOND, Event::Looked)));
    let end = setting.horizon_s * SECOND;
    while let Some(Reverse((now, event))) = fleet.events.pop() {
        if now > end {
            break;
        }
        fleet.now = now;
        match event {
            Event::Comes => {
                let steps = fleet.steps[next];
                let company = Company::from([(jobs[next].kind, 1)]);
                if fleet.oracle.pace(&company).is_some() {
                    fleet.queue.push_back((next, steps));
                } else {
                    fleet.outcome.refused += 1;
                }
                next += 1;
                if let Some(job) = jobs.get(next) {
                    let at = job.arrival.at_s * SECOND;
                    fleet.events.push(Reverse((at, Event::Comes)));
                }
                fleet.admit();
            }
            Event::Done(at, number) => fleet.done(at, number),
            Event::Lost(at) => fleet.lost(at),
            Event::Back(at) => {
                fleet.instances[at].lost = false;
                fleet.rank(at);
                fleet.admit();
            }
            Event::Looked => {
                fleet.look();
                fleet
                    .events
                    .push(Reverse((now + SAMPLE_S * SECOND, Event::Looked)));
            }
        }
    }
    fleet.now = end;
    for at in 0..fleet.instances.len() {
        fleet.advance(at);
    }
    fleet.outcome.waiting = fleet.queue.len();
    fleet.outcome.came = next;
    Ok(fleet.outcome)
}

impl Fleet<'_> {
    fn schedule_losses(&mut self, setting: &Setting) {
        let rate = setting.losses.per_kilohour as f64 * self.oracle.width as f64 / 3.6e6;
        if rate <= 0.0 {
            return;
        }
        let mut dice = Dice::new(setting.seed ^ 0x10_55);
        for at in 0..self.instances.len() {
            let mut when = 0.0;
            loop {
                when -= unit(&mut dice).ln() / rate;
                if when >= setting.horizon_s as f64 {
                    break;
                }
                let lost = (when * 1e9) as u64;
                self.events.push(Reverse((lost, Event::Lost(at))));
            }
        }
    }

    /// Counts what an instance has done since it was last looked at.
    fn advance(&mut self, at: usize) {
        let instance = &mut self.instances[at];
        let passed = self.now - instance.since;
        instance.since = self.now;
        let Some(pace) = instance.pace else {
            return;
        };
        let steps = passed as f64 / pace.step as f64;
        for left in instance.jobs.values_mut() {
            *left = (*left - steps).max(0.0);
        }
        let width = self.oracle.width as f64;
        self.outcome.tokens += steps * pace.tokens as f64;
        self.outcome.busy_s += steps * pace.busy as f64 / 1e9;
        self.outcome.held_s += passed as f64 * width / 1e9;
        for job in instance.jobs.keys() {
            let tenant = &self.jobs[*job].arrival.tenant;
            let kind = self.jobs[*job].kind;
            // In time alone, so that large steps do not count for more.
            let served = steps * self.alone[kind] as f64 / 1e9;
            match self.outcome.served_s.get_mut(tenant) {
                Some(sum) => *sum += served,
                None => {
                    self.outcome.served_s.insert(tenant.clone(), served);
                }
            }
        }
    }

    /// The company of an instance has changed: what a step takes now, and who is done first.
    fn settle(&mut self, at: usize) {
        let mut company = Company::new();
        for job in self.instances[at].jobs.keys() {
            *company.entry(self.jobs[*job].kind).or_default() += 1;
        }
        let pace = if company.is_empty() {
            None
        } else {
            self.oracle.pace(&company)
        };
        let instance = &mut self.instances[at];
        instance.company = company;
        instance.pace = pace;
        instance.number += 1;
        instance.since = self.now;
        self.rank(at);
        let instance = &self.instances[at];
        let first = instance.jobs.values().copied().reduce(f64::min);
        if let (Some(first), Some(pace)) = (first, pace) {
            let rest = (first * pace.step as f64).ceil() as u64;
            let when = self.now.saturating_add(rest);
            self.events
                .push(Reverse((when, Event::Done(at, instance.number))));
        }
    }

    /// Puts an instance in its place among the others.
    fn rank(&mut self, at: usize) {
        let instance = &mut self.instances[at];
        if let Some(jobs) = instance.rank.take() {
            self.order.remove(&(jobs, at));
        }
        if !instance.lost {
            let jobs = instance.jobs.len();
            instance.rank = Some(jobs);
            self.order.insert((jobs, at));
        }
    }

    fn done(&mut self, at: usize, number: u64) {
        if self.instances[at].number != number {
            return;
        }
        self.advance(at);
        // Less than a millionth of a step is rounding.
        let ended: Vec<usize> = self.instances[at]
            .jobs
            .iter()
            .filter(|(_, left)| **left < 1e-6)
            .map(|(job, _)| *job)
            .collect();
        for job in ended {
            self.instances[at].jobs.remove(&job);
            let arrival = &self.jobs[job].arrival;
            let begun = self.begun.remove(&job).unwrap_or(self.now);
            self.outcome.ended.push(Ended {
                waited_s: (begun / SECOND).saturating_sub(arrival.at_s),
                whole_s: (self.now / SECOND).saturating_sub(arrival.at_s),
                trained_s: (self.now - begun) / SECOND,
                alone_s: arrival.runtime_s,
            });
        }
        self.settle(at);
        self.admit();
    }

    fn lost(&mut self, at: usize) {
        if self.instances[at].lost {
            return;
        }
        self.advance(at);
        self.outcome.losses += 1;
        let pace = self.instances[at].pace;
        let jobs = std::mem::take(&mut self.instances[at].jobs);
        for (job, left) in jobs.into_iter().rev() {
            // On average half of what lies between two checkpoints is trained again.
            let again = pace.map_or(0.0, |pace| {
                (self.losses.checkpoint_s * SECOND) as f64 / 2.0 / pace.step as f64
            });
            self.queue
                .push_front((job, (left + again).min(self.steps[job])));
        }
        self.instances[at].lost = true;
        self.settle(at);
        let back = self.now + self.losses.recovery_s * SECOND;
        self.events.push(Reverse((back, Event::Back(at))));
        self.admit();
    }

    /// First come, first served: the head goes to the instance with the fewest jobs that takes it.
    fn admit(&mut self) {
        while let Some((job, left)) = self.queue.front().copied() {
            let kind = self.jobs[job].kind;
            let Some(at) = self.choose(kind) else {
                return;
            };
            self.queue.pop_front();
            self.advance(at);
            self.instances[at].jobs.insert(job, left);
            self.begun.entry(job).or_insert(self.now);
            self.settle(at);
        }
    }

    fn choose(&mut self, kind: usize) -> Option<usize> {
        let free = self.order.first().filter(|(count, _)| *count == 0);
        if let Some((_, at)) = free {
            return Some(*at);
        }
        // The emptier ones have the most to gain: if they do not take it, fuller ones hardly would.
        let few: Vec<usize> = self.order.iter().take(4).map(|(_, at)| *at).collect();
        few.into_iter()
            .find(|at| self.oracle.takes(&self.instances[*at].company, kind))
    }

    fn look(&mut self) {
        let trains = self.instances.iter().map(|instance| instance.jobs.len());
        let each: Vec<u16> = trains.map(|count| count.min(999) as u16).collect();
        self.outcome.looked.push((each, self.queue.len()));
        let tokens = self.instances.iter().filter_map(|instance| instance.pace);
        let rate: u128 = tokens.map(|pace| pace.rate()).sum();
        self.outcome.rates.push((rate / 1000) as u64);
    }
}
