//! Layers to stages, stages to nodes, copies of the backbone.
//!
//! What is cut is a row of unequal weights: embedding, blocks, head. A stage has at least one block; the embedding lies
//! with the first, the head with the last, and both weigh there in time and memory. For an order of nodes the cut with
//! the least time on the slowest stage is exact (`cut`): time and memory of a stage grow with its blocks, so the
//! least time that all blocks fit into is found by bisection.
//!
//! Orders of nodes: all of up to [`ORDERS`] different ones, else by memory and by speed, both ways, sites together. For
//! each number of stages as many replicas as there are nodes and jobs for; the layout with the most tokens a second is
//! taken. A standing layout is kept unless another pays for the change within the horizon: of equal ones the standing.

mod cut;
mod no_place;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;
use shared::ids::NodeName;
use shared::units::Micros;

use super::bounds;
use super::device::Device;
use super::estimate::{Estimate, Loads};
use super::memory::Sizes;
use super::pipeline::{Pipeline, Stage};
use super::snapshot::{Snapshot, Task};
pub use no_place::NoPlace;
use no_place::too_big;

/// Orders of nodes above which only sorted ones are tried: those of five that all differ. Each is laid out for every number of
/// stages and asked what all jobs would pass on it.
pub const ORDERS: usize = 120;

/// A stage on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Seat {
    /// The node.
    pub node: NodeName,
    /// First block.
    pub first: u64,
    /// One after the last block.
    pub end: u64,
}

/// Stages of one copy of the backbone.
pub type Seats = Vec<Seat>;

/// Kinds of devices of a snapshot, put together once.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// By kind.
    pub devices: Vec<Device>,
    /// By kind.
    pub sizes: Vec<Sizes>,
    kinds: BTreeMap<String, usize>,
}

impl Fleet {
    /// One without devices: no pipeline is made of it.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            devices: Vec::new(),
            sizes: Vec::new(),
            kinds: BTreeMap::new(),
        }
    }

    /// Puts together the devices that the nodes have.
    ///
    /// # Errors
    /// [`NoPlace::Unknown`], [`NoPlace::Profile`] or [`NoPlace::Bounds`].
    pub fn new(snapshot: &Snapshot) -> Result<Self, NoPlace> {
        bounds::check(snapshot)?;
        let mut fleet = Self::empty();
        for (node, machine) in &snapshot.nodes {
            if fleet.kinds.contains_key(&machine.device) {
                continue;
            }
            let Some(profile) = snapshot.profiles.get(&machine.device) else {
                return Err(NoPlace::Unknown {
                    node: node.clone(),
                    device: machine.device.clone(),
                });
            };
            let (model, blocks, tables) = (&snapshot.model, snapshot.blocks, snapshot.tables);
            fleet
                .kinds
                .insert(machine.device.clone(), fleet.devices.len());
            fleet
                .devices
                .push(Device::new(profile, model, blocks, tables)?);
            let sizes = Sizes::new(model, blocks, tables, profile.compute);
            fleet.sizes.push(sizes);
        }
        if fleet.devices.is_empty() {
            return Err(NoPlace::NoNode);
        }
        Ok(fleet)
    }

    /// The pipeline of these seats; nothing when a node is gone.
    #[must_use]
    pub fn pipeline(&self, snapshot: &Snapshot, seats: &[Seat]) -> Option<Pipeline<'_>> {
        let mut stages = Vec::with_capacity(seats.len());
        for (at, seat) in seats.iter().enumerate() {
            let machine = snapshot.nodes.get(&seat.node)?;
            let next = seats.get(at + 1).map_or(&seat.node, |next| &next.node);
            stages.push(Stage {
                device: *self.kinds.get(&machine.device)?,
                blocks: seat.end - seat.first,
                memory: machine.memory.0,
                link: snapshot.link(&seat.node, next).clone(),
            });
        }
        (!stages.is_empty()).then_some(Pipeline {
            devices: &self.devices,
            sizes: &self.sizes,
            stages,
            padded: !snapshot.options.align,
        })
    }
}

/// A layout and what it is predicted to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// By replica.
    pub replicas: Vec<Seats>,
    /// Tokens a second.
    pub rate: u64,
}

/// Jobs by their place, dealt to so many replicas: the largest first, in turn.
fn deal(tasks: &[&Task], replicas: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|job| (std::cmp::Reverse(tasks[*job].tokens()), *job));
    let mut hands = vec![Vec::new(); replicas];
    for (at, job) in order.into_iter().enumerate() {
        // Forth and back, so that no hand is always first.
        let round = at / replicas;
        let hand = if round.is_multiple_of(2) {
            at % replicas
        } else {
            replicas - 1 - at % replicas
        };
        hands[hand].push(job);
    }
    hands
}

/// Tokens a second of a layout; 0 when a replica cannot take its jobs.
fn rate(snapshot: &Snapshot, fleet: &Fleet, loads: &Loads<'_>, replicas: &[Seats]) -> u64 {
    let hands = deal(loads.tasks(), replicas.len());
    let mut sum = 0u64;
    for (seats, jobs) in replicas.iter().zip(&hands) {
        if jobs.is_empty() {
            continue;
        }
        let Some(estimate) = predict(snapshot, fleet, loads, seats, jobs) else {
            return 0;
        };
        sum = sum.saturating_add(estimate.rate());
    }
    sum
}

/// A replica's step with as many of these jobs as fit: all, or half of those that fit alone, and so on.
fn predict(
    snapshot: &Snapshot,
    fleet: &Fleet,
    loads: &Loads<'_>,
    seats: &[Seat],
    jobs: &[usize],
) -> Option<Estimate> {
    let pipeline = fleet.pipeline(snapshot, seats)?;
    let fuse = snapshot.options.fuse;
    let all = loads.estimate(&pipeline, jobs, fuse);
    if all.is_some() {
        return all;
    }
    let alone = |job: &usize| loads.estimate(&pipeline, &[*job], fuse).is_some();
    let mut fitting: Vec<usize> = jobs.iter().copied().filter(alone).collect();
    while !fitting.is_empty() {
        let estimate = loads.estimate(&pipeline, &fitting, fuse);
        if estimate.is_some() {
            return estimate;
        }
        fitting.truncate(fitting.len() / 2);
    }
    None
}

/// A small job, for judging layouts when there is none that fits.
fn probe() -> Task {
    Task {
        tenant: String::new(),
        adapter: super::adapter::Adapter::lora(8),
        bytes_per_value: 16,
        lengths: vec![512],
        longest_row: 0,
        counted_permille: 1000,
        steps: 1,
        arrived: Micros(0),
        queued: Micros(0),
        started: None,
        max_added_latency: None,
        deadline: None,
    }
}

/// Lays out the backbone for these jobs, keeping what stands when it is as good. Without jobs, or when none of them
/// fits, it is laid out for a small one.
///
/// # Errors
/// [`NoPlace`] when there is no layout that holds even that.
pub fn place(
    snapshot: &Snapshot,
    fleet: &Fleet,
    tasks: &[&Task],
    standing: &[Seats],
) -> Result<Layout, NoPlace> {
    let found = lay(snapshot, fleet, tasks, standing);
    match found {
        Err(NoPlace::TooBig { .. }) => lay(snapshot, fleet, &[&probe()], standing),
        found => found,
    }
}

fn lay(
    snapshot: &Snapshot,
    fleet: &Fleet,
    tasks: &[&Task],
    standing: &[Seats],
) -> Result<Layout, NoPlace> {
    let (nodes, blocks) = (snapshot.nodes.len(), snapshot.model.layers);
    if let Some(stages) = snapshot.options.stages
        && (stages == 0 || stages as usize > blocks.min(nodes))
    {
        return Err(NoPlace::TooManyStages {
            stages,
            blocks,
            nodes,
        });
    }
    if let Some(replicas) = snapshot.options.replicas {
        let stages = snapshot.options.stages.unwrap_or(1) as usize;
        if replicas == 0 || (replicas as usize).saturating_mul(stages) > nodes {
            return Err(NoPlace::TooManyReplicas {
                replicas,
                stages,
                nodes,
            });
        }
    }
    let loads = Loads::new(tasks);
    let stands = standing
        .iter()
        .all(|seats| stands(snapshot, fleet, seats, tasks));
    let kept = (stands && !standing.is_empty()).then(|| Layout {
        replicas: standing.to_vec(),
        rate: rate(snapshot, fleet, &loads, standing),
    });
    let mut best = kept.clone();
    for order in cut::orders(snapshot, fleet) {
        let stages = match snapshot.options.stages {
            Some(stages) => stages as usize..=stages as usize,
            None => 1..=nodes.min(blocks),
        };
        for stages in stages {
            for replicas in copies(snapshot, nodes / stages, tasks.len()) {
                let cuts: Option<Vec<Seats>> = (0..replicas)
                    .map(|at| {
                        let chosen = &order[at * stages..(at + 1) * stages];
                        cut::cut(snapshot, fleet, chosen, &loads)
                    })
                    .collect();
                let Some(seats) = cuts else {
                    continue;
                };
                let rate = rate(snapshot, fleet, &loads, &seats);
                if rate > 0 && best.as_ref().is_none_or(|best| rate > best.rate) {
                    best = Some(Layout {
                        replicas: seats,
                        rate,
                    });
                }
            }
        }
    }
    match (best, kept) {
        (Some(best), Some(kept)) if pays(snapshot, fleet, &best, &kept) => Ok(best),
        (_, Some(kept)) if kept.rate > 0 => Ok(kept),
        (Some(best), _) if best.rate > 0 => Ok(best),
        _ => Err(too_big(snapshot, fleet)),
    }
}

/// Numbers of replicas worth a try.
fn copies(snapshot: &Snapshot, room: usize, jobs: usize) -> Vec<usize> {
    match snapshot.options.replicas {
        Some(replicas) if replicas as usize <= room => vec![replicas as usize],
        Some(_) => Vec::new(),
        None => {
            let most = room.min(jobs.max(1));
            if most == 0 { Vec::new() } else { vec![most] }
        }
    }
}

/// Whether standing seats may stay: nodes are here, blocks are covered, one of the jobs (if any) fits.
fn stands(snapshot: &Snapshot, fleet: &Fleet, seats: &[Seat], tasks: &[&Task]) -> bool {
    let ends = seats.iter().map(|seat| seat.end);
    let firsts = seats.iter().map(|seat| seat.first);
    let covered = std::iter::once(0)
        .chain(ends)
        .eq(firsts.chain(std::iter::once(snapshot.model.layers as u64)));
    let Some(pipeline) = fleet.pipeline(snapshot, seats) else {
        return false;
    };
    let loads = Loads::new(tasks);
    let one = |job| loads.estimate(&pipeline, &[job], true).is_some();
    covered && (tasks.is_empty() || (0..tasks.len()).any(one))
}

/// Whether a new layout trains more within the horizon, the time of the change taken off.
fn pays(snapshot: &Snapshot, fleet: &Fleet, new: &Layout, old: &Layout) -> bool {
    if new.replicas == old.replicas {
        return false;
    }
    let stays = |seat: &Seat| old.replicas.iter().flatten().any(|was| was == seat);
    let change = |seat: &Seat| {
        let kind = snapshot
            .nodes
            .get(&seat.node)
            .and_then(|machine| fleet.kinds.get(&machine.device));
        kind.map_or(0, |kind| {
            let profile = fleet.devices[*kind].profile();
            let bytes = if stays(seat) {
                0
            } else {
                (seat.end - seat.first) * fleet.sizes[*kind].block
            };
            profile.reconfiguration.move_nanos(bytes)
        })
    };
    let away = new.replicas.iter().flatten().map(change).max().unwrap_or(0) / 1000;
    let horizon = snapshot.options.horizon.0;
    let trains = horizon.saturating_sub(away);
    u128::from(new.rate) * u128::from(trains) > u128::from(old.rate) * u128::from(horizon)
}

/// Whether nodes in this order hold the backbone and one job at a time.
#[must_use]
pub fn holds(snapshot: &Snapshot, fleet: &Fleet, nodes: &[NodeName], tasks: &[&Task]) -> bool {
    cut::cut(snapshot, fleet, nodes, &Loads::new(tasks)).is_some()
}
