//! How many rows of one job's step go in a turn, so that the bound on added latency holds (ADR 18).
//!
//! Jobs of a replica train in turns, each with a step of every job or, of one that is longer than so many rows, a part. A job
//! whose step is spread over n turns takes n of them for a step; so the fewer rows, the less a long step adds to short ones, and
//! the more these add to the long one. The most rows are chosen with which no job's step takes longer than alone by
//! more than the bound: a turn is predicted as a step of the parts, whole sequences that they are.
//!
//! Less than a pass's rows is not tried: a part of less would cost throughput. Where nothing tried holds, the job that asks
//! waits; one that trains without (it waited for the patience, or was there before) gets turns of a pass's rows.

use super::Gate;
use crate::plan::estimate::Loads;
use crate::plan::pipeline::Pipeline;
use crate::plan::snapshot::Task;

impl Gate {
    /// The most rows of a job's step in a turn with which these jobs keep the bound; none when no number that is tried does.
    pub(super) fn spread(&self, pipeline: &Pipeline<'_>, tasks: &[&Task]) -> Option<u64> {
        let alone: Option<Vec<u64>> = tasks
            .iter()
            .map(|task| Some(Loads::new(&[task]).estimate(pipeline, &[0], true)?.step))
            .collect();
        let (alone, added) = (alone?, self.added.0.saturating_mul(1000));
        let longest = tasks.iter().map(|task| task.tokens()).max()?;
        let least = tasks.iter().map(|task| task.tokens()).min()?;
        let mut halves = std::iter::successors(Some(longest), |rows| {
            (*rows > self.tokens_per_pass).then(|| rows.div_ceil(2).max(self.tokens_per_pass))
        });
        halves.find(|&rows| {
            // The first stage leaves steps whole that are half as long again as the shortest, or less.
            let most = rows.max(least + least / 2);
            let parts: Vec<(Task, u64)> = tasks.iter().map(|task| part(task, most)).collect();
            let (now, turns): (Vec<&Task>, Vec<u64>) =
                parts.iter().map(|(now, turns)| (now, *turns)).unzip();
            let all: Vec<usize> = (0..now.len()).collect();
            let fuse = self.snapshot.options.fuse;
            let turn = Loads::new(&now).estimate(pipeline, &all, fuse);
            turn.is_some_and(|turn| {
                let mut steps = turns.iter().zip(&alone);
                steps.all(|(turns, alone)| {
                    turn.step.saturating_mul(*turns) <= alone.saturating_add(added)
                })
            })
        })
    }

    /// What the first stage of jobs that train together is told of it; nothing without a bound.
    pub(super) fn turn_rows(&self, pipeline: &Pipeline<'_>, tasks: &[&Task]) -> Option<u64> {
        let rows = || self.spread(pipeline, tasks).unwrap_or(self.tokens_per_pass);
        (self.added.0 > 0 && tasks.len() > 1).then(rows)
    }
}

/// The part of a job's typical step in a turn of at most so many rows of it, or of one sequence, and in how many turns the
/// step is.
fn part(task: &Task, most: u64) -> (Task, u64) {
    let virtual_rows = task.adapter.prompt_rows();
    let total = task.tokens();
    let even = total.div_ceil(total.div_ceil(most.max(1)).max(1));
    let mut rows = 0;
    let now = task.lengths.iter().take_while(|length| {
        let fits = rows < even;
        rows += u64::from(**length) + virtual_rows;
        fits
    });
    let lengths: Vec<u32> = now.copied().collect();
    let now = Task {
        lengths,
        ..task.clone()
    };
    let turns = total.div_ceil(now.tokens().max(1));
    (now, turns)
}

#[cfg(test)]
mod tests {
    use super::super::tests::job;
    use super::*;

    #[test]
    fn a_part_is_of_whole_sequences_and_all_of_them_make_the_step() {
        let of = |batch, length, most| {
            let (now, turns) = part(&job(batch, length, "t"), most);
            (now.lengths.len(), turns)
        };
        assert_eq!(of(8, 2000, 16_000), (8, 1));
        assert_eq!(of(8, 2000, 4_000), (2, 4));
        assert_eq!(of(8, 2000, 512), (1, 8));
        assert_eq!(of(1, 60, 512), (1, 1));
        assert_eq!(of(9, 100, 500), (5, 2));
    }
}
