//! Random jobs on random pipelines.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::Config;
use shared::model::Family;
use system_tests::plan;

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
    ) {
        let model = tiny::model(family, tied);
        let one = on_one(&model, &plans, tokens_on_one);
        let patience = Duration::from_secs(120);
        let manner = Manner { stages, threads, tokens_per_pass, budget, credits, ahead, patience };
        let many = on_stages(&model, &plans, &manner);
        assert_same(&one, &many, &plans, &format!("{manner:?}"));
    }
}
