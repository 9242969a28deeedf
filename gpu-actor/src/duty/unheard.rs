//! Notices of jobs that the coordinator has not said to have heard: numbered, in their order, told again until it has.
//!
//! - `UN-1` No more than [`WINDOW`] of them are told and not heard: what the coordinator may take its time to write finds room
//!   on both sides, however much waits.
//! - `UN-2` A number that was told once is never another notice's.
//! - `UN-3` What is not numbered is told behind the notices that were there before it.
//! - `UN-4` Of heartbeats only the newest is held back: nothing that time alone makes gathers behind a coordinator that does not hear.
//! - `UN-5` Where very much waits, what was never told and is said again by a newer notice of the same job is forgotten: steps, whose
//!   newest bears the sums, and states in the store, of which the newest counts. That is looked for again only when as many more wait,
//!   so a notice costs the same however long the coordinator is away.

use std::collections::{BTreeMap, VecDeque};

use shared::ids::JobId;
use shared::wire::notice::{JobNotice, Notice};

/// Steps and states of jobs may be forgotten when more notices wait than this.
pub(super) const MOST_WAITING: usize = 65_536;

/// Notices that may be told and not heard. The coordinator hears them one by one, and may say so of all at once: those orders
/// must fit among those that wait for the network, as must the notices on this side.
pub(super) const WINDOW: u64 = 512;

/// What waits to be heard.
#[derive(Clone, Debug)]
pub(super) struct Unheard {
    waiting: VecDeque<(u64, Notice)>,
    /// More than so many, and what is said again is forgotten.
    bound: usize,
    /// Numbers of the notices that told the end of a job.
    ends: BTreeMap<u64, JobId>,
    next: u64,
    /// The number after the last that was told on this connection.
    cursor: u64,
    /// The number after the last that was ever told.
    told: u64,
    /// Notices without a number, each with the number after the last that goes before it.
    behind: VecDeque<(u64, Notice)>,
}

impl Unheard {
    /// Nothing was told yet.
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            bound: MOST_WAITING,
            ends: BTreeMap::new(),
            next: 1,
            cursor: 1,
            told: 1,
            behind: VecDeque::new(),
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

    /// A connection begins: all is told on it from the first on, and what has no number is as good as said.
    pub(super) fn begin(&mut self) {
        self.cursor = self.first();
        self.behind.clear();
    }

    /// Keeps a notice without a number for its turn, if others go before it; else gives it back.
    pub(super) fn hold_back(&mut self, notice: Notice) -> Option<Notice> {
        if self.cursor >= self.next && self.behind.is_empty() {
            return Some(notice);
        }
        // UN-4
        if matches!(notice, Notice::Heartbeat { .. }) {
            let beats = |held: &Notice| matches!(held, Notice::Heartbeat { .. });
            self.behind.retain(|(_, held)| !beats(held));
        }
        // UN-3
        self.behind.push_back((self.next, notice));
        None
    }

    /// What is to be told now, in its order.
    pub(super) fn due(&mut self) -> Vec<Notice> {
        let mut due = Vec::new();
        let first = self.first();
        self.cursor = self.cursor.max(first);
        // UN-1
        let end = self.next.min(first + WINDOW);
        loop {
            while self
                .behind
                .front()
                .is_some_and(|(at, _)| *at <= self.cursor)
            {
                due.extend(self.behind.pop_front().map(|(_, notice)| notice));
            }
            if self.cursor >= end {
                break;
            }
            let at = usize::try_from(self.cursor - first).unwrap_or(usize::MAX);
            due.extend(self.waiting.get(at).map(|(_, notice)| notice.clone()));
            self.cursor += 1;
        }
        self.told = self.told.max(self.cursor);
        due
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.waiting.len()
    }

    /// Keeps a notice that was made with the number [`next`](Self::next); `ended` is the job whose end it tells.
    pub(super) fn keep(&mut self, notice: Notice, ended: Option<JobId>) {
        if let Some(job) = ended {
            self.ends.insert(self.next, job);
        }
        self.waiting.push_back((self.next, notice));
        self.next += 1;
        // UN-5
        if self.waiting.len() > self.bound {
            self.forget_older();
            self.bound = MOST_WAITING.max(self.waiting.len().saturating_mul(2));
        }
    }

    /// All up to a number were heard: the jobs whose end that was.
    pub(super) fn heard(&mut self, number: u64) -> impl Iterator<Item = JobId> + use<> {
        while self.waiting.front().is_some_and(|(own, _)| *own <= number) {
            self.waiting.pop_front();
        }
        self.bound = (self.bound).min(MOST_WAITING.max(self.waiting.len().saturating_mul(2)));
        let later = self.ends.split_off(&number.saturating_add(1));
        std::mem::replace(&mut self.ends, later).into_values()
    }

    /// Ends of jobs are nobody's any more; their notices are told all the same.
    pub(super) fn forget_ends(&mut self) {
        self.ends.clear();
    }

    /// Keeps of each job's steps and states that were never told only the newest. What is left of them gets new numbers, so that none
    /// is missing.
    fn forget_older(&mut self) {
        // UN-2
        let told = self.told;
        let mut newest: BTreeMap<(JobId, bool), u64> = BTreeMap::new();
        for (number, notice) in &self.waiting {
            if let Some(said) = said_again(notice) {
                newest.insert(said, *number);
            }
        }
        self.waiting.retain(|(number, notice)| {
            let said = said_again(notice);
            *number < told || said.is_none_or(|said| newest.get(&said) == Some(number))
        });
        self.next = told;
        let mut ends = self.ends.split_off(&told);
        for (own, notice) in self.waiting.iter_mut().filter(|(own, _)| *own >= told) {
            if let Some(job) = ends.remove(own) {
                self.ends.insert(self.next, job);
            }
            *own = self.next;
            self.next += 1;
            if let Notice::Job { number, .. } = notice {
                *number = *own;
            }
        }
        for (at, _) in &mut self.behind {
            *at = self.next;
        }
    }
}

/// The job of which a newer notice of its kind says all that this one does, and whether it is of the store.
fn said_again(notice: &Notice) -> Option<(JobId, bool)> {
    let Notice::Job { job, notice, .. } = notice else {
        return None;
    };
    match notice {
        JobNotice::Step { .. } => Some((*job, false)),
        JobNotice::Durable { .. } => Some((*job, true)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::ids::PlanEpoch;
    use shared::units::Micros;

    use super::*;

    fn keep(unheard: &mut Unheard, notice: JobNotice) {
        let told = Notice::Job {
            number: unheard.next(),
            epoch: PlanEpoch(1),
            job: JobId(1),
            at: Micros(0),
            notice,
        };
        unheard.keep(told, None);
    }

    #[test]
    fn un_4_of_heartbeats_only_the_newest_waits() {
        let mut unheard = Unheard::new();
        step(&mut unheard);
        let beat = |tokens| Notice::Heartbeat {
            device_age: Micros(0),
            memory_used: shared::units::Bytes(0),
            tokens,
        };
        for tokens in 0..1_000 {
            assert_eq!(unheard.hold_back(beat(tokens)), None);
        }
        let due = unheard.due();
        assert_eq!((due.len(), due.last()), (2, Some(&beat(999))));
    }

    fn step(unheard: &mut Unheard) {
        let step = unheard.next();
        let notice = JobNotice::Step {
            step,
            loss: 1.0,
            accuracy: 0.0,
            gradient_norm: 1.0,
            learning_rate: 1.0,
            tokens: step,
        };
        keep(unheard, notice);
    }

    fn numbers(told: &[Notice]) -> Vec<u64> {
        let numbers = told.iter().map(|notice| match notice {
            Notice::Job { number, .. } => *number,
            _ => 0,
        });
        numbers.collect()
    }

    const OTHER: Notice = Notice::Spans {
        number: 1,
        spans: Vec::new(),
    };

    #[test]
    fn un_1_un_3_no_more_are_told_than_may_be_unheard_and_others_keep_their_turn() {
        let mut unheard = Unheard::new();
        for _ in 0..WINDOW + 2 {
            step(&mut unheard);
        }
        unheard.begin();
        assert_eq!(unheard.hold_back(OTHER), None);
        step(&mut unheard);
        assert_eq!(numbers(&unheard.due()), (1..=WINDOW).collect::<Vec<_>>());
        assert!(unheard.due().is_empty());
        let _ = unheard.heard(1);
        assert_eq!(numbers(&unheard.due()), [WINDOW + 1]);
        let _ = unheard.heard(WINDOW);
        assert_eq!(numbers(&unheard.due()), [WINDOW + 2, 0, WINDOW + 3]);
        assert_eq!(unheard.hold_back(OTHER), Some(OTHER));
        // On the next connection all that is unheard comes again.
        unheard.begin();
        assert_eq!(unheard.first(), WINDOW + 1);
        assert_eq!(
            numbers(&unheard.due()),
            [WINDOW + 1, WINDOW + 2, WINDOW + 3]
        );
    }

    #[test]
    fn un_2_what_was_told_keeps_its_number_when_steps_are_forgotten() {
        let mut unheard = Unheard::new();
        let admitted = JobNotice::Admitted { step: 0, total: 9 };
        keep(&mut unheard, admitted);
        step(&mut unheard);
        let before = unheard.due();
        assert_eq!(numbers(&before), [1, 2]);
        // The journal may have both: what says so is lost with the connection.
        for _ in 1..MOST_WAITING {
            step(&mut unheard);
        }
        assert_eq!((unheard.count(), unheard.next()), (3, 4));
        unheard.begin();
        let again = unheard.due();
        assert_eq!(numbers(&again), [1, 2, 3]);
        assert_eq!(again[..2], before);
    }

    #[test]
    fn un_5_states_do_not_gather_and_what_stays_is_not_walked_at_every_notice() {
        let mut unheard = Unheard::new();
        for number in 0..4 * MOST_WAITING as u64 {
            step(&mut unheard);
            let bytes = shared::units::Bytes(1);
            let durable = |step| JobNotice::Durable { step, bytes };
            keep(&mut unheard, durable(number));
            assert!(unheard.count() <= MOST_WAITING);
        }
        // Rows that were held out are no one another's.
        let mut unheard = Unheard::new();
        let (mut walks, mut bound) = (0, unheard.bound);
        for step in 0..8 * MOST_WAITING as u64 {
            let (loss, accuracy) = (1.0, 0.0);
            let measured = JobNotice::Evaluation {
                step,
                loss,
                accuracy,
            };
            keep(&mut unheard, measured);
            walks += u32::from(std::mem::replace(&mut bound, unheard.bound) != unheard.bound);
        }
        assert_eq!((walks, unheard.count()), (3, 8 * MOST_WAITING));
        let _ = unheard.heard(8 * MOST_WAITING as u64);
        assert_eq!(unheard.bound, MOST_WAITING);
    }
}
