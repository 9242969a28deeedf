//! The thread of a stage, and what it is told while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use actix::Addr;
use shared::ids::JobId;
use shared::wire::order::{JobAction, JobOrder, SampleOrder};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::stage::{Happened, StageActor};
use crate::duty::Event;
use crate::link::bell::Bell;

/// What a lead is told.
#[derive(Debug)]
pub(super) enum Command {
    Admit(Vec<JobOrder>),
    Act(JobId, JobAction),
    Drain,
    Undrain,
    Sample(SampleOrder),
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
    pub(super) thread: JoinHandle<()>,
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

    /// Asks the thread to end where it is; it does at its next look.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Waits until the thread is through. Blocks.
    pub(super) fn join(self) {
        self.stop();
        // A panic was told as the end of the post.
        let _ = self.thread.join();
    }
}

/// Reports of stage threads go through the network's runtime to the actor, in their order. What waits is bounded by the
/// work of a stage: a report is a step, an evaluation or a state.
pub(super) fn reporter(network: &Runtime, actor: Addr<StageActor>) -> Report {
    let (out, mut reports) = mpsc::unbounded_channel::<Event>();
    network.spawn(async move {
        while let Some(event) = reports.recv().await {
            if actor.send(Happened(event)).await.is_err() {
                return;
            }
        }
    });
    Arc::new(move |event| {
        // An actor that is gone hears nothing more.
        let _ = out.send(event);
    })
}
