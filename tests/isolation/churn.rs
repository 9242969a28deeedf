//! Slots are freed and taken again in any order while texts are sampled: every text is the one of a quiet stage.
//!
//! Public bug: vllm-project/vllm #47724, where a slot that was taken again served one user's request with another
//! user's adapter.

use std::sync::Arc;

use gpu_actor::stage::step::Stage;
use kernels::cpu::Cpu;
use proptest::prelude::*;
use system_tests::engine::steps::{self, Trainee};

use crate::plan::{self, Plan};
use crate::sampling::{greedy, prompt};
use crate::{cases, packing, tiny};

/// Jobs of which the even ones are sampled and the odd ones train; an event toggles one of them.
const JOBS: usize = 6;

fn is_sampled(job: usize) -> bool {
    job.is_multiple_of(2)
}

/// What a job writes greedily on a stage of its own.
fn quiet(plan: &Plan) -> (Vec<u32>, Vec<Vec<u32>>) {
    let model = tiny::llama();
    let prompt = prompt(plan, model.shape.vocab);
    let mut stage = Stage::new(model, Cpu::new(1).unwrap());
    let trainee = packing::attach(&mut stage, plan);
    greedy(&mut stage, &trainee, &prompt)
}

fn train_once(stage: &mut Stage, plan: &Plan, trainee: &mut Trainee) {
    let rows = plan.rows(stage.model().shape.vocab);
    let mut jobs = [(trainee, rows.iter().collect(), 1e-3)];
    steps::step(stage, &mut jobs, 0, 200).unwrap();
}

proptest! {
    #![proptest_config(cases(6))]

    #[test]
    fn a_freed_slot_that_is_taken_again_changes_nobodys_text(
        plans in plan::any_plans(JOBS..JOBS + 1),
        toggled in proptest::collection::vec(0..JOBS, 12..24),
    ) {
        let model = tiny::llama();
        let expected: Vec<_> = plans.iter().map(quiet).collect();
        let mut stage = Stage::new(Arc::clone(&model), Cpu::new(2).unwrap());
        let mut here: Vec<Option<Trainee>> = plans.iter().map(|_| None).collect();
        for job in toggled {
            match here[job].take() {
                Some(trainee) => trainee.detach(&mut stage),
                None => {
                    let mut trainee = packing::attach(&mut stage, &plans[job]);
                    if !is_sampled(job) {
                        train_once(&mut stage, &plans[job], &mut trainee);
                    }
                    here[job] = Some(trainee);
                }
            }
            let sampled = here.iter().enumerate().filter(|(job, _)| is_sampled(*job));
            for (reader, trainee) in sampled {
                let Some(trainee) = trainee else { continue };
                let prompt = prompt(&plans[reader], model.shape.vocab);
                let found = greedy(&mut stage, trainee, &prompt);
                prop_assert!(found == expected[reader], "job {reader} after {job} came or went");
            }
        }
    }
}
