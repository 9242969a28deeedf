//! A custody against providers that answer late, twice, wrongly or not at all.

use proptest::prelude::*;

use super::*;
use crate::market::Pool;
use crate::provider::{Kind, MachineState};

pub(crate) fn name(text: &str) -> NodeName {
    NodeName::new(text).expect("a plain word is a name")
}

pub(crate) fn want(token: &str) -> Want {
    Want {
        token: name(token),
        pool: Pool {
            provider: "test".into(),
            region: String::new(),
            zone: String::new(),
            machine: "m".into(),
        },
        kind: Kind::Spot,
    }
}

pub(crate) fn machine(id: &str, token: Option<&str>) -> Machine {
    Machine {
        id: id.into(),
        token: token.map(name),
        kind: Kind::Spot,
        state: MachineState::Running,
        node: None,
    }
}

const S: u64 = 1_000_000;

fn bounds() -> Bounds {
    Bounds {
        lost: Micros(30 * S),
        boot: Micros(60 * S),
        again: Micros(10 * S),
        alarm: Micros(40 * S),
    }
}

fn fresh() -> Custody {
    Custody::resumed(&[], bounds(), Micros(120 * S), at(0))
}

fn unsure() -> ProviderError {
    ProviderError::Unsure {
        provider: "test".into(),
        call: "acquire".into(),
        why: "no answer within 5 s".into(),
    }
}

fn at(micros: u64) -> Now {
    Now::both(Micros(micros))
}

fn answered(custody: &mut Custody, token: &str, id: &str, second: u64) -> Vec<Effect> {
    let event = Event::Answered {
        token: name(token),
        answer: Ok(machine(id, Some(token))),
    };
    custody.step(event, at(second * S))
}

#[test]
fn cu_1_the_record_comes_before_the_call() {
    let mut custody = fresh();
    let effects = custody.step(Event::Acquire(want("a")), at(0));
    assert!(matches!(
        effects[..],
        [Effect::Record(Entry::Asked { .. }), Effect::Acquire(_)]
    ));
    // The same token is the same request.
    assert_eq!(custody.step(Event::Acquire(want("a")), at(1)), []);
    answered(&mut custody, "a", "i-1", 1);
    let release = Event::Release {
        token: name("a"),
        cause: "dear".into(),
    };
    let effects = custody.step(release, at(2 * S));
    assert!(matches!(
        effects[..],
        [
            Effect::Record(Entry::Releasing { .. }),
            Effect::Release { .. }
        ]
    ));
}

#[test]
fn a_lost_answer_is_looked_up_and_given_up_only_when_no_list_shows_it() {
    let mut custody = fresh();
    for token in ["a", "b"] {
        custody.step(Event::Acquire(want(token)), at(0));
        let event = Event::Answered {
            token: name(token),
            answer: Err(unsure()),
        };
        assert_eq!(custody.step(event, at(5 * S)), []);
    }
    // a was made, b was not.
    let shown = || Event::Listed(vec![machine("i-1", Some("a"))]);
    let effects = custody.step(shown(), at(6 * S));
    assert!(matches!(&effects[..], [Effect::Record(Entry::Granted { id, .. })] if id == "i-1"));
    custody.step(shown(), at(20 * S));
    assert!(custody.held().contains_key(&name("b")), "it is too early");
    let effects = custody.step(shown(), at(35 * S));
    assert!(
        matches!(&effects[1], Effect::Lost { token, served: false, .. } if *token == name("b"))
    );
    assert!(!custody.held().contains_key(&name("b")));
    // It comes all the same, late: nobody's.
    let late = Event::Listed(vec![machine("i-1", Some("a")), machine("i-2", Some("b"))]);
    let effects = custody.step(late, at(90 * S));
    assert!(matches!(&effects[..], [Effect::Release { id, .. }] if id == "i-2"));
}

#[test]
fn cu_2_a_machine_that_never_joins_is_released_until_it_is_gone() {
    let mut custody = fresh();
    custody.step(Event::Acquire(want("a")), at(0));
    answered(&mut custody, "a", "i-1", 1);
    assert_eq!(custody.step(Event::Tick, at(60 * S)), []);
    let effects = custody.step(Event::Tick, at(61 * S));
    assert!(
        matches!(&effects[1], Effect::Release { id, .. } if id == "i-1"),
        "{effects:?}"
    );
    assert!(matches!(&effects[2], Effect::Lost { served: false, .. }));
    // It does not listen.
    let (mut told, mut alarms) = (0, 0);
    for second in 62..140 {
        for effect in custody.step(Event::Tick, at(second * S)) {
            told += u32::from(matches!(effect, Effect::Release { .. }));
            alarms += u32::from(matches!(effect, Effect::Alarm { .. }));
        }
        custody.step(
            Event::Listed(vec![machine("i-1", Some("a"))]),
            at(second * S),
        );
    }
    assert_eq!((told, alarms), (7, 1));
    custody.step(Event::Listed(vec![]), at(140 * S));
    let effects = custody.step(Event::Listed(vec![]), at(141 * S));
    assert!(matches!(
        effects[..],
        [Effect::Record(Entry::Closed { .. })]
    ));
    assert!(custody.is_empty());
}

#[test]
fn cu_2_and_cu_5_time_in_which_the_coordinator_is_heard_adds_up() {
    // A request to the coordinator is lost every 20 s, for 2 s each.
    let silent = |second: u64| second % 20 < 2;
    let look = |custody: &mut Custody, second: u64, nodes: &BTreeSet<NodeName>| {
        if silent(second) {
            custody.unheard(at(second * S));
            return Vec::new();
        }
        let mut effects = custody.step(Event::Joined(nodes.clone()), at(second * S));
        effects.extend(custody.step(Event::Tick, at(second * S)));
        effects
    };
    let released = |effects: &[Effect]| {
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::Release { .. }))
    };
    let (nobody, both) = (BTreeSet::new(), BTreeSet::from([name("a")]));
    let mut boots = fresh();
    boots.step(Event::Acquire(want("a")), at(0));
    answered(&mut boots, "a", "i-1", 1);
    let end = (2..200).find(|second| released(&look(&mut boots, *second, &nobody)));
    // 60 s, and three silences from a look to the next.
    assert!(end.is_some_and(|end| (65..=75).contains(&end)), "{end:?}");
    let mut gone = fresh();
    gone.step(Event::Acquire(want("a")), at(0));
    answered(&mut gone, "a", "i-1", 1);
    look(&mut gone, 2, &both);
    let end = (3..200).find(|second| released(&look(&mut gone, *second, &nobody)));
    assert!(end.is_some_and(|end| (65..=78).contains(&end)), "{end:?}");
    // In one long silence nothing ends.
    let mut long = fresh();
    long.step(Event::Acquire(want("a")), at(0));
    answered(&mut long, "a", "i-1", 1);
    long.step(Event::Joined(nobody.clone()), at(30 * S));
    long.unheard(at(31 * S));
    for second in 32..300 {
        assert_eq!(long.step(Event::Tick, at(second * S)), []);
    }
    assert_eq!(long.step(Event::Joined(nobody), at(300 * S)), []);
    assert_eq!(long.step(Event::Tick, at(330 * S)), []);
    assert!(released(&long.step(Event::Tick, at(331 * S))));
}

#[test]
fn cu_3_a_second_machine_of_a_token_and_one_of_nobody_are_released_once_a_while() {
    let mut custody = fresh();
    custody.step(Event::Acquire(want("a")), at(0));
    answered(&mut custody, "a", "i-1", 1);
    let shown = || {
        Event::Listed(vec![
            machine("i-1", Some("a")),
            machine("i-2", Some("a")),
            machine("i-3", None),
        ])
    };
    let effects = custody.step(shown(), at(2 * S));
    assert_eq!(effects.len(), 2, "{effects:?}");
    assert_eq!(custody.step(shown(), at(3 * S)), []);
    assert_eq!(custody.step(Event::Tick, at(12 * S)).len(), 2);
    assert!(custody.held()[&name("a")].stands());
}

#[test]
fn cu_4_a_list_that_lags_loses_nothing_and_two_do() {
    let mut custody = fresh();
    custody.step(Event::Acquire(want("a")), at(0));
    answered(&mut custody, "a", "i-1", 1);
    let joined = BTreeSet::from([name("a")]);
    let effects = custody.step(Event::Joined(joined), at(2 * S));
    assert_eq!(effects, [Effect::Ready(name("a"))]);
    assert_eq!(custody.step(Event::Listed(vec![]), at(3 * S)), []);
    custody.step(Event::Listed(vec![machine("i-1", Some("a"))]), at(4 * S));
    // Its node serves: lists may be behind.
    for second in 5..35 {
        let effects = custody.step(Event::Listed(vec![]), at(second * S));
        assert_eq!(effects, [], "{second}");
    }
    let effects = custody.step(Event::Listed(vec![]), at(35 * S));
    assert!(
        matches!(&effects[1], Effect::Lost { served: true, .. }),
        "{effects:?}"
    );
    // It is shown again: it is held again, and no stray.
    let shown = || Event::Listed(vec![machine("i-1", Some("a"))]);
    let effects = custody.step(shown(), at(40 * S));
    assert!(
        matches!(
            &effects[..],
            [
                Effect::Record(Entry::Asked { .. }),
                Effect::Record(Entry::Granted { .. })
            ]
        ),
        "{effects:?}"
    );
    custody.step(Event::Joined(BTreeSet::from([name("a")])), at(41 * S));
    // Gone from both sides: two lists are enough.
    custody.step(Event::Joined(BTreeSet::new()), at(42 * S));
    assert_eq!(custody.step(Event::Listed(vec![]), at(43 * S)), []);
    assert_eq!(custody.step(Event::Listed(vec![]), at(44 * S)).len(), 2);
}

#[test]
fn cu_5_a_machine_that_runs_on_without_its_node_is_released() {
    let mut custody = fresh();
    custody.step(Event::Acquire(want("a")), at(0));
    answered(&mut custody, "a", "i-1", 1);
    let here = || Event::Joined(BTreeSet::from([name("a")]));
    let gone = || Event::Joined(BTreeSet::new());
    custody.step(here(), at(2 * S));
    assert_eq!(custody.step(gone(), at(3 * S)), []);
    custody.step(here(), at(60 * S));
    assert_eq!(custody.step(gone(), at(70 * S)), []);
    // A coordinator that is not heard says nothing of it.
    custody.unheard(at(75 * S));
    assert_eq!(custody.step(gone(), at(140 * S)), []);
    let effects = custody.step(gone(), at(200 * S));
    assert!(
        matches!(
            &effects[..],
            [Effect::Record(_), Effect::Release { id, .. }, Effect::Lost { served: true, .. }] if id == "i-1"
        ),
        "{effects:?}"
    );
    assert_eq!(custody.standing().count(), 0);
}

#[test]
fn a_request_that_waits_for_its_call_is_not_lost() {
    let mut custody = fresh();
    custody.step(Event::Acquire(want("a")), at(0));
    for second in 1..200 {
        assert_eq!(custody.step(Event::Listed(vec![]), at(second * S)), []);
    }
    assert!(custody.is_asked(&name("a")));
    custody.step(Event::Called(name("a")), at(200 * S));
    assert_eq!(custody.step(Event::Listed(vec![]), at(229 * S)), []);
    assert_eq!(custody.step(Event::Listed(vec![]), at(230 * S)).len(), 2);
    assert!(!custody.is_asked(&name("a")));
}

#[test]
fn a_notice_makes_a_machine_leave_and_a_risk_does_not() {
    let mut custody = fresh();
    custody.step(Event::Acquire(want("a")), at(0));
    answered(&mut custody, "a", "i-1", 1);
    let signal = |certainty| {
        Event::Signal(Signal {
            id: "i-1".into(),
            certainty,
            deadline: None,
            cause: "capacity".into(),
        })
    };
    let effects = custody.step(signal(Certainty::Risk), at(2 * S));
    assert!(matches!(effects[..], [Effect::AtRisk { .. }]));
    assert_eq!(custody.step(signal(Certainty::Risk), at(3 * S)), []);
    assert!(custody.held()[&name("a")].stands());
    let over = || [Effect::RiskOver(name("a"))];
    assert_eq!(custody.step(signal(Certainty::Over), at(3 * S)), over());
    assert_eq!(custody.step(signal(Certainty::Over), at(3 * S)), []);
    let effects = custody.step(signal(Certainty::Risk), at(3 * S));
    assert!(matches!(effects[..], [Effect::AtRisk { .. }]), "again");
    let effects = custody.step(signal(Certainty::Notice), at(4 * S));
    let deadline = Micros(124 * S);
    assert!(matches!(&effects[..], [Effect::Leaving { deadline: at, .. }] if *at == deadline));
    assert_eq!(custody.step(signal(Certainty::Notice), at(5 * S)), []);
    assert_eq!(custody.standing().count(), 0);
    // It outlives its notice: told to end, so that it does not cost for nothing.
    let effects = custody.step(Event::Tick, at(134 * S));
    assert!(matches!(effects[1], Effect::Release { .. }));
}

#[test]
fn machines_that_are_gone_are_remembered_no_longer_than_they_may_be_shown_again() {
    let mut custody = fresh();
    for round in 0..200 {
        let (token, now) = (format!("t{round}"), 10 * round);
        custody.step(Event::Acquire(want(&token)), at(now * S));
        answered(&mut custody, &token, &format!("i-{round}"), now);
        custody.step(Event::Joined(BTreeSet::from([name(&token)])), at(now * S));
        // Its node is gone and two lists do not show it.
        custody.step(Event::Joined(BTreeSet::new()), at((now + 1) * S));
        for later in [2, 3] {
            custody.step(Event::Listed(Vec::new()), at((now + later) * S));
        }
        custody.step(Event::Tick, at((now + 4) * S));
        assert!(custody.held().is_empty());
        assert!(
            custody.closed.len() <= 7,
            "{} in a minute",
            custody.closed.len()
        );
    }
    assert!(!custody.closed.is_empty(), "CU-4: they may come back");
}

#[test]
fn a_restart_finds_what_was_asked_for_granted_and_released() {
    let mut custody = fresh();
    let mut kept = Vec::new();
    let mut note = |effects: Vec<Effect>| {
        kept.extend(effects.into_iter().filter_map(|effect| match effect {
            Effect::Record(entry) => Some(entry),
            _ => None,
        }));
    };
    for token in ["a", "b", "c"] {
        note(custody.step(Event::Acquire(want(token)), at(0)));
    }
    note(answered(&mut custody, "b", "i-2", 1));
    note(answered(&mut custody, "c", "i-3", 1));
    let release = Event::Release {
        token: name("c"),
        cause: "dear".into(),
    };
    note(custody.step(release, at(2 * S)));
    let mut again = Custody::resumed(&kept, bounds(), Micros(120 * S), at(20 * S));
    assert_eq!(again.held().len(), 3);
    let effects = again.step(Event::Tick, at(20 * S));
    assert!(
        matches!(&effects[..], [Effect::Release { id, .. }] if id == "i-3"),
        "{effects:?}"
    );
    let shown = vec![machine("i-1", Some("a")), machine("i-2", Some("b"))];
    again.step(Event::Listed(shown.clone()), at(21 * S));
    again.step(Event::Listed(shown), at(22 * S));
    let left: Vec<&str> = again.held().keys().map(NodeName::as_str).collect();
    assert_eq!(left, ["a", "b"]);
}

/// What a provider does with a call, drawn.
#[derive(Clone, Copy, Debug)]
enum Mood {
    Honest,
    /// It does it and does not say so.
    Silent,
    /// It says nothing and does nothing.
    Dead,
    /// It makes two.
    Double,
    /// It has none.
    Empty,
}

fn mood() -> impl Strategy<Value = Mood> {
    prop_oneof![
        Just(Mood::Honest),
        Just(Mood::Silent),
        Just(Mood::Dead),
        Just(Mood::Double),
        Just(Mood::Empty)
    ]
}

proptest! {
    /// Whatever a provider does for a while, once it is honest again nothing is left over that custody does not hold.
    #[test]
    fn nothing_leaks(
        moods in prop::collection::vec((mood(), any::<bool>(), any::<bool>()), 1..40),
    ) {
        let mut custody = fresh();
        let mut machines: BTreeMap<String, NodeName> = BTreeMap::new();
        let (mut made, mut now) = (0u32, 0u64);
        let mut queue: Vec<Effect> = Vec::new();
        let rounds = moods.len();
        let late = std::iter::repeat_n((Mood::Honest, false, false), 200);
        for (round, (mood, acquires, releases)) in moods.into_iter().chain(late).enumerate() {
            now += 3 * S;
            if acquires {
                queue.extend(custody.step(Event::Acquire(want(&format!("t{round}"))), at(now)));
            }
            if releases && let Some(token) = custody.held().keys().next().cloned() {
                let cause = "test".to_owned();
                queue.extend(custody.step(Event::Release { token, cause }, at(now)));
            }
            if round == rounds {
                for token in custody.held().keys().cloned().collect::<Vec<_>>() {
                    let cause = "the end".to_owned();
                    queue.extend(custody.step(Event::Release { token, cause }, at(now)));
                }
            }
            queue.extend(custody.step(Event::Tick, at(now)));
            if !matches!(mood, Mood::Dead) {
                let list = machines.iter().map(|(id, token)| machine(id, Some(token.as_str())));
                queue.extend(custody.step(Event::Listed(list.collect()), at(now)));
            }
            for effect in std::mem::take(&mut queue) {
                match effect {
                    Effect::Acquire(want) => {
                        let mut make = || {
                            made += 1;
                            let id = format!("i-{made}");
                            machines.insert(id.clone(), want.token.clone());
                            id
                        };
                        let answer = match mood {
                            Mood::Honest => Ok(machine(&make(), Some(want.token.as_str()))),
                            Mood::Double => {
                                make();
                                Ok(machine(&make(), Some(want.token.as_str())))
                            }
                            Mood::Silent => {
                                make();
                                Err(unsure())
                            }
                            Mood::Dead => Err(unsure()),
                            Mood::Empty => Err(ProviderError::NoCapacity {
                                provider: "test".into(),
                                why: "none".into(),
                            }),
                        };
                        let token = want.token;
                        queue.extend(custody.step(Event::Answered { token, answer }, at(now)));
                    }
                    Effect::Release { id, .. } if !matches!(mood, Mood::Dead) => {
                        machines.remove(&id);
                    }
                    _ => {}
                }
            }
        }
        prop_assert!(custody.is_empty(), "{:?}", custody.held());
        prop_assert!(machines.is_empty(), "{machines:?}");
    }
}

#[test]
fn a_wall_clock_that_is_set_ends_no_boot_and_no_notice() {
    let mut custody = fresh();
    custody.step(Event::Acquire(want("a")), at(0));
    answered(&mut custody, "a", "i-1", 1);
    // An hour ahead on the wall, a second later by the steady clock.
    let jumped = |second: u64| Now {
        wall: Micros((3600 + second) * S),
        steady: Micros(second * S),
    };
    assert_eq!(custody.step(Event::Tick, jumped(2)), []);
    let joined = BTreeSet::from([name("a")]);
    custody.step(Event::Joined(joined), jumped(3));
    let notice = Signal {
        id: "i-1".into(),
        certainty: Certainty::Notice,
        deadline: Some(Micros((3600 + 34) * S)),
        cause: "capacity".into(),
    };
    let effects = custody.step(Event::Signal(notice), jumped(4));
    assert!(
        matches!(&effects[..], [Effect::Leaving { deadline, .. }] if *deadline == Micros(34 * S)),
        "{effects:?}"
    );
    // Set back: the end is as far away as it was.
    let back = Now {
        wall: Micros(9 * S),
        steady: Micros(20 * S),
    };
    assert_eq!(custody.step(Event::Tick, back), []);
}
