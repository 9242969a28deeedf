//! What a job leaves on disk: `metrics.jsonl`, `checkpoints/` and `adapter/` in the folder of its name.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use gpu_actor::peft::files;
use gpu_actor::train::event::Event;
use gpu_actor::train::session::JobState;
use gpu_actor::train::store;
use serde::{Deserialize, Serialize};
use shared::ids::JobName;
use shared::model::ModelShape;

use super::method;
use super::prepare::Prepared;
use crate::exit::{Exit, Failure, OrExit};

const PROVENANCE: &str = "spotmux.json";

/// The folder of a job's results.
#[derive(Clone, Debug)]
pub(crate) struct Place(PathBuf);

/// Where an adapter came from, written beside it.
#[derive(Debug, Serialize, Deserialize)]
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

impl Place {
    /// The place of a job below the folder of results.
    pub(crate) fn new(output: &Path, name: &JobName) -> Self {
        Self(output.join(name.as_str()))
    }

    /// Folder of the adapter.
    pub(crate) fn adapter(&self) -> PathBuf {
        self.0.join("adapter")
    }

    /// Folder of the checkpoints.
    pub(crate) fn checkpoints(&self) -> PathBuf {
        self.0.join("checkpoints")
    }

    fn metrics(&self) -> PathBuf {
        self.0.join("metrics.jsonl")
    }

    /// The step at which the adapter there was written, when we wrote it.
    pub(super) fn adapter_step(&self) -> Option<u64> {
        let text = fs::read_to_string(self.adapter().join(PROVENANCE)).ok()?;
        let found: Provenance = serde_json::from_str(&text).ok()?;
        Some(found.step)
    }

    /// Makes the folder, and takes out of the metrics what lies after a step: it will be taken again.
    ///
    /// # Errors
    /// [`Exit::Internal`] when the system refuses to write.
    pub(super) fn begin(&self, step: u64) -> Result<(), Failure> {
        self.keep_until(step)
            .with_context(|| format!("cannot write to {}", self.0.display()))
            .or_exit(Exit::Internal)
    }

    fn keep_until(&self, step: u64) -> std::io::Result<()> {
        fs::create_dir_all(&self.0)?;
        let text = match fs::read_to_string(self.metrics()) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let kept: String = text
            .lines()
            .filter(|line| belongs(line, step))
            .flat_map(|line| [line, "\n"])
            .collect();
        let beside = self.0.join(".metrics.jsonl.partial");
        fs::write(&beside, kept)?;
        fs::rename(beside, self.metrics())
    }

    /// Adds an event to the metrics. Times are left out, so that a repeated run writes the same.
    ///
    /// # Errors
    /// [`Exit::Internal`] when the system refuses to write.
    pub(super) fn note(&self, event: &Event) -> Result<(), Failure> {
        let line = serde_json::to_string(event).or_exit(Exit::Internal)?;
        let append = || -> std::io::Result<()> {
            let mut file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(self.metrics())?;
            writeln!(file, "{line}")
        };
        append()
            .with_context(|| format!("cannot write {}", self.metrics().display()))
            .or_exit(Exit::Internal)
    }
}

/// Whether a line of metrics was written up to this step; a torn last line was not.
fn belongs(line: &str, step: u64) -> bool {
    #[derive(Deserialize)]
    struct Line {
        step: u64,
    }
    serde_json::from_str::<Line>(line).is_ok_and(|line| line.step <= step && step > 0)
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
    files::write(
        &folder,
        &job.spec().adapter,
        &job.ready.layout,
        &state.values,
        shape,
        base,
        &extra,
    )
    .with_context(|| format!("job {}: the adapter is not written", job.name()))
    .or_exit(Exit::Internal)
}

/// A model card.
fn card(job: &Prepared, provenance: &Provenance) -> String {
    let loss = |name: &str, first: Option<f64>, last: Option<f64>| match (first, last) {
        (Some(first), Some(last)) => format!("- {name}: {first:.4} -> {last:.4}\n"),
        _ => String::new(),
    };
    format!(
        "---\nbase_model: {}\nlibrary_name: peft\n---\n\n# {}\n\n\
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn metrics_after_the_step_and_torn_lines_go() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(folder.path(), &JobName::new("a").unwrap());
        place.begin(0).unwrap();
        let step = |step: u64| format!("{{\"event\":\"step\",\"step\":{step}}}\n");
        let text = format!("{}{}{}{{\"ev", step(1), step(2), step(3));
        fs::write(place.metrics(), text).unwrap();
        place.begin(2).unwrap();
        let kept = fs::read_to_string(place.metrics()).unwrap();
        assert_eq!(kept, format!("{}{}", step(1), step(2)));
        place.begin(0).unwrap();
        assert_eq!(fs::read_to_string(place.metrics()).unwrap(), "");
    }
}
