//! Layers on nodes: cuts, losses, spares, and what never may be.

use proptest::prelude::*;

use super::*;

fn weights(layers: usize) -> Weights {
    let load = |bytes, compute| Load { bytes, compute };
    Weights {
        embedding: load(300, 0),
        layers: vec![load(100, 10); layers],
        head: load(300, 20),
    }
}

fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

fn room(memory: u64, threads: u32) -> Room {
    Room {
        address: "here:1".into(),
        memory: Bytes(memory),
        threads,
        pace: None,
    }
}

fn snapshot<'a>(
    weights: &'a Weights,
    nodes: &[(&str, u64, u32)],
    stages: Stages,
    replicas: u32,
) -> Snapshot<'a> {
    let nodes = nodes
        .iter()
        .map(|(n, memory, threads)| (name(n), room(*memory, *threads)));
    Snapshot {
        weights,
        nodes: nodes.collect(),
        stages,
        replicas,
        activation_budget: Bytes(50),
        recompute: Recompute::None,
    }
}

fn shown(seats: &Seats) -> Vec<String> {
    let text = |seat: &Seat| format!("{}:{}..{}", seat.node, seat.first_layer, seat.end_layer);
    let replica = |seats: &Vec<Seat>| seats.iter().map(text).collect::<Vec<_>>().join(" ");
    seats.values().map(replica).collect()
}

const BIG: u64 = 1 << 20;

#[test]
fn the_slowest_stage_is_as_fast_as_can_be() {
    let weights = weights(8);
    let of = |nodes: &[(&str, u64, u32)]| {
        place(
            &snapshot(&weights, nodes, Stages::AllNodes, 1),
            &Seats::new(),
        )
        .map(|s| shown(&s))
    };
    // The head is worth two layers, and so the last stage has fewer.
    assert_eq!(
        of(&[("a", BIG, 1), ("b", BIG, 1)]).unwrap(),
        ["a:0..5 b:5..8"]
    );
    // Three times the threads, three times the work.
    assert_eq!(
        of(&[("a", BIG, 3), ("b", BIG, 1)]).unwrap(),
        ["a:0..7 b:7..8"]
    );
    // Memory comes before speed.
    assert_eq!(
        of(&[("a", 550, 3), ("b", BIG, 1)]).unwrap(),
        ["a:0..2 b:2..8"]
    );
}

#[test]
fn where_devices_were_measured_their_times_cut() {
    let weights = weights(8);
    let mut snapshot = snapshot(
        &weights,
        &[("a", BIG, 1), ("b", BIG, 1)],
        Stages::AllNodes,
        1,
    );
    let mut pace = |node: &str, layer: u64| {
        let pace = Pace {
            embedding: 1,
            layer,
            head: 2 * layer,
        };
        let room = snapshot.nodes.get_mut(&name(node)).unwrap();
        room.pace = Some(pace);
    };
    // Alike by their threads; the second takes three times as long.
    pace("a", 100);
    pace("b", 300);
    let seats = place(&snapshot, &Seats::new()).unwrap();
    assert_eq!(shown(&seats), ["a:0..7 b:7..8"]);
    // Times of one node alone say nothing.
    snapshot.nodes.get_mut(&name("b")).unwrap().pace = None;
    let seats = place(&snapshot, &Seats::new()).unwrap();
    assert_eq!(shown(&seats), ["a:0..5 b:5..8"]);
}

#[test]
fn what_does_not_fit_is_refused_with_the_remedy() {
    let weights = weights(8);
    let of = |nodes: &[(&str, u64, u32)], stages| {
        let placed = place(&snapshot(&weights, nodes, stages, 1), &Seats::new());
        placed.unwrap_err().to_string()
    };
    let small = of(&[("a", 500, 1), ("b", 500, 1)], Stages::AllNodes);
    assert!(
        small.contains("node.memory") && small.contains("(a, b)"),
        "{small}"
    );
    let few = of(&[("a", BIG, 1)], Stages::Fixed(2));
    assert!(
        few.starts_with("plan.stages = 2 needs as many nodes, but 1 can have work"),
        "{few}"
    );
    let many = of(&[("a", BIG, 1)], Stages::Fixed(9));
    assert!(many.contains("more than the 8 layers"), "{many}");
}

#[test]
fn pm_4_a_lost_node_is_replaced_and_nothing_else_moves() {
    let weights = weights(6);
    let all = [
        ("a", BIG, 1),
        ("b", BIG, 1),
        ("c", BIG, 1),
        ("d", BIG, 1),
        ("e", BIG, 1),
    ];
    let before = place(
        &snapshot(&weights, &all, Stages::Fixed(2), 2),
        &Seats::new(),
    )
    .unwrap();
    assert_eq!(shown(&before), ["a:0..4 b:4..6", "c:0..4 d:4..6"]);
    let left: Vec<_> = all.iter().copied().filter(|(n, _, _)| *n != "b").collect();
    let after = place(&snapshot(&weights, &left, Stages::Fixed(2), 2), &before).unwrap();
    assert_eq!(shown(&after), ["a:0..4 e:4..6", "c:0..4 d:4..6"]);
    // Without a spare, the later broken replica is given up for the sake of none: the whole one stays.
    let fewer: Vec<_> = left.iter().copied().filter(|(n, _, _)| *n != "e").collect();
    let after = place(&snapshot(&weights, &fewer, Stages::Fixed(2), 2), &before).unwrap();
    assert_eq!(shown(&after), ["c:0..4 d:4..6"]);
    // Two broken ones make one.
    let two: Vec<_> = all
        .iter()
        .copied()
        .filter(|(n, _, _)| ["a", "c"].contains(n))
        .collect();
    let after = place(&snapshot(&weights, &two, Stages::Fixed(2), 2), &before).unwrap();
    assert_eq!(shown(&after), ["a:0..4 c:4..6"]);
}

#[test]
fn a_stage_goes_where_it_is_sent_if_it_fits() {
    let weights = weights(6);
    let nodes = [("a", BIG, 1), ("b", BIG, 1), ("small", 60, 1)];
    let snapshot = snapshot(&weights, &nodes, Stages::Fixed(1), 1);
    let before = place(&snapshot, &Seats::new()).unwrap();
    let moved = snapshot.swap(&before, &name("a"), &name("b")).unwrap();
    assert_eq!(shown(&moved), ["b:0..6"]);
    let refused = snapshot.swap(&before, &name("a"), &name("small"));
    assert!(
        matches!(refused, Err(NoPlace::TooSmall { .. })),
        "{refused:?}"
    );
}

proptest! {
    #[test]
    fn pm_1_to_4_hold_for_any_cluster(
        memory in prop::collection::vec((200..2_000_u64, 1..5_u32), 0..7),
        layers in 1..9_usize,
        stages in 0..4_u32,
        replicas in 1..4_u32,
        lost in prop::collection::vec(any::<bool>(), 7),
    ) {
        let weights = weights(layers);
        let names: Vec<String> = (0..memory.len()).map(|n| format!("n{n}")).collect();
        let nodes: Vec<_> = names.iter().zip(&memory).map(|(n, (m, t))| (n.as_str(), *m, *t)).collect();
        let stages = if stages == 0 { Stages::AllNodes } else { Stages::Fixed(stages) };
        let all = snapshot(&weights, &nodes, stages, replicas);
        let Ok(before) = place(&all, &Seats::new()) else { return Ok(()); };
        prop_assert_eq!(&place(&all, &before).unwrap(), &before, "what stands is kept");
        let left: Vec<_> = nodes.iter().copied().zip(&lost).filter(|(_, l)| !**l).map(|(n, _)| n).collect();
        let few = snapshot(&weights, &left, stages, replicas);
        let Ok(after) = place(&few, &before) else { return Ok(()); };
        prop_assert_eq!(&place(&few, &before).unwrap(), &after, "the same question, the same answer");
        prop_assert!(after.len() as u32 <= replicas);
        for (number, seats) in &after {
            for seat in seats {
                let room = few.nodes.get(&seat.node);
                prop_assert!(room.is_some_and(|room| few.needed(seat.layers()) <= room.memory), "PM-3");
            }
            let stood = before.get(number).is_some_and(|old| old.iter().all(|s| few.nodes.contains_key(&s.node)));
            prop_assert!(!stood || before.get(number) == Some(seats), "PM-4");
            if let Stages::Fixed(stages) = stages {
                prop_assert_eq!(seats.len() as u32, stages);
            }
        }
    }
}
