//! What is done, and when.

use super::Effect::{AskEnd, End, Kill, Start, TellReady, TellRestart, Terminate};
use super::*;

const SECOND: u64 = 1_000_000;

fn at(seconds: u64) -> Micros {
    Micros(seconds * SECOND)
}

fn started(children: usize) -> Watch {
    let (watch, effects) = Watch::new(children, Patience::default(), at(0));
    assert_eq!(effects.len(), children);
    watch
}

fn serving(children: usize) -> Watch {
    let mut watch = started(children);
    assert_eq!(watch.step(Event::Ready, at(1)), [TellReady]);
    watch
}

fn ended(child: usize) -> Event {
    let well = false;
    Event::Ended { child, well }
}

#[test]
fn sv_1_no_partial_cluster_is_left() {
    let mut watch = started(3);
    assert_eq!(watch.step(ended(1), at(1)), [Terminate(2)]);
    assert_eq!(watch.step(ended(2), at(1)), [Terminate(0)]);
    assert_eq!(watch.step(ended(0), at(1)), [End(Outcome::NeverReady(1))]);
    let mut watch = started(2);
    assert_eq!(watch.step(Event::Tick, at(119)), []);
    assert_eq!(watch.step(Event::Tick, at(120)), [Terminate(1)]);
    assert_eq!(watch.step(ended(1), at(121)), [Terminate(0)]);
    assert_eq!(watch.step(ended(0), at(121)), [End(Outcome::TooLate)]);
    let mut watch = started(1);
    assert_eq!(watch.step(ended(0), at(1)), [End(Outcome::NeverReady(0))]);
}

#[test]
fn sv_2_restarts_are_later_each_time_and_bounded() {
    let mut watch = serving(2);
    let mut now = at(10);
    for round in 0..5 {
        assert_eq!(watch.step(ended(1), now), [TellRestart(1, round + 1)]);
        let pause = 500_000 << round;
        assert_eq!(watch.step(Event::Tick, now.plus(Micros(pause - 1))), []);
        now = now.plus(Micros(pause));
        assert_eq!(watch.step(Event::Tick, now), [Start(1)]);
    }
    assert_eq!(watch.step(ended(1), now), [AskEnd]);
    assert_eq!(watch.step(ended(0), now), [End(Outcome::TooOften(1))]);
    // What ends seldom is always started again.
    let mut watch = serving(2);
    for round in 1..20 {
        assert_eq!(watch.step(ended(1), at(round * 200)), [TellRestart(1, 1)]);
        assert_eq!(watch.step(Event::Tick, at(round * 200 + 1)), [Start(1)]);
    }
}

#[test]
fn sv_3_the_end_is_in_order() {
    let mut watch = serving(3);
    assert_eq!(watch.step(Event::Signal, at(10)), [AskEnd]);
    // The coordinator waits that long for what is to be durable, and tells nodes to stop then.
    assert_eq!(Bounds::default().drain, at(60));
    assert_eq!(watch.step(Event::Tick, at(79)), []);
    assert_eq!(
        watch.step(Event::Tick, at(80)),
        [Terminate(2), Terminate(1)]
    );
    assert_eq!(watch.step(ended(2), at(81)), []);
    assert_eq!(
        watch.step(Event::Tick, at(100)),
        [Terminate(1), Terminate(0)]
    );
    assert_eq!(watch.step(ended(0), at(101)), []);
    assert_eq!(watch.step(Event::Tick, at(120)), [Kill(1)]);
    assert_eq!(watch.step(ended(1), at(121)), [End(Outcome::Asked)]);
    assert_eq!(watch.step(Event::Tick, at(200)), []);
    assert_eq!(Patience::default().whole_end(), at(130));
}

#[test]
fn sv_3_nodes_without_a_coordinator_have_time_to_save_alone() {
    let mut watch = serving(2);
    let mut now = at(10);
    for _ in 0..5 {
        watch.step(ended(0), now);
        now = now.plus(at(10));
        assert_eq!(watch.step(Event::Tick, now), [Start(0)]);
    }
    assert_eq!(watch.step(ended(0), now), [Terminate(1)]);
    assert_eq!(watch.step(Event::Tick, now.plus(at(69))), []);
    assert_eq!(watch.step(Event::Tick, now.plus(at(70))), [Kill(1)]);
    let over = [End(Outcome::TooOften(0))];
    assert_eq!(watch.step(ended(1), now.plus(at(71))), over);
}

#[test]
fn sv_3_a_coordinator_that_is_to_be_started_again_is_not_waited_for() {
    let mut watch = serving(2);
    assert_eq!(watch.step(ended(0), at(10)), [TellRestart(0, 1)]);
    assert_eq!(watch.step(Event::Signal, at(10)), [Terminate(1)]);
    assert!(!watch.is_asking());
    assert_eq!(watch.step(Event::Tick, at(79)), []);
    assert_eq!(watch.step(ended(1), at(79)), [End(Outcome::Asked)]);
    let mut watch = serving(2);
    assert_eq!(watch.step(Event::Signal, at(10)), [AskEnd]);
    assert!(watch.is_asking());
}

#[test]
fn sv_3_a_node_that_does_not_obey_is_not_waited_for_twice() {
    let mut watch = serving(3);
    assert_eq!(watch.step(Event::Signal, at(10)), [AskEnd]);
    let well = true;
    let ended_well = Event::Ended { child: 0, well };
    assert_eq!(watch.step(ended_well, at(14)), [Terminate(2), Terminate(1)]);
    assert_eq!(watch.step(ended(2), at(15)), []);
    assert_eq!(watch.step(Event::Tick, at(34)), [Kill(1)]);
    assert_eq!(watch.step(ended(1), at(34)), [End(Outcome::Asked)]);
}

#[test]
fn sv_4_the_second_signal_is_at_once() {
    let mut watch = serving(2);
    assert_eq!(watch.step(Event::Signal, at(10)), [AskEnd]);
    assert_eq!(watch.step(Event::Signal, at(10)), [Kill(1), Kill(0)]);
    assert_eq!(watch.step(ended(1), at(10)), []);
    assert_eq!(watch.step(ended(0), at(10)), [End(Outcome::Asked)]);
}

#[test]
fn a_coordinator_that_ends_well_ends_all() {
    let mut watch = serving(2);
    let well = true;
    assert_eq!(
        watch.step(Event::Ended { child: 0, well }, at(5)),
        [Terminate(1)]
    );
    assert_eq!(watch.step(ended(1), at(5)), [End(Outcome::Asked)]);
    // One that waits to be started again is not waited for.
    let mut watch = serving(2);
    watch.step(ended(1), at(5));
    assert_eq!(
        watch.step(Event::Ended { child: 0, well }, at(5)),
        [End(Outcome::Asked)]
    );
}
