//! Layers that run forward again instead of keeping what they computed: the same bits, for less memory.

use std::sync::Arc;

use data::rows::TokenRow;
use gpu_actor::batch::Batch;
use gpu_actor::model::Model;
use gpu_actor::model::tiny::{TinySpec, write_tiny};
use gpu_actor::stage::adapter::Adapter;
use gpu_actor::stage::relay::Passed;
use gpu_actor::stage::step::Stage;
use gpu_actor::train::pack::{self, Request};
use gpu_actor::train::session::layout_of;
use kernels::cpu::Cpu;
use kernels::weight::Format;
use proptest::prelude::*;
use shared::model::{Family, Projection};
use system_tests::methods;

use crate::broken;
use crate::cases;
use crate::plan::{self, Plan, plain};
use crate::run::{Manner, alone, assert_same, together};
use crate::tiny;

/// Layers of the model here.
const LAYERS: usize = 4;

/// A model of more layers than the smallest has.
fn deep(family: Family) -> Arc<Model> {
    let spec = TinySpec {
        hidden: 32,
        layers: LAYERS,
        heads: 4,
        kv_heads: 2,
        head_dim: 8,
        intermediate: 64,
        ..TinySpec::smallest(family)
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    write_tiny(&path, &spec).unwrap();
    let options = gpu_actor::model::OpenOptions::new(Cpu::new(1).unwrap());
    Arc::new(Model::open(&path, &options).unwrap())
}

fn recomputing(manner: Manner, recomputed: usize) -> Manner {
    Manner {
        recomputed,
        ..manner
    }
}

proptest! {
    #![proptest_config(cases(8))]

    #[test]
    fn random_mixes_leave_the_same_bits_whatever_is_made_again(
        plans in plan::any_plans(1..5),
        family in proptest::sample::select(Family::ALL.to_vec()),
        tokens_per_pass in 1..500usize,
        recomputed in 1..4usize,
    ) {
        let model = tiny::model(family, Format::F32);
        let manner = Manner::new(2, tokens_per_pass);
        let kept = together(&model, &plans, &manner);
        let again = together(&model, &plans, &recomputing(manner, recomputed));
        for (name, kept) in &kept {
            assert_same(kept, &again[name], name.as_str());
        }
    }
}

#[test]
fn every_method_has_the_same_bits_whichever_layers_are_made_again() {
    for family in [Family::Llama, Family::Qwen3] {
        let model = deep(family);
        for spec in methods::every() {
            let mut plan = plain("job", spec);
            plan.spec.train.steps = Some(2);
            plan.spec.train.accumulation = 2;
            plan.spec.eval.every_steps = Some(1);
            let kept = alone(&model, &plan, &Manner::new(2, 60));
            for recomputed in 1..=LAYERS {
                let manner = recomputing(Manner::new(2, 60), recomputed);
                let what = format!("{recomputed} layers again, {:?}", plan.spec.adapter);
                assert_same(&kept, &alone(&model, &plan, &manner), &what);
            }
        }
    }
}

/// Why a job was set aside that adds a number which is none behind one projection of one layer.
fn reason(model: &Arc<Model>, layer: usize, p: Projection, recomputed: usize) -> String {
    let mut plan = broken::biased();
    plan.spec.eval.every_steps = None;
    let manner = recomputing(Manner::new(1, 300), recomputed);
    broken::reason(model, &plan, &manner, (layer, p))
}

/// The layer that is named does not depend on what was kept: in its first half, its second, and in the last layer.
#[test]
fn a_number_that_breaks_is_found_in_the_same_layer() {
    let model = deep(Family::Llama);
    for layer in 0..LAYERS {
        for p in [Projection::O, Projection::Down] {
            let kept = reason(&model, layer, p, 0);
            let place = match (p, layer + 1 == LAYERS) {
                (Projection::Down, true) => "at the end of the model".to_owned(),
                _ => format!("first in layer {layer}"),
            };
            assert!(kept.contains(&place), "{kept}");
            for recomputed in 1..=LAYERS {
                // Of a layer that is made again the projection may be gone.
                let told = reason(&model, layer, p, recomputed);
                assert!(kept.starts_with(&told) && told.contains(&place), "{told}");
            }
        }
    }
}

/// A stage with a job of this plan, and its rows in one pass.
fn staged(model: &Arc<Model>, plan: &Plan, rows: &[TokenRow]) -> (Stage, Arc<Batch>) {
    let mut stage = Stage::new(Arc::clone(model), Cpu::new(1).unwrap());
    let layout = layout_of(&plan.spec.adapter, model, plan.spec.seed);
    let values = plan.values(&layout, model);
    let request = Request {
        slot: 0,
        prompt_tokens: layout.prompt.as_ref().map_or(0, |site| site.tokens),
        prefix_tokens: layout.prefix.as_ref().map_or(0, |site| site.tokens),
        step: 0,
        rows: rows.iter().collect(),
        part: None,
    };
    let batch = pack::passes(&[request], 10_000, pack::Cut::Anywhere).remove(0);
    assert_eq!(stage.attach(Adapter::new(layout, values, 7)), 0);
    (stage, Arc::new(batch))
}

#[test]
fn what_is_held_was_known_before_fp_1_fp_2() {
    let model = deep(Family::Qwen3);
    for spec in methods::every() {
        let plan = plain("job", spec);
        let rows = plan.rows(model.shape.vocab);
        let mut totals = Vec::new();
        for recomputed in 0..=LAYERS {
            let (mut stage, batch) = staged(&model, &plan, &rows);
            stage.recompute(recomputed);
            let footprint = stage.footprint(&batch);
            // Twice, as buffers that were used before must not count.
            for number in 0..2 {
                assert!(matches!(
                    stage.forward(number, Arc::clone(&batch), None),
                    Passed::Outcomes(_)
                ));
                assert_eq!(
                    stage.held_bytes(),
                    footprint.kept,
                    "FP-1, {spec:?}",
                    spec = plan.spec
                );
                stage.backward(number, None);
                assert_eq!(stage.held_bytes(), 0);
                assert!(
                    recomputed == 0 || stage.passing_bytes() <= footprint.passing,
                    "FP-2"
                );
            }
            assert_eq!(footprint.passing > 0, recomputed > 0);
            totals.push(footprint.total());
        }
        // The shared tape costs what one layer keeps, so two layers are the least that pay.
        assert!(
            totals[1] > totals[0] && totals[2..].is_sorted_by(|a, b| a > b),
            "{totals:?}"
        );
        assert!(totals[2] < totals[0], "{totals:?}");
    }
}

/// A pass whose activations are beyond a budget fits in it when layers are made again, and leaves the same gradient.
#[test]
fn a_pass_beyond_the_budget_fits_when_layers_are_made_again() {
    let model = deep(Family::Llama);
    let mut plan = plain("job", methods::every().remove(1));
    plan.lengths = vec![300, 250];
    let rows = plan.rows(model.shape.vocab);
    let (mut kept, batch) = staged(&model, &plan, &rows);
    let (mut again, _) = staged(&model, &plan, &rows);
    let whole = kept.footprint(&batch).total();
    let budget = whole / 2;
    again.recompute(LAYERS);
    assert!(again.footprint(&batch).total() <= budget);
    kept.forward(0, Arc::clone(&batch), None);
    again.forward(0, Arc::clone(&batch), None);
    assert!(kept.held_bytes() > budget);
    assert!(again.held_bytes() + again.passing_bytes() <= budget);
    for stage in [&mut kept, &mut again] {
        stage.backward(0, None);
    }
    assert!(again.passing_bytes() <= budget);
    let gradient = |stage: &Stage| -> Vec<u32> {
        let gradient = stage.adapter(0).unwrap().gradient();
        gradient.iter().map(|value| value.to_bits()).collect()
    };
    assert!(gradient(&kept) == gradient(&again));
    assert!(gradient(&kept).iter().any(|&bits| bits << 1 != 0));
}
