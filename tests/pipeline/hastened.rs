//! While a machine may be taken, states are stored after each step: as many as the store takes, and no bit shows it.

use shared::model::Family;
use system_tests::methods;
use system_tests::plan::{Plan, plain};

use gpu_actor::replica::event::ReplicaEvent;

use crate::run::{Manner, admit, assert_same_state, on_one, store, stored};
use crate::tiny;

const STEPS: u64 = 6;

/// Jobs that ask for no state but the last; one asks for every third.
fn plans() -> Vec<Plan> {
    let plan = |(index, spec)| {
        let mut plan = plain(&format!("job-{index:02}"), spec);
        plan.spec.train.steps = Some(STEPS);
        plan.spec.checkpoint.every_steps = Some(if index == 2 { 3 } else { 0 });
        plan
    };
    methods::every()
        .into_iter()
        .take(3)
        .enumerate()
        .map(plan)
        .collect()
}

/// Steps of a job that became durable, in their order.
fn durable(events: &[ReplicaEvent], plan: &Plan) -> Vec<u64> {
    let own = events.iter().filter_map(|event| match event {
        ReplicaEvent::Durable { job, step, .. } if *job == plan.spec.name => Some(*step),
        _ => None,
    });
    own.collect()
}

#[test]
fn states_are_stored_after_each_step_while_that_is_ordered() {
    let model = tiny::model(Family::Llama, true);
    let plans = plans();
    let one = on_one(&model, &plans, 300);
    for (stages, every) in [(1, 1), (2, 1), (3, 2), (2, 0)] {
        let store = store();
        let mut replica = Manner::new(stages, 70).start(&model, &store);
        let lead = replica.lead();
        for plan in &plans {
            admit(lead, plan, &model, &store);
        }
        lead.hasten(every);
        let mut events = Vec::new();
        while !lead.is_idle() {
            events.extend(lead.round().unwrap());
        }
        events.extend(lead.drain().unwrap());
        replica.close().unwrap();
        for (one, plan) in one.iter().zip(&plans) {
            let steps = durable(&events, plan);
            assert!(
                steps.is_sorted() && steps.last() == Some(&STEPS),
                "{steps:?}"
            );
            let what = format!("{stages} stages, every {every}: {steps:?}");
            match (every, plan.spec.checkpoint.every_steps.unwrap()) {
                (0, 0) => assert_eq!(steps, [STEPS], "{what}"),
                (0, _) => assert_eq!(steps, [3, STEPS], "{what}"),
                (1, _) => assert!(steps.len() > 1 && steps[0] == 1, "{what}"),
                (_, 0) => assert!(steps.iter().all(|step| step % every == 0), "{what}"),
                (_, asked) => assert!(
                    steps.contains(&asked),
                    "what a job asks for is stored all the same: {what}"
                ),
            }
            let found = stored(&store, plan, &model).recovered.unwrap();
            assert_same_state(&one.state, &found.state, &what);
        }
    }
}

/// Of a job that does not say how often: a machine that is lost costs a step.
#[test]
fn without_a_word_states_are_stored_after_each_step() {
    let model = tiny::model(Family::Llama, true);
    let mut plan = plans().remove(0);
    plan.spec.checkpoint.every_steps = None;
    let store = store();
    let mut replica = Manner::new(2, 70).start(&model, &store);
    let lead = replica.lead();
    admit(lead, &plan, &model, &store);
    let mut events = Vec::new();
    while !lead.is_idle() {
        events.extend(lead.round().unwrap());
    }
    events.extend(lead.drain().unwrap());
    replica.close().unwrap();
    let steps = durable(&events, &plan);
    assert!(steps.len() > 1 && steps[0] == 1, "{steps:?}");
}

#[test]
fn what_is_hastened_ends_with_the_order() {
    let model = tiny::model(Family::Llama, true);
    let mut plans = plans();
    plans.truncate(1);
    let store = store();
    let mut replica = Manner::new(2, 70).start(&model, &store);
    let lead = replica.lead();
    admit(lead, &plans[0], &model, &store);
    lead.hasten(1);
    let mut events = lead.round().unwrap();
    lead.hasten(0);
    while !lead.is_idle() {
        events.extend(lead.round().unwrap());
    }
    events.extend(lead.drain().unwrap());
    replica.close().unwrap();
    let steps = durable(&events, &plans[0]);
    assert_eq!((steps.first(), steps.last()), (Some(&1), Some(&STEPS)));
    // Only what was planned by then: the round under way and those ahead of it.
    assert!(steps.len() < STEPS as usize, "{steps:?}");
}
