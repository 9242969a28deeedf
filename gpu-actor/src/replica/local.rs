//! All stages of a replica on threads of one process: the same lead and followers as anywhere, over links in memory.
//!
//! Stages share the compute threads: each runs its passes on them, so there are never more at work than were asked
//! for. Where it is asked for, each has as many of its own: then they overlap as stages on machines of their own do.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use kernels::cpu::Cpu;
use shared::recompute::Recompute;

use super::error::ReplicaError;
use super::follower::{Ended, Follower};
use super::lead::Lead;
use super::seat::{LeadSettings, Ports, Seat};
use super::watch::Watch;
use crate::artifacts::Artifacts;
use crate::artifacts::keeper::StoreKeeper;
use crate::link::ChunkLink;
use crate::link::bell::Bell;
use crate::link::local;
use crate::model::Model;
use crate::pipeline::Place;

/// How the stages are connected and bounded; none of it shows in a result.
#[derive(Clone, Debug)]
pub struct LocalSettings {
    /// Of the lead.
    pub lead: LeadSettings,
    /// Most bytes of activations on a stage.
    pub budget: u64,
    /// Layers of every stage that keep no activations.
    pub recompute: Recompute,
    /// Chunks that a stage may be ahead of its neighbour.
    pub credits: usize,
    /// How long nothing may move before a stage says what it waits for.
    pub patience: Duration,
    /// Whether each stage has compute threads of its own, as many as were given for all.
    pub own_threads: bool,
}

impl LocalSettings {
    /// Passes of at most so many rows.
    #[must_use]
    pub fn new(tokens_per_pass: usize) -> Self {
        Self {
            lead: LeadSettings::new(tokens_per_pass),
            budget: u64::MAX,
            recompute: Recompute::None,
            credits: 2,
            patience: Duration::from_secs(60),
            own_threads: false,
        }
    }
}

/// Cuts so many layers into stages as even as can be; the first ones get one more.
///
/// # Errors
/// [`ReplicaError::Stages`] when there would be a stage without a layer, or no stage.
pub fn spans(layers: usize, stages: usize) -> Result<Vec<Range<usize>>, ReplicaError> {
    if stages == 0 || stages > layers {
        return Err(ReplicaError::Stages { stages, layers });
    }
    let cut = |stage: usize| (stage * layers).div_ceil(stages);
    Ok((0..stages)
        .map(|stage| cut(stage)..cut(stage + 1))
        .collect())
}

type Joined = JoinHandle<Result<Ended, ReplicaError>>;

/// A replica within the process.
#[derive(Debug)]
pub struct LocalReplica {
    lead: Lead,
    followers: Vec<Joined>,
    bells: Vec<Bell>,
    stop: Arc<AtomicBool>,
}

impl LocalReplica {
    /// A whole model cut into so many stages, without jobs.
    ///
    /// # Errors
    /// [`ReplicaError::Stages`] when the model has fewer layers, or no stage is asked for; [`ReplicaError::Thread`]
    /// when the system gives no thread.
    pub fn start(
        model: &Model,
        cpu: &Cpu,
        stages: usize,
        store: &Arc<dyn Artifacts>,
        settings: &LocalSettings,
    ) -> Result<Self, ReplicaError> {
        let mut replicas = Self::start_linked(model, cpu, (1, stages), store, settings)?;
        Ok(replicas.pop().expect("one was asked for"))
    }

    /// Several replicas of the same cut, whose stages are linked so that they can share steps; by their numbers.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_linked(
        model: &Model,
        cpu: &Cpu,
        (replicas, stages): (u32, usize),
        store: &Arc<dyn Artifacts>,
        settings: &LocalSettings,
    ) -> Result<Vec<Self>, ReplicaError> {
        let spans = spans(model.layers.len(), stages)?;
        Self::start_cut(model, cpu, (replicas, &spans), store, settings)
    }

    /// The same with stages of these layers, which follow one another and cover all.
    ///
    /// # Errors
    /// [`ReplicaError::Thread`] when the system gives no thread.
    pub fn start_cut(
        model: &Model,
        cpu: &Cpu,
        (replicas, spans): (u32, &[Range<usize>]),
        store: &Arc<dyn Artifacts>,
        settings: &LocalSettings,
    ) -> Result<Vec<Self>, ReplicaError> {
        let alone = cpu.threads() == 1 && !settings.own_threads;
        let turn = alone.then(|| Arc::new(Mutex::new(())));
        let bells: Vec<Vec<Bell>> = (0..replicas)
            .map(|_| spans.iter().map(|_| Bell::default()).collect())
            .collect();
        let mut peers = peers(&bells, settings.credits);
        let mut started = Vec::new();
        for (number, bells) in (0..replicas).zip(bells) {
            let parts = spans.iter().map(|span| Arc::new(model.slice(span.clone())));
            let frame = Frame {
                number,
                parts: parts.collect(),
                peers: std::mem::take(&mut peers[number as usize]),
                bells,
                turn: turn.clone(),
            };
            started.push(Self::start_one(frame, cpu, store, settings)?);
        }
        Ok(started)
    }

    fn start_one(
        frame: Frame,
        cpu: &Cpu,
        store: &Arc<dyn Artifacts>,
        settings: &LocalSettings,
    ) -> Result<Self, ReplicaError> {
        let Frame {
            number,
            parts,
            mut peers,
            bells,
            turn,
        } = frame;
        let stages = parts.len();
        let mut links = links(&bells, settings.credits);
        let stop = Arc::new(AtomicBool::new(false));
        let mut followers = Vec::with_capacity(stages - 1);
        // From the last to the first, which is left for the caller's thread.
        for (stage, part) in parts.into_iter().enumerate().rev() {
            let bell = bells[stage].clone();
            let keeper = StoreKeeper::start(Arc::clone(store), bell.clone());
            let keeper = keeper.map_err(|source| ReplicaError::Thread { stage, source })?;
            let seat = Seat {
                budget: settings.budget,
                recomputed: settings.recompute.of(part.span().len()),
                patience: settings.patience,
                turn: turn.clone(),
                replica: number,
                ..Seat::new(Place { stage, stages }, 1)
            };
            let ports = Ports {
                links: links.pop().expect("links for each stage"),
                peers: peers.pop().expect("peers for each stage"),
                bell,
                keeper: Box::new(keeper),
                store: Arc::clone(store),
                watch: Watch::default(),
            };
            let cpu = match settings.own_threads {
                true => Cpu::with_isa(cpu.threads(), cpu.isa())
                    .map_err(|error| ReplicaError::Thread {
                        stage,
                        source: std::io::Error::other(error),
                    })?
                    .with_products(cpu.products()),
                false => cpu.clone(),
            };
            if stage == 0 {
                let lead = Lead::new(part, cpu, seat, ports, settings.lead);
                return Ok(Self {
                    lead,
                    followers,
                    bells,
                    stop,
                });
            }
            let (follower, stop) = (Follower::new(part, cpu, seat, ports), Arc::clone(&stop));
            let thread = thread::Builder::new().name(format!("stage {stage}"));
            let thread = thread.spawn(move || follower.run(&stop));
            followers.push(thread.map_err(|source| ReplicaError::Thread { stage, source })?);
        }
        unreachable!("there is a first stage")
    }

    /// The first stage.
    pub fn lead(&mut self) -> &mut Lead {
        &mut self.lead
    }

    /// Tells all stages that nothing will follow, and waits for them.
    ///
    /// # Errors
    /// The first error of a stage.
    pub fn close(self) -> Result<(), ReplicaError> {
        match self.lead.close() {
            Ok(()) => first_error(self.followers, None).map_or(Ok(()), Err),
            Err(error) => Err(first_error(self.followers, Some(error)).expect("one is there")),
        }
    }

    /// Stops all stages where they are, as if their processes were gone.
    pub fn kill(self) {
        self.stop.store(true, Ordering::Release);
        self.bells.iter().for_each(Bell::ring);
        drop(self.lead);
        for thread in self.followers {
            // What a stage says that is stopped in the middle says nothing.
            let _ = thread.join();
        }
    }

    /// Of an error that the lead saw, and what the other stages say, what comes first: a stage that lost its neighbour
    /// says less than that neighbour.
    #[must_use]
    pub fn cause(self, error: ReplicaError) -> ReplicaError {
        drop(self.lead);
        first_error(self.followers, Some(error)).expect("one is there")
    }
}

fn first_error(followers: Vec<Joined>, lead: Option<ReplicaError>) -> Option<ReplicaError> {
    let secondary = |error: &ReplicaError| matches!(error, ReplicaError::Link { .. });
    let mut first = lead;
    for thread in followers {
        let ended = match thread.join() {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        if let Err(error) = ended
            && first.as_ref().is_none_or(secondary)
        {
            first = Some(error);
        }
    }
    first
}

/// What one of several replicas is made of.
struct Frame {
    number: u32,
    /// By stage.
    parts: Vec<Arc<Model>>,
    peers: Vec<Peers>,
    bells: Vec<Bell>,
    turn: Option<Arc<Mutex<()>>>,
}

type Peers = BTreeMap<u32, Box<dyn ChunkLink>>;

/// For each replica and stage the links to the same stage of the others.
fn peers(bells: &[Vec<Bell>], credits: usize) -> Vec<Vec<Peers>> {
    let mut ends: Vec<Vec<Peers>> = bells
        .iter()
        .map(|bells| bells.iter().map(|_| Peers::new()).collect())
        .collect();
    for (a, bells_a) in bells.iter().enumerate() {
        for (b, bells_b) in bells.iter().enumerate().skip(a + 1) {
            for (stage, both) in bells_a.iter().zip(bells_b).enumerate() {
                let [one, other] = local::pair(credits, [both.0, both.1]);
                ends[a][stage].insert(b as u32, Box::new(one));
                ends[b][stage].insert(a as u32, Box::new(other));
            }
        }
    }
    ends
}

type Ends = [Option<Box<dyn ChunkLink>>; 2];

/// For each stage the ends of its links to the one before and the one behind.
fn links(bells: &[Bell], credits: usize) -> Vec<Ends> {
    let mut ends: Vec<Ends> = bells.iter().map(|_| [None, None]).collect();
    for (stage, pair) in bells.windows(2).enumerate() {
        let [before, behind] = local::pair(credits, [&pair[0], &pair[1]]);
        ends[stage][1] = Some(Box::new(before));
        ends[stage + 1][0] = Some(Box::new(behind));
    }
    ends
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn layers_are_cut_as_even_as_can_be() {
        assert_eq!(spans(5, 3).unwrap(), [0..2, 2..4, 4..5]);
        assert_eq!(spans(4, 2).unwrap(), [0..2, 2..4]);
        for stages in [0, 6] {
            let error = spans(5, stages).unwrap_err().to_string();
            assert!(error.contains("ask for 1 to 5"), "{error}");
        }
    }
}
