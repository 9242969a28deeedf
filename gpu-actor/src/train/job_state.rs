//! Everything a checkpoint holds of a job besides its specification.

use shared::job::JobSpec;

use super::progress::Progress;
use crate::peft::layout::Layout;
use crate::stage::optim::OptimizerState;

/// A job's state, whole: in the order of its whole layout, whatever the number of stages.
#[derive(Clone, Debug, PartialEq)]
pub struct JobState {
    /// Adapter values in flat storage order.
    pub values: Vec<f32>,
    /// Moments and step count.
    pub optimizer: OptimizerState,
    /// Place in its life.
    pub progress: Progress,
}

impl JobState {
    /// The state before the first step.
    #[must_use]
    pub fn fresh(spec: &JobSpec, values: Vec<f32>) -> Self {
        Self {
            optimizer: OptimizerState::new(&spec.optimizer, values.len()),
            values,
            progress: Progress::default(),
        }
    }

    /// Whether every value and moment is a number.
    #[must_use]
    pub fn is_finite(&self) -> bool {
        let OptimizerState { first, second, .. } = &self.optimizer;
        let lists = [&self.values, first, second];
        lists.into_iter().flatten().all(|value| value.is_finite())
    }

    /// Tells whether the state can be of this job, which has so many steps in all.
    ///
    /// # Errors
    /// A sentence without a subject that says what does not fit.
    pub fn fits(&self, spec: &JobSpec, layout: &Layout, total: u64) -> Result<(), String> {
        let (found, wanted) = (self.values.len(), layout.len);
        if found != wanted {
            return Err(format!("has {found} values, the method has {wanted}"));
        }
        let new = OptimizerState::new(&spec.optimizer, wanted);
        let lengths = |state: &OptimizerState| (state.first.len(), state.second.len());
        if lengths(&self.optimizer) != lengths(&new) {
            return Err(format!(
                "has moments of {:?} values, the optimizer has {:?}",
                lengths(&self.optimizer),
                lengths(&new)
            ));
        }
        let (step, taken) = (self.progress.step, self.optimizer.step);
        if taken != step {
            return Err(format!("is of step {step}, its optimizer took {taken}"));
        }
        if step > total {
            return Err(format!("is of step {step}, the job has {total}"));
        }
        Ok(())
    }
}
