//! Events of a cluster as those of a training session, so that both are shown alike.

use std::collections::BTreeMap;

use gpu_actor::train::event::{Ending, Event};
use serde::Deserialize;
use shared::ids::{JobId, JobName};
use shared::units::Micros;
use shared::wire::view::EventView;

/// A job as its events are told.
#[derive(Clone, Debug)]
struct Job {
    name: JobName,
    total: u64,
    step: u64,
    tokens: u64,
    ended: bool,
}

/// What was heard of all jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    jobs: BTreeMap<JobId, Job>,
    begun: Option<Micros>,
    last: Option<Micros>,
}

/// Numbers of an event; what it has not is 0.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Numbers {
    step: u64,
    loss: f64,
    accuracy: f64,
    gradient_norm: f64,
    learning_rate: f64,
    tokens: u64,
    early: bool,
}

impl Heard {
    /// Listens for a job of so many steps.
    pub(crate) fn expect(&mut self, id: JobId, name: JobName, total: u64) {
        let (step, tokens, ended) = (0, 0, false);
        let job = Job {
            name,
            total,
            step,
            tokens,
            ended,
        };
        self.jobs.insert(id, job);
    }

    /// Takes in an event; gives what a session would have told.
    pub(crate) fn take(&mut self, view: &EventView) -> Option<Event> {
        let job = self.jobs.get_mut(&view.job?)?;
        let numbers: Numbers = serde_json::from_str(&view.data).unwrap_or_default();
        let name = job.name.clone();
        match view.kind.as_str() {
            "job_admitted" => {
                self.begun.get_or_insert(view.at);
                None
            }
            "step" => {
                // After a loss, steps are taken again.
                let tokens = numbers.tokens.saturating_sub(job.tokens);
                job.tokens = job.tokens.max(numbers.tokens);
                job.step = job.step.max(numbers.step);
                self.last = Some(view.at);
                Some(Event::Step {
                    job: name,
                    step: numbers.step,
                    total: job.total,
                    loss: numbers.loss,
                    accuracy: numbers.accuracy,
                    learning_rate: numbers.learning_rate,
                    gradient_norm: numbers.gradient_norm,
                    tokens,
                    trained_tokens: 0,
                })
            }
            "evaluation" => Some(Event::Evaluation {
                job: name,
                step: numbers.step,
                loss: numbers.loss,
                accuracy: numbers.accuracy,
                tokens: 0,
            }),
            "training_finished" => {
                self.last = Some(view.at);
                let why = if numbers.early {
                    Ending::EarlyStopping
                } else {
                    Ending::Complete
                };
                let step = numbers.step;
                Some(Event::Finished {
                    job: name,
                    step,
                    why,
                })
            }
            "job_succeeded" | "job_cancelled" => {
                job.ended = true;
                None
            }
            "job_failed" => {
                job.ended = true;
                Some(Event::Quarantined {
                    job: name,
                    step: job.step,
                    reason: view.message.clone(),
                })
            }
            _ => None,
        }
    }

    /// Whether nothing more comes of any job.
    pub(crate) fn all_ended(&self) -> bool {
        self.jobs.values().all(|job| job.ended)
    }

    /// Steps taken and steps in all.
    pub(crate) fn steps(&self) -> (u64, u64) {
        let sum = |of: fn(&Job) -> u64| self.jobs.values().map(of).sum();
        (sum(|job| job.step), sum(|job| job.total))
    }

    /// Tokens passed, and seconds from the first job's arrival on the backbone to the last step.
    pub(crate) fn effort(&self) -> (u64, f64) {
        let tokens = self.jobs.values().map(|job| job.tokens).sum();
        let seconds = match (self.begun, self.last) {
            (Some(begun), Some(last)) => last.since(begun).seconds(),
            _ => 0.0,
        };
        (tokens, seconds)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::wire::view::Level;

    use super::*;
    use crate::shown::samples;

    fn event(kind: &str, at: u64, data: &str) -> EventView {
        let mut event = samples::event(at, Level::Info, kind, "so it was");
        event.at = Micros(at * 1_000_000);
        event.data = data.into();
        event
    }

    #[test]
    fn a_job_is_followed_to_its_end_and_a_step_taken_again_counts_once() {
        let mut heard = Heard::default();
        let id = event("step", 1, "{}").job.unwrap();
        heard.expect(id, JobName::new("a").unwrap(), 2);
        assert!(heard.take(&event("job_admitted", 1, "{}")).is_none());
        let tokens = |told: Option<Event>| match told {
            Some(Event::Step { tokens, .. }) => tokens,
            other => panic!("{other:?}"),
        };
        let first = r#"{"step":1,"loss":2.5,"tokens":100}"#;
        assert_eq!(tokens(heard.take(&event("step", 2, first))), 100);
        assert_eq!(tokens(heard.take(&event("step", 3, first))), 0);
        let second = r#"{"step":2,"loss":2.0,"tokens":150}"#;
        assert_eq!(tokens(heard.take(&event("step", 5, second))), 50);
        assert_eq!((heard.steps(), heard.effort()), ((2, 2), (150, 4.0)));
        let finished = heard.take(&event("training_finished", 5, r#"{"step":2,"early":true}"#));
        let why = Ending::EarlyStopping;
        assert!(matches!(finished, Some(Event::Finished { why: told, .. }) if told == why));
        assert!(!heard.all_ended());
        heard.take(&event("job_succeeded", 6, "{}"));
        assert!(heard.all_ended());
    }

    #[test]
    fn an_event_of_no_job_of_ours_is_none() {
        let mut heard = Heard::default();
        assert!(heard.take(&event("step", 1, "{}")).is_none());
        heard.expect(JobId(3), JobName::new("a").unwrap(), 2);
        let mut other = event("node_joined", 1, "{}");
        other.job = None;
        assert!(heard.take(&other).is_none());
    }
}
