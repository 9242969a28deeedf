//! What a cluster that has ended keeps: of each job under way the last durable step, read of the journal. Nothing is said
//! to be durable for any other reason: a node that was stopped, cut off or killed has told nobody what it had.

use coordinator::life::ledger::Ledger;
use coordinator::store::sqlite::Sqlite;
use serde_json::{Value, json};
use shared::config::load::Loaded;
use shared::ids::{JobId, JobName};
use shared::life::JobState;

use crate::exit::{Exit, Failure};
use crate::render::{Align, Table};

/// Jobs that lost nothing and are shown, at most.
const SHOWN: usize = 20;

/// A job under way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UnderWay {
    id: JobId,
    name: JobName,
    state: JobState,
    step: u64,
    durable: u64,
}

impl UnderWay {
    /// Whether it goes on at the next start; one that is being cancelled only ends then.
    fn goes_on(&self) -> bool {
        self.state != JobState::Cancelling
    }

    /// Steps that were told, are wanted, and are not known to be durable.
    fn lost(&self) -> u64 {
        match self.goes_on() {
            true => self.step.saturating_sub(self.durable),
            false => 0,
        }
    }
}

/// All jobs under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept(Vec<UnderWay>);

impl Kept {
    /// Of a cluster that has ended; of one that never began, nothing.
    ///
    /// # Errors
    /// [`Exit::Internal`] when the journal cannot be read: then nobody knows.
    pub(crate) fn read(loaded: &Loaded) -> Result<Self, Failure> {
        let path = loaded.path_of(&loaded.config.coordinator.journal);
        if !path.exists() {
            return Ok(Self::default());
        }
        let unknown = |error: &dyn std::fmt::Display| {
            let message = format!("the cluster has ended; what is durable is not known: {error}");
            Failure::new(Exit::Internal, message)
                .hint("the next spotmux up goes on with the newest sound state of each job")
        };
        let held = Sqlite::read(&path).map_err(|error| unknown(&error))?;
        let book = held.book().map_err(|error| unknown(&error))?;
        Ok(Self::of(&book.ledger))
    }

    fn of(ledger: &Ledger) -> Self {
        let under_way = ledger.jobs().filter(|job| !job.state.is_final());
        Self(
            under_way
                .map(|job| UnderWay {
                    id: job.id,
                    name: job.name.clone(),
                    state: job.state,
                    step: job.step,
                    durable: job.durable,
                })
                .collect(),
        )
    }

    /// Whether no job was under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How a command ends that ended the cluster.
    pub(crate) fn exit(&self) -> Exit {
        match self.0.iter().any(|job| job.lost() > 0) {
            true => Exit::NotDurable,
            false => Exit::Done,
        }
    }

    /// The same in a sentence.
    pub(crate) fn sentence(&self) -> String {
        let lost: Vec<&UnderWay> = self.0.iter().filter(|job| job.lost() > 0).collect();
        let all = self.0.iter().filter(|job| job.goes_on()).count();
        match (all, lost.len()) {
            (0, _) if self.0.is_empty() => "no job was under way".into(),
            (0, _) => "all jobs under way were being cancelled".into(),
            (1, 0) => "all that was told of the job under way is durable".into(),
            (all, 0) => format!("all that was told of {all} jobs under way is durable"),
            (all, some) => {
                let steps: u64 = lost.iter().map(|job| job.lost()).sum();
                format!(
                    "{steps} steps of {some} of {all} jobs under way are NOT known to be durable: those that are not are taken \
                     again at the next start"
                )
            }
        }
    }

    /// Jobs with their durable steps: each that lost some, and the first [`SHOWN`] of the others. Empty when no job was under
    /// way.
    pub(crate) fn table(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let (l, r) = (Align::Left, Align::Right);
        let mut table = Table::new(&[
            ("id", l),
            ("job", l),
            ("state", l),
            ("step", r),
            ("durable", r),
            ("lost", r),
        ]);
        let mut whole = 0usize;
        for job in &self.0 {
            whole += usize::from(job.lost() == 0);
            if job.lost() == 0 && whole > SHOWN {
                continue;
            }
            table.row([
                job.id.to_string(),
                job.name.to_string(),
                job.state.to_string(),
                job.step.to_string(),
                job.durable.to_string(),
                job.lost().to_string(),
            ]);
        }
        match whole.saturating_sub(SHOWN) {
            0 => table.text(),
            more => format!("{}{more} more lost nothing\n", table.text()),
        }
    }

    /// The same for programs.
    pub(crate) fn told(&self) -> Value {
        let job = |job: &UnderWay| {
            json!({
                "id": job.id.to_string(),
                "name": job.name,
                "state": job.state,
                "step": job.step,
                "durable_step": job.durable,
                "lost_steps": job.lost(),
            })
        };
        self.0.iter().map(job).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn job(id: u64, step: u64, durable: u64) -> UnderWay {
        UnderWay {
            id: JobId(id),
            name: JobName::new(format!("job-{id}")).unwrap(),
            state: JobState::Running,
            step,
            durable,
        }
    }

    #[test]
    fn of_a_long_queue_each_that_lost_steps_is_shown_and_of_the_rest_few() {
        let mut many = Kept((1..=2_000).map(|id| job(id, 3, 3)).collect());
        many.0.push(job(9_000, 7, 4));
        let text = many.table();
        assert_eq!(text.lines().count(), 1 + SHOWN + 1 + 1, "{text}");
        assert!(
            text.contains("j9000") && text.ends_with("1980 more lost nothing\n"),
            "{text}"
        );
    }

    #[test]
    fn only_what_the_journal_has_is_called_durable() {
        let none = Kept::default();
        assert_eq!((none.exit(), none.table()), (Exit::Done, String::new()));
        let well = Kept(vec![job(1, 7, 7)]);
        assert_eq!(well.exit(), Exit::Done);
        let kept = Kept(vec![job(1, 7, 7), job(2, 9, 4)]);
        assert_eq!(kept.exit(), Exit::NotDurable);
        let said = kept.sentence();
        assert!(
            said.starts_with("5 steps of 1 of 2 jobs under way are NOT known to be durable"),
            "{said}"
        );
        assert_eq!(kept.told()[1]["durable_step"], 4);
        assert_eq!(kept.told()[1]["lost_steps"], 5);
        assert_eq!(
            kept.table().lines().count(),
            well.table().lines().count() + 1
        );
    }

    #[test]
    fn what_a_cancelled_job_knew_is_not_missed() {
        let cancelled = UnderWay {
            state: JobState::Cancelling,
            ..job(1, 9, 4)
        };
        let only = Kept(vec![cancelled.clone()]);
        assert_eq!(only.exit(), Exit::Done);
        assert_eq!(only.sentence(), "all jobs under way were being cancelled");
        assert_eq!(only.told()[0]["lost_steps"], 0);
        let kept = Kept(vec![cancelled, job(2, 7, 7)]);
        assert_eq!(kept.exit(), Exit::Done);
        let said = kept.sentence();
        assert!(said.starts_with("all that was told of the job"), "{said}");
    }

    #[test]
    fn a_journal_that_is_none_is_not_taken_for_all_is_well() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.toml");
        std::fs::write(&path, "").unwrap();
        let loaded = shared::config::load::load(&path, [], &[]).unwrap();
        assert_eq!(Kept::read(&loaded).unwrap(), Kept::default());
        let journal = loaded.path_of(&loaded.config.coordinator.journal);
        std::fs::create_dir_all(journal.parent().unwrap()).unwrap();
        std::fs::write(&journal, "a letter, and not a journal").unwrap();
        let failure = Kept::read(&loaded).unwrap_err();
        assert!(
            failure.message().contains("is not known"),
            "{}",
            failure.message()
        );
    }
}
