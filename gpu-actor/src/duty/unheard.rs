//! Notices of jobs that the coordinator has not said to have heard: numbered, in their order, told again until it has.

use std::collections::{BTreeMap, VecDeque};

use shared::ids::JobId;
use shared::wire::notice::{JobNotice, Notice};

/// Steps of jobs that may be forgotten when more notices wait than this.
pub(super) const MOST_WAITING: usize = 65_536;

/// What waits to be heard.
#[derive(Clone, Debug)]
pub(super) struct Unheard {
    waiting: VecDeque<(u64, Notice)>,
    /// Numbers of the notices that told the end of a job.
    ends: BTreeMap<u64, JobId>,
    next: u64,
}

impl Unheard {
    /// Nothing was told yet.
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            ends: BTreeMap::new(),
            next: 1,
        }
    }

    /// The number of the first that waits, or of the next one.
    pub(super) fn first(&self) -> u64 {
        self.waiting.front().map_or(self.next, |(own, _)| *own)
    }

    /// The number of the next one.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// What waits, in the order of its numbers.
    pub(super) fn notices(&self) -> impl Iterator<Item = &Notice> {
        self.waiting.iter().map(|(_, notice)| notice)
    }

    /// Keeps a notice that was made with the number [`next`](Self::next); `ended` is the job whose end it tells.
    pub(super) fn keep(&mut self, notice: Notice, ended: Option<JobId>) {
        if let Some(job) = ended {
            self.ends.insert(self.next, job);
        }
        self.waiting.push_back((self.next, notice));
        self.next += 1;
        if self.waiting.len() > MOST_WAITING {
            self.forget_steps();
        }
    }

    /// All up to a number were heard: the jobs whose end that was.
    pub(super) fn heard(&mut self, number: u64) -> impl Iterator<Item = JobId> + use<> {
        while self.waiting.front().is_some_and(|(own, _)| *own <= number) {
            self.waiting.pop_front();
        }
        let later = self.ends.split_off(&number.saturating_add(1));
        std::mem::replace(&mut self.ends, later).into_values()
    }

    /// Ends of jobs are nobody's any more; their notices are told all the same.
    pub(super) fn forget_ends(&mut self) {
        self.ends.clear();
    }

    /// Keeps of each job's steps only the newest, in place of which the others may be forgotten: it bears the sums.
    /// What is left gets new numbers, so that none is missing; what was heard before and comes again changes nothing.
    fn forget_steps(&mut self) {
        let mut newest: BTreeMap<JobId, u64> = BTreeMap::new();
        for (number, notice) in &self.waiting {
            if let Some(job) = step_of(notice) {
                newest.insert(job, *number);
            }
        }
        self.waiting.retain(|(number, notice)| {
            step_of(notice).is_none_or(|job| newest.get(&job) == Some(number))
        });
        for (own, notice) in &mut self.waiting {
            if let Some(job) = self.ends.remove(own) {
                self.ends.insert(self.next, job);
            }
            *own = self.next;
            self.next += 1;
            if let Notice::Job { number, .. } = notice {
                *number = *own;
            }
        }
    }
}

fn step_of(notice: &Notice) -> Option<JobId> {
    match notice {
        Notice::Job {
            job,
            notice: JobNotice::Step { .. },
            ..
        } => Some(*job),
        _ => None,
    }
}
