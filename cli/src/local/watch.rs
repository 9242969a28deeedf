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
            Phase::Serving => self.end(Outcome::Asked, Step::Asked, now, effects),
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
mod tests {
    use super::Effect::{AskEnd, End, Kill, Start, TellReady, TellRestart, Terminate};
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn at(seconds: u64) -> Micros {
        Micros(seconds * SECOND)
    }

    fn started(children: usize) -> Watch {
        let (watch, effects) = Watch::new(children, Patience::default(), at(0));
        assert_eq!(effects.len(), children);
        watch
    }

    fn serving(children: usize) -> Watch {
        let mut watch = started(children);
        assert_eq!(watch.step(Event::Ready, at(1)), [TellReady]);
        watch
    }

    fn ended(child: usize) -> Event {
        let well = false;
        Event::Ended { child, well }
    }

    #[test]
    fn sv_1_no_partial_cluster_is_left() {
        let mut watch = started(3);
        assert_eq!(watch.step(ended(1), at(1)), [Terminate(2)]);
        assert_eq!(watch.step(ended(2), at(1)), [Terminate(0)]);
        assert_eq!(watch.step(ended(0), at(1)), [End(Outcome::NeverReady(1))]);
        let mut watch = started(2);
        assert_eq!(watch.step(Event::Tick, at(119)), []);
        assert_eq!(watch.step(Event::Tick, at(120)), [Terminate(1)]);
        assert_eq!(watch.step(ended(1), at(121)), [Terminate(0)]);
        assert_eq!(watch.step(ended(0), at(121)), [End(Outcome::TooLate)]);
        let mut watch = started(1);
        assert_eq!(watch.step(ended(0), at(1)), [End(Outcome::NeverReady(0))]);
    }

    #[test]
    fn sv_2_restarts_are_later_each_time_and_bounded() {
        let mut watch = serving(2);
        let mut now = at(10);
        for round in 0..5 {
            assert_eq!(watch.step(ended(1), now), [TellRestart(1, round + 1)]);
            let pause = 500_000 << round;
            assert_eq!(watch.step(Event::Tick, now.plus(Micros(pause - 1))), []);
            now = now.plus(Micros(pause));
            assert_eq!(watch.step(Event::Tick, now), [Start(1)]);
        }
        assert_eq!(watch.step(ended(1), now), [AskEnd]);
        assert_eq!(watch.step(ended(0), now), [End(Outcome::TooOften(1))]);
        // What ends seldom is always started again.
        let mut watch = serving(2);
        for round in 1..20 {
            assert_eq!(watch.step(ended(1), at(round * 200)), [TellRestart(1, 1)]);
            assert_eq!(watch.step(Event::Tick, at(round * 200 + 1)), [Start(1)]);
        }
    }

    #[test]
    fn sv_3_the_end_is_in_order() {
        let mut watch = serving(3);
        assert_eq!(watch.step(Event::Signal, at(10)), [AskEnd]);
        // The coordinator waits that long for what is to be durable, and tells nodes to stop then.
        assert_eq!(Bounds::default().drain, at(60));
        assert_eq!(watch.step(Event::Tick, at(79)), []);
        assert_eq!(
            watch.step(Event::Tick, at(80)),
            [Terminate(2), Terminate(1)]
        );
        assert_eq!(watch.step(ended(2), at(81)), []);
        assert_eq!(
            watch.step(Event::Tick, at(100)),
            [Terminate(1), Terminate(0)]
        );
        assert_eq!(watch.step(ended(0), at(101)), []);
        assert_eq!(watch.step(Event::Tick, at(120)), [Kill(1)]);
        assert_eq!(watch.step(ended(1), at(121)), [End(Outcome::Asked)]);
        assert_eq!(watch.step(Event::Tick, at(200)), []);
        assert_eq!(Patience::default().whole_end(), at(130));
    }

    #[test]
    fn sv_3_nodes_without_a_coordinator_have_time_to_save_alone() {
        let mut watch = serving(2);
        let mut now = at(10);
        for _ in 0..5 {
            watch.step(ended(0), now);
            now = now.plus(at(10));
            assert_eq!(watch.step(Event::Tick, now), [Start(0)]);
        }
        assert_eq!(watch.step(ended(0), now), [Terminate(1)]);
        assert_eq!(watch.step(Event::Tick, now.plus(at(69))), []);
        assert_eq!(watch.step(Event::Tick, now.plus(at(70))), [Kill(1)]);
        let over = [End(Outcome::TooOften(0))];
        assert_eq!(watch.step(ended(1), now.plus(at(71))), over);
    }

    #[test]
    fn sv_3_a_node_that_does_not_obey_is_not_waited_for_twice() {
        let mut watch = serving(3);
        assert_eq!(watch.step(Event::Signal, at(10)), [AskEnd]);
        let well = true;
        let ended_well = Event::Ended { child: 0, well };
        assert_eq!(watch.step(ended_well, at(14)), [Terminate(2), Terminate(1)]);
        assert_eq!(watch.step(ended(2), at(15)), []);
        assert_eq!(watch.step(Event::Tick, at(34)), [Kill(1)]);
        assert_eq!(watch.step(ended(1), at(34)), [End(Outcome::Asked)]);
    }

    #[test]
    fn sv_4_the_second_signal_is_at_once() {
        let mut watch = serving(2);
        assert_eq!(watch.step(Event::Signal, at(10)), [AskEnd]);
        assert_eq!(watch.step(Event::Signal, at(10)), [Kill(1), Kill(0)]);
        assert_eq!(watch.step(ended(1), at(10)), []);
        assert_eq!(watch.step(ended(0), at(10)), [End(Outcome::Asked)]);
    }

    #[test]
    fn a_coordinator_that_ends_well_ends_all() {
        let mut watch = serving(2);
        let well = true;
        assert_eq!(
            watch.step(Event::Ended { child: 0, well }, at(5)),
            [Terminate(1)]
        );
        assert_eq!(watch.step(ended(1), at(5)), [End(Outcome::Asked)]);
        // One that waits to be started again is not waited for.
        let mut watch = serving(2);
        watch.step(ended(1), at(5));
        assert_eq!(
            watch.step(Event::Ended { child: 0, well }, at(5)),
            [End(Outcome::Asked)]
        );
    }
}
