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

/// Where and how long plans are carried out.
pub(crate) struct Site<'a> {
    /// The backbone.
    pub(crate) model: &'a Arc<Model>,
    /// Threads of each stage.
    pub(crate) cpu: &'a Cpu,
    /// Layers of each stage.
    pub(crate) spans: Vec<Range<usize>>,
    /// Steps that are measured, after one that is not; the median counts.
    pub(crate) steps: usize,
    /// Whether the user wants it to end.
    pub(crate) interrupt: &'a Interrupt,
}

impl Site<'_> {
    /// Median time of a step of each plan. All plans are ready at once and take their steps in turns, so that a machine whose
    /// rate changes within minutes does so for all of them.
    ///
    /// # Errors
    /// [`Exit::Interrupted`]; [`Exit::Internal`] when a stage cannot go on.
    pub(crate) fn steps_in_turns(&self, plans: &[Planned]) -> Result<Vec<Duration>, Failure> {
        let mut replicas = Vec::with_capacity(plans.len());
        let measured = self.measure(plans, &mut replicas);
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

    fn measure(
        &self,
        plans: &[Planned],
        replicas: &mut Vec<LocalReplica>,
    ) -> Result<Vec<Duration>, Failure> {
        for planned in plans {
            let mut replica = self.start(planned)?;
            let ready = self.prepare(&mut replica, planned);
            replicas.push(replica);
            ready?;
        }
        let mut times = vec![Vec::with_capacity(self.steps); plans.len()];
        for step in 0..=self.steps {
            for (replica, times) in replicas.iter_mut().zip(&mut times) {
                self.interrupt.check()?;
                let clock = Stopwatch::start();
                replica.lead().round().or_exit(Exit::Internal)?;
                if step > 0 {
                    times.push(clock.elapsed());
                }
            }
        }
        Ok(times.into_iter().map(median).collect())
    }

    fn start(&self, planned: &Planned) -> Result<LocalReplica, Failure> {
        let rows = usize::try_from(planned.pass_rows).or_exit(Exit::Internal)?;
        let mut settings = LocalSettings::new(rows.max(1));
        settings.own_threads = true;
        // A step by itself, as it is predicted: no pass of the next one fills what this one leaves.
        settings.lead.ahead = 1;
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

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let middle = times.len().saturating_sub(1) / 2;
    times.get(middle).copied().unwrap_or_default()
}
