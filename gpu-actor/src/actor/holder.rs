//! Holds posts, one after another: opens layers, links neighbours, starts and ends the stage on the device's thread.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::time::Duration;

use kernels::cpu::Cpu;
use shared::actor::exit::{ExitReason, caught};
use shared::ids::NodeName;
use shared::model::ModelShape;
use shared::units::Micros;
use tokio::sync::mpsc;

use super::device_thread::DeviceThread;
use super::leading::{self, Surroundings};
use super::links::{Linker, Links};
use super::meters::Meters;
use super::opener::Opener;
use super::respite::Respite;
use super::running::{Report, Running};
use super::tasks::{LAST, Task, Tasks, end, last};
use super::traces::Traces;
use crate::artifacts::Artifacts;
use crate::artifacts::keeper::StoreKeeper;
use crate::artifacts::stored::SharedStore;
use crate::duty::{Event, Post};
use crate::link::bell::Bell;
use crate::model::{Model, arithmetic};
use crate::pipeline::Place;
use crate::replica::error::{ReplicaError, Side};
use crate::replica::follower::Follower;
use crate::replica::lead::Lead;
use crate::replica::seat::{LeadSettings, Ports, Seat};

/// Everything a stage is made with.
pub(super) struct Holder {
    pub(super) linker: Linker,
    pub(super) opener: Arc<Opener>,
    pub(super) store: Arc<SharedStore>,
    pub(super) traces: Arc<Traces>,
    pub(super) meters: Arc<Meters>,
    /// Content hash of the backbone's identity.
    pub(super) backbone: String,
    /// What adapters call their base model.
    pub(super) base: String,
    pub(super) shape: Arc<ModelShape>,
    pub(super) report: Report,
    pub(super) device: DeviceThread,
}

impl Holder {
    /// Does what it is told, until it is told to stop or its stage panicked too often. A newer post ends the taking of
    /// an older one.
    pub(super) async fn run(self, told: mpsc::UnboundedReceiver<Task>) -> ExitReason {
        let mut tasks = Tasks::new(told, LAST);
        let mut running: Option<Running> = None;
        let mut respite = Respite::new();
        let mut next = tasks.next().await;
        while let Some(task) = next.take() {
            match task {
                Task::Open(post) => self.open(post),
                Task::Lead(command) => {
                    if let Some(running) = &running {
                        running.tell(command);
                    }
                }
                Task::Stop => break,
                Task::LetGo => {
                    let ended = tasks.until(end(running.take()), |post| self.open(post));
                    let Ok(ended) = ended.await else {
                        return ExitReason::Asked;
                    };
                    if let Err(exit) = respite.ended(ended, self.now()) {
                        return exit;
                    }
                }
                Task::Take(post) => {
                    let ended = tasks.until(end(running.take()), |post| self.open(post));
                    let Ok(ended) = ended.await else {
                        return ExitReason::Asked;
                    };
                    if let Err(exit) = respite.ended(ended, self.now()) {
                        return exit;
                    }
                    let wait = respite.left(self.now());
                    match self.taken(post, wait, &mut tasks).await {
                        Ok(stage) => running = stage,
                        Err(newer) => {
                            next = Some(newer);
                            continue;
                        }
                    }
                }
            }
            next = tasks.next().await;
        }
        last(end(running), LAST).await;
        ExitReason::Asked
    }

    fn now(&self) -> Micros {
        (self.linker.settings.steady)()
    }

    /// Takes a post after a wait, and reports how that went: its stage, if it runs.
    ///
    /// # Errors
    /// What it is told meanwhile that ends the taking.
    async fn taken(
        &self,
        post: Post,
        wait: Duration,
        tasks: &mut Tasks,
    ) -> Result<Option<Running>, Task> {
        let epoch = post.epoch;
        let mut early = Vec::new();
        let take = async {
            pause(wait).await;
            self.take(post).await
        };
        tokio::pin!(take);
        let taken = loop {
            tokio::select! {
                taken = &mut take => break taken,
                task = tasks.next() => match task {
                    Some(Task::Open(post)) => self.open(post),
                    // What a lead is told before it runs, it hears when it does.
                    Some(Task::Lead(command)) => early.push(command),
                    other => return Err(other.unwrap_or(Task::Stop)),
                },
            }
        };
        let (outcome, stage) = match taken {
            Ok(stage) => (Ok(()), Some(stage)),
            Err(reason) => (Err(reason), None),
        };
        (self.report)(Event::Linked(epoch, outcome));
        if let Some(stage) = &stage {
            early.into_iter().for_each(|command| stage.tell(command));
        }
        Ok(stage)
    }

    /// Opens a post's layers on a thread of its own.
    fn open(&self, post: Post) {
        let (opener, report) = (Arc::clone(&self.opener), Arc::clone(&self.report));
        tokio::task::spawn_blocking(move || {
            let opened = caught(|| opener.open(&span(&post)).map(|_| ()));
            let outcome = opened.unwrap_or_else(|panic| Err(panic.to_string()));
            report(Event::Opened(post.epoch, outcome));
        });
    }

    async fn take(&self, post: Post) -> Result<Running, String> {
        let bell = Bell::default();
        let (opener, layers) = (Arc::clone(&self.opener), span(&post));
        let model = tokio::task::spawn_blocking(move || opener.open(&layers));
        let (model, links) = tokio::join!(model, self.linker.link(&post, &bell));
        let model = model.map_err(|_| "opening the layers panicked".to_owned())??;
        self.start(post, model, links?, bell)
    }

    fn start(
        &self,
        post: Post,
        model: Arc<Model>,
        links: Links,
        bell: Bell,
    ) -> Result<Running, String> {
        let settings = &self.linker.settings;
        let store: Arc<dyn Artifacts> = Arc::clone(&self.store) as Arc<dyn Artifacts>;
        let refused = |error: std::io::Error| format!("the system gives no thread: {error}");
        let keeper = StoreKeeper::start(Arc::clone(&store), bell.clone()).map_err(refused)?;
        let ports = Ports {
            links: links.0,
            peers: links.1,
            bell: bell.clone(),
            keeper: Box::new(keeper),
            store,
            watch: self.traces.watch(post.stage, &settings.clock, &self.meters),
        };
        self.traces.holds(model.bytes());
        let place = Place {
            stage: post.stage as usize,
            stages: post.replica.seats.len(),
        };
        let given = &post.replica.seats[post.stage as usize];
        let seat = Seat {
            budget: given.activation_budget.0,
            recomputed: given.recomputed_layers as usize,
            patience: settings.stall_patience,
            replica: post.replica.number,
            ..Seat::new(place, post.epoch.0)
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (epoch, report, cpu) = (post.epoch, Arc::clone(&self.report), settings.cpu.clone());
        let stopped = Arc::clone(&stop);
        let (commands, ended) = if post.stage == 0 {
            let (commands, inbox) = channel();
            let lead_settings = LeadSettings {
                ahead: settings.rounds_ahead,
                term: post.term.0,
                chunk_tokens: settings.chunk_tokens,
                ..LeadSettings::new(settings.tokens_per_pass)
            };
            let around = Surroundings {
                epoch,
                term: post.term,
                store: Arc::clone(&self.store) as Arc<dyn Artifacts>,
                backbone: self.backbone.clone(),
                products: arithmetic::of(&settings.cpu),
                base: self.base.clone(),
                shape: Arc::clone(&self.shape),
                clock: Arc::clone(&settings.clock),
                traces: Arc::clone(&self.traces),
                meters: Arc::clone(&self.meters),
                report: Arc::clone(&report),
            };
            let work = move || {
                guarded(&post, &report, || {
                    let lead = Lead::new(model, cpu, seat, ports, lead_settings);
                    leading::run(lead, &around, &inbox, &stopped)
                })
            };
            (Some(commands), self.device.run(work))
        } else {
            let work =
                move || guarded(&post, &report, || follow(model, cpu, seat, ports, &stopped));
            (None, self.device.run(work))
        };
        Ok(Running {
            stop,
            bell,
            commands,
            ended,
        })
    }
}

fn follow(
    model: Arc<Model>,
    cpu: Cpu,
    seat: Seat,
    ports: Ports,
    stop: &AtomicBool,
) -> Result<(), ReplicaError> {
    Follower::new(model, cpu, seat, ports).run(stop).map(|_| ())
}

/// Runs a stage to its end, and tells an error or a panic as the end of its post.
fn guarded(
    post: &Post,
    report: &Report,
    stage: impl FnOnce() -> Result<(), ReplicaError>,
) -> ExitReason {
    let (neighbour, exit) = match caught(stage) {
        Ok(Ok(())) => return ExitReason::Asked,
        Ok(Err(error)) => (
            to_blame(post, &error),
            ExitReason::Failed(error.to_string()),
        ),
        Err(panic) => (None, panic),
    };
    let reason = match &exit {
        ExitReason::Panicked(_) => {
            // A neighbour that sees its link end may be heard first: here it is told why.
            tracing::error!(stage = post.stage, %exit, "the stage panicked: its epoch is lost");
            format!("stage {} {exit}", post.stage)
        }
        other => other.to_string(),
    };
    report(Event::Broken(post.epoch, neighbour, reason));
    exit
}

#[expect(
    clippy::disallowed_methods,
    reason = "a stage that panicked is not taken again at once"
)]
async fn pause(so_long: Duration) {
    if !so_long.is_zero() {
        tokio::time::sleep(so_long).await;
    }
}

fn to_blame(post: &Post, error: &ReplicaError) -> Option<NodeName> {
    let ReplicaError::Link { side, .. } = error else {
        return None;
    };
    let stage = post.stage as usize;
    let seats = &post.replica.seats;
    let seat = match side {
        Side::Before => seats.get(stage.checked_sub(1)?)?,
        Side::Behind => seats.get(stage + 1)?,
        Side::Across(replica) => {
            let mut siblings = post.replica.siblings.iter();
            let sibling = siblings.find(|sibling| sibling.number == *replica)?;
            sibling.seats.get(stage)?
        }
    };
    Some(seat.node.clone())
}

fn span(post: &Post) -> std::ops::Range<usize> {
    post.replica.seats[post.stage as usize].layers()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Mutex;

    use shared::ids::{PlanEpoch, Term};
    use shared::plan::Replica;

    use super::*;

    #[test]
    fn a_stage_that_panics_is_told_as_a_lost_epoch_and_blames_nobody() {
        let post = Post {
            epoch: PlanEpoch(7),
            term: Term(1),
            replica: Replica {
                number: 0,
                seats: Vec::new(),
                jobs: Vec::new(),
                siblings: Vec::new(),
            },
            stage: 1,
        };
        let told: Arc<Mutex<Vec<Event>>> = Arc::default();
        let heard = Arc::clone(&told);
        let report: Report = Arc::new(move |event| heard.lock().unwrap().push(event));
        let exit = guarded(&post, &report, || panic!("index 9 of 4"));
        assert_eq!(exit, ExitReason::Panicked("index 9 of 4".into()));
        let reason = "stage 1 panicked: index 9 of 4".to_owned();
        assert_eq!(
            *told.lock().unwrap(),
            [Event::Broken(PlanEpoch(7), None, reason)]
        );
        assert_eq!(guarded(&post, &report, || Ok(())), ExitReason::Asked);
        assert_eq!(told.lock().unwrap().len(), 1);
    }
}
