//! Steps of jobs with their times: how fast all were together, and how long a job stood still.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use shared::units::Micros;
use shared::wire::view::EventView;

/// An optimizer step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Whose.
    pub(crate) job: String,
    /// When it was taken; any fixed start.
    pub(crate) at: Micros,
    /// Its number, from 1.
    pub(crate) step: u64,
    /// Tokens of the job so far.
    pub(crate) tokens: u64,
}

/// Steps among the events of a cluster.
pub(crate) fn of_events(events: &[EventView]) -> Vec<Step> {
    let steps = events.iter().filter(|event| event.kind == "step");
    let step = |event: &EventView| {
        let data: Value = serde_json::from_str(&event.data).ok()?;
        Some(Step {
            job: event.job?.to_string(),
            at: event.at,
            step: data["step"].as_u64()?,
            tokens: data["tokens"].as_u64()?,
        })
    };
    steps.filter_map(step).collect()
}

/// Steps among the lines of `spotmux train --json`, which tell the seconds of each round.
pub(crate) fn of_lines(text: &str) -> Vec<Step> {
    let (mut steps, mut now) = (Vec::new(), 0.0);
    let mut tokens: BTreeMap<String, u64> = BTreeMap::new();
    let mut of_round = BTreeSet::new();
    for line in text.lines() {
        let told: Value = serde_json::from_str(line).unwrap_or_default();
        if told["event"] != "step" {
            continue;
        }
        let (Some(job), Some(step), Some(own), Some(seconds)) = (
            told["job"].as_str(),
            told["step"].as_u64(),
            told["tokens"].as_u64(),
            told["seconds"].as_f64(),
        ) else {
            continue;
        };
        // A round has one step of a job at most.
        if of_round.is_empty() || of_round.contains(job) {
            of_round.clear();
            now += seconds;
        }
        of_round.insert(job.to_owned());
        let tokens = tokens.entry(job.to_owned()).or_default();
        *tokens += own;
        steps.push(Step {
            job: job.to_owned(),
            at: Micros((now * 1e6) as u64),
            step,
            tokens: *tokens,
        });
    }
    steps
}

fn by_job(steps: &[Step]) -> BTreeMap<&str, Vec<&Step>> {
    let mut jobs: BTreeMap<&str, Vec<&Step>> = BTreeMap::new();
    for step in steps {
        jobs.entry(&step.job).or_default().push(step);
    }
    jobs
}

/// Tokens per second of all jobs together, from when each has taken its first step; none when nothing came after.
pub(crate) fn rate(steps: &[Step]) -> Option<f64> {
    let jobs = by_job(steps);
    let first = |steps: &Vec<&Step>| steps.first().map(|step| step.at);
    let begin = jobs.values().filter_map(first).max()?;
    let end = steps.iter().map(|step| step.at).max()?;
    let tokens = |steps: &Vec<&Step>| {
        let before = steps.iter().rev().find(|step| step.at <= begin)?;
        Some(steps.last()?.tokens - before.tokens)
    };
    let tokens: u64 = jobs.values().filter_map(tokens).sum();
    (end > begin).then(|| tokens as f64 / seconds(end.since(begin)))
}

fn seconds(Micros(micros): Micros) -> f64 {
    micros as f64 / 1e6
}

/// How a job's steps were spaced around an instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stall {
    /// From the last step before to the first one after.
    pub(crate) gap: f64,
    /// Between two steps, as a rule: the median of the others.
    pub(crate) usual: f64,
}

impl Stall {
    /// Seconds lost.
    pub(crate) fn lost(self) -> f64 {
        (self.gap - self.usual).max(0.0)
    }
}

/// Of the job that stood still longest around an instant; none when no job has steps on both sides.
pub(crate) fn stall(steps: &[Step], at: Micros) -> Option<Stall> {
    let of_job = |steps: &Vec<&Step>| {
        let (mut gap, mut others) = (None, Vec::new());
        for pair in steps.windows(2) {
            let [before, after] = pair else { continue };
            let between = seconds(after.at.since(before.at));
            if before.at <= at && at < after.at {
                gap = Some(between);
            } else {
                others.push(between);
            }
        }
        others.sort_by(f64::total_cmp);
        let usual = *others.get(others.len() / 2)?;
        Some(Stall { gap: gap?, usual })
    };
    let stalls = by_job(steps)
        .into_values()
        .filter_map(|steps| of_job(&steps));
    stalls.max_by(|a, b| a.lost().total_cmp(&b.lost()))
}

/// Seconds of training that all jobs lost together over a move: from the last step before it was asked for to when each
/// has taken a step under the new plan, less what these tokens take at the pace of before. None when there is no pace.
pub(crate) fn lost(steps: &[Step], asked: Micros, in_force: Micros) -> Option<f64> {
    let before: Vec<Step> = steps
        .iter()
        .filter(|step| step.at <= asked)
        .cloned()
        .collect();
    let pace = rate(&before)?;
    let jobs = by_job(steps);
    let begin = before.iter().map(|step| step.at).max()?;
    let ends = jobs.values().map(|steps| {
        let under = steps.iter().find(|step| step.at > in_force)?;
        Some(under.at)
    });
    let end = ends.collect::<Option<Vec<Micros>>>()?.into_iter().max()?;
    let tokens_by = |steps: &[&Step], at: Micros| {
        let last = steps.iter().rev().find(|step| step.at <= at);
        last.map_or(0, |step| step.tokens)
    };
    let trained: u64 = jobs
        .values()
        .map(|steps| tokens_by(steps, end).saturating_sub(tokens_by(steps, begin)))
        .sum();
    Some((seconds(end.since(begin)) - trained as f64 / pace).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(job: &str, step: u64, at: u64, tokens: u64) -> Step {
        Step {
            job: job.into(),
            at: Micros(at * 1_000_000),
            step,
            tokens,
        }
    }

    #[test]
    fn speed_is_from_when_every_job_has_begun() {
        let steps = [
            step("a", 1, 1, 10),
            step("b", 1, 3, 100),
            step("a", 2, 3, 20),
            step("b", 2, 5, 200),
            step("a", 3, 7, 40),
        ];
        // Until second 7: 20 of a and 100 of b.
        assert_eq!(rate(&steps), Some(30.0));
        assert_eq!(rate(&steps[..1]), None);
    }

    #[test]
    fn rounds_of_a_process_add_up() {
        let line = |job: &str, step: u64, seconds: f64| {
            format!(
                "{{\"event\":\"step\",\"job\":\"{job}\",\"step\":{step},\"tokens\":5,\"seconds\":{seconds}}}\n"
            )
        };
        let text = [
            line("a", 1, 2.0),
            line("b", 1, 2.0),
            "{\"event\":\"plan\"}\n".into(),
            line("a", 2, 0.5),
            line("b", 2, 0.5),
        ];
        let steps = of_lines(&text.concat());
        let found: Vec<(u64, u64)> = steps.iter().map(|step| (step.at.0, step.tokens)).collect();
        assert_eq!(
            found,
            [
                (2_000_000, 5),
                (2_000_000, 5),
                (2_500_000, 10),
                (2_500_000, 10)
            ]
        );
        assert_eq!(rate(&steps), Some(20.0));
    }

    #[test]
    fn a_stall_is_beyond_the_usual() {
        let at = [0, 2, 4, 14, 16];
        let mut steps: Vec<Step> = (0..)
            .zip(at)
            .map(|(n, at)| step("a", n + 1, at, 0))
            .collect();
        steps.push(step("b", 1, 3, 0));
        let found = stall(&steps, Micros(5_000_000));
        assert_eq!(
            found,
            Some(Stall {
                gap: 10.0,
                usual: 2.0
            })
        );
        assert_eq!(found.map(Stall::lost), Some(8.0));
        assert_eq!(stall(&steps, Micros(99_000_000)), None);
    }
    #[test]
    fn what_a_move_costs_all_jobs_does_not_depend_on_their_order() {
        // Two jobs of 10 tokens a second each; the move takes 6 seconds, and they change places.
        let steps = [
            step("a", 1, 1, 10),
            step("b", 1, 1, 10),
            step("a", 2, 2, 20),
            step("b", 2, 2, 20),
            step("b", 3, 3, 30),
            step("a", 3, 9, 30),
            step("a", 4, 10, 40),
            step("b", 4, 10, 40),
        ];
        let found = lost(&steps, Micros(2_500_000), Micros(8_000_000));
        // From 2 to 10: 8 seconds, in which 40 tokens were trained that take 2.
        assert_eq!(found, Some(6.0));
        assert_eq!(lost(&steps, Micros(0), Micros(8_000_000)), None, "no pace");
        assert_eq!(
            lost(&steps, Micros(2_500_000), Micros(10_000_000)),
            None,
            "no step after"
        );
    }
}
