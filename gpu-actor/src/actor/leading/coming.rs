//! Jobs on their way to the lead: what they start from is looked for beside training, one after another in the order they
//! came, so that a store that does not answer keeps nobody from training.
//!
//! - `CO-1` Jobs are admitted in the order in which they were ordered, each answered once.
//! - `CO-2` What is asked for a job meanwhile is done once it is here.
//! - `CO-3` While the lead starts no steps, no job comes.

use std::collections::{BTreeMap, VecDeque};

use shared::ids::JobId;
use shared::life::Reason;
use shared::wire::order::{JobAction, JobOrder};

use super::admission::{self, Looked};
use super::{AdmitError, JobNotice, Leading, ReasonClass, ReplicaError, name};
use crate::replica::lead::Admission;

/// Orders whose jobs are not here yet.
#[derive(Debug, Default)]
pub(super) struct Coming {
    /// In their order; what the first starts from is being looked for.
    line: VecDeque<JobId>,
    orders: BTreeMap<JobId, JobOrder>,
    /// What was asked for them meanwhile.
    asked: BTreeMap<JobId, Vec<JobAction>>,
    /// Whether the first is being looked for.
    looking: bool,
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

    /// Takes what was found, and looks for the next.
    pub(super) fn land(&mut self) -> Result<(), ReplicaError> {
        // CO-3
        while self.drained.is_none() {
            let Ok(Looked { job, outcome }) = self.inside.looked.try_recv() else {
                return Ok(());
            };
            self.coming.looking = false;
            self.coming.line.retain(|other| *other != job);
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

    /// Looks for what the first in line starts from.
    fn look(&mut self) {
        if self.coming.looking {
            return;
        }
        let first = self.coming.line.front();
        let Some(order) = first.and_then(|job| self.coming.orders.get(job)) else {
            return;
        };
        self.coming.looking = true;
        let found = self.outside.looks.clone();
        admission::start(
            order.clone(),
            self.around.sources(),
            found,
            self.lead.bell(),
        );
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
