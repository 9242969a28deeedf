use proptest::prelude::*;

use super::*;
use crate::plan::place::{Fleet, Seat};
use crate::plan::profile::Peak;
use crate::plan::snapshot::{Snapshot, Task};
use crate::plan::testing::{llama_7b, snapshot, task, workload_b};

/// Asks `what` about jobs on a pipeline of so many stages.
fn with<T>(
    jobs: Vec<Task>,
    stages: usize,
    micro_batches: u64,
    what: impl FnOnce(&Fusion<'_>) -> T,
) -> T {
    let problem = snapshot(llama_7b(), &Peak::A40, stages, jobs);
    let fleet = Fleet::new(&problem).expect("profiles are here");
    let seats = seats(&problem);
    let pipeline = fleet.pipeline(&problem, &seats).expect("nodes are here");
    let tasks: Vec<&Task> = problem.tasks.values().collect();
    let loads = pipeline.loads(&tasks, micro_batches);
    let resident: Vec<u64> = (0..stages)
        .map(|stage| pipeline.resident(stage, &tasks, micro_batches))
        .collect();
    what(&Fusion::new(&pipeline, &loads, micro_batches, &resident))
}

fn seats(problem: &Snapshot) -> Vec<Seat> {
    let (stages, layers) = (problem.nodes.len() as u64, problem.model.layers as u64);
    let seat = |(at, node): (u64, &shared::ids::NodeName)| Seat {
        node: node.clone(),
        first: layers * at / stages,
        end: layers * (at + 1) / stages,
    };
    (0..).zip(problem.nodes.keys()).map(seat).collect()
}

/// All partitions of `0..count` into sets.
fn partitions(count: usize) -> Vec<Vec<Vec<usize>>> {
    let mut all = vec![Vec::new()];
    for item in 0..count {
        let mut next = Vec::new();
        for partition in all {
            let partition: Vec<Vec<usize>> = partition;
            for at in 0..partition.len() {
                let mut more = partition.clone();
                more[at].push(item);
                next.push(more);
            }
            let mut more = partition;
            more.push(vec![item]);
            next.push(more);
        }
        all = next;
    }
    all
}

fn feasible(fusion: &Fusion<'_>, groups: &[Vec<usize>]) -> bool {
    groups
        .iter()
        .all(|group| group.len() == 1 || fusion.fits(&fusion.mixes(group)))
}

fn cost(fusion: &Fusion<'_>, groups: &[Vec<usize>]) -> u64 {
    fusion.step(&fusion.timings(groups))
}

fn jobs() -> impl Strategy<Value = Vec<Task>> {
    let job = (1u32..10, 0usize..4, 1usize..9)
        .prop_map(|(length, rank, batch)| task([4, 8, 16, 64][rank], &vec![length * 48; batch]));
    prop::collection::vec(job, 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    /// Exact for runs; never worse than runs; within five of a hundred of the best of all partitions.
    #[test]
    fn against_all_partitions(jobs in jobs(), stages in 1usize..5, micro_batches in 1u64..6) {
        with(jobs, stages, micro_batches, |fusion| {
            let order = by_rows(fusion);
            let count = order.len();
            let mut best_run = u64::MAX;
            for cuts in 0..1u32 << (count - 1) {
                let mut groups = vec![vec![order[0]]];
                for (at, job) in order.iter().enumerate().skip(1) {
                    if cuts >> (at - 1) & 1 == 1 {
                        groups.push(Vec::new());
                    }
                    groups.last_mut().expect("a group").push(*job);
                }
                if feasible(fusion, &groups) {
                    best_run = best_run.min(cost(fusion, &groups));
                }
            }
            let found = runs(fusion, Objective::Step);
            prop_assert!(feasible(fusion, &found));
            prop_assert_eq!(cost(fusion, &found), best_run);
            let best = partitions(count)
                .into_iter()
                .filter(|groups| feasible(fusion, groups))
                .map(|groups| cost(fusion, &groups))
                .min()
                .expect("each alone is a partition");
            let fused = fuse(fusion);
            let mut members: Vec<usize> = fused.iter().flatten().copied().collect();
            members.sort_unstable();
            prop_assert_eq!(members, (0..count).collect::<Vec<_>>());
            prop_assert!(feasible(fusion, &fused));
            let ours = cost(fusion, &fused);
            prop_assert!(ours <= best_run);
            prop_assert!(ours <= best + best / 20, "{ours} against {best}");
            Ok(())
        })?;
    }
}

/// Ten jobs against all 115,975 partitions.
#[test]
fn ten_jobs_against_all_partitions() {
    let lengths = [256, 64, 256, 64, 64, 256, 128, 192, 96, 480];
    let batches = [4, 2, 4, 4, 8, 2, 4, 1, 3, 2];
    let jobs: Vec<Task> = lengths
        .iter()
        .zip(batches)
        .map(|(length, batch)| task(16, &vec![*length; batch]))
        .collect();
    with(jobs, 4, 4, |fusion| {
        let best = partitions(10)
            .into_iter()
            .map(|groups| cost(fusion, &groups))
            .min();
        let ours = cost(fusion, &fuse(fusion));
        let best = best.expect("there are partitions");
        assert!(ours <= best + best / 100, "{ours} against {best}");
    });
}

/// Eq 6 sums averages over stages: it does not see that the first pass fills the pipeline alone.
#[test]
fn the_papers_equation_is_no_faster() {
    for (stages, micro_batches) in [(1, 1), (2, 4), (4, 1), (4, 8)] {
        with(workload_b(), stages, micro_batches, |fusion| {
            let (ours, theirs) = (
                runs(fusion, Objective::Step),
                runs(fusion, Objective::Average),
            );
            assert!(cost(fusion, &ours) <= cost(fusion, &theirs));
            let average = |groups: &[Vec<usize>]| fusion.average(&fusion.timings(groups));
            assert!(average(&theirs) <= average(&ours) + theirs.len() as u64);
        });
    }
}

#[test]
fn many_jobs_are_each_in_one_hybrid_task() {
    let many = (0..300).map(|at| task(8, &vec![64 + at % 7 * 32; 1 + at as usize % 4]));
    with(many.collect(), 4, 4, |fusion| {
        let groups = fuse(fusion);
        let mut members: Vec<usize> = groups.into_iter().flatten().collect();
        members.sort_unstable();
        assert_eq!(members, (0..300).collect::<Vec<_>>());
    });
}
