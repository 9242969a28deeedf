//! How a command ends: a stable number and, when it failed, a sentence for people.
//!
//! | code | meaning |
//! | --- | --- |
//! | 0 | done |
//! | 1 | internal: a fault of spotmux or of the machine |
//! | 2 | usage: the command line itself is wrong |
//! | 3 | bad input: a job, a data set, an adapter or a model is wrong |
//! | 4 | not found: a model or file is absent or could not be fetched; no such job or node is known |
//! | 5 | would not fit: more memory is needed than there is |
//! | 6 | quarantined: the numbers of at least one job stopped being finite; the others are done |
//! | 7 | unreachable: no coordinator answers, or it does not believe who asks |
//! | 8 | conflict: the state does not allow it, or a name is taken |
//! | 9 | forbidden: the certificate does not allow it |
//! | 10 | busy: a limit is reached, or what was asked was moved on the way; later, the same may pass |
//! | 11 | no capacity: no node can do it |
//! | 12 | the coordinator itself failed |
//! | 13 | a job that was waited for did not succeed |
//! | 14 | the cluster has ended, and steps that were taken are not durable: they are taken again |
//! | 130 | interrupted: what was trained is saved |

use std::error::Error;
use std::fmt;
use std::io;
use std::iter;
use std::path::Path;

use gpu_actor::durable::DurableError;
use gpu_actor::peft::files::AdapterFileError;
use shared::wire::request::{Refusal, RefusalCode};

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
    /// No coordinator answers, or it does not believe who asks.
    Unreachable = 7,
    /// The state does not allow it, or a name is taken.
    Conflict = 8,
    /// The certificate does not allow it.
    Forbidden = 9,
    /// A limit is reached.
    Busy = 10,
    /// No node can do it.
    NoCapacity = 11,
    /// The coordinator itself failed.
    Coordinator = 12,
    /// A job that was waited for did not succeed.
    JobEnded = 13,
    /// The cluster has ended, and steps that were taken are not durable.
    NotDurable = 14,
    /// Stopped by a signal.
    Interrupted = 130,
}

impl Exit {
    /// Every one, by its number.
    const ALL: [Self; 16] = [
        Self::Done,
        Self::Internal,
        Self::Usage,
        Self::BadInput,
        Self::NotFound,
        Self::WouldNotFit,
        Self::Quarantined,
        Self::Unreachable,
        Self::Conflict,
        Self::Forbidden,
        Self::Busy,
        Self::NoCapacity,
        Self::Coordinator,
        Self::JobEnded,
        Self::NotDurable,
        Self::Interrupted,
    ];

    /// The number given to the system.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    /// The one that another process of this program ended with, by its number.
    pub(crate) fn of_code(code: u64) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|exit| u64::from(exit.code()) == code)
    }
}

impl From<RefusalCode> for Exit {
    fn from(code: RefusalCode) -> Self {
        match code {
            RefusalCode::NotFound => Self::NotFound,
            RefusalCode::Conflict => Self::Conflict,
            RefusalCode::Invalid => Self::BadInput,
            RefusalCode::Forbidden => Self::Forbidden,
            RefusalCode::Busy => Self::Busy,
            RefusalCode::NoCapacity => Self::NoCapacity,
            RefusalCode::Internal => Self::Coordinator,
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.code.into(), refusal.message)
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

    /// Says first what could not be made.
    pub(crate) fn about(self, place: &Path) -> Self {
        Self {
            error: self
                .error
                .context(format!("cannot write {}", place.display())),
            ..self
        }
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
        self.map_err(|error| {
            let error: anyhow::Error = error.into();
            Failure {
                exit: match exit {
                    Exit::BadInput => of_input(error.as_ref()),
                    other => other,
                },
                hints: remedy(error.as_ref())
                    .map(str::to_owned)
                    .into_iter()
                    .collect(),
                error,
            }
        })
    }
}

/// What to do about a reason of the system that says little by itself.
pub(crate) fn remedy(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let mut causes = iter::successors(Some(error), |&cause| cause.source());
    causes
        .any(|cause| {
            let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
            kind == Some(io::ErrorKind::NotADirectory)
        })
        .then_some("a part of that path is a file where a folder is needed: name another path, or move the file away")
}

/// The code of an error that would be bad input: an absent file, and a disk that refuses, have codes of their own
/// wherever they are met.
pub(crate) fn of_input(error: &(dyn Error + 'static)) -> Exit {
    let mut next = Some(error);
    while let Some(cause) = next {
        next = cause.source();
        if let Some(AdapterFileError::Write(DurableError::Refused { .. })) = cause.downcast_ref() {
            return Exit::Internal;
        }
        match cause.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::NotFound) => return Exit::NotFound,
            Some(
                io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::ReadOnlyFilesystem,
            ) => return Exit::Internal,
            _ => {}
        }
    }
    Exit::BadInput
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
    fn what_is_absent_or_refuses_to_be_written_is_told_apart() {
        let exit = |kind: io::ErrorKind| {
            let result: Result<(), _> = Err(io::Error::from(kind));
            let told = result.context("cannot read a").or_exit(Exit::BadInput);
            told.unwrap_err().exit
        };
        assert_eq!(exit(io::ErrorKind::NotFound), Exit::NotFound);
        assert_eq!(exit(io::ErrorKind::StorageFull), Exit::Internal);
        assert_eq!(exit(io::ErrorKind::InvalidData), Exit::BadInput);
        let refused = AdapterFileError::Write(DurableError::Refused {
            path: "a".into(),
            source: io::Error::from(io::ErrorKind::PermissionDenied),
        });
        let result: Result<(), _> = Err(refused);
        assert_eq!(
            result.or_exit(Exit::BadInput).unwrap_err().exit,
            Exit::Internal
        );
    }

    #[test]
    fn numbers_name_what_they_were_given_for() {
        let known = |code: &u64| Exit::of_code(*code).is_some();
        let codes: Vec<u64> = (0..=300).filter(known).collect();
        assert_eq!(codes.len(), Exit::ALL.len());
        for code in codes {
            assert_eq!(u64::from(Exit::of_code(code).unwrap().code()), code);
        }
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(failure.exit, Exit::Done);
    }
}
