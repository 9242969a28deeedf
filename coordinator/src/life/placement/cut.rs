//! Cuts the layers into contiguous stages so that the slowest stage is as fast as memory allows.
//!
//! How fast a node is tells the profile of its device, where all nodes of the replica have one; else the multiplications
//! of its layers over its threads.

use shared::ids::NodeName;
use shared::plan::Seat;
use shared::units::Bytes;

use super::{NoPlace, Snapshot};

/// Time of a stage, in units of compute per thread, as a fraction that compares exactly.
type Pace = (u128, u128);

fn slower(a: Pace, b: Pace) -> bool {
    a.0 * b.1 > b.0 * a.1
}

/// Seats for one replica on these nodes, in their order.
///
/// Dynamic programming over (stages, layers): the pace of the best cut of a prefix is the slower of its last stage and
/// of the best cut of what is before. Ties are cut as early as possible, so that the answer is one.
pub(super) fn cut(snapshot: &Snapshot<'_>, nodes: &[NodeName]) -> Result<Vec<Seat>, NoPlace> {
    let layers = snapshot.weights.layers.len();
    let stages = nodes.len();
    let rooms = || nodes.iter().filter_map(|node| snapshot.nodes.get(node));
    let measured = rooms().all(|room| room.pace.is_some());
    if stages > layers {
        return Err(NoPlace::TooManyStages {
            stages: stages as u32,
            layers: layers as u32,
        });
    }
    // best[stage][end]: pace of the best cut of `..end` into `stage` stages, and where its last stage begins.
    let mut best: Vec<Vec<Option<(Pace, usize)>>> = vec![vec![None; layers + 1]; stages + 1];
    best[0][0] = Some(((0, 1), 0));
    for stage in 1..=stages {
        let Some(room) = snapshot.nodes.get(&nodes[stage - 1]) else {
            break;
        };
        for end in stage..=layers {
            for start in stage - 1..end {
                let Some((before, _)) = best[stage - 1][start] else {
                    continue;
                };
                if snapshot.needed(start..end) > room.memory {
                    continue;
                }
                let own = match room.pace.filter(|_| measured) {
                    Some(pace) => (u128::from(pace.of(&(start..end), layers)), 1),
                    None => {
                        let work = snapshot.weights.of(start..end).compute;
                        (u128::from(work), u128::from(room.threads.max(1)))
                    }
                };
                let pace = if slower(before, own) { before } else { own };
                if best[stage][end].is_none_or(|(held, _)| slower(held, pace)) {
                    best[stage][end] = Some((pace, start));
                }
            }
        }
    }
    let mut seats = Vec::new();
    let mut end = layers;
    for stage in (1..=stages).rev() {
        let Some((_, start)) = best[stage][end] else {
            return Err(too_big(snapshot, nodes));
        };
        seats.push(snapshot.seat(&nodes[stage - 1], start..end));
        end = start;
    }
    seats.reverse();
    Ok(seats)
}

fn too_big(snapshot: &Snapshot<'_>, nodes: &[NodeName]) -> NoPlace {
    let stages = nodes.len() as u64;
    let whole = snapshot.weights.of(0..snapshot.weights.layers.len()).bytes;
    let budget = snapshot.activation_budget;
    let rooms = nodes.iter().filter_map(|node| snapshot.nodes.get(node));
    let names: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
    NoPlace::TooBig {
        needed: Bytes(whole.saturating_add(budget.0.saturating_mul(stages))),
        stages: stages as u32,
        nodes: names.join(", "),
        // What nodes say of themselves.
        offered: Bytes(rooms.fold(0, |sum, room| sum.saturating_add(room.memory.0))),
        budget,
    }
}
