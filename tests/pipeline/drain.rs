//! A drain ends the steps that are begun and takes back the others: it does not wait for whole rounds, and no bit shows it.

use shared::model::Family;
use system_tests::methods;
use system_tests::plan::{Plan, plain};

use crate::run::{Manner, admit, assert_ends, on_one, store, stored};
use crate::tiny;

/// Jobs of three long steps: eight rows each.
fn plans() -> Vec<Plan> {
    let methods = methods::every().into_iter().cycle();
    let plan = |(index, spec)| {
        let mut plan = plain(&format!("job-{index:02}"), spec);
        plan.lengths = (0..8).map(|row| 5 + (7 * row + index) % 30).collect();
        plan.spec.train.steps = Some(3);
        plan.spec.train.accumulation = 4;
        plan.spec.checkpoint.every_steps = Some((index % 2) as u64);
        plan
    };
    methods.take(16).enumerate().map(plan).collect()
}

#[test]
fn a_drain_ends_what_is_begun_and_the_bits_stay() {
    let model = tiny::model(Family::Llama, true);
    let plans = plans();
    let one = on_one(&model, &plans, 300);
    for (stages, tokens_per_pass, moves) in
        [(1, 1, false), (3, 1, true), (3, 70, false), (2, 70, true)]
    {
        let store = store();
        let mut replica = Manner::new(stages, tokens_per_pass).start(&model, &store);
        let lead = replica.lead();
        for plan in &plans {
            admit(lead, plan, &model, &store);
        }
        lead.round().unwrap();
        lead.drain().unwrap();
        let steps: Vec<u64> = plans
            .iter()
            .map(|plan| lead.progress(&plan.spec.name).unwrap().0.step)
            .collect();
        // Two more rounds were planned; of these only the steps whose micro-batches were given to the stages are taken.
        assert!(
            steps.is_sorted_by(|a, b| a >= b),
            "in the order of the plan: {steps:?}"
        );
        assert_eq!(steps.last(), Some(&1), "{steps:?}");
        for (plan, step) in plans.iter().zip(&steps) {
            assert_eq!(lead.durable(&plan.spec.name), Some(*step));
            let found = stored(&store, plan, &model).recovered.unwrap();
            assert_eq!(found.state.progress.step, *step);
        }
        if moves {
            replica.kill();
            replica = Manner::new(stages + 1, 40).start(&model, &store);
            for plan in &plans {
                admit(replica.lead(), plan, &model, &store);
            }
        }
        let lead = replica.lead();
        while !lead.is_idle() {
            lead.round().unwrap();
        }
        lead.drain().unwrap();
        replica.close().unwrap();
        assert_ends(&one, &plans, (&store, &model), &format!("{stages} stages"));
    }
}
