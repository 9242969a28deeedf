//! A sample's loss is its own, whatever it is packed with; positions start again with every sample.
//!
//! Public bugs: huggingface/trl #784 and #3067, OpenRLHF/OpenRLHF #587 (packed samples attend to one another).

use std::sync::Arc;

use data::rows::TokenRow;
use gpu_actor::stage::step::Stage;
use gpu_actor::train::session::layout_of;
use kernels::cpu::Cpu;
use kernels::weight::Format;
use proptest::prelude::*;
use shared::model::Family;
use system_tests::engine::steps::{self, Trainee};
use system_tests::methods;

use crate::cases;
use crate::plan::{self, Plan, plain};
use crate::tiny;

/// Attaches a plan's adapter.
pub(crate) fn attach(stage: &mut Stage, plan: &Plan) -> Trainee {
    let model = Arc::clone(stage.model());
    let layout = layout_of(&plan.spec.adapter, &model, plan.spec.seed);
    let values = plan.values(&layout, &model);
    let (adapter, optimizer) = (&plan.spec.adapter, &plan.spec.optimizer);
    Trainee::attach(stage, adapter, optimizer, layout, values, plan.spec.seed)
}

proptest! {
    #![proptest_config(cases(16))]

    #[test]
    fn the_loss_of_a_sample_does_not_depend_on_its_neighbours(
        plan in plan::any_plan(),
        family in proptest::sample::select(Family::ALL.to_vec()),
    ) {
        let model = tiny::model(family, Format::F32);
        let rows = plan.rows(model.shape.vocab);
        let mut stage = Stage::new(model, Cpu::new(2).unwrap());
        let trainee = attach(&mut stage, &plan);
        let rows: Vec<&TokenRow> = rows.iter().collect();
        let packed = steps::evaluate(&mut stage, Some(&trainee), &rows, 10_000);
        prop_assert_eq!(packed.len(), rows.len());
        for (row, packed) in rows.iter().zip(packed) {
            let single = steps::evaluate(&mut stage, Some(&trainee), &[row], 1);
            prop_assert_eq!(&single, &[packed]);
        }
    }
}

/// A batch packed into one pass, and the same batch a row a pass: the same losses by row, and the same step.
#[test]
fn a_step_packed_and_unpacked_is_the_same_step() {
    let model = tiny::llama();
    for spec in methods::every() {
        let plan = plain("packed", spec);
        let rows = plan.rows(model.shape.vocab);
        let step = |tokens_per_pass| {
            let mut stage = Stage::new(Arc::clone(&model), Cpu::new(2).unwrap());
            let mut trainee = attach(&mut stage, &plan);
            let mut jobs = [(&mut trainee, rows.iter().collect(), 1e-2)];
            let found = steps::step(&mut stage, &mut jobs, 0, tokens_per_pass).unwrap();
            (found, trainee.values(&stage).to_vec())
        };
        let (packed, unpacked) = (step(10_000), step(1));
        assert_eq!(packed.0[0].sequences.len(), rows.len());
        assert!(packed == unpacked, "{:?}", plan.spec.adapter);
    }
}
