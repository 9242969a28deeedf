//! A stage at work, and what it is told while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use shared::actor::exit::ExitReason;
use shared::ids::{JobId, PlanEpoch};
use shared::plan::arrangement::Arrangement;
use shared::wire::order::{JobAction, JobOrder, SampleOrder};

use super::device_thread::Ended;
use crate::duty::Event;
use crate::link::bell::Bell;

/// What a lead is told.
#[derive(Debug)]
pub(super) enum Command {
    Admit(Vec<JobOrder>),
    Act(JobId, JobAction),
    Drain { toward: PlanEpoch, soon: bool },
    Undrain,
    Arrange(Arrangement),
    Hasten(u64),
    Sample(SampleOrder),
    EndSample(u64),
}

/// Where a stage's thread reports to.
pub(super) type Report = Arc<dyn Fn(Event) + Send + Sync>;

/// A stage at work.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) stop: Arc<AtomicBool>,
    pub(super) bell: Bell,
    /// None when the stage only follows.
    pub(super) commands: Option<Sender<Command>>,
    pub(super) ended: Ended,
}

impl Running {
    /// Passes a command on, if the stage leads and still runs.
    pub(super) fn tell(&self, command: Command) {
        if let Some(commands) = &self.commands {
            // A stage that ended told so: who ordered will give another post.
            let _ = commands.send(command);
        }
        self.bell.ring();
    }

    /// Asks the stage to end where it is; it does at its next look.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Waits until the stage is through: why it ended. Blocks.
    pub(super) fn join(self) -> ExitReason {
        self.stop();
        self.ended.wait()
    }
}
