//! What stands is kept, what is vacant is filled, and new replicas are cut from spare nodes.

use std::collections::BTreeSet;

use shared::ids::NodeName;
use shared::plan::Seat;

use super::cut::cut;
use super::{NoPlace, Seats, Snapshot, Stages};

/// Nodes without a seat, those with most threads first.
fn spares(snapshot: &Snapshot<'_>, seats: &Seats) -> Vec<NodeName> {
    let taken: BTreeSet<&NodeName> = seats.values().flatten().map(|seat| &seat.node).collect();
    let free = snapshot
        .nodes
        .iter()
        .filter(|(name, _)| !taken.contains(name));
    let mut free: Vec<_> = free.collect();
    free.sort_by_key(|(name, room)| (std::cmp::Reverse(room.threads), (*name).clone()));
    free.into_iter().map(|(name, _)| name.clone()).collect()
}

/// The replicas of before, whole again; those that cannot be are left out.
pub(super) fn keep(snapshot: &Snapshot<'_>, previous: &Seats) -> Seats {
    let (mut whole, mut broken) = (Seats::new(), Seats::new());
    for (number, seats) in previous {
        let stands = seats.iter().all(|seat| snapshot.stands(seat));
        let to = if stands { &mut whole } else { &mut broken };
        to.insert(*number, seats.clone());
    }
    // Lowest numbers first; a replica that cannot be whole gives its nodes to those before it, from the highest.
    while let Some(number) = broken.keys().next().copied() {
        let standing: Seats = whole
            .iter()
            .chain(&broken)
            .map(|(n, s)| (*n, s.clone()))
            .collect();
        if let Some(seats) = fill(snapshot, &broken[&number], &standing) {
            whole.insert(number, seats);
            broken.remove(&number);
        } else if snapshot.stages == Stages::AllNodes
            && let Some(seats) = recut(snapshot, &broken[&number])
        {
            whole.insert(number, seats);
            broken.remove(&number);
        } else {
            broken.pop_last();
        }
    }
    whole
}

/// Spares in the vacant seats of a replica.
fn fill(snapshot: &Snapshot<'_>, seats: &[Seat], standing: &Seats) -> Option<Vec<Seat>> {
    let mut free = spares(snapshot, standing);
    // A node that came back under another address holds nothing any more: it is as good as a spare.
    let moved = seats.iter().filter(|seat| !snapshot.stands(seat));
    free.extend(
        moved
            .map(|seat| seat.node.clone())
            .filter(|node| snapshot.nodes.contains_key(node)),
    );
    let mut filled = Vec::new();
    for seat in seats {
        if snapshot.stands(seat) {
            filled.push(seat.clone());
            continue;
        }
        let needed = snapshot.needed(seat.layers());
        let fits = |node: &NodeName| snapshot.nodes.get(node).is_some_and(|r| r.memory >= needed);
        let at = free.iter().position(fits)?;
        filled.push(snapshot.seat(&free.remove(at), seat.layers()));
    }
    Some(filled)
}

/// A replica cut anew over the nodes it still has.
fn recut(snapshot: &Snapshot<'_>, seats: &[Seat]) -> Option<Vec<Seat>> {
    let nodes = seats.iter().map(|seat| seat.node.clone());
    let left: Vec<NodeName> = nodes
        .filter(|node| snapshot.nodes.contains_key(node))
        .collect();
    if left.is_empty() {
        return None;
    }
    cut(snapshot, &left).ok()
}

/// New replicas from spare nodes, up to the number wanted.
///
/// # Errors
/// Why one more has no place.
pub(super) fn grow(snapshot: &Snapshot<'_>, seats: &mut Seats) -> Result<(), NoPlace> {
    while (seats.len() as u32) < snapshot.replicas {
        let missing = snapshot.replicas as usize - seats.len();
        let free = spares(snapshot, seats);
        let layers = snapshot.weights.layers.len();
        let take = match snapshot.stages {
            Stages::Fixed(stages) => stages as usize,
            Stages::AllNodes => free.len().div_ceil(missing).clamp(1, layers.max(1)),
        };
        if free.len() < take {
            let (needed, here) = (take as u32, free.len() as u32);
            return Err(match seats.len() as u32 {
                0 => NoPlace::TooFewNodes { needed, here },
                standing => NoPlace::TooFewSpare {
                    standing,
                    wanted: snapshot.replicas,
                    needed,
                    here,
                },
            });
        }
        let mut nodes = free[..take].to_vec();
        nodes.sort();
        let number = (0..).find(|n| !seats.contains_key(n)).unwrap_or_default();
        let cut = cut(snapshot, &nodes)?;
        seats.insert(number, cut);
    }
    Ok(())
}
