//! What the demo brings along: jobs, data sets written for it, and a question to each job that is not among them.

use std::fs;
use std::path::Path;

use anyhow::Context;
use data::message::{Message, Role};
use serde::Deserialize;
use shared::job::Products;

use crate::exit::{Exit, Failure, OrExit};
use crate::language::Language;

/// Name of the file of jobs.
pub(crate) const JOBS: &str = "jobs.toml";

macro_rules! kit {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../demo/", $name)))),*]
    };
}

/// Every file by its path in the demo's folder.
const FILES: &[(&str, &str)] = kit![
    "jobs.toml",
    "data/commands.jsonl",
    "data/commands.held.jsonl",
    "data/korean.jsonl",
    "data/korean.held.jsonl",
    "data/orders.jsonl",
    "data/orders.held.jsonl",
    "data/qa.jsonl",
    "data/qa.held.jsonl",
    "data/sentiment.jsonl",
    "data/sentiment.held.jsonl",
    "data/style.jsonl",
    "data/style.held.jsonl",
    "data/summaries.jsonl",
    "data/summaries.held.jsonl",
];

/// A question to a job, asked before and after training.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Probe {
    /// The job.
    pub(crate) job: String,
    /// The user's turn, or the text to continue.
    pub(crate) ask: String,
    /// The system's turn.
    #[serde(default)]
    pub(crate) system: Option<String>,
    /// Whether the text is continued without the chat template.
    #[serde(default)]
    pub(crate) raw: bool,
    /// Most tokens of an answer.
    pub(crate) limit: usize,
}

impl Probe {
    /// All of them, in the order of the jobs.
    ///
    /// # Panics
    /// Never: the list is part of the program and tested.
    pub(crate) fn all() -> Vec<Self> {
        serde_json::from_str(include_str!("../../demo/probes.json"))
            .expect("the probes are well formed")
    }

    /// The tokens to continue.
    ///
    /// # Errors
    /// When template or tokenizer refuse it.
    pub(crate) fn tokens(&self, language: &Language) -> Result<Vec<u32>, Failure> {
        if self.raw {
            return language.raw_prompt(&self.ask);
        }
        let system = self
            .system
            .iter()
            .map(|text| Message::new(Role::System, text.clone()));
        let messages: Vec<Message> = system.chain([Message::user(self.ask.clone())]).collect();
        language.chat_prompt(&messages)
    }
}

/// What is asked for in another way than the file of jobs has it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Changes {
    /// Optimizer steps of every job.
    pub(crate) steps: Option<u64>,
    /// How products with frozen weights are computed.
    pub(crate) products: Option<Products>,
}

impl Changes {
    /// The file of jobs with the changes in it: what is trained is what lies there, and can be gone on with.
    fn applied(self, text: &str) -> String {
        let mut changed = String::with_capacity(text.len());
        for line in text.lines() {
            match (self.steps, line.split_once(LENGTH)) {
                (Some(steps), Some(("", rest))) => {
                    let rest = rest.split_once(',').map_or(" }", |(_, rest)| rest);
                    changed.push_str(&format!("train = {{ steps = {steps},{rest}\n"));
                }
                _ => changed.push_str(&format!("{line}\n")),
            }
            if let (Some(products), true) = (self.products, line.starts_with("output = ")) {
                changed.push_str(&format!("\n[engine]\nproducts = \"{products}\"\n"));
            }
        }
        changed
    }
}

/// How a line of the file of jobs begins that says how long a job trains.
const LENGTH: &str = "train = { epochs = ";

/// Writes the jobs and their data.
///
/// # Errors
/// [`Exit::Internal`] when the system refuses.
pub(crate) fn unpack(folder: &Path, changes: Changes) -> Result<(), Failure> {
    let write = || -> std::io::Result<()> {
        fs::create_dir_all(folder.join("data"))?;
        FILES.iter().try_for_each(|&(name, text)| match name {
            JOBS => fs::write(folder.join(name), changes.applied(text)),
            _ => fs::write(folder.join(name), text),
        })
    };
    write()
        .with_context(|| format!("cannot write to {}", folder.display()))
        .or_exit(Exit::Internal)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeSet;

    use shared::job::JobFile;

    use super::*;

    fn jobs() -> JobFile {
        JobFile::parse(FILES[0].1).unwrap()
    }

    #[test]
    fn each_job_has_its_data_and_a_question() {
        let files: BTreeSet<&str> = FILES.iter().map(|(name, _)| *name).collect();
        let probes = Probe::all();
        let jobs = jobs();
        assert!(jobs.jobs.len() >= 6);
        assert_eq!(jobs.jobs.len(), probes.len());
        for (job, probe) in jobs.jobs.iter().zip(&probes) {
            assert_eq!(job.name.as_str(), probe.job);
            assert!(
                files.contains(job.data.train.as_str()),
                "{}",
                job.data.train
            );
            assert!(
                files.contains(job.data.eval.as_deref().unwrap()),
                "{}",
                job.name
            );
        }
        assert_eq!(files.len(), 1 + 2 * jobs.jobs.len());
    }

    /// What is unpacked is what is trained: `spotmux train` goes on with it.
    #[test]
    fn changes_stand_in_the_file() {
        assert_eq!(
            JobFile::parse(&Changes::default().applied(FILES[0].1)),
            Ok(jobs())
        );
        let changes = Changes {
            steps: Some(5),
            products: Some(Products::Split),
        };
        let changed = JobFile::parse(&changes.applied(FILES[0].1)).unwrap();
        assert_eq!(changed.engine.products, Products::Split);
        for (changed, mut job) in changed.jobs.into_iter().zip(jobs().jobs) {
            job.train.epochs = None;
            job.train.steps = Some(5);
            assert_eq!(changed, job);
        }
    }

    #[test]
    fn methods_differ() {
        let methods: BTreeSet<String> = jobs()
            .jobs
            .iter()
            .map(|job| job.adapter.in_words())
            .collect();
        assert_eq!(methods.len(), jobs().jobs.len());
    }

    #[test]
    fn no_held_out_row_and_no_question_is_trained() {
        for job in jobs().jobs {
            let text = |path: &str| FILES.iter().find(|(name, _)| *name == path).unwrap().1;
            let train: BTreeSet<&str> = text(&job.data.train).lines().collect();
            assert!(
                (36..=80).contains(&train.len()),
                "{} has {} rows",
                job.name,
                train.len()
            );
            assert_eq!(
                train.len(),
                text(&job.data.train).lines().count(),
                "{} repeats a row",
                job.name
            );
            assert!(
                text(job.data.eval.as_deref().unwrap())
                    .lines()
                    .all(|line| !train.contains(line))
            );
            let probe = Probe::all()
                .into_iter()
                .find(|probe| probe.job == job.name.as_str())
                .unwrap();
            let ask = serde_json::to_string(&probe.ask).unwrap();
            let ask = ask.trim_matches('"');
            assert!(train.iter().all(|line| !line.contains(ask)), "{}", job.name);
        }
    }
}
