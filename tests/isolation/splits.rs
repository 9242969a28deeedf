//! Any split of a batch into micro-batches, and any cut of passes: the same update.

use gpu_actor::train::session::layout_of;
use shared::job::{AdapterSpec, LoraSpec, Targets, TrainSpec};
use shared::model::Target;
use system_tests::methods;

use crate::plan::plain;
use crate::run::{Manner, alone, assert_same};
use crate::tiny;

#[test]
fn sixteen_by_one_four_by_four_and_one_by_sixteen_are_the_same_update() {
    let model = tiny::llama();
    for spec in methods::every() {
        let mut plan = plain("split", spec);
        plan.lengths = (0..19).map(|i| 2 + 37 * i % 101).collect();
        let mut expected = None;
        for (batch_size, accumulation) in [(16, 1), (4, 4), (1, 16), (8, 2)] {
            plan.spec.train = TrainSpec {
                epochs: 1.0,
                // The second step is the epoch's last and smaller one: it is taken too.
                steps: Some(2),
                batch_size,
                accumulation,
                shuffle: true,
            };
            for tokens_per_pass in [1, 64, 10_000] {
                let record = alone(&model, &plan, &Manner::new(2, tokens_per_pass));
                let what = format!("{batch_size} x {accumulation}, {tokens_per_pass} a pass");
                match &expected {
                    None => expected = Some(record),
                    Some(expected) => assert_same(expected, &record, &what),
                }
            }
        }
    }
}

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
        // Whole sequences go into a pass: the second and the fourth of every step have no label.
        plan.lengths = vec![90, 70, 33, 100, 60, 41];
        plan.unlabelled = vec![1, 3];
        plan.spec.train = TrainSpec {
            epochs: 1.0,
            steps: Some(2),
            batch_size: 6,
            accumulation: 1,
        };
        let whole = alone(&model, &plan, &Manner::new(2, 10_000));
        let started = plan.values(
            &layout_of(&plan.spec.adapter, &model, plan.spec.seed),
            &model,
        );
        assert_ne!(whole.state.values, started, "nothing was trained");
        for tokens_per_pass in [1, 64, 110] {
            let cut = alone(&model, &plan, &Manner::new(1, tokens_per_pass));
            let what = format!("dropout {dropout}, {tokens_per_pass} a pass");
            assert_same(&whole, &cut, &what);
        }
    }
}
