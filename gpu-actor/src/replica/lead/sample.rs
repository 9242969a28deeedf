//! Texts, token by token, between rounds: weights stay as they are meanwhile, and rounds under way go on.

use shared::ids::JobName;
use thiserror::Error;

use super::Lead;
use crate::artifacts::manifest::StateManifest;
use crate::batch::Batch;
use crate::link::word::{Pass, Source};
use crate::peft::layout::Layout;
use crate::pipeline::Slot;
use crate::replica::error::ReplicaError;
use crate::replica::leading::Origin;
use crate::sample::choice::Sampling;
use crate::sample::generator::{BARE, GenerateError, PORTION, Reading};
use crate::train::engine::{Engine, Newcomer};
use crate::train::session::layout_of;

/// What is to be continued.
#[derive(Clone, Debug)]
pub struct TextRequest<'a> {
    /// With this job's adapter; none: the bare backbone.
    pub job: Option<&'a JobName>,
    /// Tokens of the prompt.
    pub prompt: &'a [u32],
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Most tokens made.
    pub limit: usize,
    /// Tokens that end the text besides those of the model; they are not told.
    pub stops: &'a [u32],
}

/// Says why a text is not made, or not to its end.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum SampleError {
    /// There is no such job here.
    #[error("job {0} is not on this replica")]
    NoJob(JobName),
    /// Its state cannot be put on the stages.
    #[error("the state of job {job} cannot be used: {problem}")]
    State {
        /// The job.
        job: JobName,
        /// What is wrong.
        problem: String,
    },
    /// Prompt or settings.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// The last stage could not choose a token.
    #[error("{0}")]
    Choice(String),
}

impl Lead {
    /// Makes a text; each token is given to `tell`, which says whether to go on.
    ///
    /// # Errors
    /// When the replica cannot go on; inside, what is wrong with the request or the adapter.
    pub fn sample(
        &mut self,
        request: &TextRequest<'_>,
        tell: impl FnMut(u32) -> bool,
    ) -> Result<Result<(), SampleError>, ReplicaError> {
        let slot = match request.job {
            None => BARE,
            Some(job) => match self.slot(job) {
                Some(slot) => slot,
                None => return Ok(Err(SampleError::NoJob(job.clone()))),
            },
        };
        let layout = request.job.and_then(|job| self.session.layout(job));
        match self.reading(layout, request) {
            Ok(reading) => self.write(slot, reading, request, tell),
            Err(error) => Ok(Err(error)),
        }
    }

    /// As [`Self::sample`], with a durable state of a job that is not here: its adapter is put on the stages for this
    /// text, and taken off behind it. Rounds under way go on meanwhile; the job does not train.
    ///
    /// # Errors
    /// As [`Self::sample`].
    pub fn sample_stored(
        &mut self,
        manifest: &StateManifest,
        request: &TextRequest<'_>,
        tell: impl FnMut(u32) -> bool,
    ) -> Result<Result<(), SampleError>, ReplicaError> {
        let (job, spec) = (&manifest.job, &manifest.identity.spec);
        let layout = layout_of(&spec.adapter, &self.model(), spec.seed);
        let reading = match self.reading(Some(&layout), request) {
            Ok(reading) => reading,
            Err(error) => return Ok(Err(error)),
        };
        let source = Source::Stored {
            manifest: manifest.text(),
        };
        let newcomer = Newcomer {
            name: job,
            spec,
            layout: &layout,
        };
        let engine = self.session.engine_mut();
        let origin = Origin {
            source,
            step: manifest.progress.step,
            replicas: Vec::new(),
        };
        let slot = match engine.attach(newcomer, origin)? {
            Ok(slot) => slot,
            Err(problem) => {
                let job = job.clone();
                return Ok(Err(SampleError::State { job, problem }));
            }
        };
        self.session.engine_mut().unname(slot);
        let made = self.write(slot, reading, request, tell)?;
        self.session.engine_mut().detach(slot)?;
        Ok(made)
    }

    fn reading(
        &self,
        layout: Option<&Layout>,
        request: &TextRequest<'_>,
    ) -> Result<Reading, SampleError> {
        let shape = &self.session.engine().model().shape;
        let (prompt, sampling) = (request.prompt, &request.sampling);
        Ok(Reading::new(
            shape,
            layout,
            prompt,
            sampling,
            request.limit,
        )?)
    }

    fn write(
        &mut self,
        slot: Slot,
        reading: Reading,
        request: &TextRequest<'_>,
        mut tell: impl FnMut(u32) -> bool,
    ) -> Result<Result<(), SampleError>, ReplicaError> {
        let shape = self.model().shape.clone();
        self.texts += 1;
        let mut text = Text {
            number: self.texts,
            slot,
            prefix_tokens: reading.prefix_tokens,
            read: 0,
            made: 0,
        };
        let mut rows = reading.rows;
        let mut made = Ok(());
        while (text.made as usize) < request.limit {
            match text.next(self, &rows, &request.sampling)? {
                Err(problem) => {
                    made = Err(SampleError::Choice(problem));
                    break;
                }
                Ok(token) if shape.eos.contains(&token) || request.stops.contains(&token) => break,
                Ok(token) => {
                    if !tell(token) {
                        break;
                    }
                    rows = vec![token];
                }
            }
        }
        let engine = self.session.engine_mut();
        engine.station().forget(text.number)?;
        Ok(made)
    }
}

/// A text in the making.
struct Text {
    number: u64,
    slot: Slot,
    prefix_tokens: usize,
    /// Rows in the caches.
    read: usize,
    made: u32,
}

impl Text {
    /// Passes rows in portions and waits for the token behind them.
    fn next(
        &mut self,
        lead: &mut Lead,
        rows: &[u32],
        sampling: &Sampling,
    ) -> Result<Result<u32, String>, ReplicaError> {
        let engine = lead.session.engine_mut();
        let portions = rows.len().div_ceil(PORTION);
        let mut last = 0;
        for (index, portion) in rows.chunks(PORTION).enumerate() {
            let mut batch = Batch::default();
            batch.push_continuation(self.slot, portion, self.read, self.prefix_tokens);
            // The text meets the weights that all planned steps leave.
            batch.jobs[0].step = engine.steps(self.slot);
            self.read += portion.len();
            let ends = index + 1 == portions;
            let pass = Pass::Sample {
                text: self.number,
                choose: ends.then(|| (sampling.clone(), self.made)),
            };
            last = engine.plan_apart(pass, batch);
        }
        self.made += 1;
        engine.token(last)
    }
}
