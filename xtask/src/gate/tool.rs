//! Runs a tool in the workspace: shown as it works, or kept until it fails.

use std::path::Path;
use std::process::{Command, Stdio};

use super::Outcome;

/// A command line with what it needs from its surroundings.
#[derive(Debug)]
pub(super) struct Tool<'a> {
    program: &'a str,
    arguments: &'a [&'a str],
    variable: Option<(&'a str, &'a str)>,
}

impl<'a> Tool<'a> {
    pub(super) fn new(program: &'a str, arguments: &'a [&'a str]) -> Self {
        Self {
            program,
            arguments,
            variable: None,
        }
    }

    pub(super) fn with(self, name: &'a str, value: &'a str) -> Self {
        Self {
            variable: Some((name, value)),
            ..self
        }
    }

    /// Runs it with its output on the terminal.
    pub(super) fn run(&self, root: &Path) -> Outcome {
        println!("$ {}", self.line());
        match self.command(root).status() {
            Ok(status) if status.success() => Outcome::Passed,
            Ok(status) => Outcome::Failed(format!("{} ended with {status}", self.line())),
            Err(error) => Outcome::Failed(format!("{} did not start: {error}", self.line())),
        }
    }

    /// Runs it and keeps what it prints.
    ///
    /// # Errors
    /// The text of both streams, when it fails or does not start.
    pub(super) fn quiet(&self, root: &Path) -> Result<(), String> {
        println!("$ {}", self.line());
        let output = self
            .command(root)
            .output()
            .map_err(|error| format!("{} did not start: {error}", self.line()))?;
        if output.status.success() {
            return Ok(());
        }
        Err([output.stdout, output.stderr]
            .map(|stream| String::from_utf8_lossy(&stream).into_owned())
            .concat())
    }

    /// Whether it starts and ends well, whatever it prints.
    pub(super) fn works(&self, root: &Path) -> bool {
        let mut command = self.command(root);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    fn command(&self, root: &Path) -> Command {
        let mut command = Command::new(self.program);
        command.args(self.arguments).current_dir(root);
        command.stdin(Stdio::null());
        if let Some((name, value)) = self.variable {
            command.env(name, value);
        }
        command
    }

    fn line(&self) -> String {
        let variable = self
            .variable
            .map_or_else(String::new, |(name, value)| format!("{name}={value:?} "));
        format!("{variable}{} {}", self.program, self.arguments.join(" "))
    }
}
