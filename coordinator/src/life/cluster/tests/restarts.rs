//! A coordinator that begins again, or gives way to another.

use super::*;

#[test]
fn a_restart_that_finds_everything_as_it_was_only_acknowledges() {
    let mut desk = Desk::new(Stages::Fixed(2), 1, 2);
    desk.come("a", 1, None);
    desk.come("b", 1, None);
    desk.settle(&["a", "b"]);
    let job = desk.train("one", "a");
    desk.job("a", job, desk::step(1));
    desk.restart();
    let held = |stage, jobs| {
        Some(Held {
            epoch: PlanEpoch(1),
            replica: 0,
            stage,
            linked: true,
            jobs,
            paused: Vec::new(),
        })
    };
    desk.come("a", 1, held(0, vec![(job, 1)]));
    desk.come("b", 1, held(1, Vec::new()));
    assert!(matches!(desk.orders("a")[..], [Order::Heard { notice: 2 }]));
    assert!(matches!(desk.orders("b")[..], [Order::Heard { notice: 0 }]));
    assert_eq!(desk.state(job), JobState::Running);
    desk.job("a", job, desk::step(2));
    assert_eq!(desk.machine.book.ledger.get(job).unwrap().step, 2);
}

#[test]
fn a_restart_that_finds_a_node_empty_makes_a_move() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    desk.come("a", 1, None);
    desk.settle(&["a"]);
    let job = desk.train("one", "a");
    desk.restart();
    desk.come("a", 2, None);
    assert_eq!(desk.state(job), JobState::Recovering);
    desk.pass(1_500);
    let orders = desk.orders("a");
    assert!(
        matches!(
            orders[..],
            [
                ..,
                Order::Prepare {
                    epoch: PlanEpoch(2),
                    ..
                }
            ]
        ),
        "{orders:?}"
    );
}

#[test]
fn a_restart_in_the_middle_of_a_drain_calls_the_move_off_and_says_so() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    desk.come("a", 1, None);
    desk.come("b", 1, None);
    desk.settle(&["a"]);
    let job = desk.train("one", "a");
    desk.pass(2_000);
    let (from, to) = (name("a"), Some(name("b")));
    desk.ask(Request::Migrate { from, to });
    desk.prepared("b");
    desk.restart();
    let held = Held {
        epoch: PlanEpoch(1),
        replica: 0,
        stage: 0,
        linked: true,
        jobs: vec![(job, 0)],
        paused: Vec::new(),
    };
    desk.come("a", 1, Some(held));
    let orders = desk.orders("a");
    let goes_on = Order::Undrain {
        epoch: PlanEpoch(1),
    };
    assert!(orders.contains(&goes_on), "{orders:?}");
    desk.come("b", 1, None);
    let orders = desk.orders("b");
    let dropped = Order::Release {
        epoch: PlanEpoch(2),
    };
    assert!(orders.contains(&dropped), "what it prepared: {orders:?}");
}

#[test]
fn a_newer_leader_ends_this_one() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    desk.come("a", 1, None);
    let (term, reason) = (Term(9), String::new());
    let outcome = desk.tell("a", Notice::Refused { term, reason });
    assert_eq!(outcome.effects, [Effect::Deposed { term }]);
}

#[test]
fn a_kill_after_any_record_loses_and_doubles_no_job() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    desk.come("a", 1, None);
    desk.settle(&["a"]);
    let job = desk.train("one", "a");
    desk.job("a", job, desk::step(1));
    for cut in 0..=desk.journal.len() {
        let mut book = Book::default();
        for record in &desk.journal[..cut] {
            book.apply(record).unwrap();
        }
        let submitted = desk.journal[..cut]
            .iter()
            .any(|r| matches!(r.change, Change::Submitted { .. }));
        let mut again = desk.begin_from(book);
        let first = again.ask(Request::Submit(submission("one")));
        assert!(
            matches!(&first, Reply::Job(view) if view.id == job),
            "{first:?}"
        );
        let ledger = &again.machine.book.ledger;
        assert_eq!(ledger.jobs().count(), 1, "cut {cut}, submitted {submitted}");
    }
}
