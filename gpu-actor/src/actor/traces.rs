//! What the device did lately: told by the stage's thread, asked for by the coordinator.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use shared::ids::{JobId, JobName, NodeName};
use shared::units::Micros;
use shared::wire::view::SpanView;

use crate::replica::watch::{Deed, Observer, Span, Watch};

use super::meters::Meters;
use super::settings::Clock;

/// The newest spans of a node.
pub(super) struct Traces {
    node: NodeName,
    most: usize,
    /// Tokens trained since the start of the process.
    tokens: AtomicU64,
    /// Bytes of the weights of the stage that is held, or was last.
    weights: AtomicU64,
    /// When the device began the piece of work that it is at, by the clock that never jumps, plus one; 0 while it is at
    /// none.
    working_since: AtomicU64,
    steady: Clock,
    spans: Mutex<VecDeque<(u32, Span)>>,
}

struct Recorder {
    traces: Arc<Traces>,
    meters: Arc<Meters>,
    stage: u32,
}

impl Drop for Recorder {
    /// A stage that panicked at its work is at none any more.
    fn drop(&mut self) {
        self.rests();
    }
}

impl Observer for Recorder {
    fn begins(&mut self, _: Micros) {
        let Micros(now) = (self.traces.steady)();
        let since = &self.traces.working_since;
        since.store(now.saturating_add(1), Ordering::Relaxed);
    }

    fn rests(&mut self) {
        self.traces.working_since.store(0, Ordering::Relaxed);
    }

    fn worked(&mut self, span: Span) {
        self.meters.worked(&span);
        if span.deed == Deed::Keep && self.stage == 0 {
            self.meters.copied(&span);
        }
        let mut spans = self.traces.lock();
        if spans.len() == self.traces.most {
            spans.pop_front();
        }
        spans.push_back((self.stage, span));
    }
}

impl Traces {
    /// Keeps so many spans; `steady` never jumps, and tells ages.
    pub(super) fn new(node: NodeName, most: usize, steady: Clock) -> Arc<Self> {
        Arc::new(Self {
            node,
            most: most.max(1),
            tokens: AtomicU64::new(0),
            weights: AtomicU64::new(0),
            working_since: AtomicU64::new(0),
            steady,
            spans: Mutex::new(VecDeque::new()),
        })
    }

    /// Records what a stage does.
    pub(super) fn watch(
        self: &Arc<Self>,
        stage: u32,
        clock: &Clock,
        meters: &Arc<Meters>,
    ) -> Watch {
        meters.begin();
        let recorder = Recorder {
            traces: Arc::clone(self),
            meters: Arc::clone(meters),
            stage,
        };
        Watch::new(Box::new(recorder), Arc::clone(clock))
    }

    /// Tokens were trained.
    pub(super) fn trained(&self, tokens: u64) {
        self.tokens.fetch_add(tokens, Ordering::Relaxed);
    }

    /// Tokens trained since the start of the process.
    pub(super) fn tokens(&self) -> u64 {
        self.tokens.load(Ordering::Relaxed)
    }

    /// A stage with so many bytes of weights is held.
    pub(super) fn holds(&self, weights: u64) {
        self.weights.store(weights, Ordering::Relaxed);
    }

    /// Bytes of the weights of the stage that is held, or was last.
    pub(super) fn weights(&self) -> u64 {
        self.weights.load(Ordering::Relaxed)
    }

    /// Since the device began the piece of work that it is at; 0 while it is at none.
    pub(super) fn device_age(&self) -> Micros {
        match self.working_since.load(Ordering::Relaxed) {
            0 => Micros(0),
            since => (self.steady)().since(Micros(since - 1)),
        }
    }

    /// All that passed while a job's step was on its way here; of the newest step of all when nothing is named.
    pub(super) fn of(&self, job: Option<JobId>, step: Option<u64>) -> Vec<SpanView> {
        let spans = self.lock();
        let wanted = |(name, under_way): &(JobName, u64)| {
            let job_fits = job.is_none_or(|job| id(name) == Some(job));
            job_fits && step.is_none_or(|step| step == under_way + 1)
        };
        let applied = spans
            .iter()
            .rev()
            .find(|(_, span)| span.deed == Deed::Apply && span.jobs.iter().any(&wanted));
        let Some((_, applied)) = applied else {
            return Vec::new();
        };
        let Some(own) = applied.jobs.iter().find(|own| wanted(own)).cloned() else {
            return Vec::new();
        };
        let of_step = spans.iter().filter(|(_, span)| span.jobs.contains(&own));
        let begin = of_step.map(|(_, span)| span.start).min();
        let (begin, end) = (begin.unwrap_or(applied.start), applied.end);
        let inside = |span: &Span| {
            let waited = span.deed != Deed::Credit || span.start < span.end;
            waited && span.start < end && span.end > begin
        };
        let inside = spans.iter().filter(|(_, span)| inside(span));
        let mut inside: Vec<&(u32, Span)> = inside.collect();
        inside.sort_by_key(|(_, span)| span.start);
        let mut lanes = Lanes::default();
        let view = |(stage, span): &(u32, Span)| SpanView {
            node: self.node.clone(),
            stage: *stage,
            lane: lanes.of(span),
            name: span.deed.name().to_owned(),
            micro_batch: span.micro_batch,
            jobs: span
                .jobs
                .iter()
                .filter_map(|(name, step)| Some((id(name)?, step + 1)))
                .collect(),
            start: span.start,
            duration: span.end.since(span.start),
            bytes: span.bytes,
        };
        inside.into_iter().map(view).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(u32, Span)>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Chunks may wait for their links, go and come at the same time: each that does gets a lane of its own.
#[derive(Default)]
struct Lanes(BTreeMap<&'static str, Vec<Micros>>);

impl Lanes {
    fn of(&mut self, span: &Span) -> String {
        let kind = match span.deed {
            Deed::Credit => "link wait",
            Deed::Send => "link out",
            Deed::Receive => "link in",
            _ => return "device".into(),
        };
        let lanes = self.0.entry(kind).or_default();
        let free = lanes.iter().position(|end| *end <= span.start);
        let lane = free.unwrap_or_else(|| {
            lanes.push(Micros(0));
            lanes.len() - 1
        });
        lanes[lane] = span.end;
        format!("{kind} {}", lane + 1)
    }
}

/// The job of a name in the store.
pub(super) fn id(name: &JobName) -> Option<JobId> {
    name.as_str().parse().ok()
}

/// The name of a job in the store.
pub(super) fn name(job: JobId) -> JobName {
    JobName::new(job.to_string()).expect("a letter and digits are a name")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::units::Bytes;

    use super::*;

    fn span(deed: Deed, job: u64, step: u64, start: u64, end: u64) -> Span {
        Span {
            deed,
            micro_batch: Some(step),
            jobs: vec![(name(JobId(job)), step)],
            bytes: Bytes(0),
            start: Micros(start),
            end: Micros(end),
        }
    }

    fn traces(steady: &Arc<AtomicU64>) -> Arc<Traces> {
        let steady = Arc::clone(steady);
        let node = NodeName::new("n1").unwrap();
        Traces::new(
            node,
            100,
            Arc::new(move || Micros(steady.load(Ordering::Relaxed))),
        )
    }

    #[test]
    fn a_step_is_told_with_all_that_passed_meanwhile_and_lanes_do_not_overlap() {
        let traces = traces(&Arc::default());
        let mut recorder = Recorder {
            traces: Arc::clone(&traces),
            meters: Meters::new(Micros(0)),
            stage: 0,
        };
        for recorded in [
            span(Deed::Forward, 1, 0, 0, 10),
            span(Deed::Apply, 1, 0, 10, 12),
            span(Deed::Forward, 1, 1, 20, 30),
            span(Deed::Send, 1, 1, 30, 50),
            span(Deed::Forward, 2, 0, 31, 40),
            span(Deed::Send, 2, 0, 40, 45),
            span(Deed::Backward, 1, 1, 50, 60),
            span(Deed::Apply, 1, 1, 60, 61),
        ] {
            recorder.worked(recorded);
        }
        let newest = traces.of(None, None);
        assert_eq!(newest, traces.of(Some(JobId(1)), Some(2)));
        let seen: Vec<(&str, &str, u64)> = newest
            .iter()
            .map(|s| (s.name.as_str(), s.lane.as_str(), s.jobs[0].1))
            .collect();
        let expected = [
            ("forward", "device", 2),
            ("send", "link out 1", 2),
            ("forward", "device", 1),
            ("send", "link out 2", 1),
            ("backward", "device", 2),
            ("apply", "device", 2),
        ];
        assert_eq!(seen, expected);
        assert_eq!(traces.of(Some(JobId(1)), Some(1)).len(), 2);
        assert!(traces.of(Some(JobId(3)), None).is_empty());
    }

    #[test]
    fn cl_9_ages_are_of_the_clock_that_never_jumps() {
        let steady = Arc::new(AtomicU64::new(0));
        let traces = traces(&steady);
        let mut recorder = Recorder {
            traces: Arc::clone(&traces),
            meters: Meters::new(Micros(0)),
            stage: 0,
        };
        let at = |now: u64| {
            steady.store(now, Ordering::Relaxed);
            traces.device_age()
        };
        at(0);
        // The wall clock of the piece is put forward by an hour, or back: its age is told by the other.
        recorder.begins(Micros(3_600_000_000));
        assert_eq!(at(9), Micros(9));
        recorder.rests();
        assert_eq!(at(10), Micros(0));
        recorder.begins(Micros(0));
        assert_eq!(at(30), Micros(20));
        drop(recorder);
        assert_eq!(at(40), Micros(0), "a panic ends it");
    }
}
