//! The loop: a round, its events, what they ask to be saved.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

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
    /// Jobs whose newest checkpoint is not proven by the step after it.
    unproven: BTreeSet<JobName>,
    /// Tokens a second over all jobs.
    pub(crate) rate: f64,
    /// Seconds spent in rounds.
    pub(crate) seconds: f64,
}

/// An event as programs see it.
#[derive(Debug, Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    event: Kept<'a>,
    /// Wall seconds of the round it came from; of a step, those of all rounds since the job's step before.
    seconds: f64,
}

/// An event as the metrics have it.
#[derive(Clone, Copy, Debug, Serialize)]
struct Kept<'a> {
    #[serde(flatten)]
    event: &'a Event,
    /// Of a job that was set aside: whether loss and gradient with its present state were finite.
    #[serde(skip_serializing_if = "Option::is_none")]
    proven: Option<bool>,
}

/// Seconds of rounds since each job's last step.
#[derive(Debug, Default)]
struct Times(BTreeMap<JobName, f64>);

impl Times {
    fn pass<'a>(&mut self, round: f64, jobs: impl Iterator<Item = &'a JobName>) {
        for job in jobs {
            *self.0.entry(job.clone()).or_default() += round;
        }
    }

    /// Those of an event of the round: a step that was spread over several took them all.
    fn of(&mut self, event: &Event, round: f64) -> f64 {
        match event {
            Event::Step { job, .. } => self.0.remove(job).unwrap_or(round),
            _ => round,
        }
    }
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
            job.place.begin(&job.progress)?;
        }
        // What an interrupted run left beside its last checkpoint goes with the first step.
        let goes_on = |job: &&Prepared| !job.done && job.steps_taken() > 0;
        let unproven = jobs.iter().filter(goes_on);
        let unproven = unproven.map(|job| job.spec().name.clone()).collect();
        Ok(Self {
            session,
            jobs,
            unproven,
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
                let failure = match saved {
                    0 => failure,
                    1 => failure.hint("another job is saved: mend the cause and run the same command again"),
                    _ => failure.hint(format!(
                        "{saved} other jobs are saved: mend the cause and run the same command again"
                    )),
                };
                Err(lost
                    .into_iter()
                    .fold(failure, |told, other| told.hint(other.message())))
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
        let mut times = Times::default();
        while !self.session.is_idle() && !interrupt.asked() {
            let clock = Stopwatch::start();
            let events = self.session.round();
            if let Some(file) = self.session.stage().model().changed_file() {
                return Err(self.without_model(&file));
            }
            let round = clock.seconds();
            self.seconds += round;
            times.pass(round, self.jobs.iter().map(|job| &job.spec().name));
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
                let seconds = times.of(event, round);
                let event = self.kept(event);
                output.event(&Told { event, seconds });
            }
            if let Some(failure) = first {
                return Err(failure);
            }
        }
        Ok(())
    }

    /// The model's file was written to: nothing that was computed since the last look at it is kept.
    fn without_model(&mut self, file: &Path) -> Failure {
        let names = self.jobs.iter().map(|job| job.spec().name.clone());
        self.unkept.extend(names);
        let message = format!(
            "{}: the model's file was written to while it was trained on",
            file.display()
        );
        Failure::new(Exit::BadInput, message).hint(
            "checkpoints were made before that and are sound: put the file back as it was, and run the same command again \
             (a model is replaced by renaming another file to its name, which disturbs nobody)",
        )
    }

    /// A job that was ended after its last checkpoint and before its adapter was written has only its end left to
    /// tell and that to do.
    fn finish_what_was_left(&self) -> Result<(), Failure> {
        for job in self.jobs.iter().filter(|job| !job.done) {
            let name = &job.spec().name;
            if let Some(&Standing::Finished(why)) = self.session.standing(name) {
                let event = Event::Finished {
                    job: name.clone(),
                    step: job.steps_taken(),
                    why,
                };
                job.place.note(&self.kept(&event))?;
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
        let kept = self.kept(event);
        match event {
            Event::Evaluation { .. } => job.place.note(&kept),
            Event::Step { step, .. } => {
                job.place.note(&kept)?;
                if self.unproven.contains(event.job()) {
                    keep::prune(job, *step)?;
                    self.unproven.remove(event.job());
                }
                Ok(())
            }
            Event::CheckpointDue { .. } => {
                self.checkpoint(job)?;
                self.unproven.insert(event.job().clone());
                Ok(())
            }
            Event::Finished { .. } => {
                job.place.note(&kept)?;
                self.write_adapter(job)
            }
            Event::Quarantined { reason, .. } => {
                job.place.note(&kept)?;
                self.checkpoint(job)?;
                self.set_aside.insert(event.job().clone(), reason.clone());
                Ok(())
            }
        }
    }

    /// The event as it is kept.
    fn kept<'a>(&self, event: &'a Event) -> Kept<'a> {
        let proven = match event {
            Event::Quarantined { job, step, .. } => self.session.proof(job).map(|p| p.holds(*step)),
            _ => None,
        };
        Kept { event, proven }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_step_takes_the_seconds_of_all_rounds_that_it_is_spread_over() {
        let [giant, small] = ["giant", "small"].map(|name| JobName::new(name).unwrap());
        let step = |job: &JobName| Event::Step {
            job: job.clone(),
            step: 1,
            total: 9,
            loss: 1.0,
            accuracy: 0.5,
            learning_rate: 1e-3,
            gradient_norm: 1.0,
            tokens: 10,
            trained_tokens: 5,
        };
        let mut times = Times::default();
        let jobs = [&giant, &small];
        times.pass(1.0, jobs.into_iter());
        assert_eq!(times.of(&step(&small), 1.0), 1.0);
        times.pass(2.0, jobs.into_iter());
        assert_eq!(times.of(&step(&small), 2.0), 2.0);
        let saved = Event::CheckpointDue {
            job: giant.clone(),
            step: 1,
        };
        assert_eq!(times.of(&saved, 2.0), 2.0);
        assert_eq!(times.of(&step(&giant), 2.0), 3.0);
        times.pass(4.0, jobs.into_iter());
        assert_eq!(times.of(&step(&giant), 4.0), 4.0);
    }
}
