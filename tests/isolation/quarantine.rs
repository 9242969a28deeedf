//! A job whose numbers break stops alone, and says where; its neighbours' bits do not change.
//!
//! Public bug: thinking-machines-lab/tinker-feedback #21 (a run is "corrupted", with no cause and no way back).

use gpu_actor::peft::layout::LinearSite;
use gpu_actor::train::event::Event;
use gpu_actor::train::session::{Standing, layout_of};
use kernels::cpu::Products;
use kernels::weight::Format;
use proptest::prelude::*;
use shared::job::{AdapterSpec, BitFitSpec, LoraSpec, OptimizerKind, Targets};
use shared::model::{Family, Projection, Target};
use system_tests::methods;

use crate::broken;
use crate::cases;
use crate::plan::{self, Plan, plain};
use crate::run::{Manner, admit, alone, assert_same, assert_same_state, together};
use crate::{method, tiny};

/// A job whose first step throws its values far out, so that its second loss is no number.
fn diverging(name: &str, adapter: AdapterSpec) -> Plan {
    let mut plan = plain(name, adapter);
    plan.spec.optimizer.kind = OptimizerKind::Sgd;
    plan.spec.optimizer.learning_rate = 1e30;
    plan
}

proptest! {
    #![proptest_config(cases(8))]

    #[test]
    fn neighbours_of_a_broken_job_do_not_notice(
        plans in plan::any_plans(1..4),
        broken in method::any_method(),
        rate in proptest::sample::select(vec![1e30, 1e45]),
        tokens_per_pass in 1..500usize,
        products in proptest::sample::select(Products::ALL.to_vec()),
    ) {
        let model = tiny::llama();
        let mut all = plans.clone();
        all.push(diverging("broken", broken));
        all[plans.len()].spec.optimizer.learning_rate = rate;
        let manner = Manner::new(2, tokens_per_pass).with_products(products);
        let records = together(&model, &all, &manner);
        let quiet = Manner::new(1, 300).with_products(products);
        for plan in &plans {
            let name = &plan.spec.name;
            assert_same(&alone(&model, plan, &quiet), &records[name], name.as_str());
        }
        // Of what the lower rate makes, a norm may make numbers again (a prompt); the higher one no method survives.
        let broken = &records[&all[plans.len()].spec.name].standing;
        let set_aside = matches!(broken, Standing::Quarantined(_));
        prop_assert!(set_aside || rate < 1e40, "it trained: {broken:?}");
    }
}

/// A head of numbers that cannot be squared comes out of its norm as zeros: a finite loss, and a gradient of zero for ever.
#[test]
fn a_head_that_is_too_large_to_be_squared_sets_its_job_aside() {
    let model = tiny::model(Family::Qwen3, Format::F32);
    for projection in [Projection::Q, Projection::K] {
        let targets = Targets::Named(vec![Target::Block(projection)]);
        let AdapterSpec::Lora(lora) = methods::every().remove(0) else {
            panic!("the first is plain");
        };
        let lora = AdapterSpec::Lora(LoraSpec { targets, ..lora });
        let neighbour = plain("neighbour", methods::every().remove(0));
        let plan = plain("broken", lora);
        let layout = layout_of(&plan.spec.adapter, &model, plan.spec.seed);
        let rows = plan.rows(model.shape.vocab);
        let values = vec![1e10; layout.len];
        let mut session = Manner::new(2, 300).session(&model);
        let spec = plan.spec.clone();
        let admitted = session.admit(spec, layout, values, rows, Vec::new(), None);
        admitted.unwrap();
        admit(&mut session, &model, &neighbour, None);
        let events = session.round();
        let reason = events.iter().find_map(|event| match event {
            Event::Quarantined {
                step: 0, reason, ..
            } => Some(reason),
            _ => None,
        });
        let reason = reason.unwrap_or_else(|| panic!("{projection:?}: {events:?}"));
        assert!(
            reason.contains("loss is not finite: sample")
                && reason.contains(&format!("first in layer 0: {} of row ", projection.name())),
            "{projection:?}: {reason}"
        );
        let name = &neighbour.spec.name;
        assert_eq!(session.progress(name).unwrap().0.step, 1);
        // Its loss was computed with the values that it came with.
        let proof = session.proof(&plan.spec.name).unwrap();
        assert!(!proof.holds(0));
    }
}

/// A bias that is finite and too large to be squared behind any projection: what follows it is never a row of zeros.
#[test]
fn a_row_that_is_too_large_for_a_norm_is_told_with_layer_and_projection() {
    let model = tiny::llama();
    for (projection, place) in [
        (Projection::V, "first in layer 0: o_proj of row 0"),
        (Projection::O, "first in layer 0: o_proj of row 0"),
        (Projection::Up, "first in layer 0: down_proj of row 0"),
        (Projection::Down, "first in layer 0: down_proj of row 0"),
    ] {
        let mut plan = broken::biased();
        plan.spec.eval.every_steps = None;
        let layout = layout_of(&plan.spec.adapter, &model, plan.spec.seed);
        let Some(LinearSite::Bias(range)) = layout.layers[0].linear[projection as usize].clone()
        else {
            panic!("BitFit adds a bias everywhere");
        };
        let mut values = vec![0.0; layout.len];
        values[range].fill(1e25);
        let rows = plan.rows(model.shape.vocab);
        let mut session = Manner::new(2, 300).session(&model);
        let spec = plan.spec.clone();
        let admitted = session.admit(spec, layout, values, rows, Vec::new(), None);
        admitted.unwrap();
        let events = session.round();
        let told = events.iter().any(
            |event| matches!(event, Event::Quarantined { step: 0, reason, .. } if reason.ends_with(place)),
        );
        assert!(told, "{projection:?}: {events:?}");
    }
}

/// Whoever reads it finds the sample: in the file of training, and in that of held-out rows.
#[test]
fn the_sample_that_broke_is_told_by_file_and_line() {
    let model = tiny::llama();
    for held_out in [false, true] {
        let mut plan = broken::biased();
        plan.spec.data.train = "data/train.jsonl".into();
        plan.spec.data.eval = held_out.then(|| "data/held.jsonl".into());
        plan.spec.eval.every_steps = held_out.then_some(1);
        let layout = layout_of(&plan.spec.adapter, &model, plan.spec.seed);
        let values = vec![f32::NAN; layout.len];
        let mut rows = plan.rows(model.shape.vocab);
        (100..)
            .zip(&mut rows)
            .for_each(|(line, row)| row.line = line);
        let held = if held_out {
            rows.split_off(1)
        } else {
            Vec::new()
        };
        let mut session = Manner::new(2, 300).session(&model);
        let spec = plan.spec.clone();
        session
            .admit(spec, layout, values, rows, held, None)
            .unwrap();
        let events = session.round();
        let reason = events.iter().find_map(|event| match event {
            Event::Quarantined { reason, .. } => Some(reason),
            _ => None,
        });
        let reason = reason.unwrap_or_else(|| panic!("{events:?}"));
        let (what, file) = match held_out {
            true => ("held-out", "(data/held.jsonl: line 101)"),
            false => ("training", "(data/train.jsonl: line 1"),
        };
        assert!(
            reason.starts_with(what) && reason.contains(file),
            "{reason}"
        );
    }
}

/// A first update beyond the range of f32 is not taken, not even in part: values and moments stay as they were.
#[test]
fn an_update_that_overflows_changes_nothing() {
    let model = tiny::llama();
    let neighbours = [
        plain("neighbour-a", methods::every().remove(0)),
        plain("neighbour-b", methods::every().remove(4)),
    ];
    for spec in methods::every() {
        for (kind, weight_decay) in [(OptimizerKind::Sgd, 0.0), (OptimizerKind::AdamW, 0.1)] {
            let mut broken = plain("broken", spec.clone());
            broken.spec.optimizer.kind = kind;
            broken.spec.optimizer.weight_decay = weight_decay;
            broken.spec.optimizer.learning_rate = 1e45;
            let mut session = Manner::new(2, 300).session(&model);
            admit(&mut session, &model, &broken, None);
            let before = session.state(&broken.spec.name).unwrap();
            let events = session.round();
            let told = events.iter().any(|event| {
                matches!(event, Event::Quarantined { step: 0, reason, .. }
                    if reason.contains("new value of"))
            });
            assert!(told, "{:?}: {events:?}", spec);
            let after = session.state(&broken.spec.name).unwrap();
            assert_same_state(&before, &after, "the state before the first step");
            // Loss and gradient with it were finite.
            assert!(session.proof(&broken.spec.name).unwrap().holds(0));
            let mut all = neighbours.to_vec();
            all.push(broken);
            let records = together(&model, &all, &Manner::new(2, 300));
            for plan in &neighbours {
                let name = &plan.spec.name;
                let alone = alone(&model, plan, &Manner::new(1, 500));
                assert_same(&alone, &records[name], name.as_str());
            }
        }
    }
}

#[test]
fn every_method_that_breaks_is_set_aside_and_says_where() {
    let model = tiny::llama();
    for spec in methods::every() {
        let Plan { spec, .. } = plain("broken", spec);
        let layout = layout_of(&spec.adapter, &model, spec.seed);
        let rows = plain("broken", spec.adapter.clone()).rows(model.shape.vocab);
        let values = vec![f32::INFINITY; layout.len];
        let mut session = Manner::new(2, 300).session(&model);
        session
            .admit(spec.clone(), layout, values, rows, Vec::new(), None)
            .unwrap();
        let events = session.round();
        let [
            Event::Quarantined {
                step: 0, reason, ..
            },
        ] = events.as_slice()
        else {
            panic!("{:?}: {events:?}", spec.adapter);
        };
        assert!(
            reason.contains("not finite") && reason.contains("row"),
            "{reason}"
        );
        let standing = session.standing(&spec.name);
        assert_eq!(standing, Some(&Standing::Quarantined(reason.clone())));
    }
}

/// The state of the step before is kept whole: moments and values, not only progress.
#[test]
fn the_last_good_state_is_the_one_before_the_bad_step() {
    let model = tiny::llama();
    let lora = LoraSpec {
        rank: 2,
        alpha: None,
        dropout: 0.0,
        targets: Targets::Group("attention".into()),
        rslora: false,
        dora: false,
        lr_ratio: 1.0,
    };
    let plan = diverging("broken", AdapterSpec::Lora(lora));
    let mut session = Manner::new(1, 300).session(&model);
    admit(&mut session, &model, &plan, None);
    let mut before = session.state(&plan.spec.name).unwrap();
    loop {
        session.round();
        let after = session.state(&plan.spec.name).unwrap();
        if session.standing(&plan.spec.name) != Some(&Standing::Active) {
            assert_same_state(&before, &after, "the state of the last good step");
            return;
        }
        before = after;
    }
}

/// Values that a step broke are no state to go on from.
#[test]
fn broken_values_are_never_saved() {
    let model = tiny::llama();
    let bias = BitFitSpec {
        targets: Targets::Group("attention".into()),
    };
    let mut plan = diverging("broken", AdapterSpec::BitFit(bias));
    plan.spec.optimizer.learning_rate = 1e300;
    let mut session = Manner::new(1, 300).session(&model);
    admit(&mut session, &model, &plan, None);
    let before = session.state(&plan.spec.name).unwrap();
    let events = session.round();
    let [.., Event::Quarantined { reason, .. }] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert!(reason.contains("new value"), "{reason}");
    let after = session.state(&plan.spec.name).unwrap();
    assert_same_state(&before, &after, "after a step that was not taken");
}
