//! Where an operator's command works: the cluster, the reader of its results, and whom it may ask.

pub(crate) mod known;
pub(crate) mod wait;

use std::io::{self, IsTerminal, Write};

use shared::units::Micros;
use shared::wire::request::{JobRef, Reply, Request};
use shared::wire::view::{ClusterView, JobView};

use crate::args::Consent;
use crate::control::{Control, unfitting};
use crate::exit::{Exit, Failure};
use crate::input;
use crate::interrupt::Interrupt;
use crate::remark;
use crate::render::Output;

/// What a command works with.
pub(crate) struct Desk<'a> {
    /// The cluster.
    pub(crate) control: &'a dyn Control,
    /// Who reads.
    pub(crate) output: &'a Output,
    /// Who is asked.
    pub(crate) asker: &'a dyn Asker,
    /// Whether the user wants it to end.
    pub(crate) interrupt: &'a Interrupt,
    /// When it began, since 1970.
    pub(crate) now: Micros,
}

/// Somebody who says yes or no.
pub(crate) trait Asker {
    /// Whether it is meant; true where nobody can be asked, false once the user wants to stop.
    fn agrees(&self, question: &str, interrupt: &Interrupt) -> bool;
}

/// A person at a terminal. Elsewhere a command is meant as it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal;

impl Asker for Terminal {
    fn agrees(&self, question: &str, interrupt: &Interrupt) -> bool {
        let asked = io::stdin();
        if !asked.is_terminal() || !io::stderr().is_terminal() {
            return true;
        }
        // The prompt is not worth failing for; without it, the answer is no.
        let mut prompt = io::stderr().lock();
        let _ = write!(prompt, "{question} [y/N] ");
        let _ = prompt.flush();
        drop(prompt);
        if !input::comes(&asked, interrupt) {
            // What the terminal shows of the key stands on a line of its own.
            remark::say("");
            return false;
        }
        let mut answer = String::new();
        asked.read_line(&mut answer).is_ok() && means_yes(&answer)
    }
}

fn means_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

impl Desk<'_> {
    /// Lets a destructive command pass when it is meant.
    ///
    /// # Errors
    /// [`Exit::Interrupted`] when it is not; nothing was done.
    pub(crate) fn agreed(&self, consent: Consent, question: &str) -> Result<(), Failure> {
        if consent.yes || self.output.json() || self.asker.agrees(question, self.interrupt) {
            return Ok(());
        }
        Err(Failure::new(Exit::Interrupted, "nothing was done"))
    }

    /// Asks what is answered with a job.
    pub(crate) fn job(&self, request: &Request) -> Result<JobView, Failure> {
        match self.control.request(request)? {
            Reply::Job(job) => Ok(*job),
            other => Err(unfitting(&other)),
        }
    }

    /// The cluster at a glance.
    pub(crate) fn status(&self) -> Result<ClusterView, Failure> {
        match self.control.request(&Request::Status)? {
            Reply::Cluster(cluster) => Ok(cluster),
            other => Err(unfitting(&other)),
        }
    }

    /// Asks what is done or refused.
    pub(crate) fn done(&self, request: &Request) -> Result<(), Failure> {
        match self.control.request(request)? {
            Reply::Done => Ok(()),
            other => Err(unfitting(&other)),
        }
    }
}

/// A job as the user named it.
pub(crate) fn named(job: &JobRef) -> String {
    match job {
        JobRef::Id(id) => id.to_string(),
        JobRef::Name(name) => name.to_string(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::control::scripted::Scripted;

    /// Says always the same, or must not be asked.
    pub(crate) struct Says(pub(crate) Option<bool>);

    impl Asker for Says {
        fn agrees(&self, question: &str, _: &Interrupt) -> bool {
            self.0.unwrap_or_else(|| panic!("asked: {question}"))
        }
    }

    /// Runs a command against a scripted coordinator.
    pub(crate) fn at<T>(
        control: &Scripted,
        says: Option<bool>,
        work: impl FnOnce(&Desk<'_>) -> T,
    ) -> T {
        let output = Output::new(false, true);
        work(&Desk {
            control,
            output: &output,
            asker: &Says(says),
            interrupt: &Interrupt::default(),
            now: Micros(100_000_000),
        })
    }

    #[test]
    fn only_yes_means_yes() {
        assert!(means_yes("y\n") && means_yes(" YES "));
        assert!(!means_yes("") && !means_yes("yesterday") && !means_yes("n\n"));
    }
}
