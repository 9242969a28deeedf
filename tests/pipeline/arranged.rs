//! Arrangements never change results: whatever jobs share passes, in how many parts and in which order, on one to four
//! stages, each job has the bits of one stage without any arrangement.

use gpu_actor::train::session::Session;
use kernels::cpu::Cpu;
use proptest::prelude::*;
use shared::ids::JobName;
use shared::model::Family;
use shared::plan::arrangement::{Arrangement, HybridTask};
use system_tests::methods;
use system_tests::plan::{self, Plan, plain};

use crate::mixes::cases;
use crate::run::{Manner, admit_to, assert_same, on_one, on_stages_arranged, state_bits};
use crate::tiny;

fn name(number: usize) -> JobName {
    JobName::new(format!("job-{number}")).unwrap()
}

/// Jobs by the hybrid task of each, hybrid tasks by the bucket and parts of each.
fn arrangement(of: &[usize], tasks: &[(usize, u32)]) -> Arrangement<JobName> {
    let mut buckets = vec![Vec::new(); tasks.len()];
    for (number, (bucket, parts)) in tasks.iter().enumerate() {
        let own = (0..of.len()).filter(|job| of[*job] == number);
        buckets[bucket % tasks.len()].push(HybridTask {
            jobs: own.map(name).collect(),
            parts: *parts,
        });
    }
    Arrangement {
        buckets,
        ..Arrangement::default()
    }
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn random_arrangements_of_the_same_jobs_leave_the_same_bits_on_one_to_four_stages(
        mut plans in plan::any_plans(1..7),
        longer in proptest::collection::vec(0..300usize, 6),
        family in proptest::sample::select(Family::ALL.to_vec()),
        (stages, threads) in (1..=4usize, 1..3usize),
        // Some jobs are not arranged, and some that are never come.
        of in proptest::collection::vec(0..5usize, 8),
        tasks in proptest::collection::vec((0..4usize, 1..6u32), 4),
        (pass_rows, chunk_rows) in (prop::option::of(1..400u64), prop::option::of(1..300u64)),
        tokens_per_pass in prop_oneof![1..400usize, Just(10_000)],
        budget in prop_oneof![Just(u64::MAX), 0..3_000_000u64],
        ahead in 1..5usize,
        // Not all stages are told how many passes to hold.
        held in prop::collection::vec(1..9u32, 0..5),
        turn_rows in prop::option::of(0..400u64),
    ) {
        for (plan, longer) in plans.iter_mut().zip(longer) {
            plan.lengths[0] += longer;
        }
        let model = tiny::model(family, true);
        let one = on_one(&model, &plans, 1_000);
        let arrangement = Arrangement { pass_rows, chunk_rows, ahead: held, turn_rows, ..arrangement(&of, &tasks) };
        let manner = Manner { threads, budget, ahead, ..Manner::new(stages, tokens_per_pass) };
        let many = on_stages_arranged(&model, &plans, &manner, &arrangement);
        assert_same(&one, &many, &plans, &format!("{arrangement:?}, {manner:?}"));
    }
}

/// In a session of one process, with another arrangement every round.
#[test]
fn an_arrangement_holds_from_the_next_round_on() {
    let model = tiny::model(Family::Llama, true);
    let plans: Vec<Plan> = methods::every()
        .into_iter()
        .take(5)
        .enumerate()
        .map(|(index, spec)| {
            let mut plan = plain(name(index).as_str(), spec);
            plan.lengths = vec![9, 70 + 40 * index, 33, 5, 64];
            plan
        })
        .collect();
    let train = |arranged: bool| {
        let mut session = Session::new(model.clone(), Cpu::new(2).unwrap(), 200);
        for plan in &plans {
            admit_to(&mut session, &model, plan);
        }
        let mut round = 0;
        while !session.is_idle() {
            if arranged {
                let of: Vec<usize> = (0..5).map(|job| (job * (round + 1) + round) % 4).collect();
                session.arrange(arrangement(
                    &of,
                    &[(round, 1), (1, 2 + round as u32), (0, 3)],
                ));
            }
            session.round();
            round += 1;
        }
        let states = plans
            .iter()
            .map(|plan| session.state(&plan.spec.name).unwrap());
        states.map(|state| state_bits(&state)).collect::<Vec<_>>()
    };
    assert!(train(false) == train(true));
}
