//! `cargo xtask validate`: every check, timed, one list of failures at the end.
//!
//! A failing step does not stop the later ones. A tool that is not installed, or a database that cannot be
//! reached, makes its step *skipped*, which is printed with the reason; `--require-tools` makes a missing tool a
//! failure, as it is on the build machine.

mod checks;
mod steps;
mod tool;

pub use steps::{STEPS, Step};

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Passed,
    /// Something is wrong; what, in a line.
    Failed(String),
    /// Nothing could be said, although the tool is there; why.
    Skipped(String),
    /// The tool is not installed; what to install.
    Missing(String),
}

/// Which steps run, and how strict they are.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The quick steps only.
    pub fast: bool,
    /// Only these steps; empty: all.
    pub only: Vec<String>,
    /// Not these.
    pub skip: Vec<String>,
    /// A missing tool fails its step.
    pub require_tools: bool,
}

impl Options {
    fn chosen(&self) -> Result<Vec<&'static Step>> {
        for name in self.only.iter().chain(&self.skip) {
            if !STEPS.iter().any(|step| step.name == name) {
                let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
                bail!(
                    "no step is called {name:?}: the steps are {}",
                    names.join(", ")
                );
            }
        }
        let listed = |list: &[String], step: &Step| list.iter().any(|name| name == step.name);
        Ok(STEPS
            .iter()
            .filter(|step| !self.fast || step.fast)
            .filter(|step| self.only.is_empty() || listed(&self.only, step))
            .filter(|step| !listed(&self.skip, step))
            .collect())
    }
}

/// Runs the chosen steps on the workspace at `root` and prints each with its time.
///
/// # Errors
/// An unknown step name, or the list of the steps that failed.
pub fn validate(root: &Path, options: &Options) -> Result<()> {
    let mut lines = Vec::new();
    let mut failed = Vec::new();
    for step in options.chosen()? {
        println!("\n== {}: {}", step.name, step.about);
        let (outcome, took) = timed(|| (step.run)(root));
        let outcome = match outcome {
            Outcome::Missing(remedy) if options.require_tools => {
                Outcome::Failed(format!("the tool is missing: {remedy}"))
            }
            outcome => outcome,
        };
        if let Outcome::Failed(_) = outcome {
            failed.push(step.name);
        }
        let line = describe(step.name, &outcome, took);
        println!("{line}");
        lines.push(line);
    }
    println!("\n== summary");
    for line in lines {
        println!("{line}");
    }
    if failed.is_empty() {
        return Ok(());
    }
    bail!("{} failed: {}", failed.len(), failed.join(", "));
}

fn describe(name: &str, outcome: &Outcome, took: Duration) -> String {
    let seconds = took.as_secs_f64();
    let (word, reason) = match outcome {
        Outcome::Passed => ("ok", None),
        Outcome::Failed(reason) => ("FAILED", Some(reason)),
        Outcome::Skipped(reason) => ("SKIPPED", Some(reason)),
        Outcome::Missing(remedy) => ("NOT RUN", Some(remedy)),
    };
    let reason = reason.map_or_else(String::new, |reason| format!("  {reason}"));
    format!("{word:<8} {name:<12} {seconds:>7.1} s{reason}")
}

#[expect(
    clippy::disallowed_methods,
    reason = "the gate reports how long its steps take"
)]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = work();
    (value, start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(options: &Options) -> Vec<&'static str> {
        let steps = options.chosen().unwrap();
        steps.iter().map(|step| step.name).collect()
    }

    #[test]
    fn steps_are_chosen_by_name_and_speed() {
        let fast = Options {
            fast: true,
            skip: vec!["fmt".into()],
            ..Options::default()
        };
        assert!(names(&fast).contains(&"layers"));
        assert!(!names(&fast).contains(&"tests"));
        assert!(!names(&fast).contains(&"fmt"));
        let only = Options {
            only: vec!["sizes".into()],
            ..Options::default()
        };
        assert_eq!(names(&only), ["sizes"]);
    }

    #[test]
    fn a_misspelled_step_is_an_error_and_not_an_empty_gate() {
        let options = Options {
            only: vec!["test".into()],
            ..Options::default()
        };
        let error = options.chosen().unwrap_err().to_string();
        assert!(error.contains("no step is called \"test\""), "{error}");
    }
}
