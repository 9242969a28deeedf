//! The structured pipeline template: one order of passes for a whole step (MuxTune, section 3.4.1).
//!
//! 1. Buckets go by their first-stage latency, the longest first.
//! 2. Micro-batches of a bucket follow each other.
//! 3. A stage takes forward passes ahead of backward ones as far as memory allows, then one backward, one forward.
//!
//! `before[s][i]` is the number of backward passes that stage s has done before its forward pass of unit i. It is the
//! least that (a) memory needs: the units held, this one included, fit; (b) is not less than upstream's: a stage must
//! not wait for a forward pass that its neighbour holds back; (c) on the last stage is i: forward, backward, in turn.
//!
//! **It cannot stall.** Take the first undone step of a stage whose inputs are done, smallest unit first. Forward of i
//! on s waits for forward of i on s-1 and for backward of all j < before\[s\]\[i\] on s; by (b) no stage upstream waits
//! for a backward of later ones before it sends i. Backward of j on s waits for backward of j on s+1, down to the last
//! stage, which needs forward of j only. So the waits go to smaller units or further stages, and never in a ring.
//!
//! **The last stage never idles once it has started** (Theorem 2 of the paper's appendix) when memory suffices and no
//! stage takes longer for a forward pass than the last stage for a forward and a backward of any unit before it.
//!
//! **What a step takes** with equal stages and memory enough: the last stage ends backward of unit j at
//! `T(j) = (S-1) f_first + sum over i <= j of (f + b)`; it reaches the first stage `(S-1) b(j)` later, which has the
//! backward passes of all later units before it yet: `max over j of T(j) + (S-1) b(j) + sum over i > j of b(i)`. And
//! the stage before the last, having all its forward passes first, ends no sooner than after `(S-2)(f_first + b_first) +
//! sum (f + b)`. The paper's drain of `(S-1) t_last` is the case in which long units are followed by enough others. The
//! tests hold the template to the longer formula, and to the events of [`super::replay`]. As going ahead can lose a
//! little where it gains nothing, and takes memory, `arrange` also tries one forward, one backward, and so many passes
//! beyond that: more of them only where they gain a thousandth of the step.

use crate::plan::device::Both;

/// A bucket as the template needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Nanoseconds, by stage.
    pub times: Vec<Both<u64>>,
    /// Nanoseconds of the transfer behind each stage but the last.
    pub transfers: Vec<u64>,
    /// Bytes that one pass keeps on each stage until it comes back.
    pub bytes: Vec<u64>,
}

/// One step of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Forward of the unit with this number in the order of units.
    Forward(usize),
    /// Backward of it.
    Backward(usize),
}

/// How far forward passes go ahead, where memory allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eagerness {
    /// All of them.
    Memory,
    /// So many units more than 1F1B holds: that is as many as there are stages from here to the end.
    Beyond(usize),
}

impl Eagerness {
    /// Plain 1F1B.
    pub const ONE_FORWARD_ONE_BACKWARD: Self = Self::Beyond(0);
}

/// The order of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Buckets in the order in which they run.
    pub buckets: Vec<usize>,
    /// C.
    pub micro_batches: u64,
    /// Units that each stage but the last may hold beyond those of 1F1B.
    pub beyond: usize,
    /// `before[stage][unit]`: see above.
    pub before: Vec<Vec<usize>>,
    /// Nanoseconds from the first forward to the last backward.
    pub latency: u64,
    /// Nanoseconds that the last stage waits between its first and its last step.
    pub idle_last: u64,
}

impl Template {
    /// Number of units: buckets times micro-batches.
    #[must_use]
    pub fn units(&self) -> usize {
        self.buckets.len() * self.micro_batches as usize
    }

    /// The bucket of a unit.
    #[must_use]
    pub fn bucket(&self, unit: usize) -> usize {
        self.buckets[unit / self.micro_batches as usize]
    }

    /// The steps of a stage, in order.
    #[must_use]
    pub fn steps(&self, stage: usize) -> Vec<Step> {
        let mut steps = Vec::with_capacity(2 * self.units());
        let mut done = 0;
        for (unit, before) in self.before[stage].iter().enumerate() {
            steps.extend((done..*before).map(Step::Backward));
            done = (*before).max(done);
            steps.push(Step::Forward(unit));
        }
        steps.extend((done..self.units()).map(Step::Backward));
        steps
    }
}

/// The order of buckets: rule 1, or as they come.
#[must_use]
pub fn order(units: &[Unit], longest_first: bool) -> Vec<usize> {
    let mut buckets: Vec<usize> = (0..units.len()).collect();
    if longest_first {
        let latency = |bucket: &usize| units[*bucket].times.first().map_or(0, |time| time.sum());
        buckets.sort_by_key(|bucket| (std::cmp::Reverse(latency(bucket)), *bucket));
    }
    buckets
}

/// Bytes at most under way on each stage, and how to use them.
#[derive(Clone, Copy, Debug)]
pub struct Rooms<'a> {
    /// By stage.
    pub bytes: &'a [u64],
    /// How far to go ahead.
    pub eagerness: Eagerness,
}

/// The template of buckets in this order.
#[must_use]
pub fn template(
    units: &[Unit],
    buckets: Vec<usize>,
    micro_batches: u64,
    rooms: Rooms<'_>,
) -> Template {
    let stages = units.first().map_or(0, |unit| unit.times.len());
    let mut template = Template {
        buckets,
        micro_batches: micro_batches.max(1),
        beyond: 0,
        before: Vec::with_capacity(stages),
        latency: 0,
        idle_last: 0,
    };
    template.beyond = match rooms.eagerness {
        Eagerness::Memory => template.units(),
        Eagerness::Beyond(more) => more.min(template.units()),
    };
    for stage in 0..stages {
        let before = before(units, &template, stage, stages, rooms);
        template.before.push(before);
    }
    (template.latency, template.idle_last) = latency(units, &template);
    template
}

/// The same order with other times.
#[must_use]
pub fn retimed(units: &[Unit], order: &Template) -> Template {
    let mut template = order.clone();
    (template.latency, template.idle_last) = latency(units, &template);
    template
}

fn before(
    units: &[Unit],
    template: &Template,
    stage: usize,
    stages: usize,
    rooms: Rooms<'_>,
) -> Vec<usize> {
    let count = template.units();
    if stage + 1 == stages {
        return (0..count).collect();
    }
    let upstream = stage.checked_sub(1).map(|above| &template.before[above]);
    let most = stages - stage + template.beyond;
    let bytes = |unit: usize| units[template.bucket(unit)].bytes[stage];
    let (mut held, mut done, mut all) = (0u64, 0usize, Vec::with_capacity(count));
    for unit in 0..count {
        held = held.saturating_add(bytes(unit));
        let floor = upstream.map_or(0, |above| above[unit]);
        while done < unit && (done < floor || held > rooms.bytes[stage] || unit - done + 1 > most) {
            held = held.saturating_sub(bytes(done));
            done += 1;
        }
        all.push(done);
    }
    all
}

/// When each step ends, as the longest way through what it waits for; the end, and what the last stage waited.
fn latency(units: &[Unit], template: &Template) -> (u64, u64) {
    let stages = template.before.len();
    let count = template.units();
    if count == 0 || stages == 0 {
        return (0, 0);
    }
    let steps: Vec<Vec<Step>> = (0..stages).map(|stage| template.steps(stage)).collect();
    let (mut forward, mut backward) = (
        vec![vec![0u64; count]; stages],
        vec![vec![0u64; count]; stages],
    );
    let (mut at, mut free) = (vec![0usize; stages], vec![0u64; stages]);
    let (mut idle, mut started) = (0, false);
    // A stage goes on until it waits for a step that another has not taken.
    let mut moved = true;
    while moved {
        moved = false;
        for stage in 0..stages {
            while let Some(step) = steps[stage].get(at[stage]) {
                let (ready, time) = match *step {
                    Step::Forward(unit) => {
                        let of = &units[template.bucket(unit)];
                        let ready = match stage.checked_sub(1) {
                            None => Some(0),
                            Some(above) if forward[above][unit] > 0 => {
                                Some(forward[above][unit].saturating_add(of.transfers[above]))
                            }
                            Some(_) => None,
                        };
                        (ready, of.times[stage].forward.max(1))
                    }
                    Step::Backward(unit) => {
                        let of = &units[template.bucket(unit)];
                        let ready = if stage + 1 == stages {
                            Some(forward[stage][unit])
                        } else if backward[stage + 1][unit] > 0 {
                            Some(backward[stage + 1][unit].saturating_add(of.transfers[stage]))
                        } else {
                            None
                        };
                        (ready, of.times[stage].backward.max(1))
                    }
                };
                let Some(ready) = ready else {
                    break;
                };
                let begin = ready.max(free[stage]);
                if stage + 1 == stages && started {
                    idle = u64::saturating_add(idle, begin - free[stage]);
                }
                started |= stage + 1 == stages;
                free[stage] = begin.saturating_add(time);
                match *step {
                    Step::Forward(unit) => forward[stage][unit] = free[stage],
                    Step::Backward(unit) => backward[stage][unit] = free[stage],
                }
                at[stage] += 1;
                moved = true;
            }
        }
    }
    debug_assert!(
        at.iter().zip(&steps).all(|(at, steps)| *at == steps.len()),
        "PL-7: the order has no ring"
    );
    (free.iter().max().copied().unwrap_or(0), idle)
}

/// A bound from below on the time of a step in this order of buckets, whatever the memory: for each stage, the first
/// forward up to it, all its work, and the last backward from it. With equal stages the last one's is the greatest:
/// `(S-1) f_first + (S-1) b_last + C sum (f + b)`, the paper's appendix A.
#[must_use]
pub fn closed_form(units: &[Unit], buckets: &[usize], micro_batches: u64) -> u64 {
    let (Some(first), Some(last)) = (buckets.first(), buckets.last()) else {
        return 0;
    };
    let (mut warm, mut drain, mut longest) = (0u64, 0u64, 0u64);
    for stage in 0..units[*first].times.len() {
        let sums = buckets
            .iter()
            .map(|bucket| units[*bucket].times[stage].sum());
        let work = micro_batches.saturating_mul(sums.fold(0, u64::saturating_add));
        longest = longest.max(work.saturating_add(warm).saturating_add(drain));
        let (begin, end) = (&units[*first], &units[*last]);
        for (sum, time, way) in [
            (
                &mut warm,
                begin.times[stage].forward,
                begin.transfers[stage],
            ),
            (&mut drain, end.times[stage].backward, end.transfers[stage]),
        ] {
            *sum = sum.saturating_add(time).saturating_add(way);
        }
    }
    longest
}
