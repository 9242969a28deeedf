//! The manifest of a durable state: what it belongs to, where its parts are, sealed against any change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shared::ids::JobName;
use thiserror::Error;

use super::part::{self, PartRef};
use crate::train::identity::Identity;
use crate::train::progress::Progress;
use crate::train::proof::Proof;
use crate::train::seal;

/// The format written and read. 2 says what the job started from, and its backbone's hash covers the numbers of the
/// formulas.
pub const VERSION: u64 = 2;

/// Why a text is no manifest to continue from.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ManifestError {
    /// Another format version, which only another release can judge.
    #[error("it is of format version {0}, this program reads and writes version {VERSION}")]
    Version(u64),
    /// Torn or changed.
    #[error("{0}")]
    Damaged(String),
}

/// A durable state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateManifest {
    version: u64,
    /// The job's name in the store.
    pub job: JobName,
    /// What the state belongs to.
    pub identity: Identity,
    /// Leadership under which it was written.
    pub term: u64,
    /// Plan under which it was written.
    pub epoch: u64,
    /// The job's place in its life.
    pub progress: Progress,
    /// Optimizer steps taken.
    pub optimizer_steps: u64,
    /// Parts that cover all layers once.
    pub parts: Vec<PartRef>,
    /// The sha256 of the manifest's text with zeros in this place.
    seal: String,
}

/// What every version has, whatever else it holds.
#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

/// Where the manifest of a job's step is stored.
#[must_use]
pub fn key(job: &JobName, step: u64) -> String {
    format!("{}manifest.json", part::folder(job, step))
}

impl StateManifest {
    /// The manifest of a state whose parts are stored.
    #[must_use]
    pub fn new(
        job: JobName,
        identity: Identity,
        (term, epoch): (u64, u64),
        progress: Progress,
        mut parts: Vec<PartRef>,
    ) -> Self {
        parts.sort_by_key(|part| part.first_layer);
        Self {
            version: VERSION,
            job,
            identity,
            term,
            epoch,
            optimizer_steps: progress.step,
            progress,
            parts,
            seal: seal::open(),
        }
    }

    /// The sealed text.
    #[must_use]
    pub fn text(&self) -> String {
        let open = Self {
            seal: seal::open(),
            ..self.clone()
        };
        let text = serde_json::to_string_pretty(&open).expect("a manifest has a text");
        seal::close(&text)
    }

    /// Reads a sealed text.
    ///
    /// # Errors
    /// [`ManifestError`] when it was changed, is of another version, or does not fit itself.
    pub fn read(text: &[u8]) -> Result<Self, ManifestError> {
        let damaged = |error: String| ManifestError::Damaged(error);
        let text = std::str::from_utf8(text).map_err(|error| damaged(error.to_string()))?;
        let Versioned { version } =
            serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
        if version != VERSION {
            return Err(ManifestError::Version(version));
        }
        let manifest: Self =
            serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
        if !seal::holds(text, &manifest.seal) {
            let reason = "it does not have its seal's sha256: it was changed";
            return Err(damaged(reason.into()));
        }
        if manifest.progress.step != manifest.optimizer_steps {
            let (step, taken) = (manifest.progress.step, manifest.optimizer_steps);
            return Err(damaged(format!(
                "it is of step {step}, its optimizer took {taken}"
            )));
        }
        Ok(manifest)
    }

    /// Size of all parts.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }
}

/// The step of a key below a job's folder, and the rest of the key. Only the name that [`part::folder`] prints is one.
fn step_of<'a>(key: &'a str, job: &JobName) -> Option<(u64, &'a str)> {
    let below = key.strip_prefix(&part::job_folder(job))?;
    let (name, rest) = below.split_once('/')?;
    let step = name.strip_prefix("step-")?.parse().ok()?;
    let printed = part::folder(job, step);
    (key.strip_prefix(&printed)? == rest).then_some((step, rest))
}

/// Steps of a job that have a manifest, the newest first, from the keys of its folder.
#[must_use]
pub fn steps(job: &JobName, keys: &[String]) -> Vec<u64> {
    let found = keys.iter().filter_map(|key| step_of(key, job));
    let mut steps: Vec<u64> = found
        .filter(|(_, rest)| *rest == "manifest.json")
        .map(|(step, _)| step)
        .collect();
    steps.sort_unstable_by(|a, b| b.cmp(a));
    steps
}

/// Keys that are no longer wanted once a step is durable, in the order in which to remove them: of each step before it
/// but the newest `keep_last` in all, and the newest that is proven ([`crate::train::proof`]), the manifest first.
#[must_use]
pub fn superseded(job: &JobName, keys: &[String], newest: u64, keep_last: usize) -> Vec<String> {
    let mut wanted = steps(job, keys);
    wanted.retain(|step| *step <= newest);
    let surplus = Proof::of_taken(newest).surplus(&wanted, keep_last);
    wanted.retain(|step| !surplus.contains(step));
    let mut old: BTreeMap<u64, Vec<&String>> = BTreeMap::new();
    for key in keys {
        if let Some((step, rest)) = step_of(key, job)
            && step < newest
            && !wanted.contains(&step)
        {
            let list = old.entry(step).or_default();
            match rest {
                "manifest.json" => list.insert(0, key),
                _ => list.push(key),
            }
        }
    }
    old.into_values().flatten().cloned().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn steps_have_the_name_that_is_printed_however_long() {
        let job = JobName::new("j1").unwrap();
        let far = 100_000_000;
        let mut keys: Vec<String> = [7, far, far + 1].map(|step| key(&job, step)).into();
        keys.push(format!("{}part-0", part::folder(&job, far)));
        // Nobody prints these.
        keys.push("jobs/j1/step-7/manifest.json".into());
        keys.push("jobs/j1/step-+0000009/manifest.json".into());
        keys.push("jobs/j2/step-00000009/manifest.json".into());
        assert_eq!(steps(&job, &keys), [far + 1, far, 7]);
        // Whether the newest is good is not known yet.
        let gone = superseded(&job, &keys, far + 1, 1);
        assert_eq!(gone, [keys[0].clone()]);
        let newer = [keys.clone(), vec![key(&job, far + 2)]].concat();
        let gone = superseded(&job, &newer, far + 2, 1);
        assert_eq!(gone, [&keys[0], &keys[1], &keys[3]].map(Clone::clone));
        assert_eq!(superseded(&job, &newer, far + 2, 2).len(), 3);
        assert_eq!(superseded(&job, &newer, far + 2, 3), [keys[0].clone()]);
    }
}
