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
    /// Median time of a step.
    ///
    /// # Errors
    /// [`Exit::Interrupted`]; [`Exit::Internal`] when a stage cannot go on.
    pub(crate) fn step(&self, planned: &Planned) -> Result<Duration, Failure> {
        let rows = usize::try_from(planned.pass_rows).or_exit(Exit::Internal)?;
        let mut settings = LocalSettings::new(rows.max(1));
        settings.own_threads = true;
        // A step by itself, as it is predicted: no pass of the next one fills what this one leaves.
        settings.lead.ahead = 1;
        let store: Arc<dyn Artifacts> = Arc::new(MemoryArtifacts::default());
        let cut = (1, &self.spans[..]);
        let started = LocalReplica::start_cut(self.model, self.cpu, cut, &store, &settings);
        let Some(mut replica) = started.or_exit(Exit::Internal)?.pop() else {
            return Err(Failure::new(Exit::Internal, "no replica was started"));
        };
        let measured = self.measure(&mut replica, planned);
        match measured {
            Ok(times) => {
                replica.close().or_exit(Exit::Internal)?;
                Ok(times)
            }
            Err(failure) => {
                replica.kill();
                Err(failure)
            }
        }
    }

    fn measure(&self, replica: &mut LocalReplica, planned: &Planned) -> Result<Duration, Failure> {
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
        let whole = Arrangement::of_whole_steps();
        replica.lead().arrange(Arrangement {
            turn_rows: whole.turn_rows,
            ..planned.orders.clone()
        });
        let mut times = Vec::with_capacity(self.steps);
        for step in 0..=self.steps {
            self.interrupt.check()?;
            let clock = Stopwatch::start();
            replica.lead().round().or_exit(Exit::Internal)?;
            if step > 0 {
                times.push(clock.elapsed());
            }
        }
        times.sort_unstable();
        Ok(times[(times.len() - 1) / 2])
    }
}
