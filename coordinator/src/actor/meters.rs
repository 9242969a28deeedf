//! What the coordinator measures: handles of series, set from what the machine shows and what the journal did.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shared::ids::PlanEpoch;
use shared::life::JobState;
use shared::telemetry::names::{self, COORDINATOR};
use shared::telemetry::registry::{Counter, Gauge, Histogram, Registry};
use shared::telemetry::serve::Health;
use shared::units::Micros;
use shared::wire::view::{ClusterView, NodeHealth};

use super::settings::Clock;
use crate::record::{Change, Record};

/// An actor that did not look at its clock for so long is taken for stuck.
const STUCK: Micros = Micros::of_millis(15_000);

/// All of it; the actor's own.
pub(super) struct Meters {
    registry: Registry,
    epoch: Gauge,
    term: Gauge,
    waiting: Gauge,
    events: Counter,
    notices: Counter,
    ignored: Counter,
    moves: [Counter; 2],
    move_time: Histogram,
    silence: Gauge,
    /// The move under way and when it began.
    moving: Option<(PlanEpoch, Micros)>,
    /// When the actor last looked, for who asks whether it lives.
    seen: Arc<AtomicU64>,
}

impl Meters {
    pub(super) fn new(now: Micros) -> Self {
        let registry = Registry::new("coordinator", env!("CARGO_PKG_VERSION"), COORDINATOR);
        Self {
            epoch: registry.gauge(&names::PLAN_EPOCH, None),
            term: registry.gauge(&names::TERM, None),
            waiting: registry.gauge(&names::JOBS_WAITING, None),
            events: registry.counter(&names::EVENTS, None),
            notices: registry.counter(&names::NOTICES, None),
            ignored: registry.counter(&names::NOTICES_IGNORED, None),
            moves: ["in_force", "called_off"]
                .map(|outcome| registry.counter(&names::MOVES, Some(outcome))),
            move_time: registry.histogram(&names::MOVE, None),
            silence: registry.gauge(&names::HEARTBEAT_AGE, None),
            moving: None,
            seen: Arc::new(AtomicU64::new(now.0)),
            registry,
        }
    }

    pub(super) fn registry(&self) -> Registry {
        self.registry.clone()
    }

    /// For the journal's thread.
    pub(super) fn appends(&self) -> Histogram {
        self.registry.histogram(&names::JOURNAL_APPEND, None)
    }

    /// Whether the actor still looks at its clock.
    pub(super) fn health(&self, steady: Clock) -> Health {
        let seen = Arc::clone(&self.seen);
        Arc::new(move || {
            let age = steady().since(Micros(seen.load(Ordering::Relaxed)));
            (age > STUCK).then(|| format!("the coordinator did nothing for {age}"))
        })
    }

    /// A node told something.
    pub(super) fn told(&self) {
        self.notices.increment(1);
    }

    /// Moves are seen in the records.
    pub(super) fn note(&mut self, now: Micros, record: &Record) {
        match &record.change {
            Change::MoveStarted { epoch, .. } => self.moving = Some((*epoch, now)),
            Change::MoveCalledOff { .. } => {
                self.moving = None;
                self.moves[1].increment(1);
            }
            Change::InForce { layout } => {
                if let Some((_, begin)) = self.moving.take_if(|(epoch, _)| *epoch == layout.epoch) {
                    self.moves[0].increment(1);
                    self.move_time.record(now.since(begin).seconds());
                }
            }
            _ => {}
        }
    }

    /// Sets everything that is shown as it is now.
    pub(super) fn look(&self, now: Micros, view: &ClusterView, counts: &Counts) {
        self.seen.store(now.0, Ordering::Relaxed);
        self.epoch.set(view.plan.epoch.0 as f64);
        self.term.set(view.term.0 as f64);
        self.waiting.set(counts.waiting as f64);
        self.events.absolute(counts.events);
        self.ignored.absolute(counts.ignored);
        let (_, states) = names::JOBS.label.unwrap_or_default();
        for &state in states {
            let of = |(own, _): &&(JobState, u32)| own.as_str() == state;
            let count = view.jobs.iter().find(of).map_or(0, |(_, count)| *count);
            self.registry
                .gauge(&names::JOBS, Some(state))
                .set(f64::from(count));
        }
        let of = |health| view.nodes.iter().filter(move |node| node.health == health);
        for (health, name) in [
            (NodeHealth::Alive, "alive"),
            (NodeHealth::Draining, "draining"),
            (NodeHealth::Lost, "lost"),
            (NodeHealth::Left, "left"),
        ] {
            let gauge = self.registry.gauge(&names::NODES, Some(name));
            gauge.set(of(health).count() as f64);
        }
        let here = view.nodes.iter().filter(|node| node.health.is_here());
        let silence = here.map(|node| node.heartbeat_age).max();
        self.silence.set(silence.unwrap_or_default().seconds());
    }
}

/// Numbers that no view shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    /// Jobs that wait for a replica.
    pub(super) waiting: usize,
    /// Events since the journal began.
    pub(super) events: u64,
    /// Notices that changed nothing.
    pub(super) ignored: u64,
}

#[cfg(test)]
mod tests {
    use shared::ids::EventNumber;

    use super::*;
    use crate::life::layout::Layout;

    fn record(change: Change) -> Record {
        Record {
            number: EventNumber(1),
            at: Micros(0),
            change,
        }
    }

    fn started(epoch: u64) -> Record {
        record(Change::MoveStarted {
            epoch: PlanEpoch(epoch),
            replicas: Vec::new(),
            reason: String::new(),
        })
    }

    fn in_force(epoch: u64) -> Record {
        let layout = Layout {
            epoch: PlanEpoch(epoch),
            ..Layout::default()
        };
        record(Change::InForce { layout })
    }

    #[test]
    fn moves_are_counted_by_how_they_ended_and_measured_when_they_did() {
        let mut meters = Meters::new(Micros(0));
        // One that the coordinator before had begun has no start here.
        meters.note(Micros(0), &in_force(1));
        meters.note(Micros(1_000_000), &started(2));
        meters.note(Micros(3_000_000), &in_force(2));
        meters.note(Micros(4_000_000), &started(3));
        let reason = String::new();
        let epoch = PlanEpoch(3);
        meters.note(
            Micros(5_000_000),
            &record(Change::MoveCalledOff { epoch, reason }),
        );
        let text = meters.registry().text();
        for line in [
            "spotmux_moves_total{outcome=\"in_force\"} 1",
            "spotmux_moves_total{outcome=\"called_off\"} 1",
            "spotmux_move_seconds_sum 2",
            "spotmux_move_seconds_count 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn an_actor_that_stands_still_is_not_well() {
        let clock = Arc::new(AtomicU64::new(1_000_000));
        let told = Arc::clone(&clock);
        let steady: Clock = Arc::new(move || Micros(told.load(Ordering::Relaxed)));
        let health = Meters::new(Micros(1_000_000)).health(steady);
        assert_eq!(health(), None);
        clock.store(17_000_000, Ordering::Relaxed);
        assert!(health().is_some_and(|why| why.contains("16.0 s")));
    }
}
