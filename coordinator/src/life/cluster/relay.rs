//! Questions that nodes answer: samples, and what devices did. Nothing of it outlives the coordinator.
//!
//! - `RL-1` A sample ends: with its text, or when who makes it has another connection or place, is of a broken replica, or makes
//!   no token of any sample for [`SILENCE`].
//! - `RL-2` Of a text that nobody waits for, who makes it is told to let it go.

use std::collections::{BTreeMap, BTreeSet};

use shared::ids::{JobId, NodeName, PlanEpoch};
use shared::life::JobState;
use shared::units::Micros;
use shared::wire::order::Order;
use shared::wire::request::{Refusal, RefusalCode, Reply};
use shared::wire::view::SpanView;

use super::{Coordinator, Effect, Handle};
use crate::life::ledger::Job;
use crate::life::membership::LinkId;

/// A node that has samples to make and makes no token for so long does not go on with them.
pub(super) const SILENCE: Micros = Micros::of_millis(600_000);

/// How long stages may take to say what they did.
pub(super) const TRACE_BOUND: Micros = Micros::of_millis(5_000);

#[derive(Clone, Debug)]
struct Trace {
    handle: Handle,
    waiting: BTreeSet<NodeName>,
    spans: Vec<SpanView>,
    until: Micros,
}

/// Who makes a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Maker {
    pub(super) node: NodeName,
    /// Its connection.
    link: LinkId,
    /// What it leads.
    replica: u32,
    /// Since this plan.
    pub(super) epoch: PlanEpoch,
}

#[derive(Clone, Debug)]
struct Sample {
    handle: Handle,
    maker: Maker,
    /// Whose adapter, where it trained as the text was asked for.
    job: Option<JobId>,
    /// When its node was last heard to make a token, or it was asked.
    heard: Micros,
}

/// What is asked of nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Relay {
    last: u64,
    samples: BTreeMap<u64, Sample>,
    traces: BTreeMap<u64, Trace>,
}

fn answer(handle: Handle, reply: Reply) -> Effect {
    Effect::Answer {
        handle,
        reply,
        last: true,
    }
}

/// Whether a job goes from its replica for good.
fn ends(state: JobState) -> bool {
    state == JobState::Cancelling || state.is_final()
}

/// When a job that ends, or has ended, can be sampled.
pub(super) fn sample_later(job: &Job) -> String {
    let when = match (job.state, job.durable) {
        (JobState::Cancelling, 0) => ", and has no durable state to sample".to_owned(),
        (JobState::Cancelling, step) => format!(
            ": its state after step {step} answers once it is cancelled (`spotmux job {} --wait`)",
            job.id
        ),
        (_, 0) => " by now, and has no durable state to sample".to_owned(),
        (_, step) => format!(" by now: ask again, its state after step {step} answers"),
    };
    format!("job {} ({}) is {}{when}", job.name, job.id, job.state)
}

impl Relay {
    /// A sample is asked of a node; its number.
    pub(super) fn sample(
        &mut self,
        handle: Handle,
        maker: Maker,
        job: Option<JobId>,
        now: Micros,
    ) -> u64 {
        self.last += 1;
        let sample = Sample {
            handle,
            maker,
            job,
            heard: now,
        };
        self.samples.insert(self.last, sample);
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

    pub(super) fn piece(&mut self, number: u64, tokens: Vec<u32>, now: Micros) -> Option<Effect> {
        let Sample { handle, maker, .. } = self.samples.get(&number)?.clone();
        // Its others wait behind this one.
        let of_node = self.samples.values_mut();
        let of_node = of_node.filter(|sample| sample.maker.node == maker.node);
        of_node.for_each(|sample| sample.heard = now);
        Some(Effect::Piece { handle, tokens })
    }

    fn sample_ended(
        &mut self,
        number: u64,
        outcome: Result<(), (RefusalCode, String)>,
    ) -> Option<Effect> {
        let Sample { handle, maker, .. } = self.samples.remove(&number)?;
        let node = maker.node;
        let reply = match outcome {
            Ok(()) => Reply::Done,
            Err((code, why)) => Reply::Refused(Refusal {
                code,
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
        let samples = self.samples.iter();
        let samples = samples.filter(|(_, sample)| sample.maker.node == *node);
        let numbers: Vec<u64> = samples.map(|(number, _)| *number).collect();
        let ended = numbers.into_iter().filter_map(|number| {
            let why = "its connection ended; ask again".to_owned();
            self.sample_ended(number, Err((RefusalCode::Busy, why)))
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

    /// A client does not wait any more: the texts that were made for it.
    fn forget(&mut self, handle: Handle) -> Vec<(u64, Maker)> {
        self.traces.retain(|_, trace| trace.handle != handle);
        let own = self.samples.iter();
        let own = own.filter(|(_, sample)| sample.handle == handle);
        let own: Vec<(u64, Maker)> = own
            .map(|(number, sample)| (*number, sample.maker.clone()))
            .collect();
        for (number, _) in &own {
            self.samples.remove(number);
        }
        own
    }
}

impl Coordinator {
    /// Who makes texts of a replica, if its first stage has a connection.
    pub(super) fn maker(&self, replica: u32) -> Option<Maker> {
        let (node, epoch) = self.lead(replica)?;
        let link = self.members.link(&node)?;
        Some(Maker {
            node,
            link,
            replica,
            epoch,
        })
    }

    /// A client does not wait any more.
    pub(super) fn client_left(&mut self, handle: Handle) {
        self.history.forget(handle);
        for (number, maker) in self.relay.forget(handle) {
            self.let_text_go(number, &maker);
        }
    }

    /// Ends samples that nobody goes on with. RL-1
    pub(super) fn tend_samples(&mut self) {
        let now = self.now.steady;
        let samples = self.relay.samples.iter();
        let ended = samples.filter_map(|(number, sample)| {
            let maker = &sample.maker;
            let broken = self.book.broken.contains(&maker.replica);
            let why = if broken || self.maker(maker.replica).as_ref() != Some(maker) {
                let why = "its replica moved, broke or lost its connection; ask again";
                (RefusalCode::Busy, why.to_owned())
            } else if now.since(sample.heard) >= SILENCE {
                let why = format!("it made no token for {SILENCE}; ask again, or drain it");
                (RefusalCode::Internal, why)
            } else {
                return None;
            };
            Some((*number, maker.clone(), why))
        });
        let ended: Vec<(u64, Maker, (RefusalCode, String))> = ended.collect();
        for (number, maker, why) in ended {
            let effect = self.relay.sample_ended(number, Err(why));
            self.out.effects.extend(effect);
            self.let_text_go(number, &maker);
        }
    }

    /// Who makes a text says that it is over. That the job ended meanwhile is its owner's doing, and no failure.
    pub(super) fn text_over(&mut self, number: u64, outcome: Result<(), String>) {
        let sample = self.relay.samples.get(&number);
        let job = sample.and_then(|sample| self.book.ledger.get(sample.job?));
        let ended = job.filter(|job| ends(job.state)).map(sample_later);
        let outcome = outcome.map_err(|why| match ended {
            Some(ended) => (RefusalCode::Conflict, ended),
            None => (RefusalCode::Internal, why),
        });
        let effect = self.relay.sample_ended(number, outcome);
        self.out.effects.extend(effect);
    }

    /// RL-2
    fn let_text_go(&mut self, number: u64, maker: &Maker) {
        if self.members.link(&maker.node) == Some(maker.link) {
            let epoch = maker.epoch;
            self.send(&maker.node, Order::EndSample { epoch, number });
        }
    }
}
