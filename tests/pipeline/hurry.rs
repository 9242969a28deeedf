//! Steps that are not waited for: orders come in the middle of one, and a machine goes before one ends.

use std::time::Duration;

use gpu_actor::replica::event::ReplicaEvent;
use gpu_actor::replica::lead::Lead;
use gpu_actor::replica::local::LocalReplica;
use gpu_actor::train::event::Event;
use proptest::prelude::*;
use shared::model::Family;
use shared::plan::arrangement::Arrangement;
use system_tests::methods;
use system_tests::plan::{self, Plan, plain};

use crate::mixes::cases;
use crate::run::{Manner, Store, admit, assert_ends, on_one, store, stored};
use crate::tiny;

/// A job of three steps of eight rows of 200 tokens, in passes of one row and less, that stores no state by itself.
fn giant() -> Plan {
    let mut giant = plain("giant", methods::every().remove(1));
    giant.lengths = vec![200; 8];
    giant.spec.train.batch_size = 8;
    giant.spec.train.steps = Some(3);
    giant.spec.checkpoint.every_steps = Some(50);
    giant
}

fn small() -> Plan {
    let mut small = plain("small", methods::every().remove(0));
    small.lengths = vec![20; 5];
    small.spec.train.batch_size = 1;
    small.spec.train.steps = Some(30);
    small
}

/// Does a piece of what is under way, and gives the store time for what it was given.
fn piece(lead: &mut Lead, begins: bool) {
    let bell = lead.bell();
    let heard = bell.heard();
    lead.advance(begins).unwrap();
    if lead.is_storing() || !lead.moved() {
        let _ = bell.wait(heard, Duration::from_millis(20));
    }
}

fn to_the_end(mut replica: LocalReplica) {
    let lead = replica.lead();
    while !lead.is_idle() {
        piece(lead, true);
    }
    lead.drain().unwrap();
    replica.close().unwrap();
}

/// A notice that is shorter than a step: the machine goes in the middle of it, on all stages, and takes no more with it
/// than that step, however seldom states are stored.
#[test]
fn what_was_learned_before_the_step_under_way_is_durable_before_that_ends() {
    let model = tiny::model(Family::Llama, true);
    for (stages, company) in [(1, false), (2, false), (3, true)] {
        let mut plans = vec![giant()];
        plans.extend(company.then(small));
        let one = on_one(&model, &plans, 100_000);
        let store = store();
        let mut replica = Manner::new(stages, 50).start(&model, &store);
        let lead = replica.lead();
        lead.arrange(Arrangement {
            turn_rows: Some(10_000),
            ..Arrangement::default()
        });
        for plan in &plans {
            admit(lead, plan, &model, &store);
        }
        let name = &plans[0].spec.name;
        let step = |lead: &Lead| lead.progress(name).unwrap().0.step;
        while step(lead) < 1 {
            piece(lead, true);
        }
        // Somewhere in the second step, with the third planned behind it.
        for _ in 0..5 {
            piece(lead, true);
        }
        assert_eq!(
            (step(lead), lead.durable(name)),
            (1, Some(0)),
            "{stages} stages"
        );
        lead.settle().unwrap();
        assert!(lead.is_settling());
        lead.hurry().unwrap();
        while lead.undurable().next().is_some() {
            assert!(lead.is_settling(), "the step ended first");
            piece(lead, false);
        }
        assert_eq!((step(lead), lead.durable(name)), (1, Some(1)));
        assert!(lead.is_settling(), "its second step is under way");
        for plan in &plans {
            let found = stored(&store, plan, &model).recovered.unwrap();
            let (progress, _) = lead.progress(&plan.spec.name).unwrap();
            assert_eq!(found.state.progress.step, progress.step);
        }
        replica.kill();
        let mut replica = Manner::new(4 - stages, 70).start(&model, &store);
        for plan in &plans {
            admit(replica.lead(), plan, &model, &store);
        }
        assert_eq!(step(replica.lead()), 1, "not from its beginning");
        to_the_end(replica);
        assert_ends(&one, &plans, (&store, &model), &format!("{stages} stages"));
    }
}

/// A job whose last step is durable before its last evaluation, on a lead that is killed: the evaluation is made again by the
/// next, and told once in all.
#[test]
fn a_last_evaluation_that_was_cut_is_made_again_and_told_once() {
    let model = tiny::model(Family::Llama, true);
    let mut plan = giant();
    plan.spec.train.steps = Some(1);
    plan.spec.eval.every_steps = Some(1);
    let plans = [plan];
    let name = &plans[0].spec.name;
    let last = |events: &[ReplicaEvent]| {
        let is_last = |event: &&ReplicaEvent| {
            matches!(
                event,
                ReplicaEvent::Training(Event::Evaluation { step: 1, .. })
            )
        };
        events.iter().filter(is_last).count()
    };
    for stages in [1, 2] {
        let store = store();
        let mut replica = Manner::new(stages, 50).start(&model, &store);
        let lead = replica.lead();
        admit(lead, &plans[0], &model, &store);
        let mut told = Vec::new();
        while lead.progress(name).unwrap().0.step < 1 {
            told.extend(lead.advance(true).unwrap());
        }
        told.extend(lead.settle().unwrap());
        lead.hurry().unwrap();
        while lead.durable(name) != Some(1) {
            told.extend(lead.advance(false).unwrap());
            std::thread::yield_now();
        }
        assert_eq!(last(&told), 0, "it is cut: {stages} stages");
        replica.kill();
        let mut replica = Manner::new(3 - stages, 50).start(&model, &store);
        let lead = replica.lead();
        admit(lead, &plans[0], &model, &store);
        assert_eq!(lead.progress(name).unwrap().0.step, 1);
        while !lead.is_idle() {
            told.extend(lead.advance(true).unwrap());
        }
        told.extend(lead.drain().unwrap());
        assert_eq!(last(&told), 1, "{stages} stages");
        replica.close().unwrap();
    }
}

/// What is left of the time after that is not lost: the step under way ends, and is stored too.
#[test]
fn in_a_hurry_the_step_under_way_still_ends() {
    let model = tiny::model(Family::Llama, true);
    let plans = [giant()];
    for stages in [1, 3] {
        let store = store();
        let mut replica = Manner::new(stages, 50).start(&model, &store);
        let lead = replica.lead();
        admit(lead, &plans[0], &model, &store);
        let name = &plans[0].spec.name;
        for _ in 0..5 {
            piece(lead, true);
        }
        lead.settle().unwrap();
        lead.hurry().unwrap();
        while lead.is_settling() || lead.is_storing() {
            piece(lead, false);
        }
        let taken = lead.progress(name).unwrap().0.step;
        assert_eq!(
            (taken, lead.durable(name)),
            (1, Some(1)),
            "one step, and no other"
        );
        assert!(!lead.is_under_way());
        replica.close().unwrap();
    }
}

/// What happens to a replica between two pieces of work.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// What is planned is taken back.
    Room,
    /// Turns are short, or not.
    Short(bool),
    /// Steps are ended, and begun again before or after that.
    Settle { hurried: bool, pieces: usize },
    /// All is lost that is not durable; these many stages go on.
    Kill(usize),
}

fn any_deeds() -> impl Strategy<Value = Vec<(usize, Deed)>> {
    let deed = prop_oneof![
        3 => Just(Deed::Room),
        2 => any::<bool>().prop_map(Deed::Short),
        3 => (any::<bool>(), 0..60usize)
            .prop_map(|(hurried, pieces)| Deed::Settle { hurried, pieces }),
        1 => (1..=tiny::LAYERS).prop_map(Deed::Kill),
    ];
    prop::collection::vec((0..40usize, deed), 1..14)
}

fn begin(
    stages: usize,
    tokens_per_pass: usize,
    plans: &[Plan],
    model: &gpu_actor::model::Model,
    store: &Store,
) -> LocalReplica {
    let mut replica = Manner::new(stages, tokens_per_pass).start(model, store);
    for plan in plans {
        admit(replica.lead(), plan, model, store);
    }
    replica
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn whatever_is_taken_back_or_stored_in_the_middle_of_steps_the_bits_stay(
        mut plans in plan::any_plans(1..5),
        deeds in any_deeds(),
        stages in 1..=tiny::LAYERS,
        tokens_per_pass in 1..200usize,
    ) {
        plans.push(giant());
        for plan in &mut plans {
            plan.arrives = 0;
        }
        let model = tiny::model(Family::Llama, true);
        let one = on_one(&model, &plans, 100_000);
        let store = store();
        let mut replica = begin(stages, tokens_per_pass, &plans, &model, &store);
        for (pieces, deed) in deeds {
            let lead = replica.lead();
            for _ in 0..pieces {
                piece(lead, true);
            }
            match deed {
                Deed::Room => lead.make_room().unwrap(),
                Deed::Short(short) => lead.keep_turns_short(short),
                Deed::Settle { hurried, pieces } => {
                    lead.settle().unwrap();
                    if hurried {
                        lead.hurry().unwrap();
                    }
                    for _ in 0..pieces {
                        piece(lead, false);
                    }
                    if !lead.is_settling() && !lead.is_storing() {
                        let undurable: Vec<_> = lead.undurable().collect();
                        prop_assert!(undurable.is_empty(), "{undurable:?}");
                    }
                }
                Deed::Kill(stages) => {
                    replica.kill();
                    replica = begin(stages, tokens_per_pass, &plans, &model, &store);
                }
            }
        }
        let lead = replica.lead();
        while !lead.is_idle() {
            piece(lead, true);
        }
        // One whose last step ended in a hurry was stored before its last evaluation.
        for (plan, one) in plans.iter().zip(&one) {
            prop_assert_eq!(lead.progress(&plan.spec.name).unwrap().0, &one.state.progress);
        }
        lead.drain().unwrap();
        replica.close().unwrap();
        for (plan, one) in plans.iter().zip(&one) {
            let found = stored(&store, plan, &model).recovered.unwrap();
            let [found, expected] = [&found.state, &one.state].map(crate::run::state_bits);
            prop_assert!(found == expected, "{}", plan.spec.name);
        }
    }
}
