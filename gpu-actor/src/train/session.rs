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

use super::engine::{Engine, Newcomer, Turn, TurnNumber};
use super::event::{Ending, Event};
use super::local::Local;
use super::progress::Progress;
use super::proof::Proof;
use super::run::Run;
use super::spread;
use crate::model::Model;
use crate::peft::layout::Layout;

mod here;

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
            halted: Vec::new(),
            arrangement: Arrangement::default(),
        }
    }

    /// From the next round that is planned on, jobs train together like this; no result shows it. Jobs that are not here
    /// are passed over, and those that are not named are packed behind the others.
    pub fn arrange(&mut self, arrangement: Arrangement<JobName>) {
        self.arrangement = arrangement;
    }

    /// From the next round that is planned on, states of these jobs are wanted after so many steps at most, besides when they ask for
    /// it; 0: as they ask.
    pub fn hasten(&mut self, every_steps: u64, whose: impl Fn(&JobName) -> bool) {
        for (name, run) in &mut self.runs {
            run.every_steps = if whose(name) { every_steps } else { 0 };
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
        let mut run = Run::new(name.clone(), spec, layout, rows, progress);
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
        self.planned.is_empty() && !self.runs.values().any(Run::is_active)
    }

    /// Whether rounds are planned that have not ended.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        !self.planned.is_empty()
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

    /// One optimizer step of every active job, or a part of a long one, with the evaluations due before and after it.
    ///
    /// # Errors
    /// Of the engine, when it cannot go on.
    pub fn advance(&mut self) -> Result<Vec<Event>, E::Error> {
        let mut events = Vec::new();
        self.evaluate_due(&mut events)?;
        self.plan_rounds()?;
        self.end_round(&mut events)?;
        Ok(events)
    }

    /// Ends the steps that are begun, with the evaluations due behind them, and plans no other: what is planned and not
    /// begun is planned again when training goes on.
    ///
    /// # Errors
    /// Of the engine, when it cannot go on.
    pub fn settle(&mut self) -> Result<Vec<Event>, E::Error> {
        let mut events = Vec::new();
        for (slot, step) in self.engine.withdraw() {
            let mut runs = self.runs.values_mut();
            if let Some(run) = runs.find(|run| run.slot == slot && run.is_active()) {
                run.take_back(step);
            }
        }
        let begun = |run: &Run| run.takes_part() && run.begun > 0;
        self.plan_turn(begun, usize::MAX)?;
        while !self.planned.is_empty() {
            self.end_round(&mut events)?;
        }
        Ok(events)
    }

    fn end_round(&mut self, events: &mut Vec<Event>) -> Result<(), E::Error> {
        self.finish_round(events)?;
        self.evaluate_due(events)?;
        self.checkpoint_due(events);
        self.finish_complete(events);
        self.come_to_halt();
        Ok(())
    }

    fn plan_rounds(&mut self) -> Result<(), E::Error> {
        let ahead = self.engine.ahead().max(1);
        while self.planned.len() < ahead {
            if self.runs.values().any(Run::holds_up) {
                return Ok(());
            }
            let bound = self.turn_rows();
            let runs = self.runs.values_mut().filter(|run| run.takes_part());
            let most = spread::most(bound, runs.map(Run::rest));
            if !self.plan_turn(Run::takes_part, most)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Rows of one job's step in a turn.
    fn turn_rows(&self) -> usize {
        let told = self.arrangement.turn_rows;
        told.map_or_else(
            || self.engine.turn_rows(),
            |rows| usize::try_from(rows).unwrap_or(usize::MAX),
        )
    }

    /// Plans a turn of the jobs that are chosen, of each at most so many rows; whether there are any.
    fn plan_turn(&mut self, chosen: impl Fn(&Run) -> bool, most: usize) -> Result<bool, E::Error> {
        let slot = |name: &JobName| self.runs.get(name).map(|run| run.slot);
        let mut turn = Turn {
            requests: Vec::new(),
            goals: Vec::new(),
            arrangement: self.arrangement.renamed(slot),
        };
        for run in self.runs.values_mut().filter(|run| chosen(run)) {
            let whole = self.engine.takes_whole(run.slot);
            let (request, goal) = run.next_part(if whole { usize::MAX } else { most });
            turn.requests.push(request);
            turn.goals.push(goal);
        }
        let any = !turn.requests.is_empty();
        if any {
            self.planned.push_back(self.engine.plan(turn)?);
        }
        Ok(any)
    }

    fn finish_round(&mut self, events: &mut Vec<Event>) -> Result<(), E::Error> {
        let Some(turn) = self.planned.pop_front() else {
            return Ok(());
        };
        for found in self.engine.finish(turn)? {
            let mut runs = self.runs.values_mut();
            let run = runs.find(|run| run.slot == found.slot && run.is_active());
            if let (Some(run), Some(step)) = (run, found.step) {
                run.note_step(&found.tally, step, events);
            }
        }
        Ok(())
    }

    fn evaluate_due(&mut self, events: &mut Vec<Event>) -> Result<(), E::Error> {
        let due = self.runs.values().filter(|run| run.evaluates());
        let turn = Turn {
            requests: due.map(Run::evaluation).collect(),
            goals: Vec::new(),
            // Its bounds on rows alone.
            arrangement: self.arrangement.renamed(|_| None),
        };
        if turn.requests.is_empty() {
            return Ok(());
        }
        let turn = self.engine.plan(turn)?;
        for found in self.engine.finish(turn)? {
            let mut runs = self.runs.values_mut();
            if let Some(run) = runs.find(|run| run.slot == found.slot) {
                run.note_evaluation(&found.tally, events);
            }
        }
        Ok(())
    }

    /// After the evaluations of the round: a state that counts one must not be saved before it is told.
    fn checkpoint_due(&mut self, events: &mut Vec<Event>) {
        for (name, run) in &mut self.runs {
            let step = run.progress.step;
            let stepped = std::mem::take(&mut run.stepped);
            if stepped && run.keeps(step) && run.is_active() {
                let job = name.clone();
                events.push(Event::CheckpointDue { job, step });
            }
        }
    }

    fn finish_complete(&mut self, events: &mut Vec<Event>) {
        for run in self.runs.values_mut() {
            if run.is_active() && run.progress.step >= run.total {
                run.finish(Ending::Complete, events);
            }
        }
    }

    fn come_to_halt(&mut self) {
        for run in self.runs.values_mut().filter(|run| run.halts()) {
            let Some(how) = run.asked.take() else {
                continue;
            };
            run.begun = 0;
            run.standing = match how {
                Halt::Pause => Standing::Paused,
                Halt::Cancel => Standing::Cancelled,
            };
            self.halted.push(Halted {
                job: run.name.clone(),
                step: run.progress.step,
                how,
            });
        }
    }
}

/// Compiles a method for a backbone; the specification has passed [`JobSpec::problems`].
#[must_use]
pub fn layout_of(spec: &AdapterSpec, model: &Model, seed: u64) -> Arc<Layout> {
    Arc::new(Layout::new(spec, &model.shape, seed))
}
