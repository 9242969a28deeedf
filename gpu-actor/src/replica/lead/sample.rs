//! Texts, token by token: whoever drives the lead does other things between two of them. Weights of the job stay as they
//! are while none of its rounds are begun, and rounds under way go on. A step of which only the rest is to be planned may wait
//! for a text: its gradient is in no weight.

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
use crate::train::session::{Standing, layout_of};

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
        match self.begin_text(request) {
            Ok(text) => self.write(text, tell),
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
        match self.begin_stored_text(manifest, request)? {
            Ok(text) => self.write(text, tell),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Begins a text with a job that is here, or with the bare backbone.
    ///
    /// # Errors
    /// What is wrong with the request.
    pub fn begin_text(&mut self, request: &TextRequest<'_>) -> Result<Text, SampleError> {
        let (slot, origin) = match request.job {
            None => (BARE, Adapted::Not),
            Some(job) => match self.slot(job) {
                Some(slot) => (slot, Adapted::By(job.clone())),
                None => return Err(SampleError::NoJob(job.clone())),
            },
        };
        let layout = request.job.and_then(|job| self.session.layout(job));
        let reading = self.reading(layout, request)?;
        Ok(self.text(slot, origin, reading, request))
    }

    /// Begins a text with a durable state of a job that is not here: its adapter is put on the stages until
    /// [`Self::end_text`].
    ///
    /// # Errors
    /// When the replica cannot go on; inside, what is wrong with the request or the state.
    pub fn begin_stored_text(
        &mut self,
        manifest: &StateManifest,
        request: &TextRequest<'_>,
    ) -> Result<Result<Text, SampleError>, ReplicaError> {
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
        Ok(Ok(self.text(slot, Adapted::Lent, reading, request)))
    }

    /// The next token of a text; none when it is at its end.
    ///
    /// # Errors
    /// When the replica cannot go on; inside, why the text cannot.
    pub fn next_token(
        &mut self,
        text: &mut Text,
    ) -> Result<Result<Option<u32>, SampleError>, ReplicaError> {
        if text.made as usize >= text.limit {
            return Ok(Ok(None));
        }
        if let Adapted::By(job) = &text.adapted
            && self.slot(job) != Some(text.slot)
        {
            return Ok(Err(SampleError::NoJob(job.clone())));
        }
        let token = match text.next(self)? {
            Err(problem) => return Ok(Err(SampleError::Choice(problem))),
            Ok(token) => token,
        };
        if self.model().shape.eos.contains(&token) || text.stops.contains(&token) {
            return Ok(Ok(None));
        }
        text.rows = vec![token];
        Ok(Ok(Some(token)))
    }

    /// Lets go of what a text has on the stages, at its end or before.
    ///
    /// # Errors
    /// When the replica cannot go on.
    pub fn end_text(&mut self, text: &Text) -> Result<(), ReplicaError> {
        let engine = self.session.engine_mut();
        engine.station().forget(text.number)?;
        match text.adapted {
            Adapted::Lent => engine.detach(text.slot),
            Adapted::Not | Adapted::By(_) => Ok(()),
        }
    }

    /// Whether a round that is begun now changes the weights that a text is made with.
    #[must_use]
    pub fn trains(&self, text: &Text) -> bool {
        match &text.adapted {
            Adapted::By(job) => self.standing(job) == Some(&Standing::Active),
            Adapted::Not | Adapted::Lent => false,
        }
    }

    /// Whether a step that is begun will change them when it ends.
    #[must_use]
    pub fn changes(&self, text: &Text) -> bool {
        match &text.adapted {
            Adapted::By(job) => !self.session.is_at_rest(job),
            Adapted::Not | Adapted::Lent => false,
        }
    }

    fn text(
        &mut self,
        slot: Slot,
        adapted: Adapted,
        reading: Reading,
        request: &TextRequest<'_>,
    ) -> Text {
        self.texts += 1;
        Text {
            number: self.texts,
            slot,
            adapted,
            prefix_tokens: reading.prefix_tokens,
            rows: reading.rows,
            sampling: request.sampling.clone(),
            limit: request.limit,
            stops: request.stops.to_vec(),
            read: 0,
            made: 0,
        }
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
        mut text: Text,
        mut tell: impl FnMut(u32) -> bool,
    ) -> Result<Result<(), SampleError>, ReplicaError> {
        let made = loop {
            match self.next_token(&mut text)? {
                Ok(Some(token)) if tell(token) => {}
                Ok(_) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.end_text(&text)?;
        Ok(made)
    }
}

/// What a text is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Adapted {
    /// The bare backbone.
    Not,
    /// A job that is here.
    By(JobName),
    /// A state that was put on the stages for it.
    Lent,
}

/// A text in the making: [`Lead::next_token`] goes on with it, [`Lead::end_text`] ends it.
#[derive(Debug)]
pub struct Text {
    number: u64,
    slot: Slot,
    adapted: Adapted,
    prefix_tokens: usize,
    /// To be read before the next token.
    rows: Vec<u32>,
    sampling: Sampling,
    limit: usize,
    stops: Vec<u32>,
    /// Rows in the caches.
    read: usize,
    made: u32,
}

impl Text {
    /// Passes rows in portions and waits for the token behind them.
    fn next(&mut self, lead: &mut Lead) -> Result<Result<u32, String>, ReplicaError> {
        let engine = lead.session.engine_mut();
        let rows = std::mem::take(&mut self.rows);
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
                choose: ends.then(|| (self.sampling.clone(), self.made)),
            };
            last = engine.plan_apart(pass, batch);
        }
        self.made += 1;
        engine.token(last)
    }
}
