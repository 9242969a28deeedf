//! How fast jobs go: the time between the ends of two optimizer steps, in the company that a job has.
//!
//! Remembered beside the book and not in it: after a restart it is learnt anew. What a job waits for between two steps for
//! other reasons (a pause, a move, a loss) is left out: its next step only begins a new series.

use std::collections::{BTreeMap, VecDeque};

use shared::ids::JobId;
use shared::units::Micros;
use shared::wire::notice::JobNotice;

/// Times kept of a job.
const KEPT: usize = 8;

/// The last steps of a job.
#[derive(Clone, Debug)]
struct Beat {
    step: u64,
    at: Micros,
}

/// Of all jobs that train.
#[derive(Clone, Debug, Default)]
pub(super) struct Tempos {
    last: BTreeMap<JobId, Beat>,
    times: BTreeMap<JobId, VecDeque<Micros>>,
}

impl Tempos {
    /// Takes what a replica tells of a job, by a clock that never jumps.
    pub(super) fn note(&mut self, job: JobId, notice: &JobNotice, now: Micros) {
        match notice {
            JobNotice::Step { step, .. } => self.stepped(job, *step, now),
            JobNotice::Evaluation { .. }
            | JobNotice::Durable { .. }
            | JobNotice::Salvaged { .. } => {}
            JobNotice::Finished { .. }
            | JobNotice::Exported { .. }
            | JobNotice::Cancelled { .. }
            | JobNotice::Quarantined { .. } => self.forget(job),
            _ => {
                self.last.remove(&job);
            }
        }
    }

    fn stepped(&mut self, job: JobId, step: u64, now: Micros) {
        let before = self.last.insert(job, Beat { step, at: now });
        let Some(before) = before.filter(|before| before.step < step) else {
            return;
        };
        let each = now.since(before.at).0 / (step - before.step);
        let times = self.times.entry(job).or_default();
        times.push_back(Micros(each));
        if times.len() > KEPT {
            times.pop_front();
        }
    }

    /// A job that ended has no tempo.
    pub(super) fn forget(&mut self, job: JobId) {
        self.last.remove(&job);
        self.times.remove(&job);
    }

    /// Jobs whose steps are known.
    pub(super) fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.last.keys().chain(self.times.keys()).copied()
    }

    /// The median time of a job's last steps, and of how many.
    pub(super) fn median(&self, job: JobId) -> Option<(Micros, u32)> {
        let mut times: Vec<Micros> = self.times.get(&job)?.iter().copied().collect();
        times.sort_unstable();
        let middle = times.get((times.len().checked_sub(1)?) / 2)?;
        Some((*middle, times.len() as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(step: u64) -> JobNotice {
        JobNotice::Step {
            step,
            loss: 1.0,
            accuracy: 0.0,
            gradient_norm: 1.0,
            learning_rate: 0.1,
            tokens: step,
        }
    }

    #[test]
    fn the_median_of_the_last_steps_counts_and_no_pause() {
        let (mut tempos, job) = (Tempos::default(), JobId(1));
        assert_eq!(tempos.median(job), None);
        for number in 1..=5 {
            tempos.note(job, &step(number), Micros(number * 100));
        }
        assert_eq!(tempos.median(job), Some((Micros(100), 4)));
        // Two steps in one word are two steps.
        tempos.note(job, &step(7), Micros(900));
        assert_eq!(tempos.median(job), Some((Micros(100), 5)));
        // A pause of an hour is no step.
        tempos.note(job, &JobNotice::Paused { step: 7 }, Micros(901));
        tempos.note(job, &JobNotice::Resumed, Micros(3_600_000_000));
        tempos.note(job, &step(8), Micros(3_600_000_300));
        assert_eq!(tempos.median(job), Some((Micros(100), 5)));
        // Company came: soon its times are the ones that count.
        for number in 9..=16 {
            tempos.note(job, &step(number), Micros(3_600_000_300 + 250 * number));
        }
        assert_eq!(tempos.median(job), Some((Micros(250), 8)));
        tempos.note(
            job,
            &JobNotice::Finished {
                step: 16,
                early: false,
            },
            Micros(9),
        );
        assert_eq!(tempos.median(job), None);
    }
}
