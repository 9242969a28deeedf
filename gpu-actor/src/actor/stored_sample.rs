//! Finds the durable states of a job that is not here, so that a text can be made with its adapter.
//!
//! Only their manifests are read: the stages read the parts, each those of its layers, and find whether they are sound.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use shared::ids::{JobId, JobName};
use shared::model::ModelShape;
use shared::wire::order::SampleOrder;

use super::beside;
use super::traces::name;
use crate::artifacts::manifest::StateManifest;
use crate::artifacts::{Artifacts, part, recover};
use crate::link::bell::Bell;

/// A sample and the states it can be made with, or why it cannot be.
#[derive(Debug)]
pub(super) struct StoredSample {
    pub(super) order: SampleOrder,
    /// The newest first: an older one is for when the parts of a newer one are not sound.
    pub(super) states: Result<Vec<StateManifest>, String>,
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
    let look = move || search.look(job);
    let tell = move |states| StoredSample { order, states };
    beside::start("sample", look, tell, found, bell);
}

impl Search {
    /// The states of a job that cover all layers, the newest first; there is one at least.
    ///
    /// # Errors
    /// A sentence: there is none, or it is of another backbone.
    pub(super) fn look(&self, job: JobId) -> Result<Vec<StateManifest>, String> {
        let own: JobName = name(job);
        let mut found =
            recover::manifests(&*self.store, &own).map_err(|error| error.to_string())?;
        let none = || {
            format!(
                "job {job} is not on this replica, and no state of it is durable: sample it when it has one"
            )
        };
        let identity = found.first().ok_or_else(none)?.identity.clone();
        if identity.backbone != self.backbone {
            return Err(format!("job {job} was trained on another backbone"));
        }
        let spec = &identity.spec;
        if let Some(problem) = spec.problems(&self.shape).first() {
            return Err(format!("job {job}: {problem}"));
        }
        found.retain(|state| {
            let same = state.identity.differences(&identity).is_empty();
            same && part::covers(&state.parts, self.shape.layers)
        });
        if found.is_empty() {
            return Err(none());
        }
        Ok(found)
    }
}
