//! Many jobs training together, step by step. Pure: no clock, no files; events are returned.
//!
//! A round takes one optimizer step of every active job, their sequences fused into passes; of a step that is much longer than
//! the shortest it takes a part ([`super::spread`]). Jobs join, leave, halt and go on between rounds, states and evaluations
//! are of whole steps; a job whose numbers stop being finite is set aside, and its neighbours' bits do not change.
//! What computes is an [`Engine`]: one stage, or a pipeline, on which rounds are planned ahead as far as nothing
//! that a round finds out can change what comes next, which is up to the next evaluation of any job.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use data::rows::TokenRow;
use shared::ids::JobName;
use shared::job::{AdapterSpec, JobSpec};
use shared::plan::arrangement::Arrangement;

use super::engine::{Engine, Newcomer, TurnNumber};
use super::local::Local;
use super::progress::Progress;
use super::proof::Proof;
use super::run::Run;
use crate::model::Model;
use crate::peft::layout::Layout;

mod here;
mod pace;
mod rounds;

pub use super::job_state::JobState;
pub use super::run::{Halt, Standing};

/// A job that came to a halt it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halted {
    /// The job.
    pub job: JobName,
    /// Steps taken.
    pub step: u64,
    /// How.
    pub how: Halt,
}

/// Jobs on an engine.
#[derive(Debug)]
pub struct Session<E: Engine = Local> {
    engine: E,
    runs: BTreeMap<JobName, Run>,
    /// Training turns on their way, the oldest first.
    planned: VecDeque<TurnNumber>,
    /// A turn of held-out rows on its way.
    measured: Option<TurnNumber>,
    /// Training turns that have ended.
    rounds: u64,
    /// Whether steps are spread over turns even where all are long.
    short: bool,
    halted: Vec<Halted>,
    arrangement: Arrangement<JobName>,
}

impl<E: Engine> Session<E> {
    /// A session without jobs.
    pub fn on(engine: E) -> Self {
        Self {
            engine,
            runs: BTreeMap::new(),
            planned: VecDeque::new(),
            measured: None,
            rounds: 0,
            short: false,
            halted: Vec::new(),
            arrangement: Arrangement::default(),
        }
    }

    /// From the next round that is planned on, jobs train together like this; no result shows it. Jobs that are not here
    /// are passed over, and those that are not named are packed behind the others.
    pub fn arrange(&mut self, arrangement: Arrangement<JobName>) {
        self.arrangement = arrangement;
    }

    /// From the next round that is planned on, states are wanted after so many steps at most, besides when jobs ask for it; 0: as
    /// they ask. States of jobs whose store is behind are put off.
    pub fn hasten(&mut self, every_steps: u64, is_behind: impl Fn(&JobName) -> bool) {
        for (name, run) in &mut self.runs {
            run.hastened = every_steps;
            run.store_is_behind = is_behind(name);
        }
    }

    /// What computes.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// What computes, to use between rounds.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    /// Adds a job under a name of the caller's, with its training and held-out rows.
    ///
    /// # Errors
    /// Of the engine, when it cannot go on; else a sentence that says what is wrong with the job: the name is taken,
    /// there is no row or one without a token that counts (a step of such rows has no loss), or the engine refuses it.
    pub fn admit_as(
        &mut self,
        name: JobName,
        spec: JobSpec,
        layout: Arc<Layout>,
        rows: [Vec<TokenRow>; 2],
        (source, progress): (E::Source, Progress),
    ) -> Result<Result<(), String>, E::Error> {
        if let Some(problem) = self.refuses(&name, &rows) {
            return Ok(Err(problem));
        }
        let mut run = Run::new(name.clone(), spec, layout, rows, progress, E::EVERY_STEPS);
        let newcomer = Newcomer {
            name: &name,
            spec: &run.spec,
            layout: &run.layout,
        };
        match self.engine.attach(newcomer, source)? {
            Ok(slot) => run.slot = slot,
            Err(problem) => return Ok(Err(format!("job {name}: {problem}"))),
        }
        self.runs.insert(name, run);
        Ok(Ok(()))
    }

    /// What is wrong with a name and rows, before any engine is asked: a sentence.
    #[must_use]
    pub fn refuses(&self, name: &JobName, rows: &[Vec<TokenRow>; 2]) -> Option<String> {
        if self.runs.contains_key(name) {
            return Some(format!("a job named {name} is already here"));
        }
        if rows[0].is_empty() {
            return Some(format!("job {name}: there is no row to train on"));
        }
        let mut lists = rows.iter().zip(["row", "held-out row"]);
        lists.find_map(|(rows, what)| {
            let at = rows.iter().position(|row| row.trained() == 0)?;
            let problem = "has no token that counts in the loss";
            Some(format!("job {name}: {what} {at} {problem}"))
        })
    }

    /// Takes a job off the backbone; whether it was there.
    ///
    /// # Errors
    /// Of the engine, when it cannot go on.
    pub fn let_go(&mut self, name: &JobName) -> Result<bool, E::Error> {
        match self.runs.remove(name) {
            Some(run) => self.engine.detach(run.slot).map(|()| true),
            None => Ok(false),
        }
    }

    /// What a job is doing.
    #[must_use]
    pub fn standing(&self, name: &JobName) -> Option<&Standing> {
        Some(&self.runs.get(name)?.standing)
    }

    /// A job's place in its life, and its steps in all.
    #[must_use]
    pub fn progress(&self, name: &JobName) -> Option<(&Progress, u64)> {
        self.runs.get(name).map(|run| (&run.progress, run.total))
    }

    /// Which of a job's states are proven: those to go on from, should it be set aside.
    #[must_use]
    pub fn proof(&self, name: &JobName) -> Option<Proof> {
        self.runs.get(name).map(Run::proof)
    }

    /// The bank slot of a job's adapter, for sampling with it.
    #[must_use]
    pub fn slot(&self, name: &JobName) -> Option<usize> {
        Some(self.runs.get(name)?.slot)
    }

    /// A job's whole adapter.
    #[must_use]
    pub fn layout(&self, name: &JobName) -> Option<&Layout> {
        Some(&self.runs.get(name)?.layout)
    }

    /// Whether no job is active and nothing is on its way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.is_under_way() && !self.runs.values().any(Run::is_active)
    }

    /// Whether anything is planned that has not ended.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        !self.planned.is_empty() || self.measured.is_some()
    }

    /// Rounds that have ended.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Whether a job has no step on its way and none begun, nor held-out rows.
    #[must_use]
    pub fn is_at_rest(&self, name: &JobName) -> bool {
        let rests = |run: &Run| run.is_settled() && !(self.measured.is_some() && run.evaluates());
        let run = self.runs.get(name);
        run.is_some_and(|run| !run.is_active() || rests(run))
    }

    /// Names of the jobs.
    pub fn names(&self) -> impl Iterator<Item = &JobName> {
        self.runs.keys()
    }

    /// Brings an active job to a halt after its steps on their way; of a step that is spread over turns the rest is taken
    /// before a pause, and nothing more before it is cancelled. A paused one can be cancelled. Whether it was possible.
    pub fn halt(&mut self, name: &JobName, how: Halt) -> bool {
        let Some(run) = self.runs.get_mut(name) else {
            return false;
        };
        let halts = match run.standing {
            Standing::Active => true,
            Standing::Paused => how == Halt::Cancel,
            _ => false,
        };
        if halts && run.asked != Some(Halt::Cancel) {
            run.asked = Some(how);
        }
        self.come_to_halt();
        halts
    }

    /// Lets a paused job go on, or calls a pause off; whether it was possible.
    pub fn resume(&mut self, name: &JobName) -> bool {
        let Some(run) = self.runs.get_mut(name) else {
            return false;
        };
        let waits = run.standing == Standing::Paused || run.asked == Some(Halt::Pause);
        if waits {
            run.standing = Standing::Active;
            run.asked = None;
        }
        waits
    }

    /// Jobs that came to a halt since the last call.
    pub fn take_halted(&mut self) -> Vec<Halted> {
        std::mem::take(&mut self.halted)
    }
}

/// Compiles a method for a backbone; the specification has passed [`JobSpec::problems`].
#[must_use]
pub fn layout_of(spec: &AdapterSpec, model: &Model, seed: u64) -> Arc<Layout> {
    Arc::new(Layout::new(spec, &model.shape, seed))
}
