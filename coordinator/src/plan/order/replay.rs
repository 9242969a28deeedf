//! A pipeline by events: the judge of the template's arithmetic.
//!
//! Every stage takes its steps in the order it was given, as soon as their input has arrived and it is free. Transfers
//! take their time and do not wait for each other. Nothing of the template's recurrence is used here.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::template::{Step, Unit};

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Nanoseconds until the last step ended.
    pub latency: u64,
    /// Nanoseconds that each stage computed.
    pub busy: Vec<u64>,
    /// Nanoseconds that each stage waited between its first and its last step.
    pub idle: Vec<u64>,
    /// Most bytes under way on each stage.
    pub held: Vec<u64>,
    /// Steps that never ran: an order with a ring.
    pub stuck: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// An input is at a stage.
    Arrived(usize, Step),
    /// A stage is done with a step.
    Done(usize, Step),
}

struct Place<'a> {
    steps: &'a [Step],
    next: usize,
    working: bool,
    begun: Option<u64>,
    ended: u64,
    held: u64,
}

/// Runs steps by stage; `bucket` names the unit of each number.
#[must_use]
pub fn replay(units: &[Unit], bucket: &dyn Fn(usize) -> usize, steps: &[Vec<Step>]) -> Replay {
    let stages = steps.len();
    let mut places: Vec<Place<'_>> = steps
        .iter()
        .map(|steps| Place {
            steps,
            next: 0,
            working: false,
            begun: None,
            ended: 0,
            held: 0,
        })
        .collect();
    let mut replay = Replay {
        busy: vec![0; stages],
        idle: vec![0; stages],
        held: vec![0; stages],
        ..Replay::default()
    };
    let mut arrived: BTreeMap<(usize, Step), ()> = BTreeMap::new();
    let mut events = BinaryHeap::new();
    let first = steps.first().into_iter().flatten();
    for step in first.filter(|step| matches!(step, Step::Forward(_))) {
        events.push(Reverse((0, Happening::Arrived(0, *step))));
    }
    while let Some(Reverse((now, happening))) = events.pop() {
        let stage = match happening {
            Happening::Arrived(stage, step) => {
                arrived.insert((stage, step), ());
                stage
            }
            Happening::Done(stage, step) => {
                places[stage].working = false;
                places[stage].ended = now;
                replay.latency = replay.latency.max(now);
                let (to, what, unit) = match step {
                    Step::Forward(unit) if stage + 1 < stages => (stage + 1, step, unit),
                    Step::Forward(unit) => (stage, Step::Backward(unit), unit),
                    Step::Backward(unit) => {
                        places[stage].held -= units[bucket(unit)].bytes[stage];
                        match stage.checked_sub(1) {
                            Some(above) => (above, step, unit),
                            None => (stage, step, unit),
                        }
                    }
                };
                if to != stage {
                    let way = units[bucket(unit)].transfers[to.min(stage)];
                    events.push(Reverse((now + way, Happening::Arrived(to, what))));
                } else if what != step {
                    arrived.insert((to, what), ());
                }
                stage
            }
        };
        let place = &mut places[stage];
        let Some(step) = place.steps.get(place.next).copied() else {
            continue;
        };
        if place.working || arrived.remove(&(stage, step)).is_none() {
            continue;
        }
        let (Step::Forward(unit) | Step::Backward(unit)) = step;
        let of = &units[bucket(unit)];
        let time = match step {
            Step::Forward(_) => {
                place.held += of.bytes[stage];
                of.times[stage].forward
            }
            Step::Backward(_) => of.times[stage].backward,
        };
        replay.held[stage] = replay.held[stage].max(place.held);
        if place.begun.is_some() {
            replay.idle[stage] += now - place.ended;
        }
        place.begun.get_or_insert(now);
        place.working = true;
        place.next += 1;
        replay.busy[stage] += time.max(1);
        events.push(Reverse((now + time.max(1), Happening::Done(stage, step))));
    }
    replay.stuck = places
        .iter()
        .map(|place| place.steps.len() - place.next)
        .sum();
    replay
}
