//! How a command ends: a stable number and, when it failed, a sentence for people.
//!
//! | code | meaning |
//! | --- | --- |
//! | 0 | done |
//! | 1 | internal: a fault of spotmux or of the machine |
//! | 2 | usage: the command line itself is wrong |
//! | 3 | bad input: a job, a data set, an adapter or a model is wrong |
//! | 4 | not found: a model or file is absent, or could not be fetched |
//! | 5 | would not fit: more memory is needed than there is |
//! | 6 | quarantined: the numbers of at least one job stopped being finite; the others are done |
//! | 130 | interrupted: what was trained is saved |

use std::fmt;
use std::io;

/// How a command ended; the numbers are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// A fault of spotmux or of the machine.
    Internal = 1,
    /// The command line is wrong.
    Usage = 2,
    /// A job, a data set, an adapter or a model is wrong.
    BadInput = 3,
    /// A model or file is absent, or could not be fetched.
    NotFound = 4,
    /// More memory is needed than there is.
    WouldNotFit = 5,
    /// At least one job was set aside.
    Quarantined = 6,
    /// Stopped by a signal.
    Interrupted = 130,
}

impl Exit {
    /// The number given to the system.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }
}

/// Why a command failed, and what to do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The number it ends with.
    pub(crate) exit: Exit,
    /// What went wrong.
    pub(crate) error: anyhow::Error,
    /// What to do, one sentence each.
    pub(crate) hints: Vec<String>,
}

impl Failure {
    /// A failure told in one sentence.
    pub(crate) fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self {
            exit,
            error: anyhow::anyhow!("{message}"),
            hints: Vec::new(),
        }
    }

    /// Adds what to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// The message with its causes, each said once.
    pub(crate) fn message(&self) -> String {
        let mut text = String::new();
        for cause in self.error.chain() {
            let part = cause.to_string();
            // Typed errors often carry their cause inside their own sentence.
            if text.contains(&part) {
                continue;
            }
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&part);
        }
        text
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let exit = match error.kind() {
            // The reader of our output has had enough: that is its right.
            io::ErrorKind::BrokenPipe => Exit::Done,
            _ => Exit::Internal,
        };
        Self {
            exit,
            error: error.into(),
            hints: Vec::new(),
        }
    }
}

/// Gives an error its exit code.
pub(crate) trait OrExit<T> {
    /// Turns an error into a failure with this code.
    fn or_exit(self, exit: Exit) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrExit<T> for Result<T, E> {
    fn or_exit(self, exit: Exit) -> Result<T, Failure> {
        self.map_err(|error| Failure {
            exit,
            error: error.into(),
            hints: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use anyhow::Context;

    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let inner: Result<(), _> = Err(io::Error::other("disk on fire"));
        let outer = inner
            .context("cannot read a.json: disk on fire")
            .context("job a");
        let failure = outer.or_exit(Exit::BadInput).unwrap_err();
        assert_eq!(failure.message(), "job a: cannot read a.json: disk on fire");
        assert_eq!(failure.exit.code(), 3);
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(failure.exit, Exit::Done);
    }
}
