//! Random jobs on random pipelines.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::Config;
use shared::model::Family;
use system_tests::methods;
use system_tests::plan::{self, plain};

use crate::run::{Manner, assert_same, on_one, on_stages};
use crate::tiny;

pub(crate) fn cases(count: u32) -> Config {
    let usual = Config::default();
    Config {
        cases: (count * usual.cases / 256).max(1),
        failure_persistence: None,
        ..usual
    }
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn random_mixes_leave_the_same_bits_on_any_pipeline(
        plans in plan::any_plans(1..9),
        family in proptest::sample::select(Family::ALL.to_vec()),
        tied in any::<bool>(),
        (stages, threads) in (1..=tiny::LAYERS, 1..4usize),
        (tokens_per_pass, tokens_on_one) in (1..400usize, 1..400usize),
        (budget, credits) in (prop_oneof![Just(u64::MAX), 0..3_000_000u64], 1..4usize),
        ahead in 1..5usize,
        recompute in proptest::sample::select(vec!["none", "1", "2", "all"]),
    ) {
        let model = tiny::model(family, tied);
        let one = on_one(&model, &plans, tokens_on_one);
        let patience = Duration::from_secs(120);
        let recompute = recompute.parse().unwrap();
        let manner =
            Manner { stages, threads, tokens_per_pass, budget, recompute, credits, ahead, patience };
        let many = on_stages(&model, &plans, &manner);
        assert_same(&one, &many, &plans, &format!("{manner:?}"));
    }
}

/// Public bugs: pytorch/torchtitan #775 (fewer micro-batches than stages), hpcaitech/ColossalAI PR #2156 (as many),
/// NVIDIA/Megatron-LM #5100 (of different lengths).
#[test]
fn any_number_of_micro_batches_finishes_on_one_to_eight_stages() {
    let model = tiny::deep(8);
    for (rows, jobs) in [(1, 1), (2, 1), (7, 1), (8, 2), (9, 2)] {
        let plans: Vec<plan::Plan> = (0..jobs)
            .map(|job| {
                let mut plan = plain(&format!("job-{job}"), methods::every().remove(3 + job));
                plan.lengths = (0..rows).map(|row| 2 + row * 11 % 40).collect();
                plan.spec.train.batch_size = rows;
                plan.spec.train.steps = Some(2);
                plan
            })
            .collect();
        let one = on_one(&model, &plans, 1000);
        for stages in 1..=8 {
            // Each row is a micro-batch of its own.
            let many = on_stages(&model, &plans, &Manner::new(stages, 1));
            let what = format!("{rows} rows of {jobs} jobs on {stages} stages");
            assert_same(&one, &many, &plans, &what);
        }
    }
}
