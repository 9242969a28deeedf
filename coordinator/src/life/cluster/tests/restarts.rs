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
    let held = desk::held(&[(job, 0)]);
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
fn a_node_that_obeyed_a_newer_leadership_is_sent_away_and_ends_nothing() {
    let (mut desk, job) = losses::at_work(1, &["a", "b"]);
    let closed = |outcome: &Outcome| {
        let reasons = outcome.effects.iter().filter_map(|effect| match effect {
            Effect::Close { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        reasons.collect::<Vec<_>>()
    };
    let (term, reason) = (Term(9), String::new());
    let refused = desk.tell("b", Notice::Refused { term, reason });
    let told = closed(&refused);
    assert_eq!(told.len(), 1, "{:?}", refused.effects);
    for part in [
        "term t9",
        "another coordinator leads",
        "restored from a backup",
        "start it again",
    ] {
        assert!(told[0].contains(part), "{part}: {told:?}");
    }
    // It tries again, with any number.
    for term in [Term(9), Term(u64::MAX)] {
        desk.term = term;
        desk.come("b", 1, None);
        assert_eq!(desk.orders("b"), [], "nothing is said to it");
    }
    let ahead = desk.journal.iter();
    let ahead = ahead.filter(|record| matches!(record.change, Change::NodeAhead { .. }));
    assert_eq!(ahead.count(), 1, "it is told once");
    desk.pass(5_000);
    assert_eq!(desk.state(job), JobState::Running);
    // Another process of that name is let in.
    desk.term = Term(0);
    desk.come("b", 2, None);
    assert!(matches!(desk.orders("b")[..], [Order::Heard { .. }, ..]));
}

#[test]
fn cl_8_what_was_said_of_a_machine_is_known_to_the_next_leadership() {
    let (mut desk, job) = losses::at_work(1, &["a", "b"]);
    let (node, within) = (name("a"), Micros(30_000_000));
    assert_eq!(desk.ask(Request::Reclaim { node, within }), Reply::Done);
    desk.pass(5_000);
    let held = desk::held(&[(job, 1)]);
    desk.restart();
    desk.come("a", 1, Some(held));
    desk.come("b", 1, None);
    desk.pass(300);
    let orders = desk.orders("b");
    let prepare = |order: &Order| matches!(order, Order::Prepare { .. });
    assert!(orders.iter().any(prepare), "{orders:?}");
    // b does not come to it: what a knows is made durable in the last third of what was told.
    desk.pass(14_000);
    let drain = |order: &Order| matches!(order, Order::Drain { .. });
    assert!(!desk.orders("a").iter().any(drain));
    desk.pass(1_500);
    assert!(desk.orders("a").iter().any(drain));
    let said = desk.journal.iter();
    let said = said.filter(|record| matches!(record.change, Change::NodeLeaving { .. }));
    assert_eq!(said.count(), 1);
    // Another process of that name does not go.
    desk.restart();
    desk.come("a", 2, None);
    assert!(!desk.machine.is_leaving(&name("a")));
    assert!(desk.machine.book.going.is_empty());
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
