//! Layers that run forward again, on several stages: the same bits as one stage that keeps everything.

use std::num::NonZero;

use shared::model::Family;
use shared::recompute::Recompute;
use system_tests::methods;
use system_tests::plan::{Plan, plain};

use crate::run::{Manner, assert_same, on_one, on_stages};
use crate::tiny;

#[test]
fn all_methods_have_the_same_bits_whatever_is_made_again_on_any_number_of_stages() {
    let model = tiny::model(Family::Qwen3, false);
    let plans: Vec<Plan> = methods::every()
        .into_iter()
        .enumerate()
        .map(|(index, spec)| {
            let mut plan = plain(&format!("job-{index:02}"), spec);
            plan.spec.train.steps = Some(2);
            plan.spec.train.accumulation = 1 + index % 2;
            plan
        })
        .collect();
    let one = on_one(&model, &plans, 333);
    let one_layer = Recompute::Layers(NonZero::<u32>::MIN);
    for stages in 1..=3 {
        for recompute in [one_layer, Recompute::All] {
            for budget in [u64::MAX, 100_000] {
                let manner = Manner {
                    recompute,
                    budget,
                    ..Manner::new(stages, 70)
                };
                let many = on_stages(&model, &plans, &manner);
                assert_same(&one, &many, &plans, &format!("{manner:?}"));
            }
        }
    }
}
