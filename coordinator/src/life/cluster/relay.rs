//! Questions that nodes answer: samples, and what devices did. Nothing of it outlives the coordinator.

use std::collections::{BTreeMap, BTreeSet};

use shared::ids::NodeName;
use shared::units::Micros;
use shared::wire::request::{Refusal, RefusalCode, Reply};
use shared::wire::view::SpanView;

use super::{Effect, Handle};

/// How long stages may take to say what they did.
pub(super) const TRACE_BOUND: Micros = Micros::of_millis(5_000);

#[derive(Clone, Debug)]
struct Trace {
    handle: Handle,
    waiting: BTreeSet<NodeName>,
    spans: Vec<SpanView>,
    until: Micros,
}

/// What is asked of nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Relay {
    last: u64,
    samples: BTreeMap<u64, (Handle, NodeName)>,
    traces: BTreeMap<u64, Trace>,
}

fn answer(handle: Handle, reply: Reply) -> Effect {
    Effect::Answer {
        handle,
        reply,
        last: true,
    }
}

impl Relay {
    /// A sample is asked of a node; its number.
    pub(super) fn sample(&mut self, handle: Handle, node: NodeName) -> u64 {
        self.last += 1;
        self.samples.insert(self.last, (handle, node));
        self.last
    }

    /// All these nodes are asked what they did; the number of the question.
    pub(super) fn trace(&mut self, handle: Handle, nodes: BTreeSet<NodeName>, now: Micros) -> u64 {
        self.last += 1;
        let trace = Trace {
            handle,
            waiting: nodes,
            spans: Vec::new(),
            until: now.plus(TRACE_BOUND),
        };
        self.traces.insert(self.last, trace);
        self.last
    }

    pub(super) fn piece(&self, number: u64, tokens: Vec<u32>) -> Option<Effect> {
        let (handle, _) = self.samples.get(&number)?;
        Some(Effect::Piece {
            handle: *handle,
            tokens,
        })
    }

    pub(super) fn sample_ended(
        &mut self,
        number: u64,
        outcome: Result<(), String>,
    ) -> Option<Effect> {
        let (handle, node) = self.samples.remove(&number)?;
        let reply = match outcome {
            Ok(()) => Reply::Done,
            Err(why) => Reply::Refused(Refusal {
                code: RefusalCode::Internal,
                message: format!("{node} could not go on with the sample: {why}"),
            }),
        };
        Some(answer(handle, reply))
    }

    pub(super) fn spans(
        &mut self,
        node: &NodeName,
        number: u64,
        spans: Vec<SpanView>,
    ) -> Option<Effect> {
        let trace = self.traces.get_mut(&number)?;
        if trace.waiting.remove(node) {
            trace.spans.extend(spans);
        }
        let done = trace.waiting.is_empty();
        done.then(|| self.end_trace(number)).flatten()
    }

    fn end_trace(&mut self, number: u64) -> Option<Effect> {
        let mut trace = self.traces.remove(&number)?;
        trace.spans.sort_by_key(|span| (span.stage, span.start));
        Some(answer(trace.handle, Reply::Spans(trace.spans)))
    }

    /// A node is not connected any more.
    pub(super) fn lost(&mut self, node: &NodeName) -> Vec<Effect> {
        let samples = self.samples.iter().filter(|(_, (_, of))| of == node);
        let numbers: Vec<u64> = samples.map(|(number, _)| *number).collect();
        let ended = numbers.into_iter().filter_map(|number| {
            self.sample_ended(number, Err("its connection ended; ask again".into()))
        });
        let mut effects: Vec<Effect> = ended.collect();
        let numbers: Vec<u64> = self.traces.keys().copied().collect();
        effects.extend(
            numbers
                .into_iter()
                .filter_map(|n| self.spans(node, n, Vec::new())),
        );
        effects
    }

    /// Who did not say in time what it did is left out.
    pub(super) fn tick(&mut self, now: Micros) -> Vec<Effect> {
        let late = self.traces.iter().filter(|(_, trace)| now >= trace.until);
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        late.into_iter()
            .filter_map(|number| self.end_trace(number))
            .collect()
    }

    pub(super) fn forget(&mut self, handle: Handle) {
        self.samples.retain(|_, (of, _)| *of != handle);
        self.traces.retain(|_, trace| trace.handle != handle);
    }
}
