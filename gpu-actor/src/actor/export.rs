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
use crate::train::proof::Proof;
use crate::train::seal;

/// An adapter to be written, from its newest durable state.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) own: JobName,
    pub(super) identity: Identity,
    /// Of a job that was set aside: a state that is not proven is none to write.
    pub(super) proof: Option<Proof>,
    pub(super) shape: Arc<ModelShape>,
    /// What the adapter calls its base model.
    pub(super) base: String,
}

/// Where it is, or why it is not.
#[derive(Debug)]
pub(super) struct Exported {
    pub(super) own: JobName,
    pub(super) outcome: Result<Option<Written>, String>,
}

/// Files of an adapter: key, content hash and size of each.
pub(super) type Files = Vec<(String, String, Bytes)>;

/// The step of the state that an adapter is of, and its files.
pub(super) type Written = (u64, Files);

/// Starts writing; the bell is rung when the outcome is sent.
pub(super) fn start(work: Work, store: Arc<dyn Artifacts>, done: Sender<Exported>, bell: Bell) {
    let own = work.own.clone();
    let write = move || write(&work, &*store);
    let tell = move |outcome| Exported { own, outcome };
    beside::start("export", write, tell, done, bell);
}

/// None of a job that was set aside, and of which no state is proven.
fn write(work: &Work, store: &dyn Artifacts) -> Result<Option<Written>, String> {
    let (own, identity) = (&work.own, &work.identity);
    let spec = &identity.spec;
    let layout = Layout::new(&spec.adapter, &work.shape, spec.seed);
    let found = match work.proof {
        None => recover::newest(store, own, identity, &layout),
        Some(proof) => recover::newest_proven(store, own, proof, identity, &layout),
    };
    let found = found.map_err(|error| error.to_string())?;
    let recovered = match found.recovered {
        Some(recovered) => recovered,
        None if work.proof.is_some() => return Ok(None),
        None => return Err("no sound state is in the store".to_owned()),
    };
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
    Ok(Some((recovered.state.progress.step, files)))
}
