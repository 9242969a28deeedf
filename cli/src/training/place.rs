//! The folder of a job's results, and the metrics in it.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use gpu_actor::durable;
use gpu_actor::train::progress::Progress;
use gpu_actor::train::proof::Proof;
use gpu_actor::train::session::JobState;
use gpu_actor::train::store::{self, Identity};
use serde::{Deserialize, Serialize};
use shared::ids::JobName;

use super::lock::{Lock, LockError};
use super::metrics;

use crate::exit::{Exit, Failure, OrExit};

/// Beside an adapter: where it came from.
pub(crate) const PROVENANCE: &str = "spotmux.json";

/// The folder of a job's results.
#[derive(Clone, Debug)]
pub(crate) struct Place(PathBuf);

impl Place {
    /// The place of a job below the folder of results.
    pub(crate) fn new(output: &Path, name: &JobName) -> Self {
        Self(output.join(name.as_str()))
    }

    /// The place at a folder of a job's results.
    pub(crate) fn at(folder: &Path) -> Self {
        Self(folder.to_path_buf())
    }

    /// What is known of the states of a job that was set aside; none of one that was not, or whose metrics cannot be read.
    pub(crate) fn set_aside(&self) -> Option<(u64, Proof)> {
        let text = metrics::told(&self.metrics()).ok()??;
        let told: Told = serde_json::from_str(text.lines().next_back()?).ok()?;
        (told.event == QUARANTINED)
            .then(|| (told.step, Proof::of_set_aside(told.step, told.proven)))
    }

    /// Folder of the adapter.
    pub(crate) fn adapter(&self) -> PathBuf {
        self.0.join("adapter")
    }

    /// Folder of the checkpoints.
    pub(crate) fn checkpoints(&self) -> PathBuf {
        self.0.join(store::FOLDER)
    }

    fn metrics(&self) -> PathBuf {
        self.0.join("metrics.jsonl")
    }

    /// Moves an adapter that is damaged out of the way, to the first free name.
    ///
    /// # Errors
    /// [`Exit::Internal`] when the system refuses.
    pub(super) fn set_adapter_aside(&self) -> Result<(), Failure> {
        let mut names = (1u32..).map(|number| match number {
            1 => self.0.join("adapter.damaged"),
            _ => self.0.join(format!("adapter.damaged-{number}")),
        });
        let free = names.find(|name| name.symlink_metadata().is_err());
        let free = free.unwrap_or_else(|| self.0.join("adapter.damaged"));
        fs::rename(self.adapter(), free)
            .with_context(|| format!("cannot move {}", self.adapter().display()))
            .or_exit(Exit::Internal)
    }

    /// Takes the folder for this run, if it is there.
    ///
    /// # Errors
    /// When another run has it.
    pub(super) fn lock(&self) -> Result<Option<Lock>, LockError> {
        Lock::take(&self.0)
    }

    /// Makes the folder where it is absent, and takes it for this run.
    ///
    /// # Errors
    /// [`Exit::Internal`] when the system refuses to write, [`Exit::BadInput`] when another run was faster.
    pub(super) fn make(&self) -> Result<Option<Lock>, Failure> {
        let parent = self.0.parent().unwrap_or(&self.0);
        let made = durable::make_folders(parent)
            .and_then(|()| fs::create_dir(&self.0))
            .and_then(|()| durable::sync(parent));
        match made {
            Ok(()) => self.lock().or_exit(Exit::BadInput),
            // What it holds by now was not looked at.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && self.0.is_dir() => {
                let message = format!("{}: another run has just begun there", self.0.display());
                Err(Failure::new(Exit::BadInput, message).hint("start this one again"))
            }
            Err(error) => Err(error)
                .with_context(|| format!("cannot write to {}", self.0.display()))
                .or_exit(Exit::Internal),
        }
    }

    /// Whether the folder is there.
    pub(super) fn exists(&self) -> bool {
        self.0.is_dir()
    }

    /// Whether results could be written: tried, and nothing left behind.
    ///
    /// # Errors
    /// [`Exit::Internal`] when the system refuses.
    pub(crate) fn probe(&self) -> Result<(), Failure> {
        let there = self.0.ancestors().find(|folder| folder.exists());
        let there = there.unwrap_or_else(|| Path::new("."));
        // A file without a name, where the system has such.
        tempfile::tempfile_in(there)
            .map_err(|error| std::io::Error::from(error.kind()))
            .with_context(|| format!("cannot write to {}", self.0.display()))
            .or_exit(Exit::Internal)?;
        Ok(())
    }

    /// Makes the folder, and takes out of the metrics what a state does not count, and an end: both will be told again.
    ///
    /// # Errors
    /// [`Exit::BadInput`] when the metrics are no text, [`Exit::Internal`] when the system refuses to write.
    pub(super) fn begin(&self, progress: &Progress) -> Result<(), Failure> {
        self.metrics_are_text()
            .map_err(|why| Failure::new(Exit::BadInput, why))?;
        self.keep_counted(progress)
            .with_context(|| format!("cannot write to {}", self.0.display()))
            .or_exit(Exit::Internal)
    }

    /// Whether the metrics can be gone on with: a run writes behind the lines of an earlier one.
    ///
    /// # Errors
    /// The file and the line that is no text.
    pub(super) fn metrics_are_text(&self) -> Result<(), String> {
        metrics::are_text(&self.metrics())
    }

    fn keep_counted(&self, progress: &Progress) -> std::io::Result<()> {
        durable::make_folders(&self.0)?;
        let Some(text) = metrics::told(&self.metrics())? else {
            return Ok(());
        };
        let kept: String = text
            .lines()
            .filter(|line| belongs(line, progress))
            .flat_map(|line| [line, "\n"])
            .collect();
        let beside = self.0.join(".metrics.jsonl.partial");
        let mut file = File::create(&beside)?;
        file.write_all(kept.as_bytes())?;
        // Renamed before its bytes are safe, it could come back empty.
        file.sync_all()?;
        fs::rename(beside, self.metrics())?;
        durable::sync(&self.0)
    }

    /// Adds an event to the metrics. Times are left out, so that a repeated run writes the same.
    ///
    /// # Errors
    /// [`Exit::Internal`] when the system refuses to write.
    pub(super) fn note(&self, event: &impl Serialize) -> Result<(), Failure> {
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

    /// Saves a state, once the metrics up to it are safe: no power cut leaves a checkpoint without the lines that it counts.
    ///
    /// # Errors
    /// When the system refuses to write; earlier checkpoints stay.
    pub(super) fn save(&self, identity: &Identity, state: &JobState) -> anyhow::Result<()> {
        self.secure_metrics()
            .with_context(|| format!("cannot write {}", self.metrics().display()))?;
        Ok(store::save(&self.checkpoints(), identity, state)?)
    }

    fn secure_metrics(&self) -> std::io::Result<()> {
        match OpenOptions::new().append(true).open(self.metrics()) {
            Ok(file) => file.sync_all()?,
            // Nothing was told yet.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        // The first line made the file.
        durable::sync(&self.0)
    }
}

/// A line of the metrics: what it tells, and of when.
#[derive(Deserialize)]
struct Told {
    event: String,
    step: u64,
    /// Of a job that was set aside; one that an earlier release set aside says nothing.
    #[serde(default)]
    proven: bool,
}

/// The event of a job that was set aside.
const QUARANTINED: &str = "quarantined";
/// The event of held-out rows that were measured.
const EVALUATION: &str = "evaluation";

/// Whether a state counts what a line of metrics tells, and it is no end; a torn last line tells nothing.
fn belongs(line: &str, progress: &Progress) -> bool {
    serde_json::from_str::<Told>(line).is_ok_and(|line| match line.event.as_str() {
        "finished" | QUARANTINED => false,
        // Measured with a state, so told after it: the state counts it once it was saved again.
        EVALUATION if line.step == progress.step => progress.evaluated_at == Some(line.step),
        _ => line.step <= progress.step,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use gpu_actor::stage::optim::OptimizerState;

    use super::*;

    #[test]
    fn metrics_after_the_step_torn_lines_and_ends_go() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(folder.path(), &JobName::new("a").unwrap());
        let taken = |step| Progress {
            step,
            ..Progress::default()
        };
        place.begin(&taken(0)).unwrap();
        let step = |step: u64| format!("{{\"event\":\"step\",\"step\":{step}}}\n");
        let text = format!("{}{}{}{{\"ev", step(1), step(2), step(3));
        fs::write(place.metrics(), text).unwrap();
        place.begin(&taken(2)).unwrap();
        let kept = fs::read_to_string(place.metrics()).unwrap();
        assert_eq!(kept, format!("{}{}", step(1), step(2)));
        for end in ["finished", "quarantined"] {
            let ended = format!("{kept}{{\"event\":\"{end}\",\"step\":2}}\n");
            fs::write(place.metrics(), ended).unwrap();
            place.begin(&taken(2)).unwrap();
            assert_eq!(fs::read_to_string(place.metrics()).unwrap(), kept);
        }
        place.begin(&taken(0)).unwrap();
        assert_eq!(fs::read_to_string(place.metrics()).unwrap(), "");
    }

    /// A job that is set aside at its first step, or stopped before it ends, has a state of step 0 that was evaluated.
    #[test]
    fn an_evaluation_stays_where_the_state_counts_it() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::at(folder.path());
        let line = |step: u64| format!("{{\"event\":\"evaluation\",\"step\":{step}}}\n");
        let end = |step: u64| format!("{{\"event\":\"quarantined\",\"step\":{step}}}\n");
        for (step, evaluated_at, kept) in [
            (0, Some(0), line(0)),
            (0, None, String::new()),
            (4, Some(4), line(0) + &line(4)),
            // It is due at a step that the state did not reach with it.
            (4, Some(0), line(0)),
            (5, Some(4), line(0) + &line(4)),
        ] {
            let progress = Progress {
                step,
                evaluated_at,
                ..Progress::default()
            };
            let lines: String = [0, 4, 8].map(line).concat();
            fs::write(place.metrics(), lines + &end(step)).unwrap();
            place.begin(&progress).unwrap();
            let found = fs::read_to_string(place.metrics()).unwrap();
            assert_eq!(found, kept, "{progress:?}");
        }
    }

    fn saved(place: &Place) -> anyhow::Result<()> {
        let spec =
            r#"{"name": "a", "adapter": {"method": "bitfit"}, "data": {"train": "a.jsonl"}}"#;
        let identity = Identity {
            spec: serde_json::from_str(spec).unwrap(),
            backbone: "b".into(),
            data: "d".into(),
            start: None,
            products: shared::job::Products::F32,
        };
        let state = JobState {
            values: vec![1.0],
            optimizer: OptimizerState {
                first: vec![0.5],
                second: vec![0.25],
                step: 1,
            },
            progress: Progress {
                step: 1,
                ..Progress::default()
            },
        };
        place.save(&identity, &state)
    }

    #[test]
    fn no_state_is_saved_whose_metrics_are_not_safe() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::at(folder.path());
        // No system opens a link to itself.
        std::os::unix::fs::symlink(place.metrics(), place.metrics()).unwrap();
        let failure = format!("{:#}", saved(&place).unwrap_err());
        assert!(failure.contains("metrics.jsonl"), "{failure}");
        assert!(!place.checkpoints().exists(), "a state beside no metrics");
        fs::remove_file(place.metrics()).unwrap();
        // A job of which nothing was told has no file yet.
        saved(&place).unwrap();
        assert!(place.checkpoints().join("step-00000001").is_dir());
    }

    #[test]
    fn a_job_that_was_set_aside_says_which_states_are_good() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::at(folder.path());
        assert_eq!(place.set_aside(), None);
        let cases = [
            (r#"{"event":"step","step":4}"#, None),
            (r#"{"event":"quarantined","step":4}"#, Some(false)),
            (
                r#"{"event":"quarantined","step":4,"proven":false}"#,
                Some(false),
            ),
            (
                r#"{"event":"quarantined","step":4,"proven":true}"#,
                Some(true),
            ),
        ];
        for (line, proven) in cases {
            fs::write(place.metrics(), format!("{{}}\n{line}\n")).unwrap();
            let expected = proven.map(|proven| (4, Proof::of_set_aside(4, proven)));
            assert_eq!(place.set_aside(), expected, "{line}");
        }
    }
}
