//! The order of subgraphs inside a clock: latency-aware, over the graphs of several hybrid tasks (Algorithm 1).
//!
//! A subgraph is a run of computing operations and, at its end, the transfer that depends on it; an adapter is a
//! subgraph of its own. Of the subgraphs whose predecessors are launched, the one of highest priority goes next:
//! the least topological depth, so that graphs advance side by side and one's transfer lies beside another's
//! computing; among those the one with the longest way to the end of its graph, then the lower graph and number.
//! (The paper says "topological depth" and "longest cumulative latency"; this is our reading of both.)
//!
//! Launched so, computing is one queue and transfers another; a subgraph begins when the device is free and the
//! transfers of its predecessors are over.

use std::cmp::Reverse;
use std::collections::BTreeSet;

/// A run of operations, and the transfer at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subgraph {
    /// Nanoseconds on the device.
    pub compute: u64,
    /// Nanoseconds of the transfer behind it; 0 for none.
    pub transfer: u64,
    /// Predecessors in the same graph, each with a lower number.
    pub after: Vec<usize>,
}

/// One hybrid task's graph on a stage.
pub type Graph = Vec<Subgraph>;

/// What is launched: which graph, which subgraph, when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The graph.
    pub graph: usize,
    /// The subgraph in it.
    pub subgraph: usize,
    /// Nanoseconds from the start of the clock.
    pub begin: u64,
}

/// A launch schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// In launch order.
    pub launches: Vec<Launch>,
    /// When the last computing or transfer ends.
    pub end: u64,
}

fn depths(graph: &Graph) -> Vec<usize> {
    let mut depths: Vec<usize> = Vec::with_capacity(graph.len());
    for node in graph {
        let above = node.after.iter().filter_map(|before| depths.get(*before));
        depths.push(above.max().map_or(0, |depth| depth + 1));
    }
    depths
}

fn ways(graph: &Graph) -> Vec<u64> {
    let mut ways: Vec<u64> = graph
        .iter()
        .map(|node| node.compute.saturating_add(node.transfer))
        .collect();
    for number in (0..graph.len()).rev() {
        for before in &graph[number].after {
            let own = graph[*before]
                .compute
                .saturating_add(graph[*before].transfer);
            let through = ways[number].saturating_add(own);
            ways[*before] = ways[*before].max(through);
        }
    }
    ways
}

/// Orders the subgraphs of all graphs.
#[must_use]
pub fn schedule(graphs: &[Graph]) -> Schedule {
    let depths: Vec<Vec<usize>> = graphs.iter().map(depths).collect();
    let ways: Vec<Vec<u64>> = graphs.iter().map(ways).collect();
    let mut lacking: Vec<Vec<usize>> = graphs
        .iter()
        .map(|graph| graph.iter().map(|node| node.after.len()).collect())
        .collect();
    let key = |graph: usize, number: usize| {
        let way = Reverse(ways[graph][number]);
        (depths[graph][number], way, graph, number)
    };
    let mut ready = BTreeSet::new();
    for (graph, lacks) in lacking.iter().enumerate() {
        for (number, _) in lacks.iter().enumerate().filter(|(_, lack)| **lack == 0) {
            ready.insert(key(graph, number));
        }
    }
    let mut order = Vec::new();
    while let Some((.., graph, number)) = ready.pop_first() {
        order.push((graph, number));
        for (next, node) in graphs[graph].iter().enumerate().skip(number + 1) {
            let edges = node
                .after
                .iter()
                .filter(|before| **before == number)
                .count();
            if edges > 0 {
                lacking[graph][next] -= edges;
                if lacking[graph][next] == 0 {
                    ready.insert(key(graph, next));
                }
            }
        }
    }
    timed(graphs, &order)
}

/// When subgraphs launched in this order begin.
#[must_use]
pub fn timed(graphs: &[Graph], order: &[(usize, usize)]) -> Schedule {
    let mut ended: Vec<Vec<u64>> = graphs.iter().map(|graph| vec![0; graph.len()]).collect();
    let (mut device, mut link) = (0u64, 0u64);
    let mut schedule = Schedule::default();
    for &(graph, number) in order {
        let node = &graphs[graph][number];
        let inputs = node.after.iter().map(|before| ended[graph][*before]);
        let begin = inputs.max().unwrap_or(0).max(device);
        device = begin.saturating_add(node.compute);
        let mut end = device;
        if node.transfer > 0 {
            link = link.max(device).saturating_add(node.transfer);
            end = link;
        }
        ended[graph][number] = end;
        schedule.end = schedule.end.max(end);
        schedule.launches.push(Launch {
            graph,
            subgraph: number,
            begin,
        });
    }
    schedule
}
