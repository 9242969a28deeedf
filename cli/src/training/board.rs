//! Progress of all jobs: a bar for each where a person watches, plain lines elsewhere, nothing for programs.

use std::collections::BTreeMap;
use std::time::Duration;

use gpu_actor::train::event::{Ending, Event};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use shared::ids::JobName;

use super::prepare::Prepared;
use crate::clock::Stopwatch;
use crate::remark;
use crate::render::Output;

/// More jobs than this share one bar.
const MOST_BARS: usize = 16;
/// Form of a job's bar.
const JOB: &str = "{msg} [{bar:24}] {pos:>4}/{len:4} {prefix}";
/// Form of the bar of all jobs.
const ALL: &str = "{msg} [{bar:24}] {pos:>4}/{len:4} {prefix}, {eta} left";
/// Plain lines a job prints over its steps.
const LINES: u64 = 8;
/// Seconds without a plain line of a job after which its next step has one.
const QUIET: f64 = 20.0;

/// What is shown of a running file of jobs.
#[derive(Debug)]
pub(crate) struct Board {
    talks: bool,
    bars: Option<MultiProgress>,
    jobs: BTreeMap<JobName, Shown>,
    all: Option<ProgressBar>,
    clock: Stopwatch,
    tokens: u64,
}

#[derive(Debug)]
struct Shown {
    bar: Option<ProgressBar>,
    label: String,
    /// The last held-out loss, and the step it was measured at.
    eval: Option<(f64, u64)>,
    lines_said: u64,
    /// Seconds of the board's clock at which its last line was said.
    said_at: f64,
}

impl Board {
    /// A board for these jobs.
    pub(crate) fn new(output: &Output, jobs: &[Prepared]) -> Self {
        let mut board = Self {
            talks: output.talks(),
            bars: output
                .watched()
                .then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr())),
            jobs: BTreeMap::new(),
            all: None,
            clock: Stopwatch::start(),
            tokens: 0,
        };
        let methods = jobs.iter().map(|job| job.spec().adapter.in_words().len());
        let method_width = methods.max().unwrap_or(0);
        let width = jobs
            .iter()
            .map(|job| job.name().len())
            .max()
            .unwrap_or(0)
            .max(3);
        let running: Vec<&Prepared> = jobs.iter().filter(|job| !job.done).collect();
        let alone = running.len() <= MOST_BARS;
        for job in &running {
            let label = format!(
                "{:width$}  {:method_width$}",
                job.name(),
                job.spec().adapter.in_words()
            );
            let bar = board
                .bars
                .as_ref()
                .filter(|_| alone)
                .map(|bars| bars.add(bar(job.total, job.steps_taken(), JOB)));
            if let Some(bar) = &bar {
                bar.set_message(label.clone());
            }
            let shown = Shown {
                bar,
                label,
                eval: None,
                lines_said: 0,
                said_at: 0.0,
            };
            board.jobs.insert(job.spec().name.clone(), shown);
        }
        let total: u64 = running.iter().map(|job| job.total).sum();
        let taken: u64 = running.iter().map(|job| job.steps_taken()).sum();
        board.all = board.bars.as_ref().map(|bars| {
            let all = bars.add(bar(total, taken, ALL));
            all.set_message(format!("{:width$}  {:method_width$}", "all", ""));
            all.set_prefix("starting");
            all.enable_steady_tick(Duration::from_millis(250));
            all
        });
        board
    }

    /// Shows what happened.
    pub(crate) fn show(&mut self, event: &Event) {
        if let Event::Step { tokens, .. } = event {
            self.tokens += tokens;
            if let Some(all) = &self.all {
                all.inc(1);
                all.set_prefix(format!(
                    "{:.0} tok/s",
                    self.tokens as f64 / self.clock.seconds().max(1e-9)
                ));
            }
        }
        let Some(shown) = self.jobs.get_mut(event.job()) else {
            return;
        };
        if let Some(line) = shown.note(event, self.clock.seconds()) {
            self.say(&line);
        }
    }

    /// Says something above the bars.
    pub(crate) fn say(&self, line: &str) {
        match &self.bars {
            _ if !self.talks => {}
            Some(bars) => drop(bars.println(remark::harmless(line))),
            None => remark::say(line),
        }
    }

    /// Tokens per second so far.
    pub(crate) fn rate(&self) -> f64 {
        self.tokens as f64 / self.clock.seconds().max(1e-9)
    }

    /// Takes the bars away.
    pub(crate) fn clear(&self) {
        if let Some(bars) = &self.bars {
            // Nothing depends on whether the terminal obeys.
            let _ = bars.clear();
        }
    }
}

impl Shown {
    /// Takes in an event at so many seconds of the board's clock; gives a line to say, if there is one.
    fn note(&mut self, event: &Event, now: f64) -> Option<String> {
        match event {
            Event::Step {
                step, total, loss, ..
            } => {
                let eval = self
                    .eval
                    .map(|(eval, at)| format!("  held-out {eval:.3} at step {at}"))
                    .unwrap_or_default();
                if let Some(bar) = &self.bar {
                    bar.set_position(*step);
                    bar.set_prefix(format!("loss {loss:.3}{eval}"));
                    return None;
                }
                let due = step * LINES / total.max(&1);
                let silent = now - self.said_at >= QUIET;
                if due <= self.lines_said && step != total && !silent {
                    return None;
                }
                (self.lines_said, self.said_at) = (due, now);
                Some(format!(
                    "{}  step {step}/{total}  loss {loss:.3}{eval}",
                    self.label
                ))
            }
            Event::Evaluation { loss, step, .. } => {
                self.eval = Some((*loss, *step));
                None
            }
            Event::Quarantined { step, reason, .. } => {
                self.end();
                Some(format!(
                    "{}  set aside at step {step}: {reason}",
                    self.label
                ))
            }
            Event::Finished { step, why, .. } => {
                self.end();
                match why {
                    Ending::Complete => None,
                    Ending::EarlyStopping => Some(format!(
                        "{}  stopped early at step {step}: the held-out loss no longer falls",
                        self.label
                    )),
                }
            }
            Event::CheckpointDue { .. } => None,
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
    }
}

fn bar(total: u64, taken: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    // The bar is hidden until it joins the others.
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
    bar.set_style(style);
    bar.set_position(taken);
    bar
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn step(step: u64, total: u64) -> Event {
        Event::Step {
            job: JobName::new("a").unwrap(),
            step,
            total,
            loss: 1.0,
            accuracy: 0.5,
            learning_rate: 1e-3,
            gradient_norm: 1.0,
            tokens: 10,
            trained_tokens: 5,
        }
    }

    /// Of many slow steps one has a line now and then, however far the next eighth is.
    #[test]
    fn a_slow_job_is_not_silent() {
        let mut shown = Shown {
            bar: None,
            label: "a".into(),
            eval: None,
            lines_said: 0,
            said_at: 0.0,
        };
        let mut said = |at, now| shown.note(&step(at, 800), now).is_some();
        assert!(!said(1, 5.0) && !said(2, 19.0));
        assert!(said(3, 21.0), "20 s without a line");
        assert!(!said(4, 40.0) && said(5, 41.0));
        assert!(!said(99, 42.0) && said(100, 43.0), "an eighth of the steps");
        assert!(!said(101, 62.0) && said(102, 63.0));
    }

    #[test]
    fn a_held_out_loss_is_shown_with_its_step() {
        let mut shown = Shown {
            bar: None,
            label: "a  LoRA r=2".into(),
            eval: None,
            lines_said: 0,
            said_at: 0.0,
        };
        let job = JobName::new("a").unwrap();
        let (loss, accuracy, tokens) = (2.5, 0.5, 10);
        assert_eq!(
            shown.note(
                &Event::Evaluation {
                    job: job.clone(),
                    step: 4,
                    loss,
                    accuracy,
                    tokens
                },
                0.0
            ),
            None
        );
        let line = shown.note(&step(8, 8), 0.0);
        let expected = "a  LoRA r=2  step 8/8  loss 1.000  held-out 2.500 at step 4";
        assert_eq!(line.as_deref(), Some(expected));
    }
}
