//! The thread that stores states, so that no device waits for a store.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use shared::actor::exit::caught;
use shared::ids::JobName;

use super::manifest::{self, StateManifest};
use super::part::{self, Part, PartRef};
use super::{ArtifactError, Artifacts};
use crate::link::bell::Bell;

/// What is to be stored.
#[derive(Clone, Debug)]
pub enum Task {
    /// A stage's part of a job's state.
    Part {
        /// The job.
        job: JobName,
        /// The part.
        part: Part,
    },
    /// The manifest of a state whose parts are stored; then older states are removed.
    Manifest {
        /// The manifest.
        manifest: Box<StateManifest>,
        /// States kept in all.
        keep_last: usize,
    },
}

/// What became of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// A part is stored, or why not.
    Part {
        /// The job.
        job: JobName,
        /// Steps taken.
        step: u64,
        /// Where it is.
        outcome: Result<PartRef, String>,
    },
    /// A state is durable, or why not.
    Manifest {
        /// The job.
        job: JobName,
        /// Steps taken.
        step: u64,
        /// Size of its parts.
        outcome: Result<u64, String>,
    },
}

/// Stores what it is given, in its order, without making the caller wait.
pub trait Keeper: Send {
    /// Takes a task.
    fn keep(&mut self, task: Task);

    /// The next task that ended, if one did; each rings the bell of the stage.
    fn poll(&mut self) -> Option<Done>;
}

/// A thread with a store.
#[derive(Debug)]
pub struct StoreKeeper {
    tasks: Sender<Task>,
    done: Receiver<Done>,
}

impl StoreKeeper {
    /// Starts the thread, which ends by itself after the last task once the keeper is gone.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(store: Arc<dyn Artifacts>, bell: Bell) -> std::io::Result<Self> {
        let (tasks, inbox) = channel::<Task>();
        let (out, done) = channel();
        let work = move || {
            for task in inbox {
                // A keeper that is gone hears nothing, but what it was given is stored.
                let failed = failing(&task);
                let done = caught(|| perform(&*store, task));
                let done = done.unwrap_or_else(|panic| failed(panic.to_string()));
                let _ = out.send(done);
                bell.ring();
            }
        };
        thread::Builder::new().name("keeper".into()).spawn(work)?;
        Ok(Self { tasks, done })
    }
}

impl Keeper for StoreKeeper {
    fn keep(&mut self, task: Task) {
        // The thread lives as long as this sender: a panic ends a task, not the thread.
        let _ = self.tasks.send(task);
    }

    fn poll(&mut self) -> Option<Done> {
        self.done.try_recv().ok()
    }
}

/// What a task comes to that failed.
fn failing(task: &Task) -> impl FnOnce(String) -> Done + use<> {
    let (part, job, step) = match task {
        Task::Part { job, part } => (true, job.clone(), part.optimizer.step),
        Task::Manifest { manifest, .. } => (false, manifest.job.clone(), manifest.progress.step),
    };
    move |why| match part {
        true => Done::Part {
            job,
            step,
            outcome: Err(why),
        },
        false => Done::Manifest {
            job,
            step,
            outcome: Err(why),
        },
    }
}

/// Does one task.
pub fn perform(store: &dyn Artifacts, task: Task) -> Done {
    match task {
        Task::Part { job, part } => {
            let (reference, bytes) = part.write(&job);
            let stored = store.put(&reference.key, &bytes);
            Done::Part {
                step: part.optimizer.step,
                outcome: stored.map(|()| reference).map_err(|e| e.to_string()),
                job,
            }
        }
        Task::Manifest {
            manifest,
            keep_last,
        } => {
            let stored = seal(store, &manifest);
            let (job, step) = (manifest.job.clone(), manifest.progress.step);
            if stored.is_ok() {
                // What cannot be removed now is after the next state.
                let _ = remove_old(store, &job, step, keep_last);
            }
            Done::Manifest {
                outcome: stored.map(|()| manifest.bytes()).map_err(|e| e.to_string()),
                job,
                step,
            }
        }
    }
}

/// Creates a manifest; one that is there already stays if it is sound, for its state has the same bits.
pub(super) fn seal(store: &dyn Artifacts, manifest: &StateManifest) -> Result<(), ArtifactError> {
    let key = manifest::key(&manifest.job, manifest.progress.step);
    let text = manifest.text();
    if store.create(&key, text.as_bytes())? || is_sound(store, &key)? {
        return Ok(());
    }
    store.delete(&key)?;
    store.create(&key, text.as_bytes()).map(|_| ())
}

fn is_sound(store: &dyn Artifacts, key: &str) -> Result<bool, ArtifactError> {
    let text = match store.get(key) {
        Err(ArtifactError::Missing { .. }) => return Ok(false),
        text => text?,
    };
    let Ok(found) = StateManifest::read(&text) else {
        return Ok(false);
    };
    for part in &found.parts {
        match store.get(&part.key) {
            Ok(bytes) if crate::train::seal::hash(&bytes) == part.sha256 => {}
            Ok(_) | Err(ArtifactError::Missing { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn remove_old(
    store: &dyn Artifacts,
    job: &JobName,
    newest: u64,
    keep_last: usize,
) -> Result<(), ArtifactError> {
    let keys = store.list(&part::job_folder(job))?;
    for key in manifest::superseded(job, &keys, newest, keep_last) {
        store.delete(&key)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::artifacts::memory::MemoryArtifacts;
    use crate::stage::optim::OptimizerState;

    /// Panics at one job's parts.
    #[derive(Debug, Default)]
    struct Fragile(MemoryArtifacts);

    impl Artifacts for Fragile {
        fn get(&self, key: &str) -> Result<Vec<u8>, ArtifactError> {
            self.0.get(key)
        }
        fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ArtifactError> {
            assert!(!key.contains("fragile"), "the store breaks");
            self.0.put(key, bytes)
        }
        fn create(&self, key: &str, bytes: &[u8]) -> Result<bool, ArtifactError> {
            self.0.create(key, bytes)
        }
        fn list(&self, prefix: &str) -> Result<Vec<String>, ArtifactError> {
            self.0.list(prefix)
        }
        fn delete(&self, key: &str) -> Result<(), ArtifactError> {
            self.0.delete(key)
        }
    }

    #[test]
    fn a_panic_ends_one_task_and_the_next_is_done() {
        let bell = Bell::default();
        let mut keeper = StoreKeeper::start(Arc::new(Fragile::default()), bell.clone()).unwrap();
        for job in ["fragile", "sound"] {
            let part = Part {
                layers: 0..1,
                values: vec![1.0],
                optimizer: OptimizerState {
                    first: vec![0.0],
                    second: vec![0.0],
                    step: 3,
                },
            };
            let job = JobName::new(job).unwrap();
            keeper.keep(Task::Part { job, part });
        }
        let mut done = Vec::new();
        while done.len() < 2 {
            let heard = bell.heard();
            match keeper.poll() {
                Some(one) => done.push(one),
                None => drop(bell.wait(heard, std::time::Duration::from_secs(60))),
            }
        }
        let Done::Part { step, outcome, .. } = &done[0] else {
            panic!("{done:?}")
        };
        assert_eq!(*step, 3);
        assert!(outcome.as_ref().unwrap_err().contains("the store breaks"));
        assert!(
            matches!(&done[1], Done::Part { outcome: Ok(_), .. }),
            "{done:?}"
        );
    }
}
