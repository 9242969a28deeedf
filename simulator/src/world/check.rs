//! What must hold, looked at after everything that happens.

use std::collections::BTreeMap;

use coordinator::book::Book;
use coordinator::life::layout::{Layout, Standing};
use coordinator::life::ledger::Job;
use coordinator::record::{Change, Record};
use shared::ids::{JobId, PlanEpoch, Term};
use shared::life::{JobState, ReasonClass};
use shared::plan::{Replica, Seat};
use shared::wire::notice::JobNotice;
use shared::wire::request::JobRef;

use crate::artifacts::undisturbed;
use crate::world::World;
use crate::world::arranging::Arranged;

/// Something that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which invariant.
    pub id: &'static str,
    /// What was seen.
    pub seen: String,
}

/// A job as its history tells it.
#[derive(Clone, Copy, Debug, Default)]
struct History {
    step: u64,
    durable: u64,
    total: u64,
    ended: bool,
    /// Whether its replica broke since it was last taken up.
    lost: bool,
}

/// What was seen so far.
#[derive(Debug, Default)]
pub(crate) struct Check {
    pub(crate) violations: Vec<Violation>,
    pub(crate) plans: u64,
    pub(crate) troubles: [u64; 4],
    /// What went wrong, by kind.
    pub(crate) faults: BTreeMap<&'static str, u64>,
    /// How often a first stage was told to store often.
    pub(crate) hastened: u64,
    pub(crate) arranged: Arranged,
    epoch: PlanEpoch,
    jobs: BTreeMap<JobId, History>,
    leads: BTreeMap<(u32, PlanEpoch), (usize, u64)>,
    terms: BTreeMap<(usize, u64), Term>,
    posts: BTreeMap<(usize, u64), PlanEpoch>,
}

/// SIM-12
fn is_linked_well((number, own): (&u32, &Standing), layout: &Layout) -> bool {
    let cut = |seats: &[Seat]| -> Vec<_> { seats.iter().map(Seat::layers).collect() };
    own.linked.iter().all(|other| {
        layout.replicas.get(other).is_some_and(|other| {
            let both = other.linked.contains(number) && other.since == own.since;
            both && cut(&other.seats) == cut(&own.seats)
        })
    })
}

impl Check {
    pub(crate) fn fail(&mut self, id: &'static str, seen: String) {
        self.violations.push(Violation { id, seen });
    }

    /// Counts what a record tells of trouble.
    fn count(&mut self, change: &Change) {
        let which = match change {
            Change::NodeLeft { .. } => 0,
            Change::NodeLost { reason, .. } if reason.starts_with("its device") => 1,
            Change::MoveCalledOff { reason, .. } if reason.contains("durable: the store") => 2,
            Change::Heard {
                notice: JobNotice::Refused(reason),
                ..
            } if reason.class == ReasonClass::System => 3,
            _ => return,
        };
        self.troubles[which] += 1;
    }

    /// A record is in the journal, and in the book.
    pub(crate) fn record(&mut self, record: &Record, book: &Book) {
        self.count(&record.change);
        match &record.change {
            Change::Heard { job, notice, .. } => {
                let replica = book.ledger.get(*job).and_then(|job| job.replica);
                let broken = replica.is_some_and(|replica| book.broken.contains(&replica));
                self.heard(*job, notice, broken);
            }
            Change::InForce { layout } => {
                if layout.epoch <= self.epoch {
                    self.fail("SIM-4", format!("{} after {}", layout.epoch, self.epoch));
                }
                if !layout
                    .replicas
                    .iter()
                    .all(|one| is_linked_well(one, layout))
                {
                    self.fail("SIM-12", format!("links of {layout:?}"));
                }
                self.epoch = layout.epoch;
                self.plans += 1;
            }
            Change::Submitted { job, .. } if self.jobs.contains_key(job) => {
                self.fail("SIM-1", format!("{job} was submitted twice"));
            }
            Change::Broken { replica, .. } => {
                for job in book.ledger.on(*replica) {
                    self.jobs.entry(job).or_default().lost = true;
                }
            }
            _ => {}
        }
        let runs = |job: &&Job| {
            let broken = job
                .replica
                .is_some_and(|replica| book.broken.contains(&replica));
            broken && job.state == JobState::Running
        };
        let job = record.change.job().and_then(|job| book.ledger.get(job));
        if let Some(job) = job.filter(runs) {
            self.fail("SIM-11", format!("{} runs on a broken replica", job.id));
        }
        if let Some(job) = record.change.job() {
            let ended = book.ledger.get(job).is_some_and(|job| job.state.is_final());
            self.jobs.entry(job).or_default().ended = ended;
        }
    }

    fn heard(&mut self, job: JobId, notice: &JobNotice, broken: bool) {
        let history = self.jobs.entry(job).or_default();
        let before = *history;
        if before.ended {
            return self.fail("SIM-2", format!("{job} ended, and then: {notice:?}"));
        }
        match notice {
            JobNotice::Admitted { step, total } => {
                history.step = *step;
                history.total = *total;
                history.lost = broken;
            }
            JobNotice::Recovered { step } => history.step = *step,
            JobNotice::Step { step, .. } => history.step = *step,
            JobNotice::Durable { step, .. } => history.durable = before.durable.max(*step),
            _ => {}
        }
        let wrong = match notice {
            JobNotice::Admitted { step, .. } | JobNotice::Recovered { step } => {
                let fell = *step < before.step && !before.lost;
                let fell = fell && matches!(notice, JobNotice::Admitted { .. });
                let early = (*step < before.durable).then_some("SIM-3");
                early.or_else(|| fell.then_some("SIM-10"))
            }
            JobNotice::Step { step, .. } => (*step != before.step + 1).then_some("SIM-2"),
            JobNotice::Durable { step, .. } => (*step > before.step).then_some("SIM-2"),
            JobNotice::Exported { files } => {
                let whole = format!("{:016x}", undisturbed(job, before.total));
                let same = files.first().is_some_and(|file| file.1 == whole);
                (!same || before.step != before.total).then_some("SIM-7")
            }
            _ => None,
        };
        if let Some(id) = wrong {
            self.fail(id, format!("{job} at {before:?}, and then: {notice:?}"));
        }
    }

    /// A process obeys an order of a term.
    pub(crate) fn obeyed(&mut self, node: usize, process: u64, term: Term) {
        let highest = self.terms.entry((node, process)).or_default();
        let before = *highest;
        *highest = before.max(term);
        if term < before {
            self.fail("SIM-5", format!("node {node} obeyed {term} after {before}"));
        }
    }

    /// A process takes a seat.
    pub(crate) fn leads(
        &mut self,
        replica: &Replica,
        epoch: PlanEpoch,
        stage: u32,
        node: usize,
        process: u64,
    ) {
        let before = self
            .posts
            .insert((node, process), epoch)
            .unwrap_or_default();
        if epoch <= before {
            self.fail("SIM-4", format!("node {node} took {epoch} after {before}"));
        }
        if stage > 0 {
            return;
        }
        let known = self.leads.insert((replica.number, epoch), (node, process));
        if known.is_some_and(|(of, _)| of != node) {
            let number = replica.number;
            self.fail(
                "SIM-5",
                format!("replica {number} has two leads under {epoch}"),
            );
        }
    }
}

impl World {
    /// When all is over.
    pub(crate) fn check_end(&mut self) {
        if !self.check.violations.is_empty() {
            return;
        }
        let mut found = Vec::new();
        let book = &self.shadow;
        for client in &self.clients {
            let Ok(job) = book.ledger.find(&JobRef::Name(client.name.clone())) else {
                found.push(("SIM-1", format!("{} is not in the journal", client.name)));
                continue;
            };
            let expected = match job.state {
                JobState::Succeeded => client.sick.is_none(),
                JobState::Cancelled => client.asked_for_end(),
                JobState::Failed => client.sick.is_some(),
                _ => false,
            };
            if !expected {
                let (state, step, reason) = (job.state, job.step, &job.reason);
                let seen = format!(
                    "{} is {state} at step {step} of {}, replica {:?}: {reason:?}; plan: {}; broken: {:?}",
                    client.name, client.steps, job.replica, book.layout, book.broken
                );
                found.push(("SIM-6", seen));
            }
        }
        let mut again = Book::default();
        let whole = self
            .journal
            .all()
            .iter()
            .try_for_each(|record| again.apply(record));
        let text = serde_json::to_string(book).unwrap_or_default();
        let read: Option<Book> = serde_json::from_str(&text).ok();
        if whole.is_err() || again != *book || read.as_ref() != Some(book) {
            found.push((
                "SIM-8",
                "the journal, replayed or written, is another state".into(),
            ));
        }
        for (id, seen) in found {
            self.check.fail(id, seen);
        }
    }
}
