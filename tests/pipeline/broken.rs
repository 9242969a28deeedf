//! A job whose numbers break on one stage is set aside on all, in its last good state, and the others go on.

use gpu_actor::replica::event::ReplicaEvent;
use gpu_actor::train::event::Event;
use gpu_actor::train::session::layout_of;
use shared::job::OptimizerKind;
use shared::model::Family;
use system_tests::methods;
use system_tests::plan::{Plan, plain};

use crate::run::{
    Manner, admission, assert_same, assert_same_state, fresh, from_state, on_one, on_stages, store,
    stored,
};
use crate::tiny;

/// Every method beside a neighbour, with a learning rate that breaks it sooner or later; how many broke.
fn broken_jobs(learning_rate: f64) -> usize {
    let model = tiny::model(Family::Llama, true);
    let mut count = 0;
    for spec in methods::every() {
        let mut broken = plain("broken", spec);
        broken.spec.optimizer.kind = OptimizerKind::Sgd;
        broken.spec.optimizer.max_grad_norm = None;
        broken.spec.optimizer.learning_rate = learning_rate;
        let neighbour = plain("neighbour", methods::every().remove(1));
        let plans: [Plan; 2] = [broken, neighbour];
        let one = on_one(&model, &plans, 300);
        assert!(!one[1].aside && one[1].state.progress.step == 4);
        count += usize::from(one[0].aside);
        for stages in 1..=3 {
            let many = on_stages(&model, &plans, &Manner::new(stages, 70));
            assert_same(&one, &many, &plans, &format!("{stages} stages"));
        }
    }
    count
}

#[test]
fn a_job_that_diverges_stops_on_all_stages_and_its_neighbours_do_not_notice() {
    assert!(broken_jobs(1e30) > 6);
}

/// The first update leaves the range of f32: on whichever stage that is, no stage takes it.
#[test]
fn an_update_that_overflows_is_taken_on_no_stage() {
    assert_eq!(broken_jobs(1e38 * 1e38), methods::every().len());
}

/// One momentum near the end of the range, on one stage: only there the update overflows, and no stage takes it.
#[test]
fn an_update_that_overflows_on_one_stage_is_taken_on_none() {
    let model = tiny::model(Family::Llama, true);
    for spec in methods::every() {
        let mut plan = plain("job", spec);
        plan.spec.optimizer.kind = OptimizerKind::Sgd;
        plan.spec.optimizer.momentum = 0.9;
        plan.spec.optimizer.learning_rate = 100.0;
        plan.spec.train.steps = Some(2);
        let layout = layout_of(&plan.spec.adapter, &model, plan.spec.seed);
        for index in [0, layout.len / 2, layout.len - 1] {
            let mut state = fresh(&plan, &model);
            state.optimizer.first[index] = 3e38;
            let key = &layout.parameter_at(index).unwrap().key;
            let wanted = format!("new value of {key} is not finite");
            for stages in [1, 3] {
                let store = store();
                let mut replica = Manner::new(stages, 70).start(&model, &store);
                let lead = replica.lead();
                let start = from_state(&store, &plan, &model, state.clone());
                lead.admit(admission(&plan, &model, start))
                    .unwrap()
                    .unwrap();
                let mut events = lead.round().unwrap();
                events.extend(lead.drain().unwrap());
                let reason = events.iter().find_map(|event| match event {
                    ReplicaEvent::Training(Event::Quarantined { reason, .. }) => Some(reason),
                    _ => None,
                });
                assert_eq!(reason, Some(&wanted), "{stages} stages");
                replica.close().unwrap();
                let found = stored(&store, &plan, &model).recovered.unwrap();
                assert_same_state(&state, &found.state, &wanted);
            }
        }
    }
}
