//! Writes a job's adapter into the store, in the layout that its library loads, beside training.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use shared::ids::JobName;
use shared::model::ModelShape;
use shared::units::Bytes;

use super::beside;
use crate::artifacts::{Artifacts, recover};
use crate::link::bell::Bell;
use crate::peft::files::Export;
use crate::peft::layout::Layout;
use crate::train::identity::Identity;
use crate::train::seal;

/// An adapter to be written, from its newest durable state.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) own: JobName,
    pub(super) identity: Identity,
    pub(super) shape: Arc<ModelShape>,
    /// What the adapter calls its base model.
    pub(super) base: String,
}

/// Where it is, or why it is not.
#[derive(Debug)]
pub(super) struct Exported {
    pub(super) own: JobName,
    pub(super) outcome: Result<Vec<(String, String, Bytes)>, String>,
}

/// Starts writing; the bell is rung when the outcome is sent.
pub(super) fn start(work: Work, store: Arc<dyn Artifacts>, done: Sender<Exported>, bell: Bell) {
    let own = work.own.clone();
    let write = move || write(&work, &*store);
    let tell = move |outcome| Exported { own, outcome };
    beside::start("export", write, tell, done, bell);
}

fn write(work: &Work, store: &dyn Artifacts) -> Result<Vec<(String, String, Bytes)>, String> {
    let spec = &work.identity.spec;
    let layout = Layout::new(&spec.adapter, &work.shape, spec.seed);
    let found = recover::newest(store, &work.own, &work.identity, &layout);
    let found = found.map_err(|error| error.to_string())?;
    let recovered = found.recovered.ok_or("no sound state is in the store")?;
    let export = Export {
        name: spec.name.as_str(),
        spec: &spec.adapter,
        layout: &layout,
        values: &recovered.state.values,
        shape: &work.shape,
        base: &work.base,
    };
    let mut files = Vec::new();
    for (name, bytes) in export.files() {
        let key = format!("jobs/{}/adapter/{name}", work.own);
        store.put(&key, &bytes).map_err(|error| error.to_string())?;
        files.push((key, seal::hash(&bytes), Bytes(bytes.len() as u64)));
    }
    Ok(files)
}
