//! The cut of the blocks over nodes in an order, and the orders.

use std::collections::BTreeMap;

use shared::ids::NodeName;

use super::{Fleet, ORDERS, Seat, Seats};
use crate::plan::device::Both;
use crate::plan::estimate::Loads;
use crate::plan::mix::{Load, Mix};
use crate::plan::snapshot::{Snapshot, Task};

/// What the cut weighs stages by.
struct Weighing {
    /// Forward and backward of a block, by kind of device.
    block: Vec<u64>,
    embedding: Vec<u64>,
    head: Vec<u64>,
    /// Largest number of blocks by memory for (kind, memory, place).
    capacity: Vec<u64>,
}

/// The passes that a cut is weighed with: all jobs over the replicas that nodes are there for, in micro-batches.
///
/// Time per block is nearly in proportion to rows, so the cut depends little on which; memory is asked for with the
/// smallest pass of any job, since the plan chooses the number of micro-batches by what is left.
fn mixes(fleet: &Fleet, tasks: &[&Task], micro_batches: u64, one: bool) -> Vec<Mix> {
    let least = smallest(fleet, tasks);
    let chosen: Vec<&Task> = if one {
        least.into_iter().collect()
    } else {
        tasks.iter().take(32).copied().collect()
    };
    let of = |device| {
        let loads: Vec<Load> = chosen
            .iter()
            .map(|task| Load::new(device, task, micro_batches, true))
            .collect();
        Mix::of(&loads)
    };
    fleet.devices.iter().map(of).collect()
}

/// The job that takes least memory: by its adapter, then by its rows.
fn smallest<'a>(fleet: &Fleet, tasks: &[&'a Task]) -> Option<&'a Task> {
    let model = fleet.devices.first()?.model();
    let key = |task: &&&Task| {
        let values = task.adapter.values_per_block(model);
        (values.saturating_mul(task.bytes_per_value), task.tokens())
    };
    tasks.iter().min_by_key(key).copied()
}

impl Weighing {
    fn new(
        snapshot: &Snapshot,
        fleet: &Fleet,
        nodes: &[NodeName],
        tasks: &[&Task],
    ) -> Option<Self> {
        let stages = nodes.len() as u64;
        let padded = !snapshot.options.align;
        let timed = mixes(fleet, tasks, stages, false);
        let sum = |both: Both<u64>| both.sum();
        let per = |pick: &dyn Fn(usize) -> u64| (0..fleet.devices.len()).map(pick).collect();
        let least = smallest(fleet, tasks);
        let most = least.map_or(1, |task| task.most_micro_batches(!padded));
        let smallest = mixes(fleet, tasks, most.min(64), true);
        let mut capacity = Vec::with_capacity(nodes.len());
        for (at, node) in nodes.iter().enumerate() {
            let machine = snapshot.nodes.get(node)?;
            let kind = *fleet.kinds.get(&machine.device)?;
            let (sizes, mix) = (&fleet.sizes[kind], &smallest[kind]);
            let (first, last) = (at == 0, at + 1 == nodes.len());
            let rows = mix.peak_rows(padded);
            let workspace = fleet.devices[kind].profile().workspace_bytes;
            let needs = |blocks: u64| {
                let resident = least.map_or(0, |task| {
                    sizes.resident(task, &snapshot.model, (blocks, first, last), rows, false)
                });
                let depth = (nodes.len() - at) as u64;
                sizes
                    .backbone(blocks, first, last)
                    .saturating_add(resident)
                    .saturating_add(workspace)
                    .saturating_add(sizes.buffers(rows))
                    .saturating_add(depth.saturating_mul(sizes.under_way(rows, mix.kept, blocks)))
            };
            let fits = |blocks: u64| needs(blocks) <= machine.memory.0;
            // Needs grow with blocks: the last that fits.
            let (mut low, mut high) = (0, snapshot.model.layers as u64);
            while low < high {
                let middle = (low + high).div_ceil(2);
                if fits(middle) {
                    low = middle;
                } else {
                    high = middle - 1;
                }
            }
            capacity.push(low);
        }
        Some(Self {
            block: per(&|kind| sum(timed[kind].block(&fleet.devices[kind], padded)).max(1)),
            embedding: per(&|kind| sum(timed[kind].embedding(&fleet.devices[kind], padded))),
            head: per(&|kind| sum(timed[kind].head(&fleet.devices[kind]))),
            capacity,
        })
    }

    fn beside(&self, kind: usize, at: usize, stages: usize) -> u64 {
        let embedding = if at == 0 { self.embedding[kind] } else { 0 };
        let head = if at + 1 == stages { self.head[kind] } else { 0 };
        embedding.saturating_add(head)
    }
}

/// The cut over nodes in this order with the least time on the slowest stage; nothing when memory does not suffice.
pub(super) fn cut(
    snapshot: &Snapshot,
    fleet: &Fleet,
    nodes: &[NodeName],
    loads: &Loads<'_>,
) -> Option<Seats> {
    let (stages, layers) = (nodes.len(), snapshot.model.layers as u64);
    if stages as u64 > layers || stages == 0 {
        return None;
    }
    let weighing = Weighing::new(snapshot, fleet, nodes, loads.tasks())?;
    let kinds: Vec<usize> = nodes
        .iter()
        .filter_map(|node| snapshot.nodes.get(node))
        .filter_map(|machine| fleet.kinds.get(&machine.device).copied())
        .collect();
    if weighing.capacity.contains(&0) || weighing.capacity.iter().sum::<u64>() < layers {
        return None;
    }
    let time = |at: usize, blocks: u64| {
        let kind = kinds[at];
        let time = blocks.saturating_mul(weighing.block[kind]);
        time.saturating_add(weighing.beside(kind, at, stages))
    };
    // Blocks that a stage can do within a time, at least the one it must have.
    let within = |at: usize, limit: u64| {
        let kind = kinds[at];
        let left = limit.saturating_sub(weighing.beside(kind, at, stages));
        (left / weighing.block[kind]).clamp(1, weighing.capacity[at])
    };
    let (mut low, mut high) = (0, (0..stages).map(|at| time(at, layers)).max()?);
    while low < high {
        let middle = low.midpoint(high);
        let sum: u64 = (0..stages).map(|at| within(at, middle)).sum();
        if sum >= layers {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let mut blocks: Vec<u64> = (0..stages).map(|at| within(at, low)).collect();
    let mut surplus = blocks.iter().sum::<u64>() - layers;
    while surplus > 0 {
        // The slowest gives one; of equals the first, which holds the most passes.
        let giver = (0..stages)
            .filter(|at| blocks[*at] > 1)
            .max_by_key(|at| (time(*at, blocks[*at]), std::cmp::Reverse(*at)))?;
        blocks[giver] -= 1;
        surplus -= 1;
    }
    let mut first = 0;
    let seat = |(node, blocks): (&NodeName, u64)| {
        let seat = Seat {
            node: node.clone(),
            first,
            end: first + blocks,
        };
        first += blocks;
        seat
    };
    Some(nodes.iter().zip(blocks).map(seat).collect())
}

/// Orders of all nodes worth a try.
pub(super) fn orders(snapshot: &Snapshot, fleet: &Fleet) -> Vec<Vec<NodeName>> {
    // Nodes alike are interchangeable: an order of kinds, with the nodes of a kind by name.
    let mut alike: BTreeMap<(&str, &str, u64), Vec<&NodeName>> = BTreeMap::new();
    for (name, machine) in &snapshot.nodes {
        let key = (
            machine.site.as_str(),
            machine.device.as_str(),
            machine.memory.0,
        );
        alike.entry(key).or_default().push(name);
    }
    let groups: Vec<Vec<&NodeName>> = alike.values().cloned().collect();
    let counts: Vec<usize> = groups.iter().map(Vec::len).collect();
    let named = |kinds: &[usize]| -> Vec<NodeName> {
        let mut next = vec![0; groups.len()];
        let name = |kind: &usize| {
            let at = next[*kind];
            next[*kind] += 1;
            groups[*kind][at].clone()
        };
        kinds.iter().map(name).collect()
    };
    if arrangements(&counts) <= ORDERS {
        let mut all = Vec::new();
        permute(&mut counts.clone(), &mut Vec::new(), &mut all);
        return all.iter().map(|kinds| named(kinds)).collect();
    }
    let speed = |node: &NodeName| {
        let kind = snapshot
            .nodes
            .get(node)
            .and_then(|m| fleet.kinds.get(&m.device));
        kind.map_or(0, |kind| fleet.devices[*kind].block.forward.at(1024))
    };
    let memory = |node: &NodeName| snapshot.nodes.get(node).map_or(0, |m| m.memory.0);
    let site = |node: &NodeName| snapshot.nodes.get(node).map(|m| m.site.clone());
    let all: Vec<NodeName> = snapshot.nodes.keys().cloned().collect();
    let sorted = |key: &dyn Fn(&NodeName) -> u64, down: bool| {
        let mut order = all.clone();
        order.sort_by_key(|node| {
            let key = if down {
                u64::MAX - key(node)
            } else {
                key(node)
            };
            (site(node), key, node.clone())
        });
        order
    };
    let mut orders = vec![
        sorted(&memory, true),
        sorted(&memory, false),
        sorted(&speed, false),
        sorted(&speed, true),
    ];
    orders.dedup();
    orders
}

/// Number of different orders of kinds, saturating.
fn arrangements(counts: &[usize]) -> usize {
    let (mut all, mut placed) = (1u128, 0u128);
    for count in counts {
        for at in 1..=*count as u128 {
            placed += 1;
            all = all.saturating_mul(placed) / at;
            if all > 1 << 40 {
                return usize::MAX;
            }
        }
    }
    all as usize
}

fn permute(left: &mut Vec<usize>, order: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
    if left.iter().all(|count| *count == 0) {
        all.push(order.clone());
        return;
    }
    for kind in 0..left.len() {
        if left[kind] > 0 {
            left[kind] -= 1;
            order.push(kind);
            permute(left, order, all);
            order.pop();
            left[kind] += 1;
        }
    }
}
