//! The share of time in which devices wait, beside what a pipeline cannot do without.
//!
//! - `BU-1` Of S stages and M micro-batches a round, one forward and one backward at a time, (S - 1) / (M + S - 1) of a
//!   round is waited when rounds do not overlap. Rounds that are begun before the last one has ended wait less.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use shared::ids::JobId;
use shared::wire::view::SpanView;

/// Where device work is told.
const DEVICE: &str = "device";
/// A state is copied for the store.
const KEEP: &str = "keep";

/// What devices did over several rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Bubble {
    pub(crate) stages: u32,
    pub(crate) rounds: u64,
    pub(crate) micro_batches_per_round: f64,
    /// Seconds from the first span to the last.
    pub(crate) seconds: f64,
    /// Of that, by stage.
    pub(crate) busy_share_of_stages: Vec<f64>,
    /// Waited, of all stages together.
    pub(crate) measured: f64,
    /// As the formula has it.
    pub(crate) formula: f64,
    /// Spent on copies for checkpoints, of the stage that spent most.
    pub(crate) keep_share: f64,
}

/// From the spans of all steps of some jobs, each told once or more; none when no work was told on every stage.
pub(crate) fn of(spans: &[SpanView], jobs: &[JobId], stages: u32) -> Option<Bubble> {
    let mine = |span: &&SpanView| {
        let of_jobs = || span.jobs.iter().any(|(job, _)| jobs.contains(job));
        span.lane == DEVICE && of_jobs()
    };
    // Traces of two steps tell the same span when it lies in both.
    let spans: BTreeMap<_, &SpanView> = spans
        .iter()
        .filter(mine)
        .map(|span| ((span.stage, span.start, &span.name), span))
        .collect();
    let begin = spans.values().map(|span| span.start).min()?;
    let end = spans
        .values()
        .map(|span| span.start.plus(span.duration))
        .max()?;
    let all = end.since(begin).0 as f64;
    let share = |stage: u32, of: &dyn Fn(&SpanView) -> bool| {
        let own = spans
            .values()
            .filter(|span| span.stage == stage && of(span));
        own.map(|span| span.duration.0 as f64).sum::<f64>() / all
    };
    let busy: Vec<f64> = (0..stages).map(|stage| share(stage, &|_| true)).collect();
    if all == 0.0 || busy.contains(&0.0) {
        return None;
    }
    let keep = (0..stages).map(|stage| share(stage, &|span| span.name == KEEP));
    let passed = spans.values().filter(|span| span.name == "forward");
    let micro_batches: BTreeSet<u64> = passed.clone().filter_map(|span| span.micro_batch).collect();
    let steps: BTreeSet<_> = passed.flat_map(|span| &span.jobs).collect();
    let rounds = jobs
        .iter()
        .map(|job| steps.iter().filter(|(own, _)| own == job).count())
        .max()
        .filter(|rounds| *rounds > 0)?;
    let per_round = micro_batches.len() as f64 / rounds as f64;
    let others = f64::from(stages) - 1.0;
    Some(Bubble {
        stages,
        rounds: rounds as u64,
        micro_batches_per_round: per_round,
        seconds: all / 1e6,
        measured: 1.0 - busy.iter().sum::<f64>() / f64::from(stages),
        busy_share_of_stages: busy,
        formula: others / (per_round + others),
        keep_share: keep.fold(0.0, f64::max),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::timeline::tests::span;

    /// Two stages, two micro-batches; forward takes 10, backward 10.
    fn round() -> Vec<SpanView> {
        let lane = |node: &str, stage: u32, work: &[(&str, u64, u64)]| {
            let told = work.iter();
            told.map(|(name, number, start)| span(node, stage, DEVICE, name, *number, *start, 10))
                .collect::<Vec<_>>()
        };
        let first = [
            ("forward", 0, 0),
            ("forward", 1, 10),
            ("backward", 0, 30),
            ("backward", 1, 50),
        ];
        let last = [
            ("forward", 0, 10),
            ("backward", 0, 20),
            ("forward", 1, 30),
            ("backward", 1, 40),
        ];
        [lane("n1", 0, &first), lane("n2", 1, &last)].concat()
    }

    #[test]
    fn a_round_by_the_book_waits_as_the_formula_says() {
        let spans = round();
        let found = of(&[spans.clone(), spans].concat(), &[JobId(3)], 2).unwrap();
        assert_eq!((found.rounds, found.micro_batches_per_round), (1, 2.0));
        assert!((found.measured - 1.0 / 3.0).abs() < 1e-12, "{found:?}");
        assert!((found.formula - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(found.keep_share, 0.0);
    }

    #[test]
    fn a_stage_that_tells_nothing_leaves_no_figure() {
        assert_eq!(of(&round(), &[JobId(3)], 3), None);
        assert_eq!(of(&round(), &[JobId(4)], 2), None);
        assert_eq!(of(&[], &[], 1), None);
    }

    #[test]
    fn copies_are_told_apart() {
        let mut spans = round();
        spans.push(span("n1", 0, DEVICE, KEEP, 1, 60, 20));
        let found = of(&spans, &[JobId(3)], 2).unwrap();
        assert!((found.keep_share - 0.25).abs() < 1e-12, "{found:?}");
    }
}
