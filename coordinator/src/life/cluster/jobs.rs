//! Jobs: given to replicas, told of by replicas, and set right when a first stage comes back.

use std::collections::{BTreeMap, BTreeSet};

use shared::ids::{JobId, NodeName, PlanEpoch};
use shared::life::{JobState, Reason};
use shared::wire::notice::{Held, JobNotice};
use shared::wire::order::{JobAction, JobOrder, Order};

use super::Coordinator;
use super::gate::{ASKED, Asked};
use super::reprieve::Told;
use crate::life::ledger::Job;
use crate::record::{Change, Inputs, Source, finite};

/// About so many bytes of jobs go into an order, which must fit into a message (`limits.frame_mib`, 1 at least).
const PORTION: usize = 1 << 18;

/// Jobs in their order, in portions that fit into a message: each of a job is bounded where it is submitted.
fn portions(jobs: Vec<JobOrder>) -> Vec<Vec<JobOrder>> {
    /// Of numbers, names, keys and hashes.
    const REST: usize = 1 << 12;
    let bytes = |order: &JobOrder| order.spec.len() + 5 * order.init_tokens.len() + REST;
    let (mut portions, mut filled) = (Vec::new(), PORTION);
    for order in jobs {
        let more = bytes(&order);
        if filled.saturating_add(more) > PORTION {
            portions.push(Vec::new());
            filled = 0;
        }
        filled += more;
        if let Some(portion) = portions.last_mut() {
            portion.push(order);
        }
    }
    portions
}

impl Coordinator {
    pub(super) fn prepared(&mut self, job: JobId, outcome: Result<Inputs, Reason>) {
        let waits = self.book.ledger.get(job);
        if !waits.is_some_and(|job| !job.state.is_final() && job.inputs.is_none()) {
            return;
        }
        let outcome = outcome.and_then(|inputs| match self.cannot_pay(job, &inputs) {
            Some(reason) => Err(reason),
            None => Ok(inputs),
        });
        self.record(match outcome {
            Ok(inputs) => Change::Prepared { job, inputs },
            Err(reason) => Change::Unfit { job, reason },
        });
    }

    /// Gives waiting jobs to the replicas with the fewest, those that admission lets begin.
    pub(super) fn assign(&mut self) {
        if self.closing.is_some() || self.book.ledger.waiting().next().is_none() {
            return;
        }
        let mut load = self.open_replicas();
        let open = load.len();
        let mut waiting = self.may_begin();
        let mut gate = match self.gate(&load, &waiting) {
            Asked::Open => None,
            Asked::Answered => return,
            Asked::Gate(gate) => {
                waiting = gate.order(&waiting);
                Some(gate)
            }
        };
        let (mut given, mut refused) = (BTreeMap::<u32, Vec<JobId>>::new(), 0);
        for (at, id) in waiting.iter().copied().enumerate() {
            if refused >= ASKED {
                self.rest_waits(waiting[at - 1], &waiting[at..]);
                break;
            }
            let before = self.notes.verdicts.asked();
            let unfit = gate
                .as_ref()
                .is_some_and(|gate| self.is_unfit(gate, id, open));
            let fresh = self.notes.verdicts.asked() > before;
            if unfit {
                refused += usize::from(fresh);
                continue;
            }
            let rooms = self.rooms(id, &load);
            let replica = match &mut gate {
                Some(gate) => self.choose(gate, id, &rooms),
                None => rooms.first().copied(),
            };
            let Some(replica) = replica else {
                refused += usize::from(fresh || gate.is_some() && !rooms.is_empty());
                continue;
            };
            *load.entry(replica).or_default() += 1;
            self.record(Change::Placed { job: id, replica });
            given.entry(replica).or_default().push(id);
        }
        for (replica, jobs) in given {
            self.admit(replica, &jobs);
        }
    }

    /// Jobs that wait, without those that have to wait before they are tried again. CL-10
    fn may_begin(&self) -> Vec<JobId> {
        let now = self.now.steady;
        let waiting = self.book.ledger.waiting().map(|job| job.id);
        waiting
            .filter(|job| self.notes.reprieves.may_try(*job, now))
            .collect()
    }

    /// Replicas that have room for a job by number, those with the fewest jobs first.
    fn rooms(&self, job: JobId, load: &BTreeMap<u32, usize>) -> Vec<u32> {
        let most = self.settings.limits.jobs_per_replica as usize;
        let Some(job) = self.book.ledger.get(job) else {
            return Vec::new();
        };
        let room = load.iter();
        let mut room: Vec<(usize, u32)> = room
            .filter(|(n, jobs)| **jobs < most && !job.shunned.contains(n))
            .map(|(n, jobs)| (*jobs, *n))
            .collect();
        room.sort_unstable();
        room.into_iter().map(|(_, n)| n).collect()
    }

    /// Replicas that take jobs, and how many they have. CL-4
    fn open_replicas(&self) -> BTreeMap<u32, usize> {
        let moving = self.moving.as_ref();
        let changes = moving.map(|moving| moving.goal().changes(&self.book.layout));
        let stays = |n: &u32| !changes.as_ref().is_some_and(|changes| changes.contains(n));
        let numbers = self.book.layout.replicas.keys().copied();
        let open = numbers.filter(|n| self.is_at_work(*n) && stays(n));
        open.map(|n| (n, self.book.ledger.on(n).len())).collect()
    }

    pub(super) fn admit(&mut self, replica: u32, jobs: &[JobId]) {
        let Some((lead, epoch)) = self.lead(replica) else {
            return;
        };
        let jobs = jobs.iter().filter_map(|job| self.book.ledger.get(*job));
        let layout = &self.book.layout;
        let order = |job: &Job| job.order(layout.sharing(replica, job.replicas));
        let jobs: Vec<JobOrder> = jobs.filter_map(order).collect();
        if jobs.is_empty() {
            return;
        }
        for order in &jobs {
            self.notes.reprieves.tried(order.job, self.now.steady);
            self.tell_sharing(order.job);
        }
        for jobs in portions(jobs) {
            self.send(&lead, Order::Admit { epoch, jobs });
        }
        // Jobs that are shared bring replicas whose memory may be short.
        self.tell_level(replica);
    }

    pub(super) fn act(&mut self, job: JobId, action: JobAction) {
        let replica = self.book.ledger.get(job).and_then(|job| job.replica);
        if let Some(replica) = replica.filter(|replica| self.is_at_work(*replica)) {
            self.act_on(replica, job, action);
        }
    }

    fn act_on(&mut self, replica: u32, job: JobId, action: JobAction) {
        if let Some((lead, epoch)) = self.lead(replica) {
            self.send(&lead, Order::Act { epoch, job, action });
        }
    }

    /// Sets right what a first stage trains, given what it says it does.
    pub(super) fn reconcile(&mut self, replica: u32, held: Option<&Held>) {
        let jobs = held.iter().flat_map(|held| &held.jobs);
        let here: BTreeSet<JobId> = jobs.map(|(job, _)| *job).collect();
        let halted = |job: &JobId| held.is_some_and(|held| held.paused.contains(job));
        let ours = self.book.ledger.on(replica);
        let missing: Vec<JobId> = ours
            .iter()
            .copied()
            .filter(|job| !here.contains(job))
            .collect();
        self.admit(replica, &missing);
        for job in here.iter().filter(|job| !ours.contains(job)) {
            self.act_on(replica, *job, JobAction::Cancel);
        }
        for job in ours {
            let Some(state) = self.book.ledger.get(job).map(|job| job.state) else {
                continue;
            };
            let known = here.contains(&job);
            let action = match state {
                JobState::Cancelling => Some(JobAction::Cancel),
                JobState::Paused if known && !halted(&job) => Some(JobAction::Pause),
                JobState::Paused => None,
                _ if halted(&job) => Some(JobAction::Resume),
                _ => None,
            };
            if let Some(action) = action {
                self.act_on(replica, job, action);
            }
        }
        self.tell_arrangement(replica);
    }

    /// A numbered notice about a job. CL-2
    pub(super) fn told_of_job(
        &mut self,
        from: Source,
        epoch: PlanEpoch,
        job: JobId,
        mut notice: JobNotice,
    ) {
        if !self.is_of_lead(&from.node, epoch, job) {
            self.ignored += 1;
            return;
        }
        finite(&mut notice);
        let replica = self.book.ledger.get(job).and_then(|job| job.replica);
        let told = Told::of(&notice);
        self.notes.tempos.note(job, &notice, self.now.steady);
        self.record(Change::Heard { from, job, notice });
        self.note_reprieve(job, &told);
        let failed = |id| {
            let job = self.book.ledger.get(id);
            job.is_some_and(|job| job.state == JobState::Failed && job.admitted)
        };
        if let Some(replica) = replica.filter(|_| failed(job)) {
            self.act_on(replica, job, JobAction::Cancel);
        }
    }

    /// Whether a node leads the replica of a job under this epoch. TR-3
    fn is_of_lead(&self, node: &NodeName, epoch: PlanEpoch, job: JobId) -> bool {
        let job = self.book.ledger.get(job);
        let replica = job.and_then(|job| job.replica);
        let lead = replica.and_then(|replica| self.lead(replica));
        lead.is_some_and(|(lead, since)| lead == *node && since == epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(job: u64, bytes: usize) -> JobOrder {
        JobOrder {
            job: JobId(job),
            spec: "s".repeat(bytes),
            rows: String::new(),
            rows_sha256: String::new(),
            init_from: None,
            init_tokens: Vec::new(),
            paused: false,
            trace: String::new(),
            replicas: Vec::new(),
        }
    }

    #[test]
    fn no_order_is_larger_than_a_message_and_no_job_is_left_out() {
        for bytes in [0, 10_000, PORTION, 2 * PORTION] {
            let jobs: Vec<JobOrder> = (1..=40).map(|job| order(job, bytes)).collect();
            let portions = portions(jobs.clone());
            let size = |jobs: &Vec<JobOrder>| jobs.iter().map(|job| job.spec.len()).sum::<usize>();
            assert!(portions.iter().all(|jobs| size(jobs) <= PORTION.max(bytes)));
            assert!(!portions.iter().any(Vec::is_empty));
            assert_eq!(portions.concat(), jobs);
        }
        assert!(portions(Vec::new()).is_empty());
    }
}
