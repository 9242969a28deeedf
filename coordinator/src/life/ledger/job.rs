//! One job: its state, its progress, and the steps between its states.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use shared::ids::{JobId, JobName};
use shared::life::{JobState, Reason};
use shared::units::{Bytes, Micros};
use shared::wire::order::JobOrder;
use shared::wire::request::Submission;
use shared::wire::view::JobView;

use super::account::{self, Waiting};
use crate::record::{Accepted, Inputs};

/// A job as the ledger keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Given at submission.
    pub id: JobId,
    /// Its owner's name for it.
    pub name: JobName,
    /// Where it is.
    pub state: JobState,
    /// Why, when that needs saying.
    pub reason: Option<Reason>,
    /// Method and rank, in a word.
    pub method: String,
    /// With every default written out.
    pub spec: String,
    /// As it came.
    pub submission: Submission,
    /// Names it through all processes.
    pub trace: String,
    /// Most replicas that share its steps.
    #[serde(default = "crate::record::one")]
    pub replicas: u32,
    /// Whose it is; absent in snapshots of before, until a leadership begins.
    #[serde(default)]
    pub(super) tenant: Option<String>,
    /// Tokens charged to its tenant.
    #[serde(default)]
    pub(super) charged: u64,
    /// For how long it has waited for a place.
    #[serde(default)]
    pub waiting: Waiting,
    /// Once its files were read.
    pub inputs: Option<Inputs>,
    /// The replica that it is given to.
    pub replica: Option<u32>,
    /// The replica it was on when it ended.
    pub last_replica: Option<u32>,
    /// Whether the replica took it, in this placement.
    pub admitted: bool,
    /// Whether it was taken off its placement and did not yet go on.
    pub displaced: bool,
    /// Whether that was by a loss, and not by a move that was planned.
    #[serde(default)]
    pub lost: bool,
    /// Whether its replica is broken: what is still told of it is progress, but it does not run.
    pub stalled: bool,
    /// Whether it took a step in this placement.
    pub stepped: bool,
    /// Replicas without room for it.
    pub shunned: BTreeSet<u32>,
    /// How often in a row a replica could not take it for reasons of its own.
    pub refusals: u32,
    /// Steps taken.
    pub step: u64,
    /// Steps in all; 0 until a replica counted them.
    pub total: u64,
    /// Steps that no loss takes back.
    pub durable: u64,
    /// Tokens of the steps taken; what was charged for steps that were taken back stays charged.
    pub tokens: u64,
    /// Tokens by step, of those that a loss may take back; absent in snapshots of before.
    #[serde(default)]
    pub(super) marks: BTreeMap<u64, u64>,
    /// Training loss of the first step.
    pub first_loss: Option<f64>,
    /// Training loss of the last step.
    pub last_loss: Option<f64>,
    /// Held-out loss at the start.
    pub first_eval: Option<f64>,
    /// Last held-out loss and its step.
    pub last_eval: Option<(f64, u64)>,
    /// Of the last step.
    pub learning_rate: Option<f64>,
    /// How often it went on after a loss.
    pub recoveries: u32,
    /// How often it went on after a move that was planned.
    #[serde(default)]
    pub moves: u32,
    /// Of one that was set aside, steps of the newest state that is known to be good; its files are those of that state.
    #[serde(default)]
    pub good: Option<u64>,
    /// Key, sha256 and size of its adapter's files.
    pub files: Vec<(String, String, Bytes)>,
    /// When it was submitted.
    pub submitted: Micros,
    /// When it took its first step.
    pub started: Option<Micros>,
    /// When it ended.
    pub ended: Option<Micros>,
}

impl Job {
    pub(super) fn new(id: JobId, accepted: &Accepted, at: Micros) -> Self {
        Self {
            id,
            name: accepted.name.clone(),
            state: JobState::Queued,
            reason: None,
            method: accepted.method.clone(),
            spec: accepted.spec.clone(),
            submission: accepted.submission.clone(),
            trace: accepted.trace.clone(),
            replicas: accepted.replicas,
            tenant: Some(account::tenant(&accepted.spec)),
            charged: 0,
            waiting: Waiting::default(),
            inputs: None,
            replica: None,
            last_replica: None,
            admitted: false,
            displaced: false,
            lost: false,
            stalled: false,
            stepped: false,
            shunned: BTreeSet::new(),
            refusals: 0,
            step: 0,
            total: 0,
            durable: 0,
            tokens: 0,
            marks: BTreeMap::new(),
            first_loss: None,
            last_loss: None,
            first_eval: None,
            last_eval: None,
            learning_rate: None,
            recoveries: 0,
            moves: 0,
            good: None,
            files: Vec::new(),
            submitted: at,
            started: None,
            ended: None,
        }
    }

    /// What the first stage of its replica is told, and which replicas share its steps; nothing until its files were
    /// read.
    #[must_use]
    pub fn order(&self, replicas: Vec<u32>) -> Option<JobOrder> {
        let inputs = self.inputs.as_ref()?;
        Some(JobOrder {
            job: self.id,
            spec: self.spec.clone(),
            rows: inputs.rows.clone(),
            rows_sha256: inputs.rows_sha256.clone(),
            init_from: inputs.init_from.clone(),
            init_tokens: inputs.init_tokens.clone(),
            paused: matches!(self.state, JobState::Paused | JobState::Cancelling),
            trace: self.trace.clone(),
            replicas,
        })
    }

    /// Whose it is; empty where its owner named nobody.
    #[must_use]
    pub fn tenant(&self) -> &str {
        self.tenant.as_deref().unwrap_or_default()
    }

    /// It was trained on so many tokens by now: how many more than were charged. What is taken again was charged before.
    pub(super) fn charge(&mut self, tokens: u64) -> u64 {
        let gained = tokens.saturating_sub(self.charged);
        self.charged = self.charged.max(tokens);
        gained
    }

    /// One of a snapshot of before: what is to be charged for it.
    pub(super) fn adopt(&mut self) -> Option<u64> {
        if self.tenant.is_some() {
            return None;
        }
        self.tenant = Some(account::tenant(&self.spec));
        Some(self.charge(self.tokens))
    }

    /// Whether it waits for a place.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.state == JobState::Queued && self.inputs.is_some()
    }

    pub(super) fn note_waiting(&mut self, at: Micros) {
        let waits = self.waits();
        self.waiting.note(waits, at);
    }

    pub(super) fn place(&mut self, replica: u32) {
        self.replica = Some(replica);
        self.state = JobState::Provisioning;
        self.reason = None;
        self.admitted = false;
        self.stalled = false;
        self.stepped = false;
    }

    /// Its owner wants it to go on.
    pub(super) fn go_on(&mut self) {
        self.state = match self.replica {
            None => JobState::Queued,
            Some(_) if self.displaced => JobState::Recovering,
            Some(_) => JobState::Provisioning,
        };
    }

    /// Its owner wants it to end; where no replica has it, that is the end.
    pub(super) fn cancel(&mut self, at: Micros) {
        self.state = JobState::Cancelling;
        if self.replica.is_none() || self.displaced || self.stalled {
            self.end(JobState::Cancelled, at);
        }
    }

    /// Its replica broke: it waits there for a plan that mends it.
    pub(super) fn stall(&mut self, at: Micros) {
        self.lost |= self.admitted;
        self.displace(true, at);
        self.stalled = self.replica.is_some();
    }

    /// Its replica is lost or moved; it stays there and waits, or goes back to the queue.
    pub(super) fn displace(&mut self, stays: bool, at: Micros) {
        self.stalled = false;
        self.displaced |= self.admitted;
        self.admitted = false;
        self.stepped = false;
        if !stays {
            self.replica = None;
        }
        self.state = match self.state {
            JobState::Cancelling => return self.end(JobState::Cancelled, at),
            JobState::Paused => JobState::Paused,
            _ if !stays => JobState::Queued,
            _ if self.displaced => JobState::Recovering,
            _ => JobState::Provisioning,
        };
    }

    pub(super) fn fail(&mut self, reason: Reason, at: Micros) {
        self.reason = Some(reason);
        self.end(JobState::Failed, at);
    }

    pub(super) fn end(&mut self, state: JobState, at: Micros) {
        self.state = state;
        self.last_replica = self.replica.take();
        self.ended = Some(at);
        // It goes back to no step any more.
        self.marks.clear();
    }

    /// LG-2, LG-4.
    pub(super) fn is_sound(&self) -> bool {
        let placed = self.replica.is_some();
        match self.state {
            JobState::Queued | JobState::Succeeded | JobState::Cancelled | JobState::Failed => {
                !placed
            }
            JobState::Paused => true,
            _ => placed,
        }
    }

    pub(super) fn view(&self) -> JobView {
        JobView {
            id: self.id,
            name: self.name.clone(),
            state: self.state,
            reason: self.reason.clone(),
            method: self.method.clone(),
            step: self.step,
            total_steps: self.total,
            durable_step: self.durable,
            tokens: self.tokens,
            first_loss: self.first_loss,
            last_loss: self.last_loss,
            first_eval: self.first_eval,
            last_eval: self.last_eval,
            learning_rate: self.learning_rate,
            replica: self.replica,
            queue_position: None,
            recoveries: self.recoveries,
            moves: self.moves,
            submitted: self.submitted,
            started: self.started,
            ended: self.ended,
            spec: self.spec.clone(),
            trace: self.trace.clone(),
            tempo: None,
            money: None,
            samples: Vec::new(),
        }
    }
}
