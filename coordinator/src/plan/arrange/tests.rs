use proptest::prelude::*;

use super::*;
use crate::plan::place::{Fleet, Seat, Seats};
use crate::plan::profile::Peak;
use crate::plan::snapshot::Snapshot;
use crate::plan::testing::{llama_7b, snapshot, task};

/// A replica over all nodes, with about as many blocks on each.
fn seats(problem: &Snapshot) -> Seats {
    let (nodes, blocks) = (problem.nodes.len() as u64, problem.model.layers as u64);
    let seat = |(at, node): (u64, &shared::ids::NodeName)| Seat {
        node: node.clone(),
        first: at * blocks / nodes,
        end: (at + 1) * blocks / nodes,
    };
    (0..).zip(problem.nodes.keys()).map(seat).collect()
}

fn weighed(problem: &Snapshot) -> Option<Weighed> {
    let fleet = Fleet::new(problem).expect("profiles are here");
    let pipeline = fleet.pipeline(problem, &seats(problem))?;
    let tasks: Vec<&Task> = problem.tasks.values().collect();
    weigh(&pipeline, &tasks, &problem.options)
}

fn holds(weighed: &Weighed) -> Result<(), String> {
    let (step, without) = (weighed.plan.step(), weighed.without);
    for (level, off) in [
        ("fuse", without.fuse),
        ("order", without.order),
        ("align", without.align),
    ] {
        if off.is_some_and(|off| off < step) {
            return Err(format!("{step} ns, without {level} {off:?}"));
        }
    }
    Ok(())
}

/// Lengths, batches and ranks as jobs of many users have them.
fn many(count: usize) -> Vec<Task> {
    let job = |at: usize| {
        let length = [64, 128, 256][at * 7 % 3];
        let batch = [2, 4, 8][at * 5 % 3];
        task([8, 16, 32][at % 3], &vec![length; batch])
    };
    (0..count).map(job).collect()
}

#[test]
fn hundreds_of_jobs_on_many_stages_are_no_slower_than_without_a_level() {
    let problem = snapshot(llama_7b(), &Peak::A40, 16, many(349));
    let weighed = weighed(&problem).expect("it fits");
    holds(&weighed).expect("no ablation is faster");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_plan_is_slower_than_one_of_its_ablations(
        jobs in prop::collection::vec((1u32..40, 1usize..9, 0usize..3, any::<bool>()), 1..90),
        stages in 1usize..9,
        fast in any::<bool>(),
        switches in (any::<bool>(), any::<bool>()),
    ) {
        let jobs: Vec<Task> = jobs
            .iter()
            .map(|(length, batch, rank, odd)| {
                let mut lengths = vec![length * 29; *batch];
                if *odd {
                    lengths[0] = 17;
                }
                task([4, 16, 64][*rank], &lengths)
            })
            .collect();
        let peak = if fast { Peak::H100 } else { Peak::A40 };
        let mut problem = snapshot(llama_7b(), &peak, stages, jobs);
        (problem.options.fuse, problem.options.order) = switches;
        if let Some(weighed) = weighed(&problem) {
            prop_assert!(holds(&weighed).is_ok(), "{:?}", holds(&weighed));
        }
    }
}
