//! An adapter on the LM head, over the passes of a step.

use gpu_actor::peft::init;
use gpu_actor::stage::adapter::Adapter;
use gpu_actor::stage::step::Stage;
use gpu_actor::train::pack::{self, Request};
use gpu_actor::train::session::layout_of;
use shared::job::{AdapterSpec, LoraSpec, Targets};
use shared::model::Target;

use crate::plan::plain;
use crate::run::Manner;
use crate::tiny;

/// A pass in which the job has rows but no labels still brings blocks, whose place in the sum is theirs: left out, the
/// later blocks would move up.
#[test]
fn a_pass_without_labels_keeps_the_order_of_the_heads_blocks() {
    let model = tiny::llama();
    for dropout in [0.0, 0.3] {
        let adapter = AdapterSpec::Lora(LoraSpec {
            rank: 3,
            alpha: None,
            dropout,
            targets: Targets::Named(vec![Target::LmHead]),
            rslora: false,
            dora: false,
            lr_ratio: 1.0,
        });
        let mut plan = plain("unlabelled", adapter);
        // Whole sequences go into a pass: the second and the fourth have no label.
        plan.lengths = vec![90, 70, 33, 100, 60, 41];
        let mut rows = plan.rows(model.shape.vocab);
        for unlabelled in [1, 3] {
            rows[unlabelled].labels.fill(-100);
        }
        let gradient = |tokens_per_pass| {
            let manner = Manner::new(2, tokens_per_pass);
            let mut stage = Stage::new(model.clone(), manner.cpu.clone());
            let layout = layout_of(&plan.spec.adapter, &model, plan.spec.seed);
            let values = init::values(&layout, &model, &manner.cpu, plan.spec.seed, &[]);
            let slot = stage.attach(Adapter::new(layout, values, plan.spec.seed));
            let request = Request {
                slot,
                prompt_tokens: 0,
                prefix_tokens: 0,
                step: 0,
                rows: rows.iter().collect(),
                part: None,
            };
            for batch in pack::passes(&[request], tokens_per_pass, pack::Cut::Anywhere) {
                stage.train(&batch);
            }
            let adapter = stage.adapter(slot).unwrap();
            let bits = adapter.gradient().iter().map(|g| g.to_bits());
            bits.collect::<Vec<u32>>()
        };
        let whole = gradient(10_000);
        assert!(whole.iter().any(|&bits| bits << 1 != 0), "no gradient");
        for tokens_per_pass in [1, 64, 110] {
            assert_eq!(
                whole,
                gradient(tokens_per_pass),
                "dropout {dropout}, {tokens_per_pass} a pass"
            );
        }
    }
}
