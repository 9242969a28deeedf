//! Finds the newest durable state of a job that is not here, so that a text can be made with its adapter.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use shared::ids::{JobId, JobName};
use shared::model::ModelShape;
use shared::wire::order::SampleOrder;

use super::beside;
use super::traces::name;
use crate::artifacts::manifest::StateManifest;
use crate::artifacts::{Artifacts, recover};
use crate::link::bell::Bell;
use crate::peft::layout::Layout;

/// A sample and the state it is to be made with, or why it cannot be.
#[derive(Debug)]
pub(super) struct StoredSample {
    pub(super) order: SampleOrder,
    pub(super) state: Result<Box<StateManifest>, String>,
}

/// What is looked in, and for whose backbone.
#[derive(Clone)]
pub(super) struct Search {
    pub(super) store: Arc<dyn Artifacts>,
    pub(super) backbone: String,
    pub(super) shape: Arc<ModelShape>,
}

/// Looks beside training; the bell is rung when the outcome is sent.
pub(super) fn start(
    job: JobId,
    order: SampleOrder,
    search: Search,
    found: Sender<StoredSample>,
    bell: Bell,
) {
    let look = move || search.look(job).map(Box::new);
    let tell = move |state| StoredSample { order, state };
    beside::start("sample", look, tell, found, bell);
}

impl Search {
    /// The newest sound state of a job.
    ///
    /// # Errors
    /// A sentence: there is none, or it is of another backbone.
    pub(super) fn look(&self, job: JobId) -> Result<StateManifest, String> {
        let own: JobName = name(job);
        let newest = recover::manifest(&*self.store, &own).map_err(|error| error.to_string())?;
        let none = || {
            format!(
                "job {job} is not on this replica, and no state of it is durable: sample it when it has one"
            )
        };
        let identity = newest.ok_or_else(none)?.identity;
        if identity.backbone != self.backbone {
            return Err(format!("job {job} was trained on another backbone"));
        }
        let spec = &identity.spec;
        if let Some(problem) = spec.problems(&self.shape).first() {
            return Err(format!("job {job}: {problem}"));
        }
        let layout = Layout::new(&spec.adapter, &self.shape, spec.seed);
        let found = recover::newest(&*self.store, &own, &identity, &layout);
        let found = found.map_err(|error| error.to_string())?;
        found.recovered.map(|sound| sound.manifest).ok_or_else(none)
    }
}
