//! Moves from plan to plan, in any order of words.

use proptest::prelude::*;
use shared::plan::Seat;
use shared::units::Bytes;

use super::*;
use crate::life::layout::Standing;

fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

fn seats(nodes: &[&str]) -> Vec<Seat> {
    let count = nodes.len() as u32;
    let seat = |(stage, node): (usize, &&str)| Seat {
        node: name(node),
        address: "here:1".into(),
        first_layer: stage as u32 * 6 / count,
        end_layer: (stage as u32 + 1) * 6 / count,
        activation_budget: Bytes(1),
        recomputed_layers: 0,
    };
    nodes.iter().enumerate().map(seat).collect()
}

fn layout(replicas: &[(u32, &[&str])]) -> Layout {
    let standing = |(number, nodes): &(u32, &[&str])| {
        let standing = Standing {
            since: PlanEpoch(3),
            seats: seats(nodes),
            linked: Vec::new(),
        };
        (*number, standing)
    };
    Layout {
        epoch: PlanEpoch(3),
        replicas: replicas.iter().map(standing).collect(),
    }
}

fn goal(target: &[(u32, &[&str])], broken: &[u32]) -> Goal {
    let from = layout(&[(0, &["a", "b"]), (1, &["c", "d"])]);
    let target = layout(target).seats();
    let broken = broken.iter().copied().collect();
    Goal::new(
        &from,
        PlanEpoch(4),
        target,
        None,
        &broken,
        &BTreeSet::new(),
        "why".into(),
    )
}

/// Two linked replicas.
fn linked() -> Layout {
    let mut layout = layout(&[(0, &["a", "b"]), (1, &["c", "d"])]);
    for (number, other) in [(0, 1), (1, 0)] {
        layout.replicas.get_mut(&number).unwrap().linked = vec![other];
    }
    layout
}

fn linking(from: &Layout, target: &[(u32, &[&str])], wanted: Option<&Links>) -> Goal {
    let target = layout(target).seats();
    let none = BTreeSet::new();
    let (epoch, reason) = (PlanEpoch(4), "why".into());
    Goal::new(from, epoch, target, wanted, &none, &BTreeSet::new(), reason)
}

#[test]
fn linked_replicas_are_seated_together() {
    let same: &[(u32, &[&str])] = &[(0, &["a", "b"]), (1, &["c", "d"])];
    let other: &[(u32, &[&str])] = &[(0, &["a", "e"]), (1, &["c", "d"])];
    let (both, links): (BTreeSet<u32>, Links) =
        ([0, 1].into(), [(0, vec![1]), (1, vec![0])].into());
    // A job asks for links that are not there.
    let made = linking(&layout(same), same, Some(&links));
    assert_eq!((&made.anew, &made.links), (&both, &links));
    assert!(made.opened.is_empty(), "their layers are open");
    assert_eq!(made.drained.len(), 2);
    // A stage of one moves: the other has to link anew.
    let moved = linking(&linked(), other, Some(&links));
    assert_eq!((&moved.anew, &moved.links), (&both, &links));
    // Nobody asks any more: the links are let go with the next change, not before.
    let quiet = linking(&linked(), same, None);
    assert!(quiet.anew.is_empty());
    assert_eq!(quiet.links, links);
    let apart = linking(&linked(), other, None);
    assert_eq!(apart.anew, both);
    assert!(apart.links.values().all(Vec::is_empty));
    // One ends.
    let alone = linking(&linked(), &[(0, &["a", "b"])], None);
    assert_eq!(alone.anew, [0].into());
    assert_eq!(alone.drained.len(), 2);
}

fn moved() -> Goal {
    goal(&[(0, &["a", "e"]), (1, &["c", "d"])], &[])
}

#[test]
fn only_what_changes_is_touched() {
    let goal = moved();
    assert_eq!(goal.anew, [0].into());
    assert_eq!(
        goal.opened,
        [(name("e"), (0, 1))].into(),
        "a has its layers open already"
    );
    assert_eq!(goal.drained, [(name("a"), PlanEpoch(3))].into());
    let recovery = self::goal(&[(0, &["a", "e"]), (1, &["c", "d"])], &[0]);
    assert!(recovery.drained.is_empty(), "nothing is left to drain");
    let fewer = self::goal(&[(1, &["c", "d"])], &[]);
    assert_eq!((fewer.anew.len(), fewer.drained.len()), (0, 1));
}

#[test]
fn tr_1_prepare_then_drain_then_in_force() {
    let bounds = Bounds::default();
    let (mut this, effects) = Move::begin(Micros(0), moved(), &bounds);
    assert_eq!(effects, [Effect::Prepare(name("e"), 0, 1)]);
    let step = |this: &mut Move, event| this.step(Micros(1), event, &bounds);
    assert!(
        step(&mut this, Event::Drained(name("a"), PlanEpoch(4), Ok(()))).is_empty(),
        "not yet asked"
    );
    assert!(
        step(&mut this, Event::Prepared(name("e"), PlanEpoch(2), Ok(()))).is_empty(),
        "TR-3"
    );
    assert_eq!(
        step(&mut this, Event::Returned(name("e"))),
        [Effect::Prepare(name("e"), 0, 1)]
    );
    let drain = [Effect::Drain(name("a"), PlanEpoch(3))];
    assert_eq!(
        step(&mut this, Event::Prepared(name("e"), PlanEpoch(4), Ok(()))),
        drain
    );
    assert!(
        step(&mut this, Event::Drained(name("a"), PlanEpoch(3), Ok(()))).is_empty(),
        "TR-3"
    );
    assert_eq!(step(&mut this, Event::Returned(name("a"))), drain);
    assert_eq!(
        step(&mut this, Event::Drained(name("a"), PlanEpoch(4), Ok(()))),
        [Effect::Force]
    );
    assert!(
        step(&mut this, Event::CallOff("late".into())).is_empty(),
        "it is over"
    );
}

#[test]
fn tr_2_a_move_that_takes_too_long_is_called_off_and_says_why() {
    let bounds = Bounds::default();
    let (mut this, _) = Move::begin(Micros(0), moved(), &bounds);
    let effects = this.step(bounds.prepare, Event::Tick, &bounds);
    let [Effect::CalledOff { reason, blame, .. }] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(reason, "it took too long: preparing, waits for e");
    assert_eq!(blame, &Some(name("e")));
}

fn any_event() -> impl Strategy<Value = Event> {
    let node = prop_oneof![Just("a"), Just("b"), Just("c"), Just("e")].prop_map(name);
    let epoch = (3..6_u64).prop_map(PlanEpoch);
    prop_oneof![
        3 => (node.clone(), epoch.clone()).prop_map(|(n, e)| Event::Prepared(n, e, Ok(()))),
        1 => (node.clone(), epoch.clone()).prop_map(|(n, e)| Event::Prepared(n, e, Err("x".into()))),
        3 => (node.clone(), epoch).prop_map(|(n, e)| Event::Drained(n, e, Ok(()))),
        2 => node.prop_map(Event::Returned),
        1 => Just(Event::CallOff("x".into())),
        1 => Just(Event::Tick),
    ]
}

proptest! {
    #[test]
    fn tr_1_to_3_hold_in_any_order(events in prop::collection::vec((any_event(), 0..50_000_000_u64), 0..40)) {
        let bounds = Bounds::default();
        let (mut this, mut effects) = Move::begin(Micros(0), moved(), &bounds);
        let mut now = Micros(0);
        let (mut prepared, mut drained) = (false, false);
        for (event, passed) in events {
            now = now.plus(Micros(passed));
            let preparing = this.phase() == Phase::Preparing;
            let draining = this.phase() == Phase::Draining;
            prepared |= preparing && event == Event::Prepared(name("e"), PlanEpoch(4), Ok(()));
            drained |= draining && event == Event::Drained(name("a"), PlanEpoch(4), Ok(()));
            effects.extend(this.step(now, event, &bounds));
        }
        let ends = effects.iter().filter(|e| matches!(e, Effect::Force | Effect::CalledOff { .. })).count();
        prop_assert!(ends <= 1, "it ends once");
        prop_assert_eq!(ends == 1, this.phase() == Phase::Over);
        let forced = effects.contains(&Effect::Force);
        prop_assert!(!forced || (prepared && drained), "TR-1");
    }
}
