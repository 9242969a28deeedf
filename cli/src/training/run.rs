//! The loop: a round, its events, what they ask to be saved.

use std::collections::{BTreeMap, BTreeSet};

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
    /// Jobs of which something could not be kept.
    unkept: BTreeSet<JobName>,
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
        for job in &mut jobs {
            if job.done {
                job.ready.let_go();
                continue;
            }
            session
                .admit_prepared(&mut job.ready)
                .or_exit(Exit::BadInput)?;
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
            unkept: BTreeSet::new(),
            rate: 0.0,
            seconds: 0.0,
        })
    }

    /// Trains until every job is finished or set aside, or the user asks to stop.
    ///
    /// # Errors
    /// [`Exit::Internal`] when something cannot be saved; what else can be is saved before.
    pub(crate) fn train(
        &mut self,
        output: &Output,
        interrupt: &Interrupt,
    ) -> Result<Exit, Failure> {
        self.finish_what_was_left()?;
        let mut board = Board::new(output, &self.jobs);
        let ended = self.rounds(&mut board, output, interrupt);
        self.rate = board.rate();
        board.clear();
        match ended {
            Ok(()) if !self.session.is_idle() => self.stop(output),
            Ok(()) if self.set_aside.is_empty() => Ok(Exit::Done),
            Ok(()) => Ok(Exit::Quarantined),
            Err(failure) => {
                let (saved, lost) = self.save();
                let saved = format!("{saved} other jobs are saved: run the same command again");
                Err(lost.into_iter().fold(failure.hint(saved), |told, other| {
                    told.hint(other.message())
                }))
            }
        }
    }

    /// Round after round, until no job is active or the user asks to stop. What one job cannot keep ends the run, after
    /// what the others have of the same round is kept.
    fn rounds(
        &mut self,
        board: &mut Board,
        output: &Output,
        interrupt: &Interrupt,
    ) -> Result<(), Failure> {
        while !self.session.is_idle() && !interrupt.asked() {
            let clock = Stopwatch::start();
            let events = self.session.round();
            let seconds = clock.seconds();
            self.seconds += seconds;
            let mut first = None;
            for event in &events {
                if self.unkept.contains(event.job()) {
                    continue;
                }
                if let Err(failure) = self.keep(event) {
                    self.unkept.insert(event.job().clone());
                    first.get_or_insert(failure);
                    continue;
                }
                board.show(event);
                output.event(&Told { event, seconds });
            }
            if let Some(failure) = first {
                return Err(failure);
            }
        }
        Ok(())
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

    /// Saves every job that is on its way, as far as the system lets; how many are saved, and why others are not. One
    /// whose metrics or last step were not kept stays at its last checkpoint, so that its files agree.
    fn save(&self) -> (usize, Vec<Failure>) {
        let (mut saved, mut lost) = (0, Vec::new());
        for job in &self.jobs {
            let name = &job.spec().name;
            let active = self.session.standing(name) == Some(&Standing::Active);
            if !active || self.unkept.contains(name) {
                continue;
            }
            match self.checkpoint(job) {
                Ok(()) => saved += 1,
                Err(failure) => lost.push(failure),
            }
        }
        (saved, lost)
    }

    /// Saves what is on its way, as the user asked to stop.
    fn stop(&self, output: &Output) -> Result<Exit, Failure> {
        let (saved, lost) = self.save();
        output.note(format!(
            "stopped; {saved} jobs are saved: spotmux train goes on with them"
        ));
        match lost.into_iter().next() {
            Some(failure) => Err(failure),
            None => Ok(Exit::Interrupted),
        }
    }

    /// Why a job was set aside.
    pub(crate) fn set_aside(&self, name: &JobName) -> Option<&str> {
        self.set_aside.get(name).map(String::as_str)
    }
}
