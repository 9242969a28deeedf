//! Any neighbours, arrivals, passes and threads: the same bits as alone.

use kernels::cpu::Products;
use kernels::weight::Format;
use proptest::prelude::*;
use shared::model::Family;
use system_tests::methods;

use crate::cases;
use crate::plan::{self, plain};
use crate::run::{Manner, alone, assert_same, together};
use crate::tiny;

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn random_mixes_leave_the_same_bits_as_each_job_alone(
        plans in plan::any_plans(2..6),
        family in proptest::sample::select(Family::ALL.to_vec()),
        threads in 1..4usize,
        tokens_per_pass in 1..500usize,
        tokens_per_pass_alone in 1..500usize,
        products in proptest::sample::select(Products::ALL.to_vec()),
    ) {
        let model = tiny::model(family, Format::F32);
        let manner = Manner::new(threads, tokens_per_pass).with_products(products);
        let records = together(&model, &plans, &manner);
        let quiet = Manner::new(1, tokens_per_pass_alone).with_products(products);
        for plan in &plans {
            let name = &plan.spec.name;
            assert_same(&alone(&model, plan, &quiet), &records[name], name.as_str());
        }
    }
}

/// One job of every method in the same passes, on a backbone of 4-bit blocks.
#[test]
fn every_method_at_once_on_a_quantised_backbone() {
    let model = tiny::model(Family::Llama, Format::Q4_1);
    let plans: Vec<_> = methods::every()
        .into_iter()
        .enumerate()
        .map(|(index, spec)| plain(&format!("job-{index}"), spec))
        .collect();
    let records = together(&model, &plans, &Manner::new(2, 300));
    for plan in &plans {
        let name = &plan.spec.name;
        let record = alone(&model, plan, &Manner::new(1, 1000));
        assert_same(&record, &records[name], name.as_str());
    }
}

/// A job beside one with rows ten times as long learns as alone; so does the other.
///
/// Public bug: TUDB-Labs/mLoRA, where the loss was taken over padding to the longest row of any job.
#[test]
fn a_neighbour_with_rows_ten_times_as_long_is_not_noticed() {
    let model = tiny::llama();
    let mut short = plain("short", methods::every().remove(0));
    short.lengths = vec![12, 20, 7];
    let mut long = plain("long", methods::every().remove(1));
    long.lengths = vec![120, 200, 70];
    let plans = [short, long];
    let records = together(&model, &plans, &Manner::new(2, 4096));
    for plan in &plans {
        let name = &plan.spec.name;
        let record = alone(&model, plan, &Manner::new(2, 4096));
        assert_same(&record, &records[name], name.as_str());
    }
}
