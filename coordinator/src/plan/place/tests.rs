use proptest::prelude::*;
use shared::units::{Bytes, MicroUsd};

use super::*;
use crate::plan::profile::{Peak, Profile, Weights};
use crate::plan::snapshot::Machine;
use crate::plan::testing::{llama_7b, llama_70b, snapshot, task, workload_b};

fn placed(snapshot: &Snapshot, standing: &[Seats]) -> Result<Layout, NoPlace> {
    let fleet = Fleet::new(snapshot)?;
    let tasks: Vec<&Task> = snapshot.tasks.values().collect();
    place(snapshot, &fleet, &tasks, standing)
}

fn blocks(layout: &Layout) -> Vec<Vec<u64>> {
    let of = |seats: &Seats| seats.iter().map(|seat| seat.end - seat.first).collect();
    layout.replicas.iter().map(of).collect()
}

#[test]
fn seventy_billion_in_four_bits_on_eight_small_cards() {
    let jobs = vec![task(16, &[512; 8]), task(8, &[256; 8])];
    let mut problem = snapshot(llama_70b(), &Peak::RTX4090, 8, jobs);
    problem.blocks = Weights::Q4;
    let layout = placed(&problem, &[]).expect("it fits");
    let cut = blocks(&layout);
    assert_eq!(cut.iter().flatten().sum::<u64>(), 80 * cut.len() as u64);
    // The head is worth blocks of its own: its stage has no more than the others.
    for replica in &cut {
        let most = replica.iter().max().copied();
        assert!(replica.last() <= most.as_ref());
        assert!(replica.len() >= 3, "39 GiB do not fit on two: {cut:?}");
    }
}

#[test]
fn seventy_billion_in_sixteen_bits_on_eight_large_cards() {
    let jobs = vec![task(16, &[512; 8]), task(8, &[256; 8])];
    let problem = snapshot(llama_70b(), &Peak::H100, 8, jobs);
    let layout = placed(&problem, &[]).expect("it fits");
    let cut = blocks(&layout);
    assert!(cut[0].len() >= 2, "131 GiB do not fit on one: {cut:?}");
    // 16 bits on the small cards do not fit, and it is said why.
    let problem = snapshot(llama_70b(), &Peak::RTX4090, 4, vec![task(8, &[64])]);
    let said = placed(&problem, &[])
        .expect_err("131 GiB on 96")
        .to_string();
    assert!(
        said.contains("4 nodes") && said.contains("keep the weights"),
        "{said}"
    );
}

#[test]
fn what_stands_stays_when_nothing_is_better() {
    let problem = snapshot(llama_7b(), &Peak::A40, 4, workload_b());
    let layout = placed(&problem, &[]).expect("it fits");
    let again = placed(&problem, &layout.replicas).expect("it stands");
    assert_eq!(again.replicas, layout.replicas);
    // The same layout with other names of equal nodes is as good, so it stays too.
    let mut turned = layout.replicas.clone();
    turned.reverse();
    let again = placed(&problem, &turned).expect("it stands");
    assert_eq!(again.replicas, turned);
    // A seat on a node that is gone does not stay.
    let mut gone = problem.clone();
    let first = gone.nodes.keys().next().cloned().expect("a node");
    gone.nodes.remove(&first);
    let moved = placed(&gone, &layout.replicas).expect("it fits on three");
    assert!(
        moved
            .replicas
            .iter()
            .flatten()
            .all(|seat| seat.node != first)
    );
}

#[test]
fn a_faster_node_gets_more_blocks_and_a_small_one_fewer() {
    let mut problem = snapshot(llama_7b(), &Peak::A40, 1, workload_b());
    let fast = Profile::peak(&Peak::H100);
    let machine = Machine {
        device: fast.device.clone(),
        memory: Bytes(fast.memory_bytes),
        site: "here".into(),
        price: MicroUsd(3_000_000),
        losses_per_kilohour: 0,
    };
    problem.profiles.insert(fast.device.clone(), fast);
    let name = NodeName::new("fast").expect("a name");
    problem.nodes.insert(name.clone(), machine);
    problem.options.stages = Some(2);
    let layout = placed(&problem, &[]).expect("it fits");
    let seats = &layout.replicas[0];
    let of = |seat: &Seat| seat.end - seat.first;
    let quick = seats.iter().find(|seat| seat.node == name).map(of);
    assert!(quick > Some(20), "{seats:?}");
    let before = quick;
    // With little memory it gets little.
    if let Some(machine) = problem.nodes.get_mut(&name) {
        machine.memory = Bytes(8 << 30);
    }
    let layout = placed(&problem, &[]).expect("it fits");
    let quick = layout.replicas[0]
        .iter()
        .find(|seat| seat.node == name)
        .map(of);
    assert!(quick < before, "{:?}", layout.replicas);
}

#[test]
fn too_many_stages_are_refused() {
    let mut problem = snapshot(llama_7b(), &Peak::A40, 2, workload_b());
    problem.options.stages = Some(3);
    assert!(matches!(
        placed(&problem, &[]),
        Err(NoPlace::TooManyStages { .. })
    ));
    for (replicas, stages) in [(0, None), (3, None), (2, Some(2)), (100_000, None)] {
        (problem.options.replicas, problem.options.stages) = (Some(replicas), stages);
        let said = placed(&problem, &[]).expect_err("two nodes").to_string();
        assert!(said.contains("ask for 1 to"), "{said}");
    }
    problem.profiles.clear();
    assert!(matches!(
        placed(&problem, &[]),
        Err(NoPlace::Unknown { .. })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Of all cuts of few blocks, none has a faster slowest stage.
    #[test]
    fn the_cut_is_the_best_for_its_order(
        layers in 3usize..9,
        stages in 1usize..4,
        hidden in 1usize..5,
        fast in prop::collection::vec(any::<bool>(), 3),
    ) {
        let mut model = llama_7b();
        model.layers = layers;
        model.hidden = 512 * hidden;
        let mut problem = snapshot(model, &Peak::A40, stages, workload_b());
        let quick = Profile::peak(&Peak::H100);
        problem.profiles.insert(quick.device.clone(), quick);
        for (machine, fast) in problem.nodes.values_mut().zip(fast) {
            if fast {
                machine.device = Peak::H100.device.into();
            }
        }
        let fleet = Fleet::new(&problem).expect("profiles are here");
        let tasks: Vec<&Task> = problem.tasks.values().collect();
        let loads = Loads::new(&tasks);
        let nodes: Vec<NodeName> = problem.nodes.keys().cloned().collect();
        let seats = cut::cut(&problem, &fleet, &nodes, &loads).expect("it fits");
        let slowest = |seats: &[Seat]| {
            let pipeline = fleet.pipeline(&problem, seats).expect("nodes are here");
            let loads = pipeline.loads(&tasks, stages as u64);
            let mixes: Vec<_> = loads.iter().map(crate::plan::mix::Mix::of).collect();
            pipeline.times(&mixes).iter().map(|time| time.sum()).max()
        };
        let ours = slowest(&seats);
        let layers = layers as u64;
        let ends: Vec<Vec<u64>> = match stages {
            1 => vec![vec![layers]],
            2 => (1..layers).map(|a| vec![a, layers]).collect(),
            _ => (1..layers).flat_map(|a| (a + 1..layers).map(move |b| vec![a, b, layers])).collect(),
        };
        for ends in ends {
            let firsts = std::iter::once(0).chain(ends.iter().copied());
            let other: Seats = nodes.iter().zip(firsts).zip(&ends)
                .map(|((node, first), end)| Seat { node: node.clone(), first, end: *end })
                .collect();
            prop_assert!(ours <= slowest(&other), "{seats:?} against {other:?}");
        }
    }
}
