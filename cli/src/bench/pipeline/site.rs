//! A temporary folder with a model, data and files of jobs; the program run in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, anyhow};
use serde_json::json;
use tempfile::TempDir;

use super::history::{self, Step};
use crate::args::BenchPipelineArgs;
use crate::exit::{Exit, Failure, OrExit};
use crate::local::free::Free;
use crate::settings::Settings;
use crate::store::Store;

/// What stands for a tiny model with random weights, made on the spot.
const TINY: &str = "tiny";
/// Samples of a job; each job has them all.
const SAMPLES: usize = 32;

/// One file of jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load<'a> {
    /// First part of their names.
    pub(crate) name: &'a str,
    /// Steps of each.
    pub(crate) steps: u64,
    /// Steps between checkpoints; 0: never.
    pub(crate) checkpoint: u64,
}

/// The folder.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    folder: TempDir,
    model: PathBuf,
    args: &'a BenchPipelineArgs,
    settings: &'a Settings,
}

impl<'a> Site<'a> {
    /// Makes it.
    ///
    /// # Errors
    /// When there is no such model, or the folder cannot be written.
    pub(crate) fn make(
        args: &'a BenchPipelineArgs,
        settings: &'a Settings,
    ) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()
            .context("cannot make a temporary folder")
            .or_exit(Exit::Internal)?;
        let mut site = Self {
            model: folder.path().join("model"),
            folder,
            args,
            settings,
        };
        if args.model == TINY && !Path::new(TINY).exists() {
            site.program(&["model", "tiny", "model", "--layers", "4"])?;
        } else {
            let found = Store::new(settings)?.resolve(&args.model, Path::new("."))?;
            site.model = std::path::absolute(found).or_exit(Exit::Internal)?;
        }
        let sample = |number: usize| {
            // Of 15 to 75 words, so that rows differ in length as real ones do.
            let words = "and so it goes on ".repeat(3 + number * 5 % 13);
            let text = format!("Sample {number} says: {words}until {}.", number * 7 % 11);
            format!("{}\n", json!({ "text": text }))
        };
        site.write(
            "samples.jsonl",
            &(0..SAMPLES).map(sample).collect::<String>(),
        )?;
        Ok(site)
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn settings(&self) -> &'a Settings {
        self.settings
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let path = self.path().join(name);
        fs::write(&path, text)
            .with_context(|| format!("cannot write {}", path.display()))
            .or_exit(Exit::Internal)?;
        Ok(path)
    }

    /// The program in the folder, untouched by variables that set keys of a cluster.
    ///
    /// # Errors
    /// When the program does not find itself.
    pub(crate) fn command(&self, words: &[&str]) -> Result<Command, Failure> {
        let program = std::env::current_exe()
            .context("cannot find the program itself")
            .or_exit(Exit::Internal)?;
        let mut command = Command::new(program);
        command.args(words).current_dir(self.path());
        for (name, _) in &self.settings.over {
            command.env_remove(name);
        }
        Ok(command)
    }

    /// Runs it to its end; what it wrote.
    ///
    /// # Errors
    /// When it fails, with its last words.
    pub(crate) fn program(&self, words: &[&str]) -> Result<String, Failure> {
        let line = words.join(" ");
        let ran = self
            .command(words)?
            .output()
            .with_context(|| format!("cannot run spotmux {line}"))
            .or_exit(Exit::Internal)?;
        if ran.status.success() {
            return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&ran.stderr);
        Err(anyhow!("spotmux {line}: {}: {}", ran.status, said.trim())).or_exit(Exit::Internal)
    }

    /// Writes a file of jobs.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn jobs(&self, load: Load<'_>) -> Result<String, Failure> {
        let Load {
            name,
            steps,
            checkpoint,
        } = load;
        let (model, rank) = (self.model.display(), self.args.rank);
        let mut text = format!(
            "model = {}\noutput = \"{name}\"\n",
            json!(model.to_string())
        );
        for number in 1..=self.args.jobs {
            text.push_str(&format!(
                "[[job]]\nname = \"{name}-{number}\"\nseed = {number}\n\
                 adapter = {{ method = \"lora\", rank = {rank}, targets = \"all-linear\" }}\n\
                 data = {{ train = \"samples.jsonl\" }}\n\
                 train = {{ steps = {steps}, batch_size = 4 }}\n\
                 checkpoint = {{ every_steps = {checkpoint} }}\n"
            ));
        }
        let file = format!("{name}.toml");
        self.write(&file, &text)?;
        Ok(file)
    }

    /// Trains jobs in one process with so many threads; the steps it took.
    ///
    /// # Errors
    /// When it fails.
    pub(crate) fn train(&self, load: Load<'_>, threads: usize) -> Result<Vec<Step>, Failure> {
        let file = self.jobs(load)?;
        let threads = threads.to_string();
        let told = self.program(&["train", &file, "--json", "--threads", &threads])?;
        Ok(history::of_lines(&told))
    }

    /// Writes the file of a cluster on free ports of this machine.
    ///
    /// # Errors
    /// When there are none, or it cannot be written.
    pub(crate) fn cluster(&self, stages: usize, nodes: usize) -> Result<PathBuf, Failure> {
        let free = Free::find(nodes).or_exit(Exit::Internal)?;
        let (model, state) = (
            json!(self.model.display().to_string()),
            format!("state-{stages}"),
        );
        let mut text = format!(
            "version = 1\n[cluster]\nstate = \"{state}\"\n[model]\npath = {model}\n\
             [store]\nurl = \"{state}/store\"\n[security]\ndirectory = \"{state}/security\"\n\
             [coordinator]\nlisten = \"{}\"\nmetrics = \"{}\"\njournal = \"{state}/journal.sqlite\"\n\
             heartbeat_ms = 500\nheartbeat_bound_ms = 15000\nlease_seconds = 60\n[plan]\nstages = {stages}\n\
             [gpu_actor]\nthreads = {}\nmemory_mib = {}\n",
            free.coordinator, free.metrics, self.args.threads, self.args.memory_mib,
        );
        for (node, place) in free.nodes.iter().enumerate() {
            text.push_str(&format!(
                "[[node]]\nname = \"n{}\"\nlisten = \"{place}\"\n",
                node + 1
            ));
        }
        self.write(&format!("cluster-{stages}.toml"), &text)
    }
}
