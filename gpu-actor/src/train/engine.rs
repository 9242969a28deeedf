//! What a session trains on: one stage, or a pipeline of them behind its first.

use std::sync::Arc;

use shared::ids::JobName;
use shared::job::JobSpec;
use shared::plan::arrangement::Arrangement;

use super::pack::Request;
use super::tally::Tally;
use crate::peft::layout::Layout;
use crate::pipeline::Slot;
use crate::stage::optim::StepNumbers;

/// A job that comes.
#[derive(Clone, Copy, Debug)]
pub struct Newcomer<'a> {
    /// What the session calls it.
    pub name: &'a JobName,
    /// What it asks for.
    pub spec: &'a JobSpec,
    /// Its whole adapter.
    pub layout: &'a Arc<Layout>,
}

/// How a job's step is taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Learning rate.
    pub learning_rate: f64,
    /// Whether its state after the step will be wanted.
    pub keep: bool,
}

/// Sequences that pass together.
#[derive(Debug)]
pub struct Turn<'a> {
    /// By job.
    pub requests: Vec<Request<'a>>,
    /// By job, when they train; none of a job whose step goes on in a later turn. Empty when they are measured only.
    pub goals: Vec<Option<Goal>>,
    /// Which of them share passes, and in which order these go; the default leaves it to the engine. No result shows it.
    pub arrangement: Arrangement<Slot>,
}

/// Why a step was not taken; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which number is not finite: a sentence.
    pub reason: String,
    /// Whether loss and gradient are finite with the values as they are ([`super::proof`]): only what would have been
    /// written is not.
    pub proven: bool,
}

/// What a turn found out about one job.
#[derive(Debug)]
pub struct Finding {
    /// The job.
    pub slot: Slot,
    /// Losses and counts.
    pub tally: Tally,
    /// The step taken, or what is not finite; none when it was no training, or the job was set aside before.
    pub step: Option<Result<StepNumbers, Fault>>,
}

/// A step, all or the rest of which was taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Withdrawn {
    /// The job.
    pub slot: Slot,
    /// Number of the step.
    pub step: u64,
    /// Sequences of it that are begun or passed; those behind were taken back.
    pub begun: usize,
}

/// Number of a turn, in the order in which they are planned.
pub type TurnNumber = u64;

/// Takes turns: they may overlap, and what they find does not show it.
pub trait Engine {
    /// Where a job's first state comes from.
    type Source;
    /// Why nothing can go on.
    type Error;

    /// Steps after which the state of a job is wanted that does not say.
    const EVERY_STEPS: u64;

    /// Puts a job on the backbone; a sentence when it cannot be.
    ///
    /// # Errors
    /// When the engine itself cannot go on.
    fn attach(
        &mut self,
        job: Newcomer<'_>,
        source: Self::Source,
    ) -> Result<Result<Slot, String>, Self::Error>;

    /// Takes a job off, once what is planned of it has passed.
    ///
    /// # Errors
    /// When the engine itself cannot go on.
    fn detach(&mut self, slot: Slot) -> Result<(), Self::Error>;

    /// Training turns worth planning at once.
    fn ahead(&self) -> usize;

    /// Rows of one job's step in a turn, beside jobs of shorter steps, that passes are full with; what holds where an
    /// arrangement says nothing.
    fn turn_rows(&self) -> usize;

    /// Whether the steps of a job pass in one turn each, however long they are.
    fn takes_whole(&self, _slot: Slot) -> bool {
        false
    }

    /// Puts a turn behind those planned before. A job's steps are planned one after another, and parts of a step in order.
    ///
    /// # Errors
    /// When the engine itself cannot go on.
    fn plan(&mut self, turn: Turn<'_>) -> Result<TurnNumber, Self::Error>;

    /// Takes back of steps what was planned and not begun: their turns find nothing of that. A job's are in the order of
    /// its steps. An engine that begins what is planned at once has none.
    fn withdraw(&mut self) -> Vec<Withdrawn> {
        Vec::new()
    }

    /// Whether anything is left of a turn after that.
    fn holds(&self, _turn: TurnNumber) -> bool {
        true
    }

    /// Whether [`Self::finish`] would not wait for a turn.
    fn is_done(&self, _turn: TurnNumber) -> bool {
        true
    }

    /// What a training turn that is not done has found out about jobs whose steps it ended: it does not find that again.
    fn closed(&mut self, _turn: TurnNumber) -> Vec<Finding> {
        Vec::new()
    }

    /// Nobody asks any more what a turn of held-out rows finds: what of it is not begun does not pass.
    fn forget(&mut self, turn: TurnNumber);

    /// Waits for a turn, and returns what it found, in the order of its requests: of a job whose step goes on, nothing.
    ///
    /// # Errors
    /// When the engine itself cannot go on.
    fn finish(&mut self, turn: TurnNumber) -> Result<Vec<Finding>, Self::Error>;
}
