use proptest::prelude::*;

use super::replay::replay;
use super::subgraph::{Graph, Subgraph, schedule, timed};
use super::template::{Eagerness, Rooms, Unit, closed_form, order, template};
use super::{adapters, buckets};
use crate::plan::adapter::Site;
use crate::plan::device::Both;

fn units(stages: usize, equal: bool) -> impl Strategy<Value = Vec<Unit>> {
    let unit = (
        prop::collection::vec((1u64..50, 1u64..50), stages),
        0u64..4,
        1u64..9,
    );
    let unit = unit.prop_map(move |(times, transfer, bytes)| {
        let time = |at: usize| {
            let (forward, backward) = if equal { times[0] } else { times[at] };
            Both { forward, backward }
        };
        Unit {
            times: (0..stages).map(time).collect(),
            transfers: vec![if equal { 0 } else { transfer }; stages],
            bytes: vec![bytes; stages],
        }
    });
    prop::collection::vec(unit, 1..5)
}

fn any_units(equal: bool) -> impl Strategy<Value = Vec<Unit>> {
    (1usize..6).prop_flat_map(move |stages| units(stages, equal))
}

proptest! {
    #[test]
    fn the_template_is_what_the_events_say(
        units in any_units(false),
        micro_batches in 1u64..6,
        room in 1u64..40,
        (plain, beyond) in (any::<bool>(), 0usize..9),
    ) {
        let stages = units[0].times.len();
        let rooms = vec![room; stages];
        let eagerness = if plain { Eagerness::Beyond(beyond) } else { Eagerness::Memory };
        let rooms = Rooms { bytes: &rooms, eagerness };
        let made = template(&units, order(&units, !plain), micro_batches, rooms);
        let steps: Vec<_> = (0..stages).map(|stage| made.steps(stage)).collect();
        let told = replay(&units, &|unit| made.bucket(unit), &steps);
        prop_assert_eq!(told.stuck, 0);
        prop_assert_eq!(told.latency, made.latency);
        prop_assert_eq!(told.idle[stages - 1], made.idle_last);
        // Memory holds; a single pass is always let in.
        let largest = units.iter().map(|unit| unit.bytes[0]).max().unwrap_or(0);
        prop_assert!(told.held.iter().all(|held| *held <= room.max(largest)));
        for steps in &steps {
            let mut sorted = steps.clone();
            sorted.sort_unstable();
            sorted.dedup();
            prop_assert_eq!(sorted.len(), 2 * made.units());
        }
        prop_assert!(made.latency >= closed_form(&units, &made.buckets, micro_batches));
    }

    #[test]
    fn with_memory_the_last_stage_never_idles(units in any_units(true), micro_batches in 1u64..6) {
        let stages = units[0].times.len();
        // Equal stages whose backward takes as long as forward: the setting of the paper's theorem.
        let units: Vec<Unit> = units
            .into_iter()
            .map(|mut unit| {
                for time in &mut unit.times {
                    time.backward = time.forward;
                }
                unit
            })
            .collect();
        let rooms = vec![u64::MAX; stages];
        let rooms = Rooms { bytes: &rooms, eagerness: Eagerness::Memory };
        let made = template(&units, order(&units, true), micro_batches, rooms);
        prop_assert_eq!(made.idle_last, 0);
        // The exact time, after the head of `template`.
        let times: Vec<u64> = (0..made.units())
            .map(|unit| units[made.bucket(unit)].times[0].forward.max(1))
            .collect();
        let way = stages as u64 - 1;
        let end = |at: usize| {
            let done: u64 = times[..=at].iter().sum();
            way * times[0] + 2 * done + way * times[at] + times[at + 1..].iter().sum::<u64>()
        };
        // All forward passes come first on the stages before the last.
        let all = 2 * times.iter().sum::<u64>();
        let eager = if stages > 1 { (way - 1) * 2 * times[0] + all } else { 0 };
        let exact = (0..times.len()).map(end).max().unwrap_or(0).max(eager);
        prop_assert_eq!(made.latency, exact);
        let last = times.len() - 1;
        let followed = (0..last)
            .all(|at| way * (times[at] - times[last]) <= times[at + 1..].iter().sum());
        if followed && eager <= end(last) {
            prop_assert_eq!(exact, closed_form(&units, &made.buckets, micro_batches));
        }
    }

    #[test]
    fn buckets_hold_each_once_and_differencing_helps(
        sizes in prop::collection::vec(1u64..1000, 1..14),
        parts in 1usize..6,
    ) {
        for found in [
            buckets::longest_first(&sizes, parts),
            buckets::differencing(&sizes, parts),
            buckets::even(&sizes, parts),
        ] {
            prop_assert!(found.len() <= parts);
            let mut members: Vec<usize> = found.iter().flatten().copied().collect();
            members.sort_unstable();
            prop_assert_eq!(members, (0..sizes.len()).collect::<Vec<_>>());
        }
        let greedy = buckets::spread(&sizes, &buckets::longest_first(&sizes, parts));
        prop_assert!(buckets::spread(&sizes, &buckets::even(&sizes, parts)) <= greedy);
    }

    #[test]
    fn an_order_of_subgraphs_is_topological_and_hides_transfers(
        graphs in prop::collection::vec(
            prop::collection::vec((1u64..20, 0u64..20, any::<u8>()), 1..8), 1..5),
    ) {
        let graph = |nodes: &Vec<(u64, u64, u8)>| -> Graph {
            let node = |(at, (compute, transfer, edges)): (usize, &(u64, u64, u8))| Subgraph {
                compute: *compute,
                transfer: *transfer,
                after: (0..at).filter(|before| edges >> (before % 8) & 1 == 1).collect(),
            };
            nodes.iter().enumerate().map(node).collect()
        };
        let graphs: Vec<Graph> = graphs.iter().map(graph).collect();
        let found = schedule(&graphs);
        let place = |graph: usize, number: usize| {
            found.launches.iter().position(|l| (l.graph, l.subgraph) == (graph, number))
        };
        for (at, graph) in graphs.iter().enumerate() {
            for (number, node) in graph.iter().enumerate() {
                prop_assert!(place(at, number).is_some());
                for before in &node.after {
                    prop_assert!(place(at, *before) < place(at, number));
                }
            }
        }
        let nodes = graphs.iter().flatten();
        let serial: u64 = nodes.map(|node| node.compute + node.transfer).sum();
        let compute: u64 = graphs.iter().flatten().map(|node| node.compute).sum();
        prop_assert!(found.end <= serial && found.end >= compute);
    }
}

#[test]
fn two_graphs_hide_each_others_transfers() {
    let chain = |parts: usize| -> Graph {
        let node = |at: usize| Subgraph {
            compute: 10,
            transfer: 10,
            after: at.checked_sub(1).into_iter().collect(),
        };
        (0..parts).map(node).collect()
    };
    let graphs = [chain(4), chain(4)];
    let apart: Vec<(usize, usize)> = (0..2).flat_map(|g| (0..4).map(move |n| (g, n))).collect();
    assert_eq!(timed(&graphs, &apart).end, 150);
    assert_eq!(schedule(&graphs).end, 90);
}

#[test]
fn adapters_share_kernels_by_the_rules() {
    let none = std::collections::BTreeSet::new();
    let all = std::collections::BTreeSet::from([Site::Attention]);
    let jobs = [1, 1, 3];
    assert_eq!(
        adapters::kernels(&[0, 1], &jobs, Site::Attention, &none),
        [vec![0, 1]]
    );
    assert_eq!(
        adapters::kernels(&[0, 1], &jobs, Site::Attention, &all),
        [vec![0], vec![1]]
    );
    assert_eq!(
        adapters::kernels(&[0, 2], &jobs, Site::Attention, &none),
        [vec![0], vec![2]]
    );
    assert!(adapters::fusible(&[0, 1], &jobs) && !adapters::fusible(&[1, 2], &jobs));
}

#[test]
fn differencing_beats_the_greedy_rule_where_it_is_known_to() {
    let sizes = [8, 7, 6, 5, 4];
    let greedy = buckets::spread(&sizes, &buckets::longest_first(&sizes, 2));
    let other = buckets::spread(&sizes, &buckets::differencing(&sizes, 2));
    assert!(other < greedy);
}
