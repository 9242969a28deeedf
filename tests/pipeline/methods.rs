//! Every method, on one to five stages.

use shared::job::{AdapterSpec, EvalSpec};
use shared::model::Family;
use system_tests::methods;
use system_tests::plan::{Plan, plain};

use crate::run::{Manner, assert_same, on_one, on_stages};
use crate::tiny;

/// A job of three steps whose gradient is clipped.
fn clipped(index: usize, spec: AdapterSpec) -> Plan {
    let mut plan = plain(&format!("job-{index:02}"), spec);
    plan.spec.optimizer.max_grad_norm = Some(0.3);
    plan.spec.seed += index as u64;
    plan.spec.train.steps = Some(3);
    plan
}

#[test]
fn every_method_alone_has_the_same_bits_on_any_number_of_stages() {
    let model = tiny::model(Family::Qwen3, true);
    for (index, spec) in methods::every().into_iter().enumerate() {
        let plans = [clipped(index, spec)];
        let one = on_one(&model, &plans, 1000);
        assert_eq!((one[0].state.progress.step, one[0].aside), (3, false));
        for stages in 1..=4 {
            let many = on_stages(&model, &plans, &Manner::new(stages, 60));
            assert_same(&one, &many, &plans, &format!("{stages} stages"));
        }
    }
}

/// Twelve jobs that are measured at different steps, accumulate, come late and end at different times, one of them
/// early and one because its numbers break.
#[test]
fn all_methods_together_have_the_same_bits_on_any_number_of_stages() {
    let mut plans: Vec<Plan> = methods::every()
        .into_iter()
        .enumerate()
        .map(|(index, spec)| clipped(index, spec))
        .collect();
    for (index, plan) in plans.iter_mut().enumerate() {
        plan.arrives = index % 3;
        plan.spec.train.steps = Some(2 + index as u64 % 4);
        plan.spec.train.accumulation = 1 + index % 2;
        plan.spec.eval.every_steps = (index % 4 > 0).then_some(index as u64 % 4);
        plan.spec.checkpoint.every_steps = Some(index as u64 % 3);
    }
    plans[5].spec.train.steps = Some(9);
    plans[5].spec.eval = EvalSpec {
        every_steps: Some(1),
        patience: Some(2),
        min_delta: 1e6,
    };
    plans[4].spec.optimizer.learning_rate = 1e30;
    plans[4].spec.optimizer.max_grad_norm = None;
    for (family, tied) in [(Family::Llama, true), (Family::Qwen2, false)] {
        let model = tiny::model(family, tied);
        let one = on_one(&model, &plans, 333);
        assert!(one[4].aside && one[5].state.progress.step < 9);
        for stages in 1..=tiny::LAYERS {
            for tokens_per_pass in [40, 500] {
                let many = on_stages(&model, &plans, &Manner::new(stages, tokens_per_pass));
                let what = format!("{family:?}, {stages} stages, {tokens_per_pass} a pass");
                assert_same(&one, &many, &plans, &what);
            }
        }
    }
}
