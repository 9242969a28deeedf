//! Any split of a batch into micro-batches, and any cut of passes: the same update.
//!
//! Public bugs: huggingface/transformers #35203 and axolotl-ai-cloud/axolotl #1100 (the loss depends on the split),
//! ml-explore/mlx-lm PR #1413 and #1544 (the last, partial window of an epoch is dropped).

use gpu_actor::train::event::Event;
use shared::job::{OptimizerKind, TrainSpec};
use system_tests::methods;

use crate::plan::plain;
use crate::run::{Manner, admit, alone, assert_same};
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
                epochs: None,
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

/// 19 rows in windows of 16: the epoch ends with a step of three rows, which moves the values by their mean loss.
#[test]
fn the_partial_window_at_the_end_of_an_epoch_is_applied() {
    let model = tiny::llama();
    let mut plan = plain("partial", methods::every().remove(0));
    plan.lengths = (0..19).map(|i| 2 + 37 * i % 101).collect();
    plan.spec.optimizer.kind = OptimizerKind::Sgd;
    plan.spec.train = TrainSpec {
        epochs: None,
        steps: None,
        batch_size: 4,
        accumulation: 4,
        shuffle: true,
    };
    let mut session = Manner::new(2, 300).session(&model);
    admit(&mut session, &model, &plan, None);
    let (mut tokens, mut values) = (Vec::new(), Vec::new());
    while !session.is_idle() {
        let before = session.state(&plan.spec.name).unwrap().values;
        for event in session.round() {
            if let Event::Step {
                tokens: passed,
                gradient_norm,
                ..
            } = event
            {
                tokens.push(passed);
                assert!(gradient_norm > 0.0);
            }
        }
        let after = session.state(&plan.spec.name).unwrap().values;
        values.push(before != after);
    }
    assert_eq!(values, [true, true], "each window moved the values");
    let all: usize = plan.lengths.iter().sum();
    assert_eq!(
        tokens.iter().sum::<u64>(),
        all as u64,
        "every row was trained once"
    );
}
