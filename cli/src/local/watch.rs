//! Supervision as a state machine: event and time in, effects out.
//!
//! - `SV-1` Until all are ready, the end of one is the end of all: no partial cluster is left.
//! - `SV-2` A process that ends while the cluster serves is started again, later each time, and not more often than the
//!   budget says.
//! - `SV-3` The end is in order: asked, then nodes, then the coordinator, then by force; each step waits for the last.
//! - `SV-4` The second signal is the end at once.

use coordinator::settings::Bounds;
use shared::actor::budget::{Budget, Restarts};
use shared::units::Micros;

/// How patient it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Until all are ready.
    pub(crate) ready: Micros,
    /// For an end in order: no less than the coordinator gives first stages to make their steps durable.
    pub(crate) saving: Micros,
    /// For each later step of the end.
    pub(crate) end: Micros,
    /// Restarts of one process that are borne.
    pub(crate) restarts: Budget,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            ready: Micros::of_millis(120_000),
            saving: Bounds::default().drain.plus(STOPPING),
            end: Micros::of_millis(20_000),
            restarts: Budget {
                restarts: 5,
                window: Micros::of_millis(120_000),
                pause: Micros::of_millis(500),
            },
        }
    }
}

/// For nodes to stop once all is durable.
const STOPPING: Micros = Micros::of_millis(10_000);

impl Patience {
    /// For all steps of the end.
    pub(crate) fn whole_end(&self) -> Micros {
        self.saving.plus(Micros(self.end.0.saturating_mul(3)))
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A process ended; whether it says that all is well.
    Ended {
        /// Its place; the first is the coordinator.
        child: usize,
        /// Whether its code was 0.
        well: bool,
    },
    /// The cluster serves.
    Ready,
    /// The user wants the end.
    Signal,
    /// Time passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Start a process.
    Start(usize),
    /// Say that the cluster is ready.
    TellReady,
    /// Say that a process is started again, and how often it ended.
    TellRestart(usize, usize),
    /// Ask the coordinator to end the cluster in order.
    AskEnd,
    /// Ask a process to end.
    Terminate(usize),
    /// End a process.
    Kill(usize),
    /// All are ended; why.
    End(Outcome),
}

/// Why a cluster ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was asked to.
    Asked,
    /// A process ended before all were ready.
    NeverReady(usize),
    /// It was not ready in time.
    TooLate,
    /// A process ended too often.
    TooOften(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Runs,
    Waits(Micros),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Serving,
    Ending(Outcome, Step),
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Asked,
    Nodes,
    Coordinator,
    Force,
}

/// The processes and how far they are.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    patience: Patience,
    phase: Phase,
    until: Micros,
    lives: Vec<Life>,
    ends: Vec<Restarts>,
}

impl Watch {
    /// So many processes, to be started now.
    pub(crate) fn new(children: usize, patience: Patience, now: Micros) -> (Self, Vec<Effect>) {
        let watch = Self {
            patience,
            phase: Phase::Starting,
            until: now.plus(patience.ready),
            lives: vec![Life::Runs; children],
            ends: vec![Restarts::new(patience.restarts); children],
        };
        (watch, (0..children).map(Effect::Start).collect())
    }

    /// Whether it is not known yet that the cluster serves.
    pub(crate) fn is_starting(&self) -> bool {
        self.phase == Phase::Starting
    }

    /// Whether the coordinator is to end the cluster, and nobody else was asked to end yet.
    pub(crate) fn is_asking(&self) -> bool {
        matches!(self.phase, Phase::Ending(_, Step::Asked))
    }

    /// Takes in an event.
    pub(crate) fn step(&mut self, event: Event, now: Micros) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Ready if self.is_starting() => {
                self.phase = Phase::Serving;
                effects.push(Effect::TellReady);
            }
            Event::Ready => {}
            Event::Ended { child, well } => self.ended(child, well, now, &mut effects),
            Event::Signal => self.signal(now, &mut effects),
            Event::Tick => self.tick(now, &mut effects),
        }
        if let Phase::Ending(outcome, _) = self.phase
            && self.lives.iter().all(|life| *life != Life::Runs)
        {
            self.phase = Phase::Ended;
            effects.push(Effect::End(outcome));
        }
        effects
    }

    fn ended(&mut self, child: usize, well: bool, now: Micros, effects: &mut Vec<Effect>) {
        self.lives[child] = Life::Over;
        match self.phase {
            Phase::Starting => self.end(Outcome::NeverReady(child), Step::Nodes, now, effects),
            // Somebody asked the coordinator for the end of the cluster.
            Phase::Serving if child == 0 && well => {
                self.end(Outcome::Asked, Step::Nodes, now, effects);
            }
            Phase::Serving => {
                let ends = &mut self.ends[child];
                let Some(pause) = ends.ended(now) else {
                    // A coordinator that is no more cannot be asked: nodes save alone what they can.
                    let step = if child == 0 { Step::Nodes } else { Step::Asked };
                    return self.end(Outcome::TooOften(child), step, now, effects);
                };
                self.lives[child] = Life::Waits(now.plus(pause));
                effects.push(Effect::TellRestart(child, ends.count()));
            }
            // Whoever does not hear the coordinator's order is told so.
            Phase::Ending(outcome, Step::Asked) if child == 0 => {
                self.end(outcome, Step::Nodes, now, effects);
            }
            Phase::Ending(..) | Phase::Ended => self.go_on(now, effects),
        }
    }

    fn signal(&mut self, now: Micros, effects: &mut Vec<Effect>) {
        match self.phase {
            Phase::Starting => self.end(Outcome::Asked, Step::Nodes, now, effects),
            Phase::Serving if self.lives[0] == Life::Runs => {
                self.end(Outcome::Asked, Step::Asked, now, effects);
            }
            // One that is to be started again cannot be asked: nodes save alone what they can.
            Phase::Serving => {
                self.end(Outcome::Asked, Step::Nodes, now, effects);
                self.until = self.until.max(now.plus(self.patience.saving));
            }
            Phase::Ending(outcome, _) => self.end(outcome, Step::Force, now, effects),
            Phase::Ended => {}
        }
    }

    fn tick(&mut self, now: Micros, effects: &mut Vec<Effect>) {
        match self.phase {
            Phase::Starting if now >= self.until => {
                self.end(Outcome::TooLate, Step::Nodes, now, effects);
            }
            Phase::Serving => {
                for (child, life) in self.lives.iter_mut().enumerate() {
                    if matches!(*life, Life::Waits(until) if now >= until) {
                        *life = Life::Runs;
                        effects.push(Effect::Start(child));
                    }
                }
            }
            Phase::Ending(outcome, step) if now >= self.until => {
                let next = match step {
                    Step::Asked => Step::Nodes,
                    Step::Nodes if self.lives[0] == Life::Runs => Step::Coordinator,
                    // Nobody is left to be asked.
                    Step::Nodes | Step::Coordinator | Step::Force => Step::Force,
                };
                self.end(outcome, next, now, effects);
            }
            _ => {}
        }
    }

    /// The nodes are gone: the coordinator's turn.
    fn go_on(&mut self, now: Micros, effects: &mut Vec<Effect>) {
        if let Phase::Ending(outcome, Step::Nodes) = self.phase
            && self.lives.iter().skip(1).all(|life| *life != Life::Runs)
        {
            self.end(outcome, Step::Coordinator, now, effects);
        }
    }

    fn end(&mut self, outcome: Outcome, step: Step, now: Micros, effects: &mut Vec<Effect>) {
        self.phase = Phase::Ending(outcome, step);
        let saves = match step {
            Step::Asked => true,
            Step::Nodes => outcome == Outcome::TooOften(0),
            Step::Coordinator | Step::Force => false,
        };
        self.until = now.plus(match saves {
            true => self.patience.saving,
            false => self.patience.end,
        });
        // None is started again.
        for life in &mut self.lives {
            if let Life::Waits(_) = life {
                *life = Life::Over;
            }
        }
        let runs = |child: &usize| self.lives[*child] == Life::Runs;
        let all = 0..self.lives.len();
        match step {
            Step::Asked => effects.push(Effect::AskEnd),
            Step::Nodes => {
                effects.extend(all.skip(1).rev().filter(runs).map(Effect::Terminate));
                self.go_on(now, effects);
            }
            Step::Coordinator => effects.extend(all.rev().filter(runs).map(Effect::Terminate)),
            Step::Force => effects.extend(all.rev().filter(runs).map(Effect::Kill)),
        }
    }
}

#[cfg(test)]
mod tests;
