//! What a job's training leaves: checkpoints, and the adapter with a card and its provenance.

use std::fs;

use anyhow::Context;
use gpu_actor::durable;
use gpu_actor::peft::adapter_hub;
use gpu_actor::peft::files::Export;
use gpu_actor::train::progress::Progress;
use gpu_actor::train::session::JobState;
use gpu_actor::train::store;
use shared::job::AdapterSpec;
use shared::model::ModelShape;

use super::place::PROVENANCE;
use super::prepare::Prepared;
use super::record::{FileRecord, Record};
use crate::exit::{Exit, Failure, OrExit};

/// Removes what of a job's checkpoints stayed until so many steps were taken.
///
/// # Errors
/// [`Exit::Internal`] when the system refuses.
pub(super) fn prune(job: &Prepared, taken: u64) -> Result<(), Failure> {
    let keep_last = job.spec().checkpoint.keep_last;
    store::prune(&job.place.checkpoints(), taken, keep_last)
        .with_context(|| format!("job {}: a checkpoint is not removed", job.name()))
        .or_exit(Exit::Internal)
}

/// Saves a job's state behind its metrics, unless a number of it is not finite.
///
/// # Errors
/// [`Exit::Internal`] when the system refuses to write; earlier checkpoints stay.
pub(super) fn checkpoint(job: &Prepared, state: &JobState) -> Result<(), Failure> {
    if !state.is_finite() {
        return Ok(());
    }
    job.place
        .save(&job.ready.identity, state)
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
    let folder = job.place.adapter();
    let export = Export {
        name: job.name(),
        spec: &job.spec().adapter,
        layout: &job.ready.layout,
        values: &state.values,
        shape,
        base,
    };
    let files = export.files();
    let records = files
        .iter()
        .map(|(name, bytes)| FileRecord::of(name, bytes))
        .collect();
    let [card, record] = beside(job, &state.progress, base, records)?;
    let [config, weights] = files;
    let whole = [config, weights, card, record];
    durable::write_folder(&folder, &whole)
        .with_context(|| format!("job {}: the adapter is not written", job.name()))
        .or_exit(Exit::Internal)
}

/// Puts card and provenance beside the files of an adapter that was written elsewhere.
///
/// # Errors
/// [`Exit::Internal`] when the system refuses to write.
pub(crate) fn complete(
    job: &Prepared,
    progress: &Progress,
    base: &str,
    files: Vec<FileRecord>,
) -> Result<(), Failure> {
    let folder = job.place.adapter();
    for (name, bytes) in beside(job, progress, base, files)? {
        fs::write(folder.join(name), bytes)
            .with_context(|| format!("cannot write to {}", folder.display()))
            .or_exit(Exit::Internal)?;
    }
    Ok(())
}

/// A card for people and a record for programs: what goes beside the files of an adapter.
fn beside(
    job: &Prepared,
    progress: &Progress,
    base: &str,
    files: Vec<FileRecord>,
) -> Result<[(&'static str, Vec<u8>); 2], Failure> {
    let provenance = Record::of_run(&job.ready.identity, progress, base, files);
    let record = provenance.bytes()?;
    let card = card(job, &provenance).into_bytes();
    Ok([("README.md", card), (PROVENANCE, record)])
}

/// A model card.
fn card(job: &Prepared, provenance: &Record) -> String {
    let loss = |name: &str, first: Option<f64>, last: Option<f64>| match (first, last) {
        (Some(first), Some(last)) => format!("- {name}: {first:.4} -> {last:.4}\n"),
        _ => String::new(),
    };
    format!(
        "{}# {}\n\n\
         {} on {}, trained with spotmux {} for {} steps over {} tokens (seed {}).\n\n{}{}\n\
         `{PROVENANCE}` has the hashes of base model and data.\n",
        front_matter(&provenance.base, &job.spec().adapter),
        provenance.job,
        job.spec().adapter.in_words(),
        provenance.base,
        provenance.spotmux,
        provenance.step,
        provenance.tokens,
        provenance.seed,
        loss("training loss", provenance.first_loss, provenance.last_loss),
        loss("held-out loss", provenance.first_eval, provenance.last_eval),
    )
}

/// What programs read of a card: YAML, in which a name may be any text.
fn front_matter(base: &str, adapter: &AdapterSpec) -> String {
    let base = serde_json::Value::from(base);
    let library = library(adapter).map(|name| format!("library_name: {name}\n"));
    let library = library.unwrap_or_default();
    format!("---\nbase_model: {base}\n{library}---\n\n")
}

/// The library that loads an adapter of this method, as the model hub calls it, if there is one.
fn library(adapter: &AdapterSpec) -> Option<&'static str> {
    match adapter {
        AdapterSpec::Lora(_)
        | AdapterSpec::Ia3(_)
        | AdapterSpec::Prefix(_)
        | AdapterSpec::Prompt(_) => Some("peft"),
        AdapterSpec::Bottleneck(_) => adapter_hub::holds(adapter).then_some("adapter-transformers"),
        AdapterSpec::BitFit(_) | AdapterSpec::Diff(_) => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_card_quotes_its_base_and_names_the_library_that_loads_it() {
        let card =
            |base: &str, adapter: &str| front_matter(base, &serde_json::from_str(adapter).unwrap());
        let lora = card("Tiny: \"v2\" #1", r#"{"method": "lora", "rank": 2}"#);
        let quoted = r#"base_model: "Tiny: \"v2\" #1""#;
        assert_eq!(lora, format!("---\n{quoted}\nlibrary_name: peft\n---\n\n"));
        let serial = r#"{"method": "bottleneck", "size": 2, "placement": "pfeiffer"}"#;
        assert!(card("a/b", serial).contains("library_name: adapter-transformers\n"));
        for adapter in [
            r#"{"method": "bitfit"}"#,
            r#"{"method": "diff"}"#,
            r#"{"method": "bottleneck", "size": 2, "placement": "parallel"}"#,
        ] {
            assert_eq!(card("a/b", adapter), "---\nbase_model: \"a/b\"\n---\n\n");
        }
    }
}
