//! Every method, on one to four stages.

use shared::job::AdapterSpec;
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
        assert_eq!((one[0].steps.len(), one[0].aside), (3, false));
        for stages in 1..=4 {
            let (many, _) = on_stages(&model, &plans, &Manner::new(stages, 60));
            assert_same(&one, &many, &plans, &format!("{stages} stages"));
        }
    }
}

#[test]
fn all_methods_together_have_the_same_bits_on_any_number_of_stages() {
    let plans: Vec<Plan> = methods::every()
        .into_iter()
        .enumerate()
        .map(|(index, spec)| clipped(index, spec))
        .collect();
    for (family, tied) in [(Family::Llama, true), (Family::Qwen2, false)] {
        let model = tiny::model(family, tied);
        let one = on_one(&model, &plans, 333);
        for stages in 1..=tiny::LAYERS {
            for tokens_per_pass in [40, 500] {
                let (many, _) = on_stages(&model, &plans, &Manner::new(stages, tokens_per_pass));
                let what = format!("{family:?}, {stages} stages, {tokens_per_pass} a pass");
                assert_same(&one, &many, &plans, &what);
            }
        }
    }
}
