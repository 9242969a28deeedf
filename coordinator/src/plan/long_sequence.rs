//! The sequence that the steps of other jobs wait for.
//!
//! Long steps are spread over turns (ADR 18), and a turn ends between sequences. On S stages a turn takes of a step at most
//!
//! ```text
//! max(2 S x rows of a pass, half as many again as the shortest step has)
//! ```
//!
//! rows, or one sequence where that is longer. Such a sequence is one turn's work, however many chunks it passes in.

use std::fmt;

use serde::Serialize;
use shared::ids::JobId;
use shared::units::Micros;

use super::estimate::Loads;
use super::pipeline::Pipeline;
use super::snapshot::Task;

/// A sequence with more rows than a turn takes of a step: it is not spread over turns, so the steps of others wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LongSequence {
    /// The job.
    pub job: JobId,
    /// Rows of the sequence.
    pub rows: u64,
    /// Rows of a step that a turn takes at most, of whole sequences.
    pub turn_rows: u64,
    /// Predicted time of a turn of it alone.
    pub takes: Micros,
}

impl LongSequence {
    /// The longest sequence of these jobs, where it has more rows than a turn may take of a step beside the others'.
    #[must_use]
    pub fn of(
        pipeline: &Pipeline<'_>,
        jobs: &[JobId],
        tasks: &[&Task],
        tokens_per_pass: u64,
    ) -> Option<Self> {
        if tasks.len() < 2 {
            return None;
        }
        let least = tasks.iter().map(|task| task.tokens()).min()?;
        let passes = tokens_per_pass.saturating_mul(2 * pipeline.len() as u64);
        let turn_rows = passes.max(least.saturating_add(least / 2));
        let (job, task) = jobs
            .iter()
            .zip(tasks)
            .max_by_key(|(_, task)| task.longest_of_all())?;
        if task.longest_of_all() <= turn_rows {
            return None;
        }
        let alone = Task {
            lengths: task.lengths.iter().max().into_iter().copied().collect(),
            ..(*task).clone()
        };
        let takes = Loads::new(&[&alone]).estimate(pipeline, &[0], true)?.step;
        Some(Self {
            job: *job,
            rows: task.longest_of_all(),
            turn_rows,
            takes: Micros(takes.div_ceil(1000)),
        })
    }
}

impl fmt::Display for LongSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a sequence of {}, {} rows, is one turn's work, as turns of {} rows end between sequences: steps of the others wait \
             {} for it",
            self.job, self.rows, self.turn_rows, self.takes
        )
    }
}
