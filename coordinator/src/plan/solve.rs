//! From a snapshot and the plan before to the plan and why it is so.
//!
//! ```text
//! put devices together -> refuse what never fits -> place -> put jobs in order -> deal them to replicas
//!   -> for each replica: admit the front, fuse, bucket, order, cut -> check -> explain
//! ```
//!
//! Deterministic: maps are ordered, ties are broken by number. Idempotent: the plan before is an input, and
//! `solve(s, solve(s, p))` is `solve(s, p)`: equal layouts are kept, and a job stays where it would go.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use shared::ids::JobId;
use shared::units::Micros;
use thiserror::Error;

use super::admit::{self, Wait, Why};
use super::align;
use super::answer::{Plan, Replica};
use super::arrange::{Arrangement, Without, weigh};
use super::check::{Broken, check};
use super::explain::{Explanation, explain};
use super::fair::{self, Class};
use super::pipeline::Pipeline;
use super::place::{Fleet, NoPlace, Seats, place};
use super::snapshot::{Snapshot, Task};

/// Why there is no plan.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NoPlan {
    /// The backbone has no place.
    #[error(transparent)]
    NoPlace(#[from] NoPlace),
    /// A plan was made that breaks an invariant: a fault of the planner, told rather than obeyed.
    #[error("the plan breaks {0}")]
    Broken(#[from] Broken),
}

/// Makes the plan.
///
/// # Errors
/// [`NoPlan`] when the backbone has no place, or (a fault) when the answer does not pass its own check.
pub fn solve(snapshot: &Snapshot, previous: Option<&Plan>) -> Result<(Plan, Explanation), NoPlan> {
    let fleet = Fleet::new(snapshot)?;
    let standing: Vec<Seats> = previous
        .iter()
        .flat_map(|plan| plan.replicas.values())
        .map(|replica| replica.seats.clone())
        .collect();
    let (order, layout, refused) = settle(snapshot, &fleet, &standing)?;
    let mut plan = Plan {
        replicas: numbered(layout, previous),
        refused,
        ..Plan::default()
    };
    let numbers: Vec<u32> = plan.replicas.keys().copied().collect();
    let hands = deal(snapshot, &fleet, &plan, &order, previous);
    let mut whys = BTreeMap::new();
    for (number, hand) in numbers.into_iter().zip(hands) {
        let Some(seats) = plan.replicas.get(&number).map(|r| r.seats.clone()) else {
            continue;
        };
        let Some(pipeline) = fleet.pipeline(snapshot, &seats) else {
            continue;
        };
        let (replica, without, waiting) = fill(snapshot, &pipeline, number, seats, &hand);
        if let Some(why) = explain_replica(snapshot, &pipeline, &replica, without) {
            whys.insert(number, why);
        }
        plan.waiting.extend(waiting);
        plan.replicas.insert(number, replica);
    }
    check(snapshot, &fleet, &plan)?;
    let explanation = explain(snapshot, &fleet, &plan, whys);
    Ok((plan, explanation))
}

type Settled = (Vec<JobId>, Vec<Seats>, BTreeMap<JobId, admit::Refusal>);

/// Lays out, and tells apart the jobs that fit alone and those that never will.
fn settle(snapshot: &Snapshot, fleet: &Fleet, standing: &[Seats]) -> Result<Settled, NoPlan> {
    let order = fair::order(snapshot);
    let tasks: Vec<&Task> = order.iter().map(|id| &snapshot.tasks[id]).collect();
    let layout = place(snapshot, fleet, &tasks, standing)?;
    let pipelines: Vec<Pipeline<'_>> = layout
        .replicas
        .iter()
        .filter_map(|seats| fleet.pipeline(snapshot, seats))
        .collect();
    let mut refused = BTreeMap::new();
    let mut stays = Vec::with_capacity(order.len());
    for (id, task) in order.iter().zip(&tasks) {
        match admit::refuse(&pipelines, task) {
            Some(refusal) => {
                refused.insert(*id, refusal);
            }
            None => stays.push(*id),
        }
    }
    Ok((stays, layout.replicas, refused))
}

/// Replicas by number: same seats, same number.
fn numbered(layout: Vec<Seats>, previous: Option<&Plan>) -> BTreeMap<u32, Replica> {
    let mut replicas = BTreeMap::new();
    let mut rest = Vec::new();
    let empty = |seats| Replica {
        seats,
        jobs: Vec::new(),
        arrangement: None,
        round: 0,
        chunks: Vec::new(),
    };
    for seats in layout {
        let known = previous.and_then(|plan| {
            let mut replicas = plan.replicas.iter();
            replicas.find(|(_, replica)| replica.seats == seats)
        });
        match known {
            Some((number, _)) => {
                replicas.insert(*number, empty(seats));
            }
            None => rest.push(seats),
        }
    }
    let mut next = 0;
    for seats in rest {
        while replicas.contains_key(&next) {
            next += 1;
        }
        replicas.insert(next, empty(seats));
    }
    replicas
}

/// Jobs to replicas, in order: where it was unless that is fuller by more than its own rows, else the emptiest.
fn deal(
    snapshot: &Snapshot,
    fleet: &Fleet,
    plan: &Plan,
    order: &[JobId],
    previous: Option<&Plan>,
) -> Vec<Vec<JobId>> {
    let numbers: Vec<u32> = plan.replicas.keys().copied().collect();
    // Replicas that a job fits alone; all of equal ones.
    let pipelines: Vec<Option<Pipeline<'_>>> = plan
        .replicas
        .values()
        .map(|replica| fleet.pipeline(snapshot, &replica.seats))
        .collect();
    let alike = pipelines.windows(2).all(|pair| match pair {
        [Some(a), Some(b)] => a.stages == b.stages,
        _ => false,
    });
    let mut hands = vec![Vec::new(); numbers.len()];
    let mut rows = vec![0u64; numbers.len()];
    for id in order {
        let task = &snapshot.tasks[id];
        let suits = |at: &usize| {
            alike
                || pipelines[*at]
                    .as_ref()
                    .is_some_and(|pipeline| admit::fits(pipeline, task))
        };
        let places: Vec<usize> = (0..numbers.len()).filter(suits).collect();
        let Some(emptiest) = places.iter().copied().min_by_key(|at| (rows[*at], *at)) else {
            continue;
        };
        let was = previous
            .and_then(|plan| plan.replica_of(*id))
            .and_then(|(number, _)| numbers.iter().position(|n| *n == number))
            .filter(|at| places.contains(at) && rows[*at] <= rows[emptiest] + task.tokens());
        let at = was.unwrap_or(emptiest);
        rows[at] += task.tokens();
        hands[at].push(*id);
    }
    hands
}

/// Admits the front of a hand, arranges it, and tells why the others wait.
fn fill(
    snapshot: &Snapshot,
    pipeline: &Pipeline<'_>,
    number: u32,
    seats: Seats,
    hand: &[JobId],
) -> (Replica, Without, BTreeMap<JobId, Wait>) {
    let tasks: Vec<&Task> = hand.iter().map(|id| &snapshot.tasks[id]).collect();
    let patient: Vec<bool> = tasks
        .iter()
        .map(|task| fair::class(snapshot, task) == Class::Patient)
        .collect();
    let mut replica = Replica {
        seats,
        jobs: Vec::new(),
        arrangement: None,
        round: 0,
        chunks: Vec::new(),
    };
    let (mut waiting, mut without) = (BTreeMap::new(), Without::default());
    if tasks.is_empty() {
        return (replica, without, waiting);
    }
    let admitted = admit::admit(pipeline, &tasks, &patient, &snapshot.options);
    let mut front = &admitted.jobs[..];
    // What the estimate let in fits as a rule; where it does not, half of it is tried.
    while !front.is_empty() && replica.arrangement.is_none() {
        let mut jobs: Vec<JobId> = front.iter().map(|at| hand[*at]).collect();
        jobs.sort_unstable();
        let chosen: Vec<&Task> = jobs.iter().map(|id| &snapshot.tasks[id]).collect();
        if let Some(weighed) = weigh(pipeline, &chosen, &snapshot.options) {
            let arrangement = weighed.plan;
            without = weighed.without;
            let chunks = |task: &&Task| chunks(snapshot, task, &arrangement);
            replica.chunks = chosen.iter().map(chunks).collect();
            replica.round = arrangement.round;
            replica.arrangement = Some(arrangement);
            replica.jobs = jobs;
        }
        front = &front[..front.len() / 2];
    }
    let estimate = until_a_place(snapshot, &replica);
    let why = admitted.why.unwrap_or(Why::Memory);
    for id in hand.iter().filter(|id| !replica.jobs.contains(id)) {
        let wait = Wait {
            replica: number,
            why,
            estimate,
        };
        waiting.insert(*id, wait);
    }
    (replica, without, waiting)
}

fn chunks(snapshot: &Snapshot, task: &Task, arrangement: &Arrangement) -> Vec<align::Chunk> {
    if snapshot.options.align {
        align::cut(task, arrangement.micro_batches)
    } else {
        align::whole(task, arrangement.micro_batches)
    }
}

/// Time until a job of a replica is done: none that trains is paused for another.
fn until_a_place(snapshot: &Snapshot, replica: &Replica) -> Micros {
    let step = replica.round().0;
    let of = |id: &JobId| snapshot.tasks[id].steps.saturating_mul(step);
    Micros(replica.jobs.iter().map(of).min().unwrap_or(0))
}

/// What each level gains on a replica: the step with it off.
fn explain_replica(
    snapshot: &Snapshot,
    pipeline: &Pipeline<'_>,
    replica: &Replica,
    without: Without,
) -> Option<super::explain::ReplicaWhy> {
    let arrangement = replica.arrangement.as_ref()?;
    let tasks: Vec<&Task> = replica.jobs.iter().map(|id| &snapshot.tasks[id]).collect();
    let passes = snapshot.options.tokens_per_pass;
    Some(super::explain::replica(
        pipeline,
        replica,
        arrangement,
        without,
        (tasks.as_slice(), passes),
    ))
}
