//! What a node measures: handles of series, told by the stage's thread, its links and the stage actor.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use shared::ids::{JobName, PlanEpoch, Term};
use shared::telemetry::names::{self, GPU_ACTOR};
use shared::telemetry::registry::{Counter, Gauge, Histogram, Registry};
use shared::telemetry::serve::Health;
use shared::units::{Bytes, Micros};

use super::settings::Clock;
use crate::replica::watch::{Deed, Span};

/// An actor that did not look at its clock for so long is taken for stuck.
const STUCK: Micros = Micros::of_millis(15_000);

/// All of it; shared by everything on a node.
pub(super) struct Meters {
    registry: Registry,
    epoch: Gauge,
    term: Gauge,
    steps: Counter,
    tokens: Counter,
    activations: Gauge,
    sent: Counter,
    received: Counter,
    credit_wait: Histogram,
    durable: [Counter; 2],
    durable_time: Histogram,
    device_age: Gauge,
    connected: Gauge,
    /// Bytes held by micro-batches that went forward.
    held: Mutex<BTreeMap<u64, u64>>,
    /// When states were copied that are being made durable, by job and step.
    copied: Mutex<BTreeMap<(JobName, u64), Micros>>,
    /// When the actor last looked, for who asks whether it lives.
    seen: AtomicU64,
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meters").finish_non_exhaustive()
    }
}

impl Meters {
    pub(super) fn new(now: Micros) -> Arc<Self> {
        let registry = Registry::new("gpu-actor", env!("CARGO_PKG_VERSION"), GPU_ACTOR);
        Arc::new(Self {
            epoch: registry.gauge(&names::PLAN_EPOCH, None),
            term: registry.gauge(&names::TERM, None),
            steps: registry.counter(&names::STEPS, None),
            tokens: registry.counter(&names::TOKENS, None),
            activations: registry.gauge(&names::ACTIVATIONS, None),
            sent: registry.counter(&names::CHUNKS_SENT, None),
            received: registry.counter(&names::CHUNKS_RECEIVED, None),
            credit_wait: registry.histogram(&names::CREDIT_WAIT, None),
            durable: ["durable", "failed"]
                .map(|outcome| registry.counter(&names::DURABLE, Some(outcome))),
            durable_time: registry.histogram(&names::DURABLE_TIME, None),
            device_age: registry.gauge(&names::DEVICE_AGE, None),
            connected: registry.gauge(&names::CONNECTED, None),
            held: Mutex::default(),
            copied: Mutex::default(),
            seen: AtomicU64::new(now.0),
            registry,
        })
    }

    pub(super) fn registry(&self) -> Registry {
        self.registry.clone()
    }

    /// Whether the actor still looks at its clock.
    pub(super) fn health(self: &Arc<Self>, clock: Clock) -> Health {
        let this = Arc::clone(self);
        Arc::new(move || {
            let age = clock().since(Micros(this.seen.load(Ordering::Relaxed)));
            (age > STUCK).then(|| format!("the stage actor did nothing for {age}"))
        })
    }

    /// A stage begins: what the one before held is gone.
    pub(super) fn begin(&self) {
        lock(&self.held).clear();
        lock(&self.copied).clear();
        self.activations.set(0.0);
    }

    /// The device did something.
    pub(super) fn worked(&self, span: &Span) {
        let took = span.end.since(span.start).seconds();
        match span.deed {
            Deed::Credit => return self.credit_wait.record(took),
            // The device does something else meanwhile.
            Deed::Send | Deed::Receive => return,
            _ => {}
        }
        let busy = &names::DEVICE_BUSY;
        self.registry
            .histogram(busy, Some(span.deed.name()))
            .record(took);
        match (span.deed, span.micro_batch) {
            (Deed::Forward, Some(number)) => {
                lock(&self.held).insert(number, span.bytes.0);
            }
            (Deed::Backward, Some(number)) => {
                lock(&self.held).remove(&number);
            }
            _ => return,
        }
        let held: u64 = lock(&self.held).values().sum();
        self.activations.set(held as f64);
    }

    /// A state was copied to be made durable, on the stage that will hear whether it is.
    pub(super) fn copied(&self, span: &Span) {
        let keys = span.jobs.iter().cloned().map(|key| (key, span.start));
        lock(&self.copied).extend(keys);
    }

    /// A step was taken that this node led.
    pub(super) fn trained(&self, tokens: u64) {
        self.steps.increment(1);
        self.tokens.increment(tokens);
    }

    /// A state became durable.
    pub(super) fn durable(&self, job: &JobName, step: u64, now: Micros) {
        self.durable[0].increment(1);
        if let Some(begin) = self.settle(job, step) {
            self.durable_time.record(now.since(begin).seconds());
        }
    }

    /// A state did not.
    pub(super) fn not_durable(&self, job: &JobName, step: u64) {
        self.durable[1].increment(1);
        self.settle(job, step);
    }

    /// When a state was copied; it and older ones of its job are forgotten.
    fn settle(&self, job: &JobName, step: u64) -> Option<Micros> {
        let mut copied = lock(&self.copied);
        let begin = copied.get(&(job.clone(), step)).copied();
        copied.retain(|(own, at), _| own != job || *at > step);
        begin
    }

    /// Values went to a neighbour.
    pub(super) fn sent(&self, bytes: Bytes) {
        self.sent.increment(bytes.0);
    }

    /// Values came from a neighbour.
    pub(super) fn received(&self, bytes: Bytes) {
        self.received.increment(bytes.0);
    }

    /// Sets everything that is shown as it is now.
    pub(super) fn look(&self, now: Micros, standing: &Standing) {
        self.seen.store(now.0, Ordering::Relaxed);
        self.epoch.set(standing.epoch.unwrap_or_default().0 as f64);
        self.term.set(standing.term.0 as f64);
        self.device_age.set(standing.device_age.seconds());
        self.connected.set(f64::from(u8::from(standing.connected)));
    }
}

/// Where a node stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) epoch: Option<PlanEpoch>,
    pub(super) term: Term,
    pub(super) device_age: Micros,
    pub(super) connected: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn span(deed: Deed, micro_batch: Option<u64>, bytes: u64) -> Span {
        Span {
            deed,
            micro_batch,
            jobs: vec![(JobName::new("j1").unwrap(), 7)],
            bytes: Bytes(bytes),
            start: Micros(1_000_000),
            end: Micros(3_000_000),
        }
    }

    #[test]
    fn what_the_device_does_is_summed_by_kind_and_held_until_it_came_back() {
        let meters = Meters::new(Micros(0));
        let line = |line: &str| {
            let text = meters.registry().text();
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        };
        meters.worked(&span(Deed::Forward, Some(1), 100));
        meters.worked(&span(Deed::Forward, Some(2), 50));
        line("spotmux_activations_held_bytes 150");
        meters.worked(&span(Deed::Backward, Some(1), 100));
        line("spotmux_activations_held_bytes 50");
        line("spotmux_device_busy_seconds_sum{kind=\"forward\"} 4");
        meters.worked(&span(Deed::Credit, Some(1), 100));
        line("spotmux_link_credit_wait_seconds_sum 2");
        meters.begin();
        line("spotmux_activations_held_bytes 0");
    }

    #[test]
    fn a_state_is_measured_from_its_copy_until_it_is_durable() {
        let meters = Meters::new(Micros(0));
        let job = JobName::new("j1").unwrap();
        // The copy of step 8 is made before that of step 7 is durable.
        let mut later = span(Deed::Keep, None, 10);
        later.jobs[0].1 = 8;
        meters.copied(&span(Deed::Keep, None, 10));
        meters.copied(&later);
        meters.durable(&job, 6, Micros(5_000_000));
        meters.durable(&job, 7, Micros(5_000_000));
        meters.not_durable(&job, 8);
        assert!(lock(&meters.copied).is_empty());
        let text = meters.registry().text();
        for line in [
            "spotmux_durable_states_total{outcome=\"durable\"} 2",
            "spotmux_durable_states_total{outcome=\"failed\"} 1",
            "spotmux_durable_state_seconds_sum 4",
            "spotmux_durable_state_seconds_count 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
