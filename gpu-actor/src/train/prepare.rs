//! From a job's specification to everything a session needs: checks, rows, layout, first values, checkpoint.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use data::dataset::LoadError;
use data::job_data::{self, JobData};
use data::rows::TokenRow;
use data::template::Template;
use data::tokenizer::{Tokenizer, TokenizerError};
use kernels::cpu::Cpu;
use sha2::{Digest, Sha256};
use shared::hexadecimal;
use shared::job::{JobSpec, Problem};
use thiserror::Error;

use super::seal;
use super::session::{JobState, Session};
use super::store::{self, Identity, StoreError};
use crate::model::{Model, arithmetic};
use crate::peft::files::{self, AdapterFileError};
use crate::peft::layout::Layout;
use crate::peft::{going_on, init};

/// Says why a job cannot start; `job` names it.
#[derive(Debug, Error)]
pub enum PrepareError {
    /// The specification does not fit the backbone.
    #[error("job {job}:\n{}", problems.iter().map(|p| format!("  {p}")).collect::<Vec<_>>().join("\n"))]
    Specification {
        /// The job.
        job: String,
        /// Everything wrong with it.
        problems: Vec<Problem>,
    },
    /// The data cannot be used.
    #[error("job {job}: {source}")]
    Data {
        /// The job.
        job: String,
        /// What is wrong.
        source: Box<LoadError>,
    },
    /// The text of prompt tuning cannot be tokenised.
    #[error("job {job}: adapter.init_text: {source}")]
    InitText {
        /// The job.
        job: String,
        /// What is wrong.
        source: TokenizerError,
    },
    /// The adapter to start from cannot be used.
    #[error("job {job}: init_from: {source}")]
    InitFrom {
        /// The job.
        job: String,
        /// What is wrong.
        source: AdapterFileError,
    },
    /// The adapter to start from has other parameters.
    #[error("job {job}: the adapter at init_from differs from the job's in {}; it is {found}", keys.join(", "))]
    OtherMethod {
        /// The job.
        job: String,
        /// What differs.
        keys: Vec<String>,
        /// What the folder holds.
        found: String,
    },
    /// The checkpoints are of something else, or cannot be read.
    #[error("job {job}: {source}")]
    Checkpoint {
        /// The job.
        job: String,
        /// What is wrong.
        source: StoreError,
    },
    /// The session refused it.
    #[error("{0}")]
    Refused(String),
}

/// What jobs are prepared with.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// The backbone.
    pub model: &'a Model,
    /// Its content hash.
    pub backbone: &'a str,
    /// Its tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// Its chat template.
    pub template: &'a Template,
    /// The device.
    pub cpu: &'a Cpu,
    /// Folder that the job's paths are relative to.
    pub folder: &'a Path,
}

/// A job ready to be admitted.
#[derive(Debug)]
pub struct Prepared {
    /// The job.
    pub spec: JobSpec,
    /// Its parameters and sites.
    pub layout: Arc<Layout>,
    /// Its first values; none where what it starts from is gone and it has started already.
    pub values: Vec<f32>,
    /// Its rows.
    pub data: JobData,
    /// What its checkpoints belong to.
    pub identity: Identity,
    /// The state to continue from, if a checkpoint was found.
    pub state: Option<JobState>,
    /// Checkpoints that were not sound, each with the reason.
    pub skipped: Vec<String>,
}

/// Checks a job and reads what it needs to start; nothing is written. [`Prepared::look_for_state`] finds what it goes
/// on from.
///
/// `start` is the content hash of the values that the job started from, as its earlier results have it: it is taken where the
/// adapter at `init_from` is gone, and then there are no first values.
///
/// # Errors
/// [`PrepareError`] naming the job and what is wrong.
pub fn prepare(
    spec: &JobSpec,
    around: &Surroundings<'_>,
    start: Option<&str>,
) -> Result<Prepared, PrepareError> {
    let job = || spec.name.to_string();
    let shape = &around.model.shape;
    let problems = spec.problems(shape);
    if !problems.is_empty() {
        return Err(PrepareError::Specification {
            job: job(),
            problems,
        });
    }
    let layout = Arc::new(Layout::new(&spec.adapter, shape, spec.seed));
    let context = shape.max_positions - spec.adapter.virtual_tokens();
    let data = JobData::load(
        &spec.data,
        around.folder,
        spec.seed,
        context,
        shape.vocab,
        around.tokenizer,
        around.template,
    )
    .map_err(|source| PrepareError::Data {
        job: job(),
        source: Box::new(source),
    })?;
    let from = spec.init_from.as_ref();
    let gone = from.is_some_and(|from| is_gone(&around.folder.join(from)));
    let (values, start) = match start.filter(|_| gone) {
        Some(start) => (Vec::new(), Some(start.to_owned())),
        None => {
            let values = first_values(spec, around, &layout)?;
            let hash = || seal::hash(bytemuck::cast_slice::<f32, u8>(&values));
            let start = from.map(|_| hash());
            (values, start)
        }
    };
    let identity = Identity {
        spec: spec.clone(),
        backbone: around.backbone.to_owned(),
        data: data_hash(&data),
        start,
        products: arithmetic::of(around.cpu),
    };
    Ok(Prepared {
        spec: spec.clone(),
        layout,
        values,
        data,
        identity,
        state: None,
        skipped: Vec::new(),
    })
}

impl Prepared {
    /// Reads the newest sound checkpoint below a folder, to go on from.
    ///
    /// # Errors
    /// [`PrepareError::Checkpoint`] when the checkpoints are of something else.
    pub fn look_for_state(&mut self, checkpoints: &Path) -> Result<(), PrepareError> {
        let found = store::newest(checkpoints, &self.identity).map_err(|source| {
            PrepareError::Checkpoint {
                job: self.spec.name.to_string(),
                source,
            }
        })?;
        self.state = found.state;
        let told = |(path, reason): (PathBuf, String)| format!("{}: {reason}", path.display());
        self.skipped = found.skipped.into_iter().map(told).collect();
        Ok(())
    }

    /// Bytes that its token rows take.
    #[must_use]
    pub fn row_bytes(&self) -> u64 {
        let rows = self.data.train.iter().chain(&self.data.eval);
        let one = |row: &TokenRow| size_of::<TokenRow>() + 4 * (row.ids.len() + row.labels.len());
        rows.map(|row| one(row) as u64).sum()
    }

    /// Bytes that its values, the places of sparse ones and the state it goes on from take by now.
    #[must_use]
    pub fn value_bytes(&self) -> u64 {
        let moments = self.state.as_ref().map_or(0, |state| {
            state.values.len() + state.optimizer.first.len() + state.optimizer.second.len()
        });
        ((self.values.len() + moments) * size_of::<f32>()) as u64 + self.layout.place_bytes()
    }

    /// Lets go of rows, values and state that nobody will ask for.
    pub fn let_go(&mut self) {
        self.data.train = Vec::new();
        self.data.eval = Vec::new();
        self.values = Vec::new();
        self.state = None;
    }
}

/// Whether no adapter is in a folder, or no such folder.
#[must_use]
pub fn is_gone(adapter: &Path) -> bool {
    let config = adapter.join(files::CONFIG).symlink_metadata();
    config.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

fn first_values(
    spec: &JobSpec,
    around: &Surroundings<'_>,
    layout: &Layout,
) -> Result<Vec<f32>, PrepareError> {
    let job = || spec.name.to_string();
    if let Some(folder) = &spec.init_from {
        let folder = around.folder.join(folder);
        let imported = files::read(&folder, &around.model.shape)
            .map_err(|source| PrepareError::InitFrom { job: job(), source })?;
        let shape = &around.model.shape;
        let keys = going_on::misfits(&spec.adapter, layout, spec.seed, &imported, shape);
        if !keys.is_empty() {
            let found = serde_json::to_string(&imported.spec).unwrap_or_default();
            let job = job();
            return Err(PrepareError::OtherMethod { job, keys, found });
        }
        return Ok(imported.values);
    }
    let vocabulary = around.model.shape.vocab;
    let tokens = job_data::init_tokens(&spec.adapter, vocabulary, around.tokenizer)
        .map_err(|source| PrepareError::InitText { job: job(), source })?;
    Ok(init::values(
        layout,
        around.model,
        around.cpu,
        spec.seed,
        &tokens,
    ))
}

/// Content hash of the rows a job trains and is measured on.
#[must_use]
pub fn data_hash(data: &JobData) -> String {
    let mut hash = Sha256::new();
    for rows in [&data.train, &data.eval] {
        hash.update((rows.len() as u64).to_le_bytes());
        for row in rows {
            hash.update((row.ids.len() as u64).to_le_bytes());
            hash.update(bytemuck::cast_slice::<u32, u8>(&row.ids));
            hash.update(bytemuck::cast_slice::<i32, u8>(&row.labels));
        }
    }
    hexadecimal::lower(&hash.finalize())
}

impl Session {
    /// Admits a prepared job, whose rows, values and state are the session's from then on.
    ///
    /// # Errors
    /// [`PrepareError::Refused`] when the session refuses it.
    pub fn admit_prepared(&mut self, job: &mut Prepared) -> Result<(), PrepareError> {
        let train = std::mem::take(&mut job.data.train);
        let eval = std::mem::take(&mut job.data.eval);
        let (values, state) = (std::mem::take(&mut job.values), job.state.take());
        let (spec, layout) = (job.spec.clone(), job.layout.clone());
        self.admit(spec, layout, values, train, eval, state)
            .map_err(PrepareError::Refused)
    }
}
