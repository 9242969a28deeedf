//! Sequences that pass in chunks, on several stages: the same bits as whole ones on one stage.

use std::sync::Arc;

use gpu_actor::stage::adapter::Adapter;
use gpu_actor::stage::relay::Passed;
use gpu_actor::stage::step::Stage;
use gpu_actor::train::pack::{self, Cut, Size};
use gpu_actor::train::session::layout_of;
use kernels::cpu::Cpu;
use proptest::prelude::*;
use shared::model::Family;
use shared::recompute::Recompute;
use system_tests::methods;
use system_tests::plan::{self, Plan, plain};

use crate::mixes::cases;
use crate::run::{Manner, assert_same, on_one, on_stages};
use crate::tiny;

/// No sequence here is longer.
const WHOLE: usize = 10_000;

#[test]
fn all_methods_have_the_same_bits_in_chunks_on_any_number_of_stages() {
    for family in [Family::Llama, Family::Mistral, Family::Qwen3] {
        let model = tiny::model(family, false);
        let plans: Vec<Plan> = methods::every()
            .into_iter()
            .enumerate()
            .map(|(index, spec)| {
                let mut plan = plain(&format!("job-{index:02}"), spec);
                // The long one comes first, last and in the middle of a step.
                plan.lengths = vec![9, 210 + index, 64, 5, 129];
                plan.spec.train.steps = Some(2);
                plan.spec.train.batch_size = 2 + index % 3;
                plan.spec.eval.every_steps = (index % 4 == 0).then_some(1);
                plan
            })
            .collect();
        let one = on_one(&model, &plans, WHOLE);
        for (stages, tokens_per_pass, budget, recompute) in [
            (1, 70, u64::MAX, Recompute::None),
            (2, 64, 150_000, Recompute::None),
            (3, 130, u64::MAX, Recompute::All),
            (4, 64, 0, Recompute::None),
        ] {
            let manner = Manner {
                budget,
                recompute,
                ..Manner::new(stages, tokens_per_pass)
            };
            let many = on_stages(&model, &plans, &manner);
            assert_same(&one, &many, &plans, &format!("{family:?}, {manner:?}"));
        }
    }
}

proptest! {
    #![proptest_config(cases(6))]

    #[test]
    fn random_long_rows_leave_the_same_bits_on_any_pipeline(
        mut plans in plan::any_plans(1..5),
        longer in proptest::collection::vec(100..400usize, 4),
        family in proptest::sample::select(Family::ALL.to_vec()),
        (stages, threads) in (1..=4usize, 1..3usize),
        tokens_per_pass in 1..200usize,
        budget in prop_oneof![Just(u64::MAX), 0..3_000_000u64],
        (credits, ahead) in (1..4usize, 1..4usize),
    ) {
        for (plan, longer) in plans.iter_mut().zip(longer) {
            let middle = plan.lengths.len() / 2;
            plan.lengths[middle] += longer;
        }
        let model = tiny::model(family, true);
        let one = on_one(&model, &plans, WHOLE);
        let manner = Manner { threads, budget, credits, ahead, ..Manner::new(stages, tokens_per_pass) };
        let many = on_stages(&model, &plans, &manner);
        assert_same(&one, &many, &plans, &format!("{manner:?}"));
    }
}

/// On each of three stages, whatever is made again by layer.
#[test]
fn what_a_sequence_holds_was_known_with_its_first_chunk_fp_3_ch_2() {
    let model = tiny::model(Family::Qwen3, false);
    for (index, spec) in methods::every().into_iter().enumerate() {
        let mut plan = plain("job", spec);
        plan.lengths = vec![500];
        let layout = layout_of(&plan.spec.adapter, &model, plan.spec.seed);
        let values = plan.values(&layout, &model);
        let rows = plan.rows(model.shape.vocab);
        let size = Size {
            budget: 128,
            chunk: 128,
            cut: Cut::Anywhere,
        };
        let chunks = pack::cut_passes(&[plan.request(&layout, &rows)], size);
        let mut stages: Vec<Stage> = [0..2, 2..4, 4..tiny::LAYERS]
            .map(|span| {
                let part = Arc::new(model.slice(span.clone()));
                let mut stage = Stage::new(part, Cpu::new(1).unwrap());
                let slice = layout.slice(span);
                let own = slice.cut(&values);
                stage.recompute(index % 3);
                stage.attach(Adapter::new(Arc::new(slice), own, 7));
                stage
            })
            .into();
        let known: Vec<_> = stages.iter().map(|s| s.footprint(&chunks[0])).collect();
        for (number, chunk) in (0..).zip(&chunks) {
            let mut hidden = None;
            for stage in &mut stages {
                if let Passed::Hidden(out) =
                    stage.forward(number, Arc::new(chunk.clone()), hidden.take())
                {
                    hidden = Some(out);
                }
            }
        }
        for number in (0..chunks.len() as u64).rev() {
            let mut gradient = None;
            for (stage, known) in stages.iter_mut().zip(&known).rev() {
                let held = stage.held_bytes();
                assert!(held > 0 && held <= known.total(), "{held} bytes, {known:?}");
                gradient = stage.backward(number, gradient);
            }
        }
        for (stage, known) in stages.iter_mut().zip(&known) {
            assert_eq!(stage.held_bytes(), 0);
            let peak = stage.take_peak();
            assert!(peak <= known.total(), "{peak} bytes, {known:?}");
            // It is no mere bound: half of it is reached.
            assert!(2 * peak > known.total(), "{peak} bytes, {known:?}");
        }
    }
}
