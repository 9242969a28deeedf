//! What a job's training leaves: checkpoints, and the adapter with a card and its provenance.

use anyhow::Context;
use gpu_actor::peft::adapter_hub;
use gpu_actor::peft::files::{self, Export};
use gpu_actor::train::session::JobState;
use gpu_actor::train::store;
use serde::Serialize;
use shared::model::ModelShape;

use super::method;
use super::place::PROVENANCE;
use super::prepare::Prepared;
use crate::exit::{Exit, Failure, OrExit};

/// Where an adapter came from, written beside it.
#[derive(Debug, Serialize)]
struct Provenance {
    spotmux: String,
    job: String,
    base: String,
    base_sha256: String,
    data_sha256: String,
    seed: u64,
    step: u64,
    tokens: u64,
    first_loss: Option<f64>,
    last_loss: Option<f64>,
    first_eval: Option<f64>,
    last_eval: Option<f64>,
}

/// Saves a job's state.
///
/// # Errors
/// [`Exit::Internal`] when the system refuses to write; earlier checkpoints stay.
pub(super) fn checkpoint(job: &Prepared, state: &JobState) -> Result<(), Failure> {
    store::save(&job.place.checkpoints(), &job.ready.identity, state)
        .with_context(|| {
            format!(
                "job {}: the checkpoint of step {} is not saved",
                job.name(),
                state.progress.step
            )
        })
        .or_exit(Exit::Internal)
}

/// Writes a job's adapter in the layout that PEFT loads, with a card and its provenance.
///
/// # Errors
/// [`Exit::Internal`] when the system refuses to write.
pub(super) fn adapter(
    job: &Prepared,
    state: &JobState,
    shape: &ModelShape,
    base: &str,
) -> Result<(), Failure> {
    let provenance = Provenance {
        spotmux: env!("CARGO_PKG_VERSION").into(),
        job: job.name().into(),
        base: base.into(),
        base_sha256: job.ready.identity.backbone.clone(),
        data_sha256: job.ready.identity.data.clone(),
        seed: job.spec().seed,
        step: state.progress.step,
        tokens: state.progress.tokens,
        first_loss: state.progress.first_loss,
        last_loss: state.progress.last_loss,
        first_eval: state.progress.first_eval,
        last_eval: state.progress.last_eval,
    };
    let record = serde_json::to_vec_pretty(&provenance).or_exit(Exit::Internal)?;
    let extra = [
        ("README.md", card(job, &provenance).into_bytes()),
        (PROVENANCE, record),
    ];
    let folder = job.place.adapter();
    let export = Export {
        name: job.name(),
        spec: &job.spec().adapter,
        layout: &job.ready.layout,
        values: &state.values,
        shape,
        base,
    };
    files::write(&folder, &export, &extra)
        .with_context(|| format!("job {}: the adapter is not written", job.name()))
        .or_exit(Exit::Internal)
}

/// A model card.
fn card(job: &Prepared, provenance: &Provenance) -> String {
    let loss = |name: &str, first: Option<f64>, last: Option<f64>| match (first, last) {
        (Some(first), Some(last)) => format!("- {name}: {first:.4} -> {last:.4}\n"),
        _ => String::new(),
    };
    let library = if adapter_hub::holds(&job.spec().adapter) {
        "adapter-transformers"
    } else {
        "peft"
    };
    format!(
        "---\nbase_model: {}\nlibrary_name: {library}\n---\n\n# {}\n\n\
         {} on {}, trained with spotmux {} for {} steps over {} tokens (seed {}).\n\n{}{}\n\
         `{PROVENANCE}` has the hashes of base model and data.\n",
        provenance.base,
        provenance.job,
        method::describe(&job.spec().adapter),
        provenance.base,
        provenance.spotmux,
        provenance.step,
        provenance.tokens,
        provenance.seed,
        loss("training loss", provenance.first_loss, provenance.last_loss),
        loss("held-out loss", provenance.first_eval, provenance.last_eval),
    )
}
