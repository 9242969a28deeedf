//! What a job carries from step to step besides its weights: a small, serialisable, pure record.
//!
//! Everything else - rows of a step, learning rate, dropout - is a function of the specification and the step, so
//! this, the values and the moments are all that a resume needs.

use data::order::{Batches, RowOrder};
use serde::{Deserialize, Serialize};
use shared::job::{EvalSpec, JobSpec, TrainSpec};

/// A job's place in its life.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Optimizer steps taken.
    pub step: u64,
    /// Tokens passed in training.
    pub tokens: u64,
    /// Training loss of the first step.
    pub first_loss: Option<f64>,
    /// Training loss of the last step.
    pub last_loss: Option<f64>,
    /// Held-out loss at the start.
    pub first_eval: Option<f64>,
    /// Held-out loss at the last evaluation.
    pub last_eval: Option<f64>,
    /// Lowest held-out loss that counted as improvement.
    pub best_eval: Option<f64>,
    /// Evaluations since then.
    pub evals_without_gain: u64,
    /// Step of the last evaluation.
    pub evaluated_at: Option<u64>,
}

impl Progress {
    /// Notes a held-out loss; true when the job should end early.
    pub fn note_evaluation(&mut self, spec: &EvalSpec, loss: f64) -> bool {
        self.evaluated_at = Some(self.step);
        self.first_eval.get_or_insert(loss);
        self.last_eval = Some(loss);
        if self
            .best_eval
            .is_none_or(|best| loss < best - spec.min_delta)
        {
            self.best_eval = Some(loss);
            self.evals_without_gain = 0;
        } else {
            self.evals_without_gain += 1;
        }
        self.stopped_early(spec)
    }

    /// Whether so many evaluations brought nothing that the job is at its end.
    #[must_use]
    pub fn stopped_early(&self, spec: &EvalSpec) -> bool {
        spec.patience
            .is_some_and(|patience| self.evals_without_gain >= patience)
    }

    /// Whether held-out rows are due once so many steps are taken.
    #[must_use]
    pub fn evaluation_due(&self, step: u64, spec: &EvalSpec, total: u64) -> bool {
        if self.evaluated_at == Some(step) {
            return false;
        }
        let by_steps = spec
            .every_steps
            .is_some_and(|every| step.is_multiple_of(every));
        step == 0 || step >= total || by_steps
    }
}

/// Optimizer steps in one pass over so many rows; the last, smaller one counts.
#[must_use]
pub fn steps_per_epoch(spec: &TrainSpec, rows: usize) -> u64 {
    rows.div_ceil(samples_per_step(spec)) as u64
}

/// Samples of a full optimizer step.
#[must_use]
pub fn samples_per_step(spec: &TrainSpec) -> usize {
    spec.batch_size.saturating_mul(spec.accumulation)
}

/// Optimizer steps of the whole job.
#[must_use]
pub fn total_steps(spec: &TrainSpec, rows: usize) -> u64 {
    spec.steps.unwrap_or_else(|| {
        ((spec.epochs() * steps_per_epoch(spec, rows) as f64).round() as u64).max(1)
    })
}

/// In which order the job takes its rows.
#[must_use]
pub fn row_order(spec: &JobSpec) -> RowOrder {
    if spec.train.shuffle {
        RowOrder::Shuffled { seed: spec.seed }
    } else {
        RowOrder::AsGiven
    }
}

/// Which rows each optimizer step trains on: a function of the specification and the step alone.
#[must_use]
pub fn batches(spec: &JobSpec, rows: usize) -> Batches {
    Batches::new(row_order(spec), rows as u32, samples_per_step(&spec.train))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_stopping_counts_evaluations_without_gain() {
        let spec = EvalSpec {
            every_steps: Some(1),
            patience: Some(2),
            min_delta: 0.1,
        };
        let mut progress = Progress::default();
        assert!(!progress.note_evaluation(&spec, 2.0));
        assert!(!progress.note_evaluation(&spec, 1.95));
        assert!(!progress.note_evaluation(&spec, 1.8));
        assert!(!progress.note_evaluation(&spec, 1.75));
        assert!(progress.note_evaluation(&spec, 1.79));
        assert_eq!(progress.best_eval, Some(1.8));
    }

    #[test]
    fn the_last_smaller_step_counts() {
        let spec = TrainSpec {
            epochs: Some(2.0),
            steps: None,
            batch_size: 4,
            accumulation: 2,
            shuffle: true,
        };
        assert_eq!(steps_per_epoch(&spec, 17), 3);
        assert_eq!(total_steps(&spec, 17), 6);
    }

    #[test]
    fn rows_are_shuffled_unless_the_job_says_no() {
        let order = |train: &str| {
            let text = format!(
                r#"{{"name": "a", "seed": 7, "adapter": {{"method": "bitfit"}}, "data": {{"train": "a.jsonl"}}, "train": {train}}}"#
            );
            row_order(&serde_json::from_str(&text).expect("a job"))
        };
        assert_eq!(order("{}"), RowOrder::Shuffled { seed: 7 });
        assert_eq!(order(r#"{"shuffle": false}"#), RowOrder::AsGiven);
    }
}
