//! A cluster as commands see it: requests and their replies, files up and down.

pub(crate) mod quic;
#[cfg(test)]
pub(crate) mod scripted;

use std::path::Path;

use shared::wire::request::{FileRef, Reply, Request};

use crate::exit::{Exit, Failure};

/// Whether more replies are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// They are.
    More,
    /// What was asked for is known.
    Enough,
}

/// A connection to a coordinator. A refusal is a [`Failure`] with the code of its kind.
pub(crate) trait Control {
    /// Asks what has one reply.
    ///
    /// # Errors
    /// A refusal, or [`Exit::Unreachable`].
    fn request(&self, request: &Request) -> Result<Reply, Failure>;

    /// Asks what has many replies, and hands on each, until they end or are enough.
    ///
    /// # Errors
    /// As [`Self::request`], and what `take` says.
    fn stream(
        &self,
        request: &Request,
        take: &mut dyn FnMut(Reply) -> Result<Flow, Failure>,
    ) -> Result<(), Failure>;

    /// Sends a file, which must be what its reference says.
    ///
    /// # Errors
    /// As [`Self::request`], and when the file cannot be read.
    fn upload(&self, file: &FileRef, path: &Path) -> Result<(), Failure>;

    /// Asks for files, and writes each into a folder, whole and checked or not at all.
    ///
    /// # Errors
    /// As [`Self::request`], and when a file cannot be written.
    fn download(&self, request: &Request, folder: &Path) -> Result<Vec<FileRef>, Failure>;

    /// Connects anew after a failure that [`is_lost`], with the time for a coordinator that is started again.
    ///
    /// # Errors
    /// As connecting; [`Exit::Unreachable`] where it is one connection and no more.
    fn again(&self) -> Result<(), Failure> {
        Err(Failure::new(
            Exit::Unreachable,
            "the connection to the coordinator was lost",
        ))
    }
}

/// Whether nobody answered, or one who is about to end: the same may pass when it is back.
pub(crate) fn is_lost(failure: &Failure) -> bool {
    matches!(failure.exit, Exit::Unreachable | Exit::Busy)
}

/// A reply that does not answer the request.
pub(crate) fn unfitting(reply: &Reply) -> Failure {
    let shown: String = format!("{reply:?}").chars().take(60).collect();
    Failure::new(
        Exit::Coordinator,
        format!("the coordinator answered something else than was asked: {shown}"),
    )
    .hint("it may be of another version: compare spotmux --version on both machines")
}
