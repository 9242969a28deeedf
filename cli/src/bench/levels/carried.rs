//! The same carried out by the engine: stages on threads of this process, each with compute threads of its own.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use gpu_actor::artifacts::Artifacts;
use gpu_actor::artifacts::memory::MemoryArtifacts;
use gpu_actor::model::Model;
use gpu_actor::replica::lead::{Admission, Start};
use gpu_actor::replica::local::{LocalReplica, LocalSettings};
use gpu_actor::train::identity::Identity;
use kernels::cpu::Cpu;
use shared::job::Products;
use shared::plan::arrangement::Arrangement;

use super::question::Planned;
use crate::clock::Stopwatch;
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;
use crate::machine;

/// What plans took.
pub(crate) struct Measured {
    /// A round of each, in their order.
    pub(crate) times: Vec<Duration>,
    /// Whether they took their rounds in turns.
    pub(crate) in_turns: bool,
}

/// Where and how long plans are carried out.
pub(crate) struct Site<'a> {
    /// The backbone.
    pub(crate) model: &'a Arc<Model>,
    /// Threads of each stage.
    pub(crate) cpu: &'a Cpu,
    /// Layers of each stage.
    pub(crate) spans: Vec<Range<usize>>,
    /// Rounds that are measured, each behind one that is not; the median counts.
    pub(crate) steps: usize,
    /// Whether the user wants it to end.
    pub(crate) interrupt: &'a Interrupt,
}

impl Site<'_> {
    /// Median time of a round of each plan. Where all fit into memory at once they take their rounds in turns, so that a machine
    /// whose rate changes within minutes does so for all of them; else one plan follows another.
    ///
    /// # Errors
    /// [`Exit::Interrupted`]; [`Exit::Internal`] when a stage cannot go on.
    pub(crate) fn rounds(&self, plans: &[Planned]) -> Result<Measured, Failure> {
        if let Some(times) = self.measured(plans)? {
            return Ok(Measured {
                times,
                in_turns: true,
            });
        }
        let mut times = Vec::with_capacity(plans.len());
        for planned in plans {
            let alone = self.measured(std::slice::from_ref(planned))?;
            times.extend(alone.into_iter().flatten());
        }
        Ok(Measured {
            times,
            in_turns: false,
        })
    }

    /// The same of plans in turns; none when they do not fit at once.
    fn measured(&self, plans: &[Planned]) -> Result<Option<Vec<Duration>>, Failure> {
        let mut replicas = Vec::with_capacity(plans.len());
        let measured = self.in_turns(plans, &mut replicas);
        if measured.is_err() {
            replicas.into_iter().for_each(LocalReplica::kill);
            return measured;
        }
        let closed: Vec<_> = replicas.into_iter().map(LocalReplica::close).collect();
        for closed in closed {
            closed.or_exit(Exit::Internal)?;
        }
        measured
    }

    fn in_turns(
        &self,
        plans: &[Planned],
        replicas: &mut Vec<LocalReplica>,
    ) -> Result<Option<Vec<Duration>>, Failure> {
        let mut most = 0;
        for planned in plans {
            let before = left();
            if !replicas.is_empty() && before < most + most / 4 {
                return Ok(None);
            }
            let mut replica = self.start(planned)?;
            let ready = self.prepare(&mut replica, planned);
            replicas.push(replica);
            ready?;
            // One that does not count: what it takes stays taken.
            if let Some(replica) = replicas.last_mut() {
                self.round(replica)?;
            }
            most = most.max(before.saturating_sub(left()));
        }
        let mut times = vec![Vec::with_capacity(self.steps); plans.len()];
        for _ in 0..self.steps {
            for (replica, times) in replicas.iter_mut().zip(&mut times) {
                times.push(self.round(replica)?);
            }
        }
        Ok(Some(times.into_iter().map(median).collect()))
    }

    /// Time of a round behind another, while the next ones fill what it leaves; nothing is under way before and behind.
    fn round(&self, replica: &mut LocalReplica) -> Result<Duration, Failure> {
        self.interrupt.check()?;
        let lead = replica.lead();
        lead.round().or_exit(Exit::Internal)?;
        let clock = Stopwatch::start();
        lead.round().or_exit(Exit::Internal)?;
        let took = clock.elapsed();
        lead.drain().or_exit(Exit::Internal)?;
        Ok(took)
    }

    fn start(&self, planned: &Planned) -> Result<LocalReplica, Failure> {
        let rows = usize::try_from(planned.pass_rows).or_exit(Exit::Internal)?;
        let mut settings = LocalSettings::new(rows.max(1));
        settings.own_threads = true;
        let store: Arc<dyn Artifacts> = Arc::new(MemoryArtifacts::default());
        let cut = (1, &self.spans[..]);
        let started = LocalReplica::start_cut(self.model, self.cpu, cut, &store, &settings);
        let replica = started.or_exit(Exit::Internal)?.pop();
        replica.ok_or_else(|| Failure::new(Exit::Internal, "no replica was started"))
    }

    /// Admits the plan's jobs and arranges them as it says.
    fn prepare(&self, replica: &mut LocalReplica, planned: &Planned) -> Result<(), Failure> {
        let rows = planned.workload.rows(self.model.shape.vocab);
        for (spec, rows) in planned.workload.specs()?.into_iter().zip(rows) {
            let admission = Admission {
                name: spec.name.clone(),
                identity: Identity {
                    spec,
                    backbone: String::new(),
                    data: String::new(),
                    start: None,
                    products: Products::F32,
                },
                rows,
                eval_rows: Vec::new(),
                start: Start::Fresh {
                    init_tokens: Vec::new(),
                },
                paused: false,
                replicas: Vec::new(),
            };
            let admitted = replica.lead().admit(admission).or_exit(Exit::Internal)?;
            admitted.or_exit(Exit::Internal)?;
        }
        // What is timed is a round of whole steps, as it is predicted.
        replica.lead().arrange(Arrangement {
            turn_rows: Some(u64::MAX),
            ..planned.orders.clone()
        });
        Ok(())
    }
}

/// Memory that may still be used; without bound where the system does not say.
fn left() -> u64 {
    machine::available().map_or(u64::MAX, |available| available.bytes)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let middle = times.len().saturating_sub(1) / 2;
    times.get(middle).copied().unwrap_or_default()
}
