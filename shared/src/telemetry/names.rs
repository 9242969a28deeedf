//! Every series that a process of a cluster tells: its name with its unit, its kind, its help, its labels.
//!
//! | id | invariant |
//! | --- | --- |
//! | TN-1 | a name ends in its unit: `_seconds`, `_bytes`, or `_total` for what only grows |
//! | TN-2 | a label has a fixed set of values, written here; no job, node or client is ever one |
//! | TN-3 | every series is there from the start of its process, with zero |

/// How a series behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Only grows while its process lives.
    Counter,
    /// What is now.
    Gauge,
    /// Counts by size, with these upper bounds, and the sum of all.
    Histogram(&'static [f64]),
}

impl Kind {
    /// The word for it in the text that is scraped.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// One series, or one for each value of its label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Series {
    /// Its name, with its unit.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// What it tells.
    pub help: &'static str,
    /// Its label and all values that it takes.
    pub label: Option<(&'static str, &'static [&'static str])>,
}

impl Series {
    const fn new(name: &'static str, kind: Kind, help: &'static str) -> Self {
        let label = None;
        Self {
            name,
            kind,
            help,
            label,
        }
    }

    const fn by(self, label: &'static str, values: &'static [&'static str]) -> Self {
        Self {
            label: Some((label, values)),
            ..self
        }
    }
}

/// Waits for a disk.
const DISK: &[f64] = &[
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];
/// Work of a device, waits for a link.
const WORK: &[f64] = &[
    0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];
/// What takes seconds or minutes.
const LONG: &[f64] = &[
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 150.0, 600.0,
];

/// Which program runs; its value is 1.
pub const BUILD_INFO: Series = Series::new(
    "spotmux_build_info",
    Kind::Gauge,
    "Which program runs: version and role are its labels, the value is 1.",
);
/// The plan.
pub const PLAN_EPOCH: Series = Series::new(
    "spotmux_plan_epoch",
    Kind::Gauge,
    "Number of the plan in force; of a node, of the plan it holds a stage of, 0 when it holds none.",
);
/// The leadership.
pub const TERM: Series = Series::new(
    "spotmux_term",
    Kind::Gauge,
    "Leadership of the coordinator; of a node, the highest that it heard.",
);

/// Jobs by state.
pub const JOBS: Series = Series::new(
    "spotmux_jobs",
    Kind::Gauge,
    "Jobs by state, ended ones too.",
)
.by(
    "state",
    &[
        "queued",
        "provisioning",
        "running",
        "paused",
        "recovering",
        "finalizing",
        "succeeded",
        "cancelling",
        "cancelled",
        "failed",
    ],
);
/// Nodes by health.
pub const NODES: Series = Series::new(
    "spotmux_nodes",
    Kind::Gauge,
    "Nodes that came and are still known, by health.",
)
.by("health", &["alive", "draining", "lost", "left"]);
/// The queue.
pub const JOBS_WAITING: Series = Series::new(
    "spotmux_jobs_waiting",
    Kind::Gauge,
    "Jobs whose rows are ready and that wait for room on a replica.",
);
/// The journal's events.
pub const EVENTS: Series = Series::new(
    "spotmux_events_total",
    Kind::Counter,
    "Events of the cluster since its journal began.",
);
/// Appends to the journal.
pub const JOURNAL_APPEND: Series = Series::new(
    "spotmux_journal_append_seconds",
    Kind::Histogram(DISK),
    "Time until a group of records was safe in the journal.",
);
/// Notices of nodes.
pub const NOTICES: Series = Series::new(
    "spotmux_notices_total",
    Kind::Counter,
    "Notices that nodes told this coordinator.",
);
/// Notices that changed nothing.
pub const NOTICES_IGNORED: Series = Series::new(
    "spotmux_notices_ignored_total",
    Kind::Counter,
    "Notices of another plan, process or replica, which changed nothing.",
);
/// Moves that ended.
pub const MOVES: Series = Series::new(
    "spotmux_moves_total",
    Kind::Counter,
    "Moves to another plan that this coordinator ended, by how.",
)
.by("outcome", &["in_force", "called_off"]);
/// Their time.
pub const MOVE: Series = Series::new(
    "spotmux_move_seconds",
    Kind::Histogram(LONG),
    "Time from the start of a move until its plan was in force.",
);
/// Silence.
pub const HEARTBEAT_AGE: Series = Series::new(
    "spotmux_heartbeat_age_seconds",
    Kind::Gauge,
    "Longest silence of a node that is connected.",
);

/// Steps trained.
pub const STEPS: Series = Series::new(
    "spotmux_steps_total",
    Kind::Counter,
    "Optimizer steps of all jobs that this node led.",
);
/// Tokens trained.
pub const TOKENS: Series = Series::new(
    "spotmux_tokens_total",
    Kind::Counter,
    "Tokens of the steps that this node led.",
);
/// Device work.
pub const DEVICE_BUSY: Series = Series::new(
    "spotmux_device_busy_seconds",
    Kind::Histogram(WORK),
    "Time that the device worked, by kind of work; the sum is how long it was busy.",
)
.by(
    "kind",
    &["forward", "backward", "apply", "evaluate", "sample", "keep"],
);
/// Activations.
pub const ACTIVATIONS: Series = Series::new(
    "spotmux_activations_held_bytes",
    Kind::Gauge,
    "Activations that micro-batches between forward and backward hold on this stage.",
);
/// Chunks sent.
pub const CHUNKS_SENT: Series = Series::new(
    "spotmux_chunks_sent_bytes_total",
    Kind::Counter,
    "Values sent to neighbouring stages, as they travel.",
);
/// Chunks received.
pub const CHUNKS_RECEIVED: Series = Series::new(
    "spotmux_chunks_received_bytes_total",
    Kind::Counter,
    "Values received from neighbouring stages, as they travelled.",
);
/// Waits for credit.
pub const CREDIT_WAIT: Series = Series::new(
    "spotmux_link_credit_wait_seconds",
    Kind::Histogram(WORK),
    "Time from when a chunk was ready until its link had credit for it.",
);
/// Durable states.
pub const DURABLE: Series = Series::new(
    "spotmux_durable_states_total",
    Kind::Counter,
    "States of jobs that this node led, by whether they became durable.",
)
.by("outcome", &["durable", "failed"]);
/// Their time.
pub const DURABLE_TIME: Series = Series::new(
    "spotmux_durable_state_seconds",
    Kind::Histogram(LONG),
    "Time from when a state was copied until it was durable on all stages.",
);
/// How long the device has been at its work.
pub const DEVICE_AGE: Series = Series::new(
    "spotmux_device_age_seconds",
    Kind::Gauge,
    "Time since the device began the piece of work that it is at, 0 while it is at none.",
);
/// Whether the coordinator is reached.
pub const CONNECTED: Series = Series::new(
    "spotmux_coordinator_connected",
    Kind::Gauge,
    "1 while the coordinator is reached, else 0.",
);

/// What the coordinator tells.
pub const COORDINATOR: &[Series] = &[
    PLAN_EPOCH,
    TERM,
    JOBS,
    NODES,
    JOBS_WAITING,
    EVENTS,
    JOURNAL_APPEND,
    NOTICES,
    NOTICES_IGNORED,
    MOVES,
    MOVE,
    HEARTBEAT_AGE,
];

/// What a gpu-actor tells.
pub const GPU_ACTOR: &[Series] = &[
    PLAN_EPOCH,
    TERM,
    STEPS,
    TOKENS,
    DEVICE_BUSY,
    ACTIVATIONS,
    CHUNKS_SENT,
    CHUNKS_RECEIVED,
    CREDIT_WAIT,
    DURABLE,
    DURABLE_TIME,
    DEVICE_AGE,
    CONNECTED,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tn_1_names_bear_units_and_every_series_has_help() {
        for series in COORDINATOR.iter().chain(GPU_ACTOR) {
            let name = series.name;
            let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            assert!(plain && name.starts_with("spotmux_"), "{name}");
            let total = name.ends_with("_total");
            assert_eq!(total, series.kind == Kind::Counter, "{name}");
            if let Kind::Histogram(bounds) = series.kind {
                assert!(name.ends_with("_seconds"), "{name}");
                assert!(bounds.is_sorted(), "{name}");
            }
            assert!(series.help.ends_with('.'), "{name}");
        }
    }

    #[test]
    fn tn_2_labels_are_of_fixed_sets_and_name_nobody() {
        for series in COORDINATOR.iter().chain(GPU_ACTOR) {
            if let Some((label, values)) = series.label {
                assert!(!["job", "node", "client", "tenant"].contains(&label));
                assert!((1..=10).contains(&values.len()), "{}", series.name);
            }
        }
    }

    #[test]
    fn states_of_jobs_are_all_there() {
        let (_, values) = JOBS.label.expect("by state");
        for word in values {
            let state: Result<crate::life::JobState, _> =
                serde_json::from_str(&format!("{word:?}"));
            assert_eq!(state.map(|state| state.as_str()).ok(), Some(*word));
        }
    }
}
