//! What every plan must hold, by id.
//!
//! | id | invariant |
//! | --- | --- |
//! | PL-1 | the seats of a replica cover all blocks once, in order |
//! | PL-2 | a node has at most one seat |
//! | PL-3 | what a stage holds at most fits the memory that its node offers |
//! | PL-4 | every job trains on one replica, waits or is refused; none is lost, none is twice |
//! | PL-5 | every job of a replica is in one hybrid task, every hybrid task in one bucket |
//! | PL-6 | the chunks of a job hold every row of its step once, in order, cut at blocks, and no padding |
//! | PL-7 | every stage takes each pass forward once and backward once after it, and the order has no ring |
//! | PL-8 | a job waits only where another trains, or nothing fits beside it |

use shared::ids::JobId;
use thiserror::Error;

use super::align::Chunk;
use super::answer::{Plan, Replica};
use super::order::template::Step;
use super::place::Fleet;
use super::snapshot::{BLOCK, Snapshot, Task};

/// The invariant that a plan breaks.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{id}: {what}")]
pub struct Broken {
    /// PL-1 to PL-8.
    pub id: &'static str,
    /// Where.
    pub what: String,
}

fn hold(holds: bool, id: &'static str, what: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds {
        return Ok(());
    }
    Err(Broken { id, what: what() })
}

/// Checks a plan against its problem.
///
/// # Errors
/// [`Broken`] with the first invariant that does not hold.
pub fn check(snapshot: &Snapshot, fleet: &Fleet, plan: &Plan) -> Result<(), Broken> {
    let mut nodes = std::collections::BTreeSet::new();
    let mut placed = std::collections::BTreeSet::new();
    for (number, replica) in &plan.replicas {
        seats(snapshot, *number, replica)?;
        for seat in &replica.seats {
            let node = &seat.node;
            hold(nodes.insert(node), "PL-2", || {
                format!("node {node} has two seats")
            })?;
        }
        memory(snapshot, fleet, *number, replica)?;
        for job in &replica.jobs {
            let once = placed.insert(*job) && snapshot.tasks.contains_key(job);
            hold(once, "PL-4", || format!("job {job} on replica {number}"))?;
        }
        arrangement(snapshot, *number, replica)?;
    }
    for job in plan.waiting.keys().chain(plan.refused.keys()) {
        hold(placed.insert(*job), "PL-4", || {
            format!("job {job} is twice")
        })?;
    }
    for job in snapshot.tasks.keys() {
        hold(placed.contains(job), "PL-4", || {
            format!("job {job} is lost")
        })?;
    }
    let works = plan
        .replicas
        .values()
        .any(|replica| !replica.jobs.is_empty());
    hold(plan.waiting.is_empty() || works, "PL-8", || {
        format!("{} jobs wait and none trains", plan.waiting.len())
    })
}

fn seats(snapshot: &Snapshot, number: u32, replica: &Replica) -> Result<(), Broken> {
    let ends = replica.seats.iter().map(|seat| seat.end);
    let firsts = replica.seats.iter().map(|seat| seat.first);
    let layers = snapshot.model.layers as u64;
    let whole = std::iter::once(0)
        .chain(ends)
        .eq(firsts.chain(std::iter::once(layers)));
    let some = replica.seats.iter().all(|seat| seat.first < seat.end);
    hold(whole && some, "PL-1", || {
        format!("replica {number}: {:?}", replica.seats)
    })
}

fn memory(
    snapshot: &Snapshot,
    fleet: &Fleet,
    number: u32,
    replica: &Replica,
) -> Result<(), Broken> {
    let (Some(arrangement), Some(pipeline)) = (
        &replica.arrangement,
        fleet.pipeline(snapshot, &replica.seats),
    ) else {
        return Ok(());
    };
    for (stage, (bytes, at)) in arrangement.bytes.iter().zip(&pipeline.stages).enumerate() {
        hold(*bytes <= at.memory, "PL-3", || {
            format!(
                "replica {number}, stage {stage}: {bytes} bytes of {}",
                at.memory
            )
        })?;
    }
    Ok(())
}

fn arrangement(snapshot: &Snapshot, number: u32, replica: &Replica) -> Result<(), Broken> {
    let Some(arrangement) = &replica.arrangement else {
        return hold(replica.jobs.is_empty(), "PL-5", || {
            format!("replica {number} has jobs and no arrangement")
        });
    };
    let each = |groups: &[Vec<usize>], count: usize| {
        let mut members: Vec<usize> = groups.iter().flatten().copied().collect();
        members.sort_unstable();
        members.into_iter().eq(0..count)
    };
    let (jobs, tasks) = (&arrangement.hybrid_tasks, &arrangement.buckets);
    let once = each(jobs, replica.jobs.len()) && each(tasks, jobs.len());
    hold(once, "PL-5", || {
        format!("replica {number}: {jobs:?} in {tasks:?}")
    })?;
    for (job, chunks) in replica.jobs.iter().zip(&replica.chunks) {
        let Some(task) = snapshot.tasks.get(job) else {
            continue;
        };
        rows(*job, task, chunks, snapshot.options.align)?;
    }
    let template = &arrangement.template;
    let order =
        (0..replica.seats.len()).all(|stage| turns(&template.steps(stage), template.units()));
    let rising = template.before.windows(2).all(|pair| {
        let both = pair[0].iter().zip(&pair[1]);
        { both }.all(|(above, below)| above <= below)
    });
    hold(order && rising, "PL-7", || format!("replica {number}"))
}

fn rows(job: JobId, task: &Task, chunks: &[Chunk], ordered: bool) -> Result<(), Broken> {
    let more = task.adapter.prompt_rows();
    let mut next = vec![0u64; task.lengths.len()];
    let mut last = 0;
    for piece in chunks.iter().flat_map(|chunk| &chunk.pieces) {
        let at = piece.sequence as usize;
        let first = u64::from(piece.first);
        let follows = next.get(at) == Some(&first) && first.is_multiple_of(BLOCK);
        hold(follows && (!ordered || at >= last), "PL-6", || {
            format!("job {job}: {piece:?} out of order")
        })?;
        next[at] += u64::from(piece.rows);
        last = at;
    }
    let whole = next
        .iter()
        .zip(&task.lengths)
        .all(|(has, length)| *has == u64::from(*length) + more);
    hold(whole, "PL-6", || {
        format!("job {job}: rows are missing or too many")
    })
}

fn turns(steps: &[Step], units: usize) -> bool {
    let (mut forward, mut backward) = (0, 0);
    for step in steps {
        match step {
            Step::Forward(unit) if *unit == forward => forward += 1,
            Step::Backward(unit) if *unit == backward && backward < forward => backward += 1,
            _ => return false,
        }
    }
    forward == units && backward == units
}
