//! Jobs that fit none of the replicas that stand: they wait while a node may be had that could take them, and are refused
//! when none may. CL-16
//!
//! Whether a job ever fits is dear to ask, and changes only with the seats and what their nodes offer: a verdict is kept
//! until then. CL-15

use std::collections::BTreeMap;

use shared::ids::{JobId, NodeName};
use shared::life::{Reason, ReasonClass};

use super::Coordinator;
use crate::life::admission::{Gate, Member};
use crate::life::layout::Seats;
use crate::plan::admit::Refusal;
use crate::record::Change;

/// Whether jobs ever fit the replicas that stand.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdicts {
    /// What they are about.
    about: (Seats, BTreeMap<NodeName, Member>),
    /// By job; nothing where it fits.
    of: BTreeMap<JobId, Option<Refusal>>,
    /// How often it was asked.
    asked: u64,
}

impl Verdicts {
    /// The replicas stand like this: what was said of others is forgotten.
    pub(super) fn stand(&mut self, seats: &Seats, members: &BTreeMap<NodeName, Member>) {
        if (&self.about.0, &self.about.1) != (seats, members) {
            self.of.clear();
            self.about = (seats.clone(), members.clone());
        }
    }

    /// How often it was asked, of all jobs.
    pub(super) fn asked(&self) -> u64 {
        self.asked
    }

    /// A job that is none any more.
    pub(super) fn forget(&mut self, job: JobId) {
        self.of.remove(&job);
    }

    /// Jobs of which it is known.
    pub(super) fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.of.keys().copied()
    }
}

impl Coordinator {
    /// Whether a job fits no replica, when all that are wanted are at work: it waits while a node may be had that
    /// could take it, and is refused when none may.
    pub(super) fn is_unfit(&mut self, gate: &Gate, job: JobId, open: usize) -> bool {
        if open < self.settings.layout.replicas as usize || self.lack.is_some() {
            return false;
        }
        let Some(refusal) = self.verdict(gate, job) else {
            return false;
        };
        let asked = format!("asked of {}: {refusal}", self.standing());
        if let Some(hope) = self.may_come(&refusal) {
            let why =
                format!("it fits no replica as they stand, and waits for a node: {hope}; {asked}");
            self.notes.waits.insert(job, why);
            return true;
        }
        let out = self.kept_out();
        let out = match out.is_empty() {
            true => String::new(),
            false => format!(" ({})", out.join("; ")),
        };
        let reason = Reason {
            class: ReasonClass::NoCapacity,
            message: format!(
                "it can never train on this cluster, and no node is known that could take it{out}; {asked}"
            ),
        };
        self.record(Change::Unfit { job, reason });
        true
    }

    /// Why a job can never train on the replicas that stand. CL-15
    fn verdict(&mut self, gate: &Gate, job: JobId) -> Option<Refusal> {
        if let Some(known) = self.notes.verdicts.of.get(&job) {
            return *known;
        }
        let verdict = gate.never(job);
        // Of what the planner does not know nothing is said yet.
        if self.notes.tasks.contains_key(&job) {
            self.notes.verdicts.of.insert(job, verdict);
            self.notes.verdicts.asked += 1;
        }
        verdict
    }
}
