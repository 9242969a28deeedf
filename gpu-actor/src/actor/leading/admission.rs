//! From an order to a job for the lead: its specification, its rows, its first state. All of it is in the store, so that it
//! is looked for beside training.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use shared::ids::{JobId, JobName};
use shared::job::{JobSpec, Products};
use shared::life::{Reason, ReasonClass};
use shared::model::ModelShape;
use shared::wire::order::JobOrder;

use super::super::beside;
use super::super::traces::name;
use crate::artifacts::{ArtifactError, Artifacts, first, recover};
use crate::link::bell::Bell;
use crate::peft::layout::Layout;
use crate::peft::{files, going_on};
use crate::replica::lead::{Admission, Start};
use crate::train::identity::Identity;
use crate::train::job_state::JobState;
use crate::train::seal;

/// Where is looked, and for whose backbone.
pub(super) struct Sources {
    pub(super) store: Arc<dyn Artifacts>,
    pub(super) backbone: String,
    pub(super) products: Products,
    pub(super) shape: Arc<ModelShape>,
    /// Leadership and plan under which states are written.
    pub(super) written: (u64, u64),
}

/// A job for the lead, and the step of the durable state it goes on from, if there is one.
type Found = (Box<Admission>, Option<u64>);

/// A job and what it starts from, or why it cannot.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) job: JobId,
    pub(super) outcome: Result<Found, Reason>,
}

/// Starts looking; the bell is rung when the outcome is sent.
pub(super) fn start(order: JobOrder, sources: Sources, found: Sender<Looked>, bell: Bell) {
    let job = order.job;
    let look = move || Ok(of(&order, &sources));
    let tell = move |outcome: Result<_, String>| Looked {
        job,
        outcome: outcome.unwrap_or_else(|why| Err(system(why))),
    };
    beside::start("admission", look, tell, found, bell);
}

fn of(order: &JobOrder, around: &Sources) -> Result<Found, Reason> {
    let own = name(order.job);
    let spec: JobSpec = serde_json::from_str(&order.spec)
        .map_err(|error| system(format!("the specification cannot be read: {error}")))?;
    let problems = spec.problems(&around.shape);
    if let Some(problem) = problems.first() {
        return Err(Reason {
            class: ReasonClass::UserError,
            message: problem.to_string(),
        });
    }
    let bytes = fetch(around, &order.rows, &order.rows_sha256)?;
    let (rows, eval_rows) = data::packed::unpack(&bytes).map_err(|error| Reason {
        class: ReasonClass::DataError,
        message: error.to_string(),
    })?;
    let layout = Layout::new(&spec.adapter, &around.shape, spec.seed);
    let identity = Identity {
        spec,
        backbone: around.backbone.clone(),
        data: order.rows_sha256.clone(),
        start: order.init_from.as_ref().map(|sources| origin(sources)),
        products: around.products,
    };
    let found = recover::newest(&*around.store, &own, &identity, &layout)
        .map_err(|error| system(error.to_string()))?;
    for (key, reason) in &found.skipped {
        tracing::warn!(job = %own, key, reason, "state skipped");
    }
    let (start, recovered) = match found.recovered {
        Some(recovered) => {
            let step = recovered.manifest.progress.step;
            // Before the first step there is nothing to go on with: that is what the job starts from.
            let recovered_at = Some(step).filter(|step| *step > 0);
            (Start::Stored(Box::new(recovered.manifest)), recovered_at)
        }
        None => (fresh(order, around, &own, &identity, &layout)?, None),
    };
    let admission = Admission {
        name: own,
        identity,
        rows,
        eval_rows,
        start,
        paused: order.paused,
        replicas: order.replicas.clone(),
    };
    Ok((Box::new(admission), recovered))
}

/// What the adapter to start from is: a hash over names and hashes of its files.
fn origin(sources: &[(String, String)]) -> String {
    let lines: String = sources
        .iter()
        .map(|(key, sha256)| format!("{} {sha256}\n", file_name(key)))
        .collect();
    seal::hash(lines.as_bytes())
}

/// The last part of a key.
fn file_name(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or(key)
}

fn fresh(
    order: &JobOrder,
    around: &Sources,
    own: &JobName,
    identity: &Identity,
    layout: &Layout,
) -> Result<Start, Reason> {
    let Some(sources) = &order.init_from else {
        let init_tokens = order.init_tokens.clone();
        return Ok(Start::Fresh { init_tokens });
    };
    let folder = tempfile::tempdir()
        .map_err(|error| system(format!("no folder for the adapter to start from: {error}")))?;
    for (key, sha256) in sources {
        let bytes = fetch(around, key, sha256)?;
        let file = file_name(key);
        std::fs::write(folder.path().join(file), bytes)
            .map_err(|error| system(format!("{file} cannot be written: {error}")))?;
    }
    let wrong = |message: String| Reason {
        class: ReasonClass::UserError,
        message: format!("init_from: {message}"),
    };
    let imported =
        files::read(folder.path(), &around.shape).map_err(|error| wrong(error.to_string()))?;
    let spec = &identity.spec;
    let keys = going_on::misfits(&spec.adapter, layout, spec.seed, &imported, &around.shape);
    if !keys.is_empty() {
        let keys = keys.join(", ");
        return Err(wrong(format!(
            "the adapter there differs from the job's in {keys}"
        )));
    }
    tracing::debug!(job = %own, "starts from an imported adapter");
    let state = JobState::fresh(spec, imported.values);
    let layers = around.shape.layers;
    let stored = first::store(
        &*around.store,
        (own, identity),
        state,
        layers,
        around.written,
    );
    let manifest = stored.map_err(|error| system(error.to_string()))?;
    Ok(Start::Stored(Box::new(manifest)))
}

/// Bytes of the store that must have this hash.
fn fetch(around: &Sources, key: &str, sha256: &str) -> Result<Vec<u8>, Reason> {
    let bytes = around.store.get(key).map_err(|error| match error {
        ArtifactError::Missing { .. } => Reason {
            class: ReasonClass::DataError,
            message: format!("{error}: submit the job again, under another name"),
        },
        failed @ ArtifactError::Failed { .. } => system(failed.to_string()),
    })?;
    let found = seal::hash(&bytes);
    if found == sha256 {
        return Ok(bytes);
    }
    Err(Reason {
        class: ReasonClass::DataError,
        message: format!(
            "{key} was changed: its sha256 is {found}, not {sha256}; submit the job again, under another \
             name"
        ),
    })
}

fn system(message: String) -> Reason {
    Reason {
        class: ReasonClass::System,
        message,
    }
}
