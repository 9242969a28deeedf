//! Every target that was asked for is trained, and nothing else is touched.
//!
//! Public bugs: TUDB-Labs/mLoRA #138 (only the last layer's adapter was updated) and #90 (the base weights held
//! gradients), huggingface/peft #1303 (of several adapters only the first one learns).

use gpu_actor::peft::init;
use gpu_actor::train::event::Event;
use gpu_actor::train::memory;
use gpu_actor::train::session::layout_of;
use kernels::cpu::Cpu;
use system_tests::methods;

use crate::plan::plain;
use crate::run::{Manner, admit};
use crate::tiny;

/// From the usual start, where B and up matrices are zero: two steps move every tensor of every block.
#[test]
fn every_parameter_of_every_method_moves_and_the_backbone_does_not() {
    let model = tiny::llama();
    let cpu = Cpu::new(2).unwrap();
    let hash = model.content_hash();
    for spec in methods::every() {
        let plan = plain("moving", spec);
        let layout = layout_of(&plan.spec.adapter, &model, plan.spec.seed);
        let before = init::values(&layout, &model, &cpu, plan.spec.seed, &[]);
        let mut session = Manner::new(2, 300).session(&model);
        let rows = plan.rows(model.shape.vocab);
        let (spec, values) = (plan.spec.clone(), before.clone());
        session
            .admit(spec, layout.clone(), values, rows, Vec::new(), None)
            .unwrap();
        session.round();
        session.round();
        let after = session.state(&plan.spec.name).unwrap().values;
        for parameter in &layout.parameters {
            let range = parameter.range.clone();
            assert!(
                before[range.clone()] != after[range],
                "{} stayed where it was",
                parameter.key
            );
        }
    }
    assert_eq!(model.content_hash(), hash, "the backbone changed");
}

/// One step moves B of every target of every layer: no layer waits for another's.
#[test]
fn one_step_moves_b_of_every_target_of_every_layer() {
    let model = tiny::llama();
    let plan = plain("moving", methods::every().remove(0));
    let layout = layout_of(&plan.spec.adapter, &model, plan.spec.seed);
    let values = init::values(&layout, &model, &Cpu::new(1).unwrap(), plan.spec.seed, &[]);
    let mut session = Manner::new(2, 300).session(&model);
    let rows = plan.rows(model.shape.vocab);
    let spec = plan.spec.clone();
    session
        .admit(spec, layout.clone(), values, rows, Vec::new(), None)
        .unwrap();
    session.round();
    let after = session.state(&plan.spec.name).unwrap().values;
    let b = layout
        .parameters
        .iter()
        .filter(|p| p.key.contains("lora_B"));
    let moved: Vec<bool> = b
        .map(|p| after[p.range.clone()].iter().any(|&value| value != 0.0))
        .collect();
    // Seven in every block, and the head.
    assert_eq!(moved, vec![true; 7 * model.shape.layers + 1]);
}

/// What a job holds is its values, their gradient and two moments, the places of sparse ones, and what is derived from the values, such as row norms
/// and prefixes with their gradient: as foreseen, and nothing as large as the backbone.
#[test]
fn a_job_holds_what_was_foreseen_and_none_a_weight() {
    let model = tiny::llama();
    for spec in methods::every() {
        let plan = plain("held", spec);
        let mut session = Manner::new(1, 300).session(&model);
        admit(&mut session, &model, &plan, None);
        session.round();
        let values = session.state(&plan.spec.name).unwrap().values.len() as u64;
        let held = session.job_bytes(&plan.spec.name).unwrap();
        assert!(held >= 16 * values, "{held} bytes for {values} values");
        let layout = layout_of(&plan.spec.adapter, &model, plan.spec.seed);
        let foreseen = memory::adapter_bytes(&plan.spec, &layout, &model.shape);
        assert_eq!(held, foreseen, "{values} values: {:?}", plan.spec.adapter);
    }
}

/// Jobs that train at once all learn, and as fast as alone.
#[test]
fn every_job_of_a_mix_learns() {
    let model = tiny::llama();
    let mut session = Manner::new(2, 400).session(&model);
    for (index, spec) in methods::every().into_iter().enumerate() {
        let mut plan = plain(&format!("job-{index}"), spec);
        plan.spec.train.steps = Some(30);
        plan.spec.optimizer.learning_rate = 2e-2;
        plan.lengths = vec![20, 30];
        admit(&mut session, &model, &plan, None);
    }
    let (mut first, mut last) = (Vec::new(), Vec::new());
    while !session.is_idle() {
        for event in session.round() {
            if let Event::Step {
                job, step, loss, ..
            } = event
            {
                match step {
                    1 => first.push((job, loss)),
                    30 => last.push((job, loss)),
                    _ => {}
                }
            }
        }
    }
    assert_eq!(first.len(), methods::every().len());
    for ((job, first), (_, last)) in first.iter().zip(&last) {
        assert!(last < &(0.95 * first), "{job} went from {first} to {last}");
    }
}
