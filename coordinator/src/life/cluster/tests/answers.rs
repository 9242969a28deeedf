//! Answers that take long: texts, and events of before. They end, in order, and nobody works for who does not wait.

use shared::ids::{EventNumber, NodeName};
use shared::units::{Bytes, Micros};
use shared::wire::notice::Notice;
use shared::wire::order::{Order, SampleOrder};
use shared::wire::request::{JobRef, Refusal, RefusalCode, Reply, Request};

use super::super::relay::SILENCE;
use super::super::*;
use super::desk::{Desk, name};
use super::losses::at_work;
use crate::life::placement::Stages;

const CLIENT: Handle = Handle(9);

fn sample(desk: &mut Desk, handle: Handle) {
    sample_of(desk, handle, None);
}

fn sample_of(desk: &mut Desk, handle: Handle, job: Option<JobRef>) -> Outcome {
    let order = SampleOrder {
        number: 0,
        job: None,
        prompt: vec![1],
        max_tokens: 9,
        temperature: 0.0,
        top_p: 1.0,
        top_k: 0,
        seed: 0,
        stops: Vec::new(),
    };
    desk.input(Input::Sample { handle, job, order })
}

/// Why nothing more comes.
fn refusal(outcome: Outcome) -> Refusal {
    let refusal = |effect| match effect {
        Effect::Answer {
            reply: Reply::Refused(refusal),
            ..
        } => Some(refusal),
        _ => None,
    };
    let mut told = outcome.effects.into_iter().filter_map(refusal);
    told.next().expect("it is refused")
}

/// A cluster of one replica of two nodes, that makes a text.
fn sampling() -> Desk {
    let mut desk = Desk::new(Stages::Fixed(2), 1, 2);
    desk.come("a", 1, None);
    desk.come("b", 1, None);
    desk.settle(&["a", "b"]);
    sample(&mut desk, CLIENT);
    let orders = desk.orders(lead(&desk).as_str());
    assert!(matches!(orders[..], [Order::Sample { .. }]), "{orders:?}");
    desk
}

fn lead(desk: &Desk) -> NodeName {
    desk.machine.lead(0).unwrap().0
}

fn is_last(outcome: &Outcome, of: Handle) -> bool {
    let last = |effect: &Effect| matches!(effect, Effect::Answer { handle, last: true, .. } if *handle == of);
    outcome.effects.iter().any(last)
}

fn is_let_go(order: &Order) -> bool {
    matches!(order, Order::EndSample { number: 1, .. })
}

#[test]
fn rl_2_of_a_client_that_leaves_the_text_is_let_go() {
    let mut desk = sampling();
    let lead = lead(&desk);
    desk.input(Input::Dropped(Handle(8)));
    assert!(!desk.orders(lead.as_str()).iter().any(is_let_go));
    desk.input(Input::Dropped(CLIENT));
    assert!(desk.orders(lead.as_str()).iter().any(is_let_go));
    let tokens = vec![1];
    let outcome = desk.tell(lead.as_str(), Notice::Piece { number: 1, tokens });
    assert_eq!(outcome.effects, []);
}

#[test]
fn a_sample_of_a_job_that_is_cancelled_is_a_conflict_that_says_when_it_answers() {
    let (mut desk, job) = at_work(1, &["a"]);
    let of_job = || Some(JobRef::Id(job));
    for _ in 0..2 {
        sample_of(&mut desk, CLIENT, of_job());
    }
    let ended = |desk: &mut Desk, number| {
        let outcome = Err("job j1 is not on this replica".to_owned());
        refusal(desk.tell("a", Notice::SampleEnded { number, outcome }))
    };
    // A node that fails by itself is no doing of the owner.
    assert_eq!(ended(&mut desk, 1).code, RefusalCode::Internal);
    desk.ask(Request::Cancel(JobRef::Id(job)));
    let under_way = ended(&mut desk, 2);
    let asked_then = refusal(sample_of(&mut desk, CLIENT, of_job()));
    for told in [under_way, asked_then] {
        assert_eq!(told.code, RefusalCode::Conflict);
        let when = "its state after step 1 answers once it is cancelled (`spotmux job j1 --wait`)";
        assert!(told.message.contains(when), "{told}");
    }
}

#[test]
fn rl_1_a_sample_ends_with_its_replica() {
    let mut desk = sampling();
    let lead = lead(&desk);
    assert!(!is_last(&desk.input(Input::Tick), CLIENT));
    let epoch = desk.machine.book.layout.epoch;
    let (neighbour, reason) = (None, "no more memory".to_owned());
    let broken = Notice::Broken {
        epoch,
        neighbour,
        reason,
    };
    desk.tell(lead.as_str(), broken);
    assert!(is_last(&desk.input(Input::Tick), CLIENT));
    assert!(desk.orders(lead.as_str()).iter().any(is_let_go));
}

#[test]
fn rl_1_a_sample_ends_with_the_connection_of_who_makes_it() {
    let mut desk = sampling();
    let lead = lead(&desk);
    // It comes back with all it holds, before anybody saw that it was away.
    let held = shared::wire::notice::Held {
        epoch: desk.machine.book.layout.epoch,
        replica: 0,
        stage: 0,
        linked: true,
        jobs: Vec::new(),
        paused: Vec::new(),
    };
    desk.come(lead.as_str(), 1, Some(held));
    assert!(is_last(&desk.input(Input::Tick), CLIENT));
    assert!(!desk.orders(lead.as_str()).iter().any(is_let_go));
}

/// Time passes, and all nodes are heard: who is told that nothing follows.
fn wait(desk: &mut Desk, time: Micros) -> Vec<Handle> {
    let (mut ended, end) = (Vec::new(), desk.machine.now.steady.plus(time));
    while desk.machine.now.steady < end {
        let steady = desk.machine.now.steady.plus(Micros::of_millis(1_000));
        let now = Now {
            steady: steady.min(end),
            ..desk.machine.now
        };
        for node in ["a", "b"] {
            let link = desk.machine.members.link(&name(node)).unwrap();
            let notice = Notice::Heartbeat {
                device_age: Micros(0),
                memory_used: Bytes(1),
                tokens: 1,
            };
            desk.machine.step(now, Input::Told { link, notice });
        }
        for effect in desk.machine.step(now, Input::Tick).effects {
            if let Effect::Answer {
                handle, last: true, ..
            } = effect
            {
                ended.push(handle);
            }
        }
    }
    ended
}

#[test]
fn rl_1_a_sample_ends_when_no_token_comes_for_long() {
    let mut desk = sampling();
    let lead = lead(&desk);
    sample(&mut desk, Handle(10));
    let almost = Micros(SILENCE.0 - 1_000_000);
    assert_eq!(wait(&mut desk, almost), []);
    // Those that wait behind a text that is made are not silent.
    let (now, link) = (desk.machine.now, desk.machine.members.link(&lead).unwrap());
    let (number, tokens) = (1, vec![1]);
    let notice = Notice::Piece { number, tokens };
    desk.machine.step(now, Input::Told { link, notice });
    assert_eq!(wait(&mut desk, almost), []);
    let ended = wait(&mut desk, Micros(2_000_000));
    assert_eq!(ended, [CLIENT, Handle(10)]);
}

/// What a client that asks for events is told in the end, when the journal gives what it is asked.
fn heard(desk: &mut Desk, after: u64, follow: bool) -> (Vec<u64>, bool) {
    let request = Request::Events {
        job: None,
        after: EventNumber(after),
        follow,
    };
    let trace = "7".into();
    let mut effects = desk
        .input(Input::Asked {
            handle: CLIENT,
            trace,
            request,
        })
        .effects;
    let (mut numbers, mut done) = (Vec::new(), false);
    while !effects.is_empty() {
        let effect = effects.remove(0);
        assert!(!done, "nothing follows Done: {effect:?}");
        match effect {
            Effect::Answer {
                reply: Reply::Events(events),
                ..
            } => {
                numbers.extend(events.iter().map(|event| event.number.0));
            }
            Effect::Answer {
                reply: Reply::Done,
                last,
                ..
            } => done = last,
            Effect::Recall {
                handle,
                job,
                after,
                until,
                follow,
            } => {
                let told = desk.journal.iter().map(|record| record.number);
                numbers.extend(told.filter(|n| *n > after && *n <= until).map(|n| n.0));
                assert_eq!(effects, [], "nothing overtakes what the journal has");
                // More happens meanwhile than is kept.
                for node in ["x", "y", "z"] {
                    desk.come(node, 1, None);
                }
                let after = until;
                let input = Input::Recalled {
                    handle,
                    job,
                    after,
                    follow,
                };
                effects = desk.input(input).effects;
            }
            _ => {}
        }
        if numbers.len() > 99 {
            panic!("{numbers:?}");
        }
    }
    (numbers, done)
}

#[test]
fn hi_1_events_that_only_the_journal_has_are_told_before_those_in_memory() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    desk.come("a", 1, None);
    desk.settle(&["a"]);
    let job = desk.train("one", "a");
    desk.machine.history.keep_only(2);
    let last = desk.machine.book.last.0;
    assert!(last > 5, "{last}");
    let (numbers, done) = heard(&mut desk, 1, false);
    let all: Vec<u64> = (2..=desk.machine.book.last.0).collect();
    assert_eq!((numbers, done), (all, true));
    // Who follows is told what comes, and nothing twice.
    let (numbers, done) = heard(&mut desk, 0, true);
    let all: Vec<u64> = (1..=desk.machine.book.last.0).collect();
    assert_eq!((numbers, done), (all, false));
    let before = desk.told.len();
    desk.job("a", job, super::desk::step(1));
    let numbers: Vec<u64> = desk.told[before..]
        .iter()
        .map(|event| event.number.0)
        .collect();
    assert_eq!(numbers, [desk.machine.book.last.0]);
    assert!(desk.machine.members.get(&name("z")).is_some());
    // The last of all numbers is no reason to panic.
    assert_eq!(heard(&mut desk, u64::MAX, false), (Vec::new(), true));
}
