//! What cannot go on says why.

use std::time::Duration;

use data::rows::TokenRow;
use gpu_actor::stage::optim::{OptimizerState, Rule};
use gpu_actor::train::pack::Request;
use gpu_actor::train::pipelined::{Pipelined, Step};
use gpu_actor::train::session::layout_of;
use kernels::cpu::Cpu;
use shared::model::Family;
use system_tests::methods;
use system_tests::plan::plain;

use crate::tiny;

#[test]
fn more_stages_than_layers_are_refused() {
    let model = tiny::model(Family::Llama, true);
    for stages in [0, tiny::LAYERS + 1] {
        let error = Pipelined::new(&model, Cpu::new(1).unwrap(), stages).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("for 5 layers") && error.contains("1 to 5"),
            "{error}"
        );
    }
}

/// A plan that leaves a step out can never be done: the stage names the adapter that does not come to that step.
#[test]
fn a_plan_that_cannot_be_done_is_told_and_not_waited_for() {
    let model = tiny::model(Family::Llama, true);
    let plan = plain("job", methods::every().remove(0));
    let spec = &plan.spec;
    let layout = layout_of(&spec.adapter, &model, spec.seed);
    let values = plan.values(&layout, &model);
    let optimizer = OptimizerState::new(&spec.optimizer, values.len());
    let mut pipeline = Pipelined::new(&model, Cpu::new(2).unwrap(), 2).unwrap();
    pipeline.patience = Duration::from_millis(200);
    let rule = Rule::new(&spec.optimizer, &spec.adapter);
    let slot = pipeline.admit(&layout, spec.seed, &rule, &values, &optimizer);
    let row = TokenRow::new(vec![1, 2, 3], vec![1, 2, 3]);
    let step = |step| Step {
        request: Request {
            slot,
            prompt_tokens: 0,
            prefix_tokens: 0,
            step,
            rows: vec![&row],
        },
        learning_rate: 1e-3,
    };
    let error = pipeline
        .run(&[vec![step(0)], vec![step(2)]], 100)
        .unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("stalled") && error.contains("waits for"),
        "{error}"
    );
    assert!(pipeline.state(slot).is_none(), "torn between steps");
    let error = pipeline.run(&[], 100).unwrap_err().to_string();
    assert!(error.contains("failed before"), "{error}");
}
