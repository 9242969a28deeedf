//! The loop: a round, its events, what they ask to be saved.

use std::collections::BTreeMap;

use gpu_actor::train::event::Event;
use gpu_actor::train::session::{Session, Standing};
use kernels::cpu::Cpu;
use serde::Serialize;
use shared::ids::JobName;
use shared::job::EngineSpec;

use super::board::Board;
use super::keep;
use super::prepare::Prepared;
use crate::backbone::Backbone;
use crate::clock::Stopwatch;
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;
use crate::render::Output;

/// Jobs on their way.
#[derive(Debug)]
pub(crate) struct Run {
    /// The engine.
    pub(crate) session: Session,
    /// The jobs, in the order of the file.
    pub(crate) jobs: Vec<Prepared>,
    /// What names the backbone elsewhere.
    base: String,
    /// Jobs set aside, with the reason.
    set_aside: BTreeMap<JobName, String>,
    /// Tokens a second over all jobs.
    pub(crate) rate: f64,
    /// Seconds spent in rounds.
    pub(crate) seconds: f64,
}

/// An event as programs see it.
#[derive(Debug, Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    event: &'a Event,
    /// Wall seconds of the round it came from.
    seconds: f64,
}

impl Run {
    /// Puts the jobs on the backbone.
    ///
    /// # Errors
    /// [`Exit::BadInput`] when the engine refuses a job.
    pub(crate) fn new(
        backbone: &Backbone,
        cpu: &Cpu,
        engine: &EngineSpec,
        mut jobs: Vec<Prepared>,
    ) -> Result<Self, Failure> {
        let model = &backbone.model;
        let mut session = Session::new(model.clone(), cpu.clone(), engine.tokens_per_pass);
        session.cut_above(engine.chunk_tokens());
        let recomputed = engine.recompute.of(model.shape.layers);
        session.stage_mut().recompute(recomputed);
        for job in jobs.iter_mut().filter(|job| !job.done) {
            session.admit_prepared(&job.ready).or_exit(Exit::BadInput)?;
            if job.lock.is_none() && !job.known {
                job.lock = job.place.make()?;
            }
            if job.damaged {
                job.place.set_adapter_aside()?;
            }
            job.place.begin(job.steps_taken())?;
        }
        Ok(Self {
            session,
            jobs,
            base: backbone.model.identity(),
            set_aside: BTreeMap::new(),
            rate: 0.0,
            seconds: 0.0,
        })
    }

    /// Trains until every job is finished or set aside, or the user asks to stop.
    ///
    /// # Errors
    /// [`Exit::Internal`] when something cannot be saved.
    pub(crate) fn train(
        &mut self,
        output: &Output,
        interrupt: &Interrupt,
    ) -> Result<Exit, Failure> {
        let mut board = Board::new(output, &self.jobs);
        self.finish_what_was_left()?;
        while !self.session.is_idle() {
            if interrupt.asked() {
                board.clear();
                return self.stop(output);
            }
            let clock = Stopwatch::start();
            let events = self.session.round();
            let seconds = clock.seconds();
            self.seconds += seconds;
            for event in &events {
                self.keep(event)?;
                board.show(event);
                output.event(&Told { event, seconds });
            }
        }
        self.rate = board.rate();
        board.clear();
        Ok(if self.set_aside.is_empty() {
            Exit::Done
        } else {
            Exit::Quarantined
        })
    }

    /// A job that was ended after its last checkpoint and before its adapter was written has only its end left to
    /// tell and that to do.
    fn finish_what_was_left(&self) -> Result<(), Failure> {
        for job in self.jobs.iter().filter(|job| !job.done) {
            let name = &job.spec().name;
            if let Some(&Standing::Finished(why)) = self.session.standing(name) {
                job.place.note(&Event::Finished {
                    job: name.clone(),
                    step: job.steps_taken(),
                    why,
                })?;
                self.write_adapter(job)?;
            }
        }
        Ok(())
    }

    fn job(&self, name: &JobName) -> Option<&Prepared> {
        self.jobs.iter().find(|job| job.spec().name == *name)
    }

    fn keep(&mut self, event: &Event) -> Result<(), Failure> {
        let Some(job) = self.job(event.job()) else {
            return Ok(());
        };
        match event {
            Event::Step { .. } | Event::Evaluation { .. } => job.place.note(event),
            Event::CheckpointDue { .. } => self.checkpoint(job),
            Event::Finished { .. } => {
                job.place.note(event)?;
                self.write_adapter(job)
            }
            Event::Quarantined { reason, .. } => {
                job.place.note(event)?;
                self.checkpoint(job)?;
                self.set_aside.insert(event.job().clone(), reason.clone());
                Ok(())
            }
        }
    }

    fn checkpoint(&self, job: &Prepared) -> Result<(), Failure> {
        match self.session.state(&job.spec().name) {
            Some(state) => keep::checkpoint(job, &state),
            None => Ok(()),
        }
    }

    fn write_adapter(&self, job: &Prepared) -> Result<(), Failure> {
        let Some(state) = self.session.state(&job.spec().name) else {
            return Ok(());
        };
        let shape = &self.session.stage().model().shape;
        keep::adapter(job, &state, shape, &self.base)
    }

    /// Saves every job that is on its way.
    fn stop(&self, output: &Output) -> Result<Exit, Failure> {
        let active = self
            .jobs
            .iter()
            .filter(|job| self.session.standing(&job.spec().name) == Some(&Standing::Active));
        let mut saved = 0;
        for job in active {
            self.checkpoint(job)?;
            saved += 1;
        }
        output.note(format!(
            "stopped; {saved} jobs are saved: spotmux train goes on with them"
        ));
        Ok(Exit::Interrupted)
    }

    /// Why a job was set aside.
    pub(crate) fn set_aside(&self, name: &JobName) -> Option<&str> {
        self.set_aside.get(name).map(String::as_str)
    }
}
