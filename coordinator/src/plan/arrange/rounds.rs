//! Rounds that follow each other: what the engine makes of an arrangement, and how long a step then takes.
//!
//! The template times one step by itself, with a fill and a drain of the pipeline. The engine does not wait so: a job's
//! next rows go in once its own step is closed, and rows of others are under way meanwhile. With one bucket all steps would
//! close with its last passes, and the pipeline would drain every round. So on several stages the jobs of a hybrid task are
//! *dealt* into runs of about equal rows that follow each other, each with as many parts fewer: the passes stay as large and
//! as many where the parts divide so, and in each run the steps of other jobs close. At most so many runs are made that 2 S of
//! them follow each other in a round of S stages, where jobs allow: S to be on their way, S to hide what the stages say to each
//! other about a step. Runs whose parts do not divide make passes smaller or more, so that of one, two, four ... up to that
//! number the one with the shortest round is taken ([`deal`]). That is a matter of order: without it none are dealt.
//!
//! Of steady rounds a stage s does all its passes once, `busy(s)`, and the first pass of a run r enters when the last one of
//! the round before came back, after `alone(r)`, which is what the run takes of an empty pipeline:
//!
//! ```text
//! round = max( max over stages of busy(s) + optimizer(s),  max over runs of alone(r) + its optimizers )
//! alone(r) = max over s of warm(r, to s) + sum over its passes of (f + b)(s) + drain(r, from s)
//! ```
//!
//! Both are bounds from below; with equal stages and memory enough a round takes no more than the tests say. A single run has
//! nothing to overlap with, and its time is the template's. Quotes, waits and fleets go by rounds. Left out: what
//! stages say to each other about a step, which 2 S runs hide, and passes that a first stage cuts by its own bound on rows.

use shared::plan::arrangement::HybridTask;

use super::{Arrangement, optimizer};
use crate::plan::device::Both;
use crate::plan::mix::{Load, Mix};
use crate::plan::order::buckets::longest_first;
use crate::plan::pipeline::Pipeline;
use crate::plan::snapshot::{BLOCK, Task};

/// Runs of a round in their order: hybrid tasks of each (jobs by their place) that take turns, part by part. `rows` are those
/// of a job's step; `ordered`: whether runs are dealt.
#[must_use]
pub fn runs(
    plan: &Arrangement,
    stages: usize,
    rows: &dyn Fn(usize) -> u64,
    ordered: bool,
) -> Vec<Vec<HybridTask<usize>>> {
    let parts = u32::try_from(plan.micro_batches).unwrap_or(u32::MAX);
    let task = |task: &usize| HybridTask {
        jobs: plan.hybrid_tasks[*task].clone(),
        parts,
    };
    let bucket = |bucket: &usize| plan.buckets[*bucket].iter().map(task).collect();
    let buckets: Vec<Vec<HybridTask<usize>>> = plan.template.buckets.iter().map(bucket).collect();
    let most = plan.deal;
    if !ordered || stages < 2 || most < 2 {
        return buckets;
    }
    let mut dealt = Vec::new();
    for bucket in buckets {
        let mut own = vec![Vec::new(); most];
        for task in bucket {
            let sizes: Vec<u64> = task.jobs.iter().map(|job| rows(*job)).collect();
            let blocks = usize::try_from(sizes.iter().sum::<u64>() / BLOCK);
            let count = most.min(sizes.len()).min(blocks.unwrap_or(most)).max(1);
            let parts = task.parts.div_ceil(count as u32);
            for (at, run) in longest_first(&sizes, count).into_iter().enumerate() {
                let jobs = run.into_iter().map(|at| task.jobs[at]).collect();
                own[at].push(HybridTask { jobs, parts });
            }
        }
        dealt.extend(own.into_iter().filter(|bucket| !bucket.is_empty()));
    }
    dealt
}

/// Jobs above which only no runs and the most runs are compared.
const COMPARED: usize = 64;

/// Chooses into how many runs buckets are dealt, and notes what a round takes then. Of equal rounds that of the most runs is
/// taken: they hide what stages say to each other, which is not in the formula.
pub fn deal(pipeline: &Pipeline<'_>, tasks: &[&Task], plan: &mut Arrangement, ordered: bool) {
    let buckets = plan.template.buckets.len().max(1);
    let most = match ordered && pipeline.len() > 1 {
        true => (2 * pipeline.len()).div_ceil(buckets),
        false => 1,
    };
    let between = (1..usize::BITS).map(|power| 1 << power);
    let between = between.take_while(|runs| *runs < most && tasks.len() <= COMPARED);
    let mut tried: Vec<usize> = std::iter::once(1).chain(between).chain([most]).collect();
    tried.dedup();
    let rounds = tried.into_iter().map(|runs| {
        plan.deal = runs;
        (time(pipeline, tasks, plan, ordered), runs)
    });
    let rounds: Vec<(u64, usize)> = rounds.collect();
    let best = rounds.into_iter().rev().min_by_key(|(round, _)| *round);
    (plan.round, plan.deal) = best.unwrap_or_else(|| (plan.step(), 1));
}

/// Nanoseconds of a step of these jobs while rounds follow each other. With one run nothing follows: that of a step by itself.
fn time(pipeline: &Pipeline<'_>, tasks: &[&Task], plan: &Arrangement, ordered: bool) -> u64 {
    let stages = pipeline.len();
    let rows = |job: usize| tasks[job].tokens();
    let runs = runs(plan, stages, &rows, ordered);
    if runs.len() < 2 {
        return plan.step();
    }
    let run = |run: &Vec<HybridTask<usize>>| Run::new(pipeline, tasks, run);
    period(stages, &runs.iter().map(run).collect::<Vec<_>>())
}

/// Passes that are alike.
#[derive(Clone, Debug)]
struct Passes {
    /// By stage.
    times: Vec<Both<u64>>,
    /// Behind each stage but the last.
    transfers: Vec<u64>,
    count: u64,
}

/// What one run takes.
#[derive(Clone, Debug)]
struct Run {
    /// In their order, at least one.
    passes: Vec<Passes>,
    /// Of its jobs, by stage.
    optimizers: Vec<u64>,
}

impl Run {
    fn new(pipeline: &Pipeline<'_>, tasks: &[&Task], run: &[HybridTask<usize>]) -> Self {
        let stages = || 0..pipeline.len();
        let passes = run.iter().map(|task| {
            let jobs: Vec<&Task> = task.jobs.iter().map(|job| tasks[*job]).collect();
            let loads = pipeline.loads(&jobs, u64::from(task.parts));
            let mix = |loads: &Vec<Load>| Mix::of(loads);
            let mixes: Vec<Mix> = loads.iter().map(mix).collect();
            Passes {
                times: pipeline.times(&mixes),
                transfers: stages().map(|at| pipeline.transfer(at, &mixes)).collect(),
                count: u64::from(task.parts),
            }
        });
        let jobs = run.iter().flat_map(|task| &task.jobs);
        let jobs: Vec<&Task> = jobs.map(|job| tasks[*job]).collect();
        Self {
            passes: passes.collect(),
            optimizers: stages().map(|at| optimizer(pipeline, at, &jobs)).collect(),
        }
    }

    /// All its passes on a stage.
    fn busy(&self, stage: usize) -> u64 {
        let each = self.passes.iter();
        let each = each.map(|passes| passes.times[stage].sum().saturating_mul(passes.count));
        each.fold(0, u64::saturating_add)
    }

    /// What it takes of an empty pipeline.
    fn alone(&self) -> u64 {
        let (Some(first), Some(last)) = (self.passes.first(), self.passes.last()) else {
            return 0;
        };
        let (mut warm, mut drain, mut longest) = (0u64, 0u64, 0u64);
        for stage in 0..first.times.len() {
            let ways = warm.saturating_add(drain);
            longest = longest.max(self.busy(stage).saturating_add(ways));
            let forth = first.times[stage]
                .forward
                .saturating_add(first.transfers[stage]);
            let back = last.times[stage]
                .backward
                .saturating_add(last.transfers[stage]);
            (warm, drain) = (warm.saturating_add(forth), drain.saturating_add(back));
        }
        let optimizers = self.optimizers.iter().max().copied().unwrap_or(0);
        longest.saturating_add(optimizers)
    }
}

fn period(stages: usize, runs: &[Run]) -> u64 {
    let busy = |stage: usize| {
        let each = runs.iter();
        let each = each.map(|run| run.busy(stage).saturating_add(run.optimizers[stage]));
        each.fold(0, u64::saturating_add)
    };
    let stages = (0..stages).map(busy).max().unwrap_or(0);
    let alone = runs.iter().map(Run::alone).max().unwrap_or(0);
    stages.max(alone)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Stages that take what has arrived, backward first, one tick at a time; what a round takes once they are steady.
    fn simulated(runs: &[Run], stages: usize) -> u64 {
        const ROUNDS: usize = 24;
        let passes: Vec<(usize, &Passes)> = (0..runs.len())
            .flat_map(|run| {
                let each = runs[run].passes.iter();
                each.flat_map(move |own| (0..own.count).map(move |_| (run, own)))
            })
            .collect();
        let (each, all) = (passes.len(), passes.len() * ROUNDS);
        // When forward and backward of a pass were done on a stage.
        let mut done = [
            vec![vec![u64::MAX; all]; stages],
            vec![vec![u64::MAX; all]; stages],
        ];
        let (mut next, mut free) = (vec![[0, 0]; stages], vec![0u64; stages]);
        let mut now = 0;
        while next.iter().any(|next| next[1] < all) {
            for stage in 0..stages {
                let [forth, back] = next[stage];
                if free[stage] > now {
                    continue;
                }
                let is = |what: usize, stage: usize, pass: usize, way: u64| {
                    let at: u64 = done[what][stage][pass];
                    at.saturating_add(way) <= now
                };
                let comes_back = back < forth
                    && match stage + 1 == stages {
                        true => is(0, stage, back, 0),
                        false => is(1, stage + 1, back, passes[back % each].1.transfers[stage]),
                    };
                if comes_back {
                    free[stage] = now + passes[back % each].1.times[stage].backward;
                    done[1][stage][back] = free[stage];
                    next[stage][1] += 1;
                    continue;
                }
                if forth == all {
                    continue;
                }
                let (run, pass) = passes[forth % each];
                let came = stage == 0 || is(0, stage - 1, forth, pass.transfers[stage - 1]);
                // The run's step of the round before is closed on all stages.
                let before = (forth / each).checked_sub(1).map(|round| round * each);
                let closed = before.is_none_or(|first| {
                    let mut own = (0..each).filter(|at| passes[*at].0 == run);
                    own.all(|at| (0..stages).all(|stage| is(1, stage, first + at, 0)))
                });
                if came && closed {
                    free[stage] = now + pass.times[stage].forward;
                    done[0][stage][forth] = free[stage];
                    next[stage][0] += 1;
                }
            }
            now += 1;
        }
        let end = |round: usize| {
            (0..stages)
                .map(|stage| done[1][stage][round * each - 1])
                .max()
        };
        // Neither the first rounds nor those that no other follows.
        let (from, to) = (end(ROUNDS / 3), end(2 * ROUNDS / 3));
        (to.unwrap_or(0) - from.unwrap_or(0)) / (ROUNDS as u64 / 3)
    }

    fn run(time: (u64, u64), stages: usize, count: u64) -> Run {
        let (forward, backward) = time;
        let passes = Passes {
            times: vec![Both { forward, backward }; stages],
            transfers: vec![0; stages],
            count,
        };
        Run {
            passes: vec![passes],
            optimizers: vec![0; stages],
        }
    }

    #[test]
    fn one_run_drains_and_several_do_not() {
        let one = [run((2, 3), 4, 4)];
        assert_eq!(period(4, &one), (4 + 3) * 5);
        assert_eq!(simulated(&one, 4), 35);
        let many = vec![run((2, 3), 4, 1); 8];
        assert_eq!(period(4, &many), 8 * 5);
        assert_eq!(simulated(&many, 4), 40);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn a_round_takes_no_less_and_with_equal_stages_little_more(
            times in prop::collection::vec(((1u64..9, 1u64..9), 1u64..5), 1..6),
            stages in 1usize..5,
            alike in any::<bool>(),
        ) {
            let of = |(time, count): &((u64, u64), u64)| run(if alike { times[0].0 } else { *time }, stages, *count);
            let runs: Vec<Run> = times.iter().map(of).collect();
            let (told, seen) = (period(stages, &runs), simulated(&runs, stages));
            prop_assert!(seen >= told, "{seen} ticks, told {told}");
            if alike {
                prop_assert!(seen <= told + told / 10, "{seen} ticks, told {told}");
            } else {
                prop_assert!(seen <= 2 * told, "{seen} ticks, told {told}");
            }
        }
    }
}
