//! One stage moved while it trains: when, from where to where, and what that cost.
//!
//! - `SH-1` A stage is moved once; a move that is called off is asked for again, a few times.

use serde::{Deserialize, Serialize};
use shared::ids::NodeName;
use shared::units::{Bytes, Micros};
use shared::wire::view::{ClusterView, EventView};

/// Asked for no more often.
const TRIES: u32 = 3;
/// The move begins after one of so many parts of the steps.
const PART: u64 = 3;

/// A stage and who held it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Held {
    /// The stage, from 0.
    pub(crate) stage: u32,
    /// Its first layer, and one after its last.
    pub(crate) layers: (u32, u32),
    /// The node.
    pub(crate) node: NodeName,
}

impl Held {
    /// The last stage, where loss and head are.
    pub(crate) fn last(cluster: &ClusterView) -> Option<Self> {
        let seats = &cluster.plan.replicas.first()?.seats;
        Self::of(cluster, seats.len().checked_sub(1)?)
    }

    fn of(cluster: &ClusterView, stage: usize) -> Option<Self> {
        let seat = cluster.plan.replicas.first()?.seats.get(stage)?;
        Some(Self {
            stage: u32::try_from(stage).ok()?,
            layers: (seat.first_layer, seat.end_layer),
            node: seat.node.clone(),
        })
    }
}

/// A stage that has moved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Moved {
    /// What, and from which node.
    #[serde(flatten)]
    pub(crate) held: Held,
    /// To which node.
    pub(crate) to: NodeName,
    /// Steps taken by all jobs when it was asked for.
    pub(crate) at_step: u64,
    /// Seconds from the order until the new plan held.
    pub(crate) seconds: f64,
    /// Seconds in which nothing was trained: between the last step before and the last job that the new plan took up; none when
    /// no step came after.
    pub(crate) stall: Option<f64>,
    /// Seconds between the last step before and the first step after, which the new plan computed meanwhile; none as well.
    pub(crate) step_to_step: Option<f64>,
    /// Values and moments that were made durable for it, and taken up by the other node.
    pub(crate) bytes: u64,
}

/// How far it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shift {
    tries: u32,
    asked: Option<(Held, u64)>,
    started: Option<Micros>,
    holds: Option<Micros>,
    step_before: Option<Micros>,
    taken_up: Option<Micros>,
    step_after: Option<Micros>,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Numbers {
    bytes: Bytes,
}

impl Shift {
    /// Whether it shall be asked for now that so many of all steps are taken.
    pub(crate) fn is_due(&self, (taken, all): (u64, u64)) -> bool {
        self.asked.is_none() && self.tries < TRIES && taken > 0 && taken >= all / PART
    }

    /// It is asked for.
    pub(crate) fn ask(&mut self, held: Held, step: u64) {
        self.tries += 1;
        self.asked = Some((held, step));
    }

    /// The order was refused: it may be asked for again.
    pub(crate) fn refused(&mut self) {
        (self.asked, self.started, self.bytes) = (None, None, 0);
    }

    /// Takes in an event.
    pub(crate) fn take(&mut self, event: &EventView) {
        match event.kind.as_str() {
            "step" if self.holds.is_none() => self.step_before = Some(event.at),
            "step" => {
                self.step_after.get_or_insert(event.at);
            }
            "recovered" if self.holds.is_some() && self.step_after.is_none() => {
                self.taken_up = Some(event.at);
            }
            "migration_started" if self.asked.is_some() && self.holds.is_none() => {
                self.started = Some(event.at);
                self.bytes = 0;
            }
            "migration_called_off" if self.holds.is_none() => self.refused(),
            "checkpoint" if self.started.is_some() && self.holds.is_none() => {
                let numbers: Numbers = serde_json::from_str(&event.data).unwrap_or_default();
                self.bytes += numbers.bytes.0;
            }
            "plan_in_force" if self.started.is_some() => {
                self.holds.get_or_insert(event.at);
            }
            _ => {}
        }
    }

    /// Whether it is under way.
    pub(crate) fn is_moving(&self) -> bool {
        self.asked.is_some() && self.holds.is_none()
    }

    /// Whether the new plan holds and a step was taken under it.
    pub(crate) fn goes_on(&self) -> bool {
        self.step_after.is_some()
    }

    /// What came of it, as the cluster is now; none when the stage has not moved.
    pub(crate) fn outcome(&self, now: &ClusterView) -> Option<Moved> {
        let (held, at_step) = self.asked.clone()?;
        let to = Held::of(now, held.stage as usize)?.node;
        if to == held.node {
            return None;
        }
        let between = self.step_before.zip(self.step_after);
        let seconds = |(before, after): (Micros, Micros)| after.since(before).seconds();
        let stall = between.map(|(before, after)| (before, self.taken_up.unwrap_or(after)));
        Some(Moved {
            held,
            to,
            at_step,
            seconds: self.holds?.since(self.started?).seconds(),
            stall: stall.map(seconds),
            step_to_step: between.map(seconds),
            bytes: self.bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::wire::view::Level;

    use super::*;
    use crate::shown::samples;

    fn event(kind: &str, at: u64, data: &str) -> EventView {
        let mut event = samples::event(at, Level::Info, kind, "so it was");
        event.at = Micros(at * 1_000_000);
        event.data = data.into();
        event
    }

    fn from() -> Held {
        Held {
            stage: 0,
            layers: (0, 2),
            node: NodeName::new("elsewhere").unwrap(),
        }
    }

    #[test]
    fn it_is_due_once_a_third_is_trained() {
        let mut shift = Shift::default();
        assert!(!shift.is_due((0, 2)) && !shift.is_due((9, 30)) && shift.is_due((10, 30)));
        for _ in 0..TRIES {
            assert!(shift.is_due((20, 30)));
            shift.ask(from(), 20);
            assert!(shift.is_moving() && !shift.is_due((20, 30)));
            shift.take(&event("migration_started", 1, "{}"));
            shift.take(&event("migration_called_off", 2, "{}"));
        }
        assert!(!shift.is_due((20, 30)) && !shift.is_moving());
    }

    #[test]
    fn the_stall_ends_when_the_new_plan_has_all_jobs() {
        let mut shift = Shift::default();
        shift.take(&event("checkpoint", 1, r#"{"step":1,"bytes":7}"#));
        shift.take(&event("plan_in_force", 1, "{}"));
        shift.ask(from(), 10);
        for (kind, at) in [("migration_started", 2), ("step", 3), ("checkpoint", 4)] {
            shift.take(&event(kind, at, r#"{"step":1,"bytes":5}"#));
        }
        assert!(shift.outcome(&samples::cluster()).is_none());
        shift.take(&event("plan_in_force", 5, "{}"));
        assert!(!shift.is_moving() && !shift.goes_on());
        for (kind, at) in [
            ("recovered", 5),
            ("recovered", 6),
            ("step", 8),
            ("recovered", 9),
            ("step", 9),
        ] {
            shift.take(&event(kind, at, "{}"));
        }
        let moved = shift.outcome(&samples::cluster()).unwrap();
        assert_eq!(
            (moved.stall, moved.step_to_step, moved.seconds, moved.bytes),
            (Some(3.0), Some(5.0), 3.0, 5)
        );
        assert_eq!((moved.held, moved.at_step), (from(), 10));
    }
}
