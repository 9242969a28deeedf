//! Jobs on their way to the lead: what they start from is looked for beside training, of few at once in the order they
//! came, so that a store that does not answer keeps nobody from training.
//!
//! - `CO-1` Each order is answered once, and of no more than [`AT_ONCE`] jobs is looked at once what they start from.
//! - `CO-2` What is asked for a job meanwhile is done once it is here.
//! - `CO-3` While the lead starts no steps, no job comes.
//! - `CO-4` Jobs that are ordered while none trains, as after a move, begin together: the first round waits until each is here
//!   or refused, or for [`GATHERING`].
//! - `CO-5` Who comes later comes between turns: what was planned before it was ordered and no stage has is taken back, and while
//!   it is on its way, and until its first round is planned, no turn takes a long step whole.
//!
//! Without CO-4 the first job to come would train alone, and each of the others would wait for a whole round of those before
//! it: of `n` jobs the last for `1 + 2 + ... + (n - 1)` steps of one job.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use shared::ids::JobId;
use shared::life::Reason;
use shared::units::Micros;
use shared::wire::order::{JobAction, JobOrder};

use super::admission::{self, Looked};
use super::{AdmitError, JobNotice, Leading, ReasonClass, ReplicaError, name};
use crate::replica::lead::Admission;

/// Jobs of which is looked at once what they start from: each may have its rows and a state in memory.
pub(super) const AT_ONCE: usize = 4;

/// How long jobs that are here wait for others that were ordered with them.
pub(super) const GATHERING: Micros = Micros::of_millis(5_000);

/// Orders whose jobs are not here yet.
#[derive(Debug, Default)]
pub(super) struct Coming {
    /// Those that are not looked for yet, in their order.
    line: VecDeque<JobId>,
    orders: BTreeMap<JobId, JobOrder>,
    /// What was asked for them meanwhile.
    asked: BTreeMap<JobId, Vec<JobAction>>,
    /// Those that are being looked for.
    pub(super) looking: BTreeSet<JobId>,
    /// Since when jobs gather before the first round; none while jobs train.
    gathering: Option<Micros>,
}

impl Coming {
    /// Whether the first round is to wait for jobs. CO-4
    pub(super) fn gathers(&self, now: Micros) -> bool {
        // A clock that was set back is no reason to wait for it.
        let waits = |since: Micros| now >= since && now.since(since) < GATHERING;
        !self.orders.is_empty() && self.gathering.is_some_and(waits)
    }

    /// Whether any job is on its way.
    pub(super) fn expects(&self) -> bool {
        !self.orders.is_empty()
    }

    /// A round is begun: who comes from now on comes between turns.
    pub(super) fn begun(&mut self) {
        self.gathering = None;
    }
}

impl Leading<'_> {
    /// A job is ordered.
    pub(super) fn admit(&mut self, order: JobOrder) {
        let job = order.job;
        // An order that comes again finds its job here.
        if let Some((progress, total)) = self.lead.progress(&name(job)) {
            let (step, total) = (progress.step, total);
            self.notice(job, JobNotice::Admitted { step, total });
            return;
        }
        if self.lead.is_idle() {
            self.coming.gathering = Some((self.around.clock)());
        }
        // One that comes again before its job is the newer one.
        if self.coming.orders.insert(job, order).is_none() {
            self.coming.line.push_back(job);
        }
        self.look();
    }

    /// Something is asked for a job.
    pub(super) fn act(&mut self, job: JobId, action: JobAction) -> Result<(), ReplicaError> {
        if self.coming.orders.contains_key(&job) {
            // CO-2
            self.coming.asked.entry(job).or_default().push(action);
            return Ok(());
        }
        self.lead.act(&name(job), action)?;
        let events = self.lead.tend()?;
        self.tell(events)
    }

    /// Takes what was found, and looks for the next ones.
    pub(super) fn land(&mut self) -> Result<(), ReplicaError> {
        // CO-3
        while self.drained.is_none() {
            let Ok(Looked { job, outcome }) = self.inside.looked.try_recv() else {
                return Ok(());
            };
            self.coming.looking.remove(&job);
            let asked = self.coming.asked.remove(&job).unwrap_or_default();
            if let Some(order) = self.coming.orders.remove(&job) {
                match outcome {
                    Ok((admission, recovered)) => self.put(order, *admission, recovered)?,
                    Err(reason) => self.notice(job, JobNotice::Refused(reason)),
                }
                for action in asked {
                    self.act(job, action)?;
                }
            }
            self.look();
        }
        Ok(())
    }

    /// Looks for what the first in line start from. CO-1
    fn look(&mut self) {
        while self.coming.looking.len() < AT_ONCE {
            let Some(job) = self.coming.line.pop_front() else {
                return;
            };
            let Some(order) = self.coming.orders.get(&job) else {
                continue;
            };
            self.coming.looking.insert(job);
            let found = self.outside.looks.clone();
            admission::start(
                order.clone(),
                self.around.sources(),
                found,
                self.lead.bell(),
            );
        }
    }

    /// Puts a job on the replica.
    fn put(
        &mut self,
        order: JobOrder,
        admission: Admission,
        recovered: Option<u64>,
    ) -> Result<(), ReplicaError> {
        let (job, own) = (order.job, name(order.job));
        self.submissions.insert(own.clone(), order.trace.clone());
        // As the newest order has it.
        let admission = Admission {
            paused: order.paused,
            replicas: order.replicas,
            ..admission
        };
        match self.lead.admit(admission)? {
            Err(why) => {
                self.submissions.remove(&own);
                let class = match why {
                    AdmitError::Job(_) => ReasonClass::UserError,
                    AdmitError::State(_) => ReasonClass::System,
                };
                let message = why.to_string();
                self.notice(job, JobNotice::Refused(Reason { class, message }));
            }
            Ok((step, total)) => {
                // CO-5
                self.lead.make_room()?;
                let replicas = self.lead.sharing(&own);
                tracing::info!(trace = order.trace, job = %own, step, total, ?replicas, "job admitted");
                self.notice(job, JobNotice::Admitted { step, total });
                if let Some(step) = recovered {
                    self.notice(job, JobNotice::Recovered { step });
                }
                self.end_again(&own, step);
            }
        }
        let events = self.lead.tend()?;
        self.tell(events)
    }
}
