//! The thread of a node's device: it runs the node's stages, one after another, and lives as long as the node.
//!
//! A thread for each stage would have a part of the allocator's memory of its own. What a stage before had freed stayed in the
//! part of its thread, and the next took as much again: with each new plan a node grew by up to a stage's activations.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use shared::actor::exit::{ExitReason, caught};

type Work = Box<dyn FnOnce() + Send>;

/// The thread, which ends when nobody can give it work any more.
#[derive(Debug)]
pub(super) struct DeviceThread {
    work: Sender<Work>,
}

impl DeviceThread {
    /// Starts it.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start() -> io::Result<Self> {
        let (work, given) = channel::<Work>();
        thread::Builder::new()
            .name("device".into())
            .spawn(move || given.iter().for_each(|work| work()))?;
        Ok(Self { work })
    }

    /// Has it run a stage after what it was given before; a panic is told as the stage's end.
    pub(super) fn run(&self, stage: impl FnOnce() -> ExitReason + Send + 'static) -> Ended {
        let (tell, told) = channel();
        let work = move || {
            // Nobody may wait for it.
            let _ = tell.send(caught(stage).unwrap_or_else(|panic| panic));
        };
        // The thread lives as long as this can be called: it catches what the work does.
        let _ = self.work.send(Box::new(work));
        Ended { told }
    }
}

/// The end of a stage, to come.
#[derive(Debug)]
pub(super) struct Ended {
    told: Receiver<ExitReason>,
}

impl Ended {
    /// Waits for it. Blocks.
    pub(super) fn wait(&self) -> ExitReason {
        let gone = |_| ExitReason::Failed("the device's thread is gone".into());
        self.told.recv().unwrap_or_else(gone)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::thread::current;

    use super::*;

    #[test]
    fn all_stages_run_on_one_thread_one_after_another() {
        let device = DeviceThread::start().unwrap();
        let (tell, told) = channel();
        let stage = |exit: ExitReason| {
            let tell = tell.clone();
            move || {
                tell.send(current().id()).unwrap();
                exit
            }
        };
        let first = device.run(stage(ExitReason::Asked));
        let second = device.run(|| panic!("a word"));
        let third = device.run(stage(ExitReason::Failed("so it is".into())));
        assert_eq!(third.wait(), ExitReason::Failed("so it is".into()));
        assert_eq!(second.wait(), ExitReason::Panicked("a word".into()));
        assert_eq!(first.wait(), ExitReason::Asked);
        assert_eq!(told.recv().unwrap(), told.recv().unwrap());
    }
}
