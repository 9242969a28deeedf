//! What clients ask, answered or turned into changes.

use std::collections::BTreeSet;

use shared::ids::{EventNumber, JobId, NodeName};
use shared::life::JobState;
use shared::wire::order::{JobAction, Order, SampleOrder};
use shared::wire::request::{JobRef, Refusal, RefusalCode, Reply, Request, Submission};
use shared::wire::view::JobView;

use super::relay::sample_later;
use super::{Coordinator, Effect, Handle};
use crate::life::ledger::{Job, Submitted, account};
use crate::life::membership::Presence;
use crate::life::transition::{Event, Move};
use crate::record::Change;

fn refusal(code: RefusalCode, message: String) -> Refusal {
    Refusal { code, message }
}

/// A name that no member bears and the plan does not hold.
pub(super) fn never_came(node: &NodeName) -> Refusal {
    let message = format!("no node {node} ever came: `spotmux nodes` lists all");
    refusal(RefusalCode::NotFound, message)
}

impl Coordinator {
    pub(super) fn asked(&mut self, handle: Handle, trace: &str, request: Request) {
        let answer = match request {
            Request::Status => Ok(Reply::Cluster(self.view())),
            Request::Nodes => Ok(Reply::Nodes(self.node_views())),
            Request::Jobs => Ok(Reply::Jobs(self.job_views())),
            Request::Job(job) => self.looked_at(&job),
            Request::Plan => self.plan_view(),
            Request::Submit(submission) => self.submit(&submission, trace),
            Request::Cancel(job) => self.owner_asks(&job, JobAction::Cancel),
            Request::Pause(job) => self.owner_asks(&job, JobAction::Pause),
            Request::Resume(job) => self.owner_asks(&job, JobAction::Resume),
            Request::Drain { node, undo, force } => self.drain(&node, undo, force),
            Request::Reclaim { node, within } => self.reclaim(&node, within),
            Request::Risk { node, cause } => self.risk_told(node, cause),
            Request::Market(told) => self.market_told(told),
            Request::Migrate { from, to } => self.migrate(&from, to.as_ref()),
            Request::Shutdown => {
                self.shut_down();
                Ok(Reply::Done)
            }
            Request::Events { job, after, follow } => {
                return self.events(handle, job.as_ref(), after, follow);
            }
            Request::Trace { job, step } => {
                return self.trace(handle, job.as_ref(), step);
            }
            Request::HasFile(_)
            | Request::PutFile(_)
            | Request::Sample(_)
            | Request::Fetch(_)
            | Request::Backbone
            | Request::BackboneFile { .. }
            | Request::Join(_)
            | Request::Renew { .. } => Err(refusal(
                RefusalCode::Internal,
                "this request is answered by the shell of the coordinator: report a bug".into(),
            )),
        };
        self.answer(handle, answer);
    }

    fn answer(&mut self, handle: Handle, answer: Result<Reply, Refusal>) {
        let reply = answer.unwrap_or_else(Reply::Refused);
        self.effect(Effect::Answer {
            handle,
            reply,
            last: true,
        });
    }

    fn found(&self, job: &JobRef) -> Result<Reply, Refusal> {
        let job = self.book.ledger.find(job)?;
        Ok(Reply::Job(Box::new(self.job_view(job))))
    }

    /// A job with what it costs it to have company.
    fn looked_at(&mut self, job: &JobRef) -> Result<Reply, Refusal> {
        let job = self.book.ledger.find(job)?.clone();
        let view = JobView {
            tempo: self.tempo(&job),
            money: self.market.owed(job.id),
            samples: job
                .inputs
                .as_ref()
                .map_or_else(Vec::new, |inputs| inputs.samples.clone()),
            ..self.job_view(&job)
        };
        Ok(Reply::Job(Box::new(view)))
    }

    fn submit(&mut self, submission: &Submission, trace: &str) -> Result<Reply, Refusal> {
        if self.closing.is_some() {
            let message = "the cluster is being shut down: submit when it is up again".into();
            return Err(refusal(RefusalCode::Busy, message));
        }
        let (shape, limits) = (&self.settings.backbone.shape, &self.settings.limits);
        let ledger = &self.book.ledger;
        let job = match ledger.submit(submission, trace, shape, limits.live_jobs)? {
            Submitted::Known(job) => job,
            Submitted::New(job, accepted) => {
                self.may_ask(submission)?;
                let mut accepted = accepted;
                accepted.served_from = self.served_from(&account::tenant(&accepted.spec));
                self.record(Change::Submitted { job, accepted });
                self.effect(Effect::StartPreparing {
                    job,
                    submission: submission.clone(),
                });
                job
            }
        };
        self.found(&JobRef::Id(job))
    }

    fn owner_asks(&mut self, job: &JobRef, action: JobAction) -> Result<Reply, Refusal> {
        let ledger = &self.book.ledger;
        let job = ledger.find(job)?;
        let change = match action {
            JobAction::Pause => ledger.pause(job),
            JobAction::Resume => ledger.resume(job),
            JobAction::Cancel => ledger.cancel(job),
        }?;
        let id = job.id;
        if let Some(change) = change {
            self.record(change);
            self.act(id, action);
        }
        self.found(&JobRef::Id(id))
    }

    fn events(&mut self, handle: Handle, job: Option<&JobRef>, after: EventNumber, follow: bool) {
        let job = match job.map(|job| self.book.ledger.find(job)).transpose() {
            Ok(job) => job.map(|job| job.id),
            Err(refusal) => return self.answer(handle, Err(refusal)),
        };
        self.recalled(handle, job, after, follow);
    }

    /// Answers with what is in memory of the events after one.
    pub(super) fn recalled(
        &mut self,
        handle: Handle,
        job: Option<JobId>,
        after: EventNumber,
        follow: bool,
    ) {
        let effects = self.history.ask(handle, job, after, follow);
        self.out.effects.extend(effects);
    }

    fn drain(&mut self, node: &NodeName, undo: bool, force: bool) -> Result<Reply, Refusal> {
        let known = self.members.get(node).is_some()
            || self.book.draining.contains(node)
            || self.book.layout.place_of(node).is_some();
        if !known {
            return Err(never_came(node));
        }
        if self.book.draining.contains(node) != undo {
            return Ok(Reply::Done);
        }
        if !undo && !force {
            self.can_spare(node)?;
        }
        let seat = |m: &Move| m.goal().seats(node);
        let aimed_at = !undo && self.moving.as_ref().is_some_and(seat);
        let name = node.clone();
        self.record(Change::DrainAsked { node: name, undo });
        if aimed_at {
            self.step_move(Event::CallOff(format!("{node} shall be empty")));
        }
        Ok(Reply::Done)
    }

    fn migrate(&mut self, from: &NodeName, to: Option<&NodeName>) -> Result<Reply, Refusal> {
        if self.closing.is_some() {
            let message = "the cluster is being shut down: no stage moves any more".into();
            return Err(refusal(RefusalCode::Busy, message));
        }
        let Some((replica, _)) = self.book.layout.place_of(from) else {
            return Err(match self.members.get(from) {
                Some(_) => refusal(
                    RefusalCode::Conflict,
                    format!("node {from} holds no stage: `spotmux nodes` shows who does"),
                ),
                None => never_came(from),
            });
        };
        if let Some(moving) = &self.moving {
            let (epoch, progress) = (moving.goal().epoch, moving.progress());
            let message = format!(
                "the move to plan {epoch} is under way ({progress}): ask again when it is over"
            );
            return Err(refusal(RefusalCode::Busy, message));
        }
        if !self.is_at_work(replica) {
            let message = format!("replica {replica} is not at work: ask again when it is");
            return Err(refusal(RefusalCode::Busy, message));
        }
        if let Some(to) = to {
            self.may_take(to)?;
        }
        let target = self.migrated(from, to);
        let kept_out = || match self.kept_out() {
            out if out.is_empty() => String::new(),
            out => format!(" ({})", out.join("; ")),
        };
        let nowhere = |why| refusal(RefusalCode::NoCapacity, format!("{why}{}", kept_out()));
        let target =
            target.map_err(|why| nowhere(format!("the stage of {from} cannot move: {why}")))?;
        let whole = target.len() == self.book.layout.replicas.len();
        if !whole {
            return Err(nowhere(format!(
                "no node is free for the stage of {from}: start one or name one"
            )));
        }
        self.begin_move(target, format!("the stage of {from} was asked to move"));
        Ok(Reply::Done)
    }

    /// Whether a node can be the aim of a move.
    fn may_take(&self, to: &NodeName) -> Result<(), Refusal> {
        let bounds = &self.settings.bounds;
        let Some(node) = self.members.get(to) else {
            if self.book.layout.place_of(to).is_some() {
                let message = format!("node {to} holds a stage already, and has not come back yet");
                return Err(refusal(RefusalCode::Conflict, message));
            }
            return Err(never_came(to));
        };
        let taken = self.book.layout.place_of(to).is_some();
        let drained = self.book.draining.contains(to);
        if self.is_leaving(to) {
            let message = format!("node {to} leaves: name another");
            return Err(refusal(RefusalCode::Conflict, message));
        }
        if let Some(why) = self.cannot_hold(to, node).filter(|_| node.link.is_some()) {
            let message = format!("{why}: name another node, or ask again then");
            return Err(refusal(RefusalCode::Conflict, message));
        }
        let here = self.members.presence(self.now.steady, to, bounds) == Presence::Here;
        let why = match (here, taken, drained) {
            (false, _, _) => "is not connected",
            (_, true, _) => "holds a stage already",
            (_, _, true) => "shall be empty: undo its drain first",
            _ => return Ok(()),
        };
        Err(refusal(RefusalCode::Conflict, format!("node {to} {why}")))
    }

    fn trace(&mut self, handle: Handle, job: Option<&JobRef>, step: Option<u64>) {
        let job = match job.map(|job| self.book.ledger.find(job)).transpose() {
            Ok(job) => job,
            Err(refusal) => return self.answer(handle, Err(refusal)),
        };
        let replica = job.and_then(|job| job.replica.or(job.last_replica));
        let job = job.map(|job| job.id);
        let standing = self.book.layout.replicas.iter();
        let meant = standing.filter(|(n, _)| job.is_none() || Some(**n) == replica);
        let seats = meant.flat_map(|(_, standing)| &standing.seats);
        let nodes: BTreeSet<NodeName> = seats.map(|seat| seat.node.clone()).collect();
        let nodes: BTreeSet<_> = nodes
            .into_iter()
            .filter(|n| self.members.link(n).is_some())
            .collect();
        if nodes.is_empty() {
            let message = "no stage is here that could tell: the job has no replica now, or none is at work (`spotmux jobs`, \
                           `spotmux status`)";
            let refused = refusal(RefusalCode::Conflict, message.into());
            return self.answer(handle, Err(refused));
        }
        let number = self.relay.trace(handle, nodes.clone(), self.now.steady);
        for node in nodes {
            self.send(&node, Order::Trace { number, job, step });
        }
    }

    /// A text is continued where the job trains; where the fewest do, with the newest durable state of a job that
    /// trains nowhere, or without a job.
    pub(super) fn sample(&mut self, handle: Handle, job: Option<&JobRef>, mut order: SampleOrder) {
        let job: Option<&Job> = match job.map(|job| self.book.ledger.find(job)).transpose() {
            Ok(job) => job,
            Err(refusal) => return self.answer(handle, Err(refusal)),
        };
        if let Some(job) = job.filter(|job| job.replica.is_none() && job.durable == 0) {
            let message = format!(
                "job {} is {} and has no durable state: sample it once it took a step and stored it",
                job.name, job.state
            );
            return self.answer(handle, Err(refusal(RefusalCode::Conflict, message)));
        }
        if let Some(job) = job.filter(|job| job.state == JobState::Cancelling) {
            let message = sample_later(job);
            return self.answer(handle, Err(refusal(RefusalCode::Conflict, message)));
        }
        let working: Vec<u32> = self.book.layout.replicas.keys().copied().collect();
        let working = working.into_iter().filter(|n| self.is_at_work(*n));
        let fewest = working.min_by_key(|n| (self.book.ledger.on(*n).len(), *n));
        let replica = match job {
            Some(job) => job.replica.filter(|n| self.is_at_work(*n)).or(fewest),
            None => fewest,
        };
        let lead = replica.and_then(|replica| self.maker(replica));
        let Some(maker) = lead else {
            let message = "no replica is at work: ask again when one is (`spotmux status`)".into();
            return self.answer(handle, Err(refusal(RefusalCode::NoCapacity, message)));
        };
        order.job = job.map(|job| job.id);
        let trains = job.filter(|job| job.replica.is_some()).map(|job| job.id);
        let (node, epoch) = (maker.node.clone(), maker.epoch);
        order.number = self.relay.sample(handle, maker, trains, self.now.steady);
        let sample = order;
        self.send(&node, Order::Sample { epoch, sample });
    }
}
