//! A session on one stage of this process: states are at hand, and nothing can fail.

use std::sync::Arc;

use data::rows::TokenRow;
use kernels::cpu::Cpu;
use shared::ids::JobName;
use shared::job::JobSpec;

use super::{JobState, Session};
use crate::model::Model;
use crate::peft::layout::Layout;
use crate::stage::step::Stage;
use crate::train::event::Event;
use crate::train::local::Local;
use crate::train::progress;

impl Session {
    /// A session on one stage, without jobs. `tokens_per_pass` bounds memory and changes no result: a longer
    /// sequence is cut into chunks.
    #[must_use]
    pub fn new(model: Arc<Model>, cpu: Cpu, tokens_per_pass: usize) -> Self {
        Self::on(Local::new(model, cpu, tokens_per_pass))
    }

    /// Cuts sequences of more rows than this into chunks of at most so many; without a word it is `tokens_per_pass`. It
    /// bounds memory and changes no result.
    pub fn cut_above(&mut self, chunk_tokens: usize) {
        self.engine.cut_above(chunk_tokens);
    }

    /// Rows that passed and are no data: pads, of which there are none, however sequences are packed or cut.
    #[must_use]
    pub fn wasted_rows(&self) -> u64 {
        self.engine.passed().wasted()
    }

    /// The stage, for sampling between rounds.
    pub fn stage_mut(&mut self) -> &mut Stage {
        &mut self.engine.stage
    }

    /// The stage.
    #[must_use]
    pub fn stage(&self) -> &Stage {
        &self.engine.stage
    }

    /// Adds a job. `state` continues an earlier run; without it the job starts from `values`.
    ///
    /// # Errors
    /// A sentence that says what is wrong, as [`Self::admit_as`], or that the state is of another layout.
    pub fn admit(
        &mut self,
        spec: JobSpec,
        layout: Arc<Layout>,
        values: Vec<f32>,
        rows: Vec<TokenRow>,
        eval_rows: Vec<TokenRow>,
        state: Option<JobState>,
    ) -> Result<(), String> {
        let name = spec.name.clone();
        let total = progress::total_steps(&spec.train, rows.len());
        let state = match state {
            Some(state) if !rows.is_empty() && !self.runs.contains_key(&name) => {
                let fits = state.fits(&spec, &layout, total);
                fits.map_err(|problem| format!("job {name}: the checkpoint {problem}"))?;
                state
            }
            Some(state) => state,
            None => JobState::fresh(&spec, values),
        };
        let progress = state.progress.clone();
        let rows = [rows, eval_rows];
        let Ok(admitted) = self.admit_as(name, spec, layout, rows, (state, progress));
        admitted
    }

    /// Takes a job off the backbone and returns its state.
    pub fn remove(&mut self, name: &JobName) -> Option<JobState> {
        let state = self.state(name);
        let Ok(_) = self.let_go(name);
        state
    }

    /// A copy of a job's state, for a checkpoint.
    #[must_use]
    pub fn state(&self, name: &JobName) -> Option<JobState> {
        let run = self.runs.get(name)?;
        let (values, optimizer) = self.engine.state(run.slot)?;
        Some(JobState {
            values: values.to_vec(),
            optimizer: optimizer.clone(),
            progress: run.progress.clone(),
        })
    }

    /// Bytes of a job's adapter, gradient and moments.
    #[must_use]
    pub fn job_bytes(&self, name: &JobName) -> Option<u64> {
        let slot = self.slot(name)?;
        let (_, optimizer) = self.engine.state(slot)?;
        Some(self.stage().adapter(slot)?.bytes() + optimizer.bytes())
    }

    /// One optimizer step of every active job, or a part of a long one, with the evaluations due before and after it.
    pub fn round(&mut self) -> Vec<Event> {
        let Ok(events) = self.advance();
        events
    }
}
