//! Holds posts, one after another: opens layers, links neighbours, starts and ends the stage's thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread;

use kernels::cpu::Cpu;
use shared::ids::NodeName;
use shared::model::ModelShape;
use shared::units::Bytes;
use tokio::sync::mpsc;

use super::leading::{self, Surroundings};
use super::links::{Linker, Links};
use super::meters::Meters;
use super::opener::Opener;
use super::running::{Command, Report, Running};
use super::store::SharedStore;
use super::traces::Traces;
use crate::artifacts::Artifacts;
use crate::artifacts::keeper::StoreKeeper;
use crate::duty::{Event, Post};
use crate::link::bell::Bell;
use crate::model::{Model, arithmetic};
use crate::pipeline::Place;
use crate::replica::error::{ReplicaError, Side};
use crate::replica::follower::Follower;
use crate::replica::lead::Lead;
use crate::replica::seat::{LeadSettings, Ports, Seat};

/// What a holder is told.
#[derive(Debug)]
pub(super) enum Task {
    Open(Post),
    Take(Post),
    LetGo,
    Lead(Command),
    Stop,
}

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
}

impl Holder {
    /// Does what it is told, until it is told to stop. A newer post ends the taking of an older one.
    pub(super) async fn run(self, mut tasks: mpsc::UnboundedReceiver<Task>) {
        let mut running: Option<Running> = None;
        let mut next = tasks.recv().await;
        while let Some(task) = next.take() {
            match task {
                Task::Open(post) => self.open(post),
                Task::LetGo => end(running.take()).await,
                Task::Lead(command) => {
                    if let Some(running) = &running {
                        running.tell(command);
                    }
                }
                Task::Stop => {
                    end(running.take()).await;
                    return;
                }
                Task::Take(post) => {
                    end(running.take()).await;
                    let epoch = post.epoch;
                    let mut early = Vec::new();
                    let taken = {
                        let take = self.take(post);
                        tokio::pin!(take);
                        loop {
                            tokio::select! {
                                taken = &mut take => break Some(taken),
                                task = tasks.recv() => match task {
                                    Some(Task::Open(post)) => self.open(post),
                                    // What a lead is told before it runs, it hears when it does.
                                    Some(Task::Lead(command)) => early.push(command),
                                    other => {
                                        next = other.or(Some(Task::Stop));
                                        break None;
                                    }
                                },
                            }
                        }
                    };
                    match taken {
                        None => continue,
                        Some(Ok(stage)) => {
                            (self.report)(Event::Linked(epoch, Ok(())));
                            early.into_iter().for_each(|command| stage.tell(command));
                            running = Some(stage);
                        }
                        Some(Err(reason)) => (self.report)(Event::Linked(epoch, Err(reason))),
                    }
                }
            }
            next = tasks.recv().await;
        }
        end(running).await;
    }

    /// Opens a post's layers on a thread of its own.
    fn open(&self, post: Post) {
        let (opener, report) = (Arc::clone(&self.opener), Arc::clone(&self.report));
        tokio::task::spawn_blocking(move || {
            let outcome = opener.open(&span(&post)).map(|_| ());
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
            links,
            bell: bell.clone(),
            keeper: Box::new(keeper),
            store,
            watch: self.traces.watch(post.stage, &settings.clock, &self.meters),
        };
        let place = Place {
            stage: post.stage as usize,
            stages: post.replica.seats.len(),
        };
        let Bytes(budget) = post.replica.seats[post.stage as usize].activation_budget;
        let seat = Seat {
            budget,
            patience: settings.stall_patience,
            ..Seat::new(place, post.epoch.0)
        };
        let stop = Arc::new(AtomicBool::new(false));
        let name = thread::Builder::new().name(format!("stage {}", post.stage));
        let (epoch, report, cpu) = (post.epoch, Arc::clone(&self.report), settings.cpu.clone());
        let stopped = Arc::clone(&stop);
        let (commands, thread) = if post.stage == 0 {
            let (commands, inbox) = channel();
            let lead_settings = LeadSettings {
                ahead: settings.rounds_ahead,
                window: LeadSettings::new(1).window.max(2 * place.stages),
                term: post.term.0,
                ..LeadSettings::new(settings.tokens_per_pass)
            };
            let around = Surroundings {
                epoch,
                store: Arc::clone(&self.store),
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
                });
            };
            (Some(commands), name.spawn(work))
        } else {
            let work = move || {
                guarded(&post, &report, || follow(model, cpu, seat, ports, &stopped));
            };
            (None, name.spawn(work))
        };
        Ok(Running {
            stop,
            bell,
            commands,
            thread: thread.map_err(refused)?,
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
fn guarded(post: &Post, report: &Report, stage: impl FnOnce() -> Result<(), ReplicaError>) {
    let (neighbour, reason) = match catch_unwind(AssertUnwindSafe(stage)) {
        Ok(Ok(())) => return,
        Ok(Err(error)) => (to_blame(post, &error), error.to_string()),
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
            let said = said.unwrap_or("without a word");
            (None, format!("stage {} panicked: {said}", post.stage))
        }
    };
    report(Event::Broken(post.epoch, neighbour, reason));
}

fn to_blame(post: &Post, error: &ReplicaError) -> Option<NodeName> {
    let ReplicaError::Link { side, .. } = error else {
        return None;
    };
    let stage = post.stage as usize;
    let neighbour = match side {
        Side::Before => stage.checked_sub(1)?,
        Side::Behind => stage + 1,
    };
    Some(post.replica.seats.get(neighbour)?.node.clone())
}

fn span(post: &Post) -> std::ops::Range<usize> {
    post.replica.seats[post.stage as usize].layers()
}

async fn end(running: Option<Running>) {
    if let Some(running) = running {
        running.stop();
        // It ends at its next look, or when its links do; a panic was told as the end of its post.
        let _ = tokio::task::spawn_blocking(move || running.join()).await;
    }
}
