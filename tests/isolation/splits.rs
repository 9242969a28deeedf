//! Any split of a batch into micro-batches, and any cut of passes: the same update.

use shared::job::TrainSpec;
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
