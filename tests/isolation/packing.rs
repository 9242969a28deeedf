//! A sample's loss is its own, whatever it is packed with; positions start again with every sample.

use std::sync::Arc;

use data::rows::TokenRow;
use gpu_actor::stage::step::Stage;
use gpu_actor::train::session::layout_of;
use kernels::cpu::Cpu;
use kernels::weight::Format;
use proptest::prelude::*;
use shared::model::Family;
use system_tests::engine::steps::{self, Trainee};

use crate::cases;
use crate::plan::{self, Plan};
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
