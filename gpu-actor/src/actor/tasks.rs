//! What a holder is told, and the end of a stage, during which it is still heard: a device that hangs must not keep its
//! process.

use std::collections::VecDeque;
use std::time::Duration;

use shared::actor::exit::ExitReason;
use tokio::sync::mpsc;

use super::running::{Command, Running};
use crate::duty::Post;

/// What a holder is told. Its queue is not bounded: an order of the coordinator makes a task or none, and those wait on
/// the coordinator's connection, which is.
#[derive(Debug)]
pub(super) enum Task {
    Open(Post),
    Take(Post),
    LetGo,
    Lead(Command),
    Stop,
}

/// A stage of a process that ends may take so long to end.
pub(super) const LAST: Duration = Duration::from_secs(10);

/// What a holder is told, in its order; what came while a stage ended first.
#[derive(Debug)]
pub(super) struct Tasks {
    told: mpsc::UnboundedReceiver<Task>,
    early: VecDeque<Task>,
    /// How long the stage of a process that ends may take.
    last: Duration,
}

/// The process is to end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stopped;

impl Tasks {
    /// As they come.
    pub(super) fn new(told: mpsc::UnboundedReceiver<Task>, last: Duration) -> Self {
        Self {
            told,
            early: VecDeque::new(),
            last,
        }
    }

    /// The next; none when nobody is left who could tell more. One that is not waited for to its end is not lost.
    pub(super) async fn next(&mut self) -> Option<Task> {
        match self.early.pop_front() {
            Some(task) => Some(task),
            None => self.told.recv().await,
        }
    }

    /// Waits until a stage ended; layers are opened meanwhile, and the rest is kept for later.
    ///
    /// # Errors
    /// [`Stopped`] when the process is to end before that.
    pub(super) async fn until(
        &mut self,
        ended: impl Future<Output = ExitReason>,
        open: impl Fn(Post),
    ) -> Result<ExitReason, Stopped> {
        tokio::pin!(ended);
        loop {
            tokio::select! {
                exit = &mut ended => return Ok(exit),
                task = self.told.recv() => match task {
                    Some(Task::Open(post)) => open(post),
                    Some(Task::Stop) | None => {
                        last(ended, self.last).await;
                        return Err(Stopped);
                    }
                    Some(later) => self.early.push_back(later),
                },
            }
        }
    }
}

/// Ends a stage, and waits for it.
pub(super) async fn end(running: Option<Running>) -> ExitReason {
    let Some(running) = running else {
        return ExitReason::Asked;
    };
    running.stop();
    // It ends at its next look, or when its links do; a panic was told as the end of its post.
    let joined = tokio::task::spawn_blocking(move || running.join()).await;
    joined.unwrap_or(ExitReason::Asked)
}

/// Waits for the end of a stage whose process ends, but not for ever.
pub(super) async fn last(ended: impl Future<Output = ExitReason>, bound: Duration) {
    if tokio::time::timeout(bound, ended).await.is_err() {
        tracing::warn!("the stage did not end within {bound:?}: the process ends without it");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::future::{pending, ready};

    use shared::ids::{JobId, PlanEpoch};
    use shared::wire::order::JobAction;

    use super::*;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        builder.enable_time();
        builder.build().unwrap().block_on(work)
    }

    #[test]
    fn a_stage_that_hangs_does_not_keep_a_process_that_is_to_end() {
        let (tell, told) = mpsc::unbounded_channel();
        let mut tasks = Tasks::new(told, Duration::ZERO);
        tell.send(Task::LetGo).unwrap();
        tell.send(Task::Stop).unwrap();
        let outcome = block_on(tasks.until(pending(), |_| {}));
        assert_eq!(outcome, Err(Stopped));
    }

    #[test]
    fn what_is_told_while_a_stage_ends_is_done_in_its_order() {
        let (tell, told) = mpsc::unbounded_channel();
        let mut tasks = Tasks::new(told, Duration::ZERO);
        let act = Command::Act(JobId(1), JobAction::Pause);
        tell.send(Task::Lead(act)).unwrap();
        tell.send(Task::LetGo).unwrap();
        let later = async {
            // Both are heard before it.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            ExitReason::Asked
        };
        block_on(async {
            assert_eq!(tasks.until(later, |_| {}).await, Ok(ExitReason::Asked));
            let drain = Command::Drain {
                toward: PlanEpoch(1),
                soon: false,
            };
            tell.send(Task::Lead(drain)).unwrap();
            assert_eq!(tasks.early.len(), 2);
            let first = tasks.next().await;
            assert!(matches!(first, Some(Task::Lead(Command::Act(..)))));
            assert!(matches!(tasks.next().await, Some(Task::LetGo)));
            let last = tasks.next().await;
            assert!(matches!(last, Some(Task::Lead(Command::Drain { .. }))));
            assert_eq!(
                tasks.until(ready(ExitReason::Asked), |_| {}).await,
                Ok(ExitReason::Asked)
            );
        });
    }
}
