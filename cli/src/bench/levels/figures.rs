//! Levels of co-scheduling: predicted beside measured, for people and for programs.

use serde::Serialize;

use super::question::{Off, Planned};
use crate::render::{Align, Table};

/// What the MuxTune paper loses of its throughput with a level off (figure 16, LLaMA-7B, 4-GPU pipeline): light and heavy
/// loads, in percent.
const PAPER: [(Off, &str, &str); 3] = [
    (Off::Fuse, "36.1 %", "6.25 %"),
    (Off::Order, "30.3 %", "25.1 %"),
    (Off::Align, "22.5 %", "34.3 %"),
];

/// One way to train a workload.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Found {
    /// What was off.
    pub(crate) off: Off,
    /// Rows of a step, pads among them.
    pub(crate) rows: usize,
    /// Pads among them.
    pub(crate) pads: usize,
    /// Hybrid tasks.
    pub(crate) hybrid_tasks: usize,
    /// Micro-batches of a step.
    pub(crate) micro_batches: u64,
    /// Rows of the largest pass.
    pub(crate) pass_rows: u64,
    /// Milliseconds of a round.
    pub(crate) predicted_ms: f64,
    /// Milliseconds of a round.
    pub(crate) measured_ms: f64,
    /// Of the measured time, with its sign.
    pub(crate) error_percent: f64,
}

impl Found {
    /// Of a plan that took so many seconds a round; `own` rows are data.
    pub(crate) fn of(planned: &Planned, seconds: f64, own: usize) -> Self {
        let (measured_ms, predicted_ms) = (seconds * 1e3, planned.predicted as f64 / 1e6);
        let rows = planned.workload.total();
        Self {
            off: planned.off,
            rows,
            pads: rows.saturating_sub(own),
            hybrid_tasks: planned.hybrid_tasks,
            micro_batches: planned.micro_batches,
            pass_rows: planned.pass_rows,
            predicted_ms,
            measured_ms,
            error_percent: 100.0 * (predicted_ms - measured_ms)
                / measured_ms.max(f64::MIN_POSITIVE),
        }
    }
}

/// All ways to train a workload.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    /// The workload.
    pub(crate) workload: &'static str,
    /// Jobs.
    pub(crate) jobs: usize,
    /// Stages.
    pub(crate) stages: usize,
    /// Compute threads of each.
    pub(crate) threads: usize,
    /// Whether the plans took turns: else one followed another, as they do not fit into memory at once.
    pub(crate) in_turns: bool,
    /// The first has all levels on.
    pub(crate) found: Vec<Found>,
    /// Mean of the errors without their signs.
    pub(crate) mean_error_percent: f64,
}

impl Figures {
    /// Throughput lost with something off, in percent of that with all levels on: predicted and measured.
    pub(crate) fn lost(&self, off: Off) -> Option<[f64; 2]> {
        let all = self.found.first()?;
        let found = self.found.iter().find(|found| found.off == off)?;
        let share = |on: f64, off: f64| 100.0 * (1.0 - on / off.max(f64::MIN_POSITIVE));
        Some([
            share(all.predicted_ms, found.predicted_ms),
            share(all.measured_ms, found.measured_ms),
        ])
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut table = Table::new(&[
            ("levels", Align::Left),
            ("rows", Align::Right),
            ("pads", Align::Right),
            ("hybrid tasks", Align::Right),
            ("micro-batches", Align::Right),
            ("largest pass", Align::Right),
            ("predicted ms", Align::Right),
            ("measured ms", Align::Right),
            ("error", Align::Right),
            ("lost, predicted", Align::Right),
            ("lost, measured", Align::Right),
        ]);
        for found in &self.found {
            let lost = self.lost(found.off).filter(|_| found.off != Off::Nothing);
            let [predicted, measured] = lost.map_or_else(
                || ["-".to_owned(), "-".to_owned()],
                |lost| lost.map(|percent| format!("{percent:.1} %")),
            );
            table.row([
                found.off.name().to_owned(),
                found.rows.to_string(),
                found.pads.to_string(),
                found.hybrid_tasks.to_string(),
                found.micro_batches.to_string(),
                found.pass_rows.to_string(),
                format!("{:.1}", found.predicted_ms),
                format!("{:.1}", found.measured_ms),
                format!("{:+.1} %", found.error_percent),
                predicted,
                measured,
            ]);
        }
        let mut text = format!(
            "{}: {} jobs on {} stage(s) of {} thread(s)\n{}mean error {:.1} %\n",
            self.workload,
            self.jobs,
            self.stages,
            self.threads,
            table.text(),
            self.mean_error_percent
        );
        if !self.in_turns {
            text.push_str("one plan after another: they do not fit into memory at once\n");
        }
        for (off, light, heavy) in PAPER {
            text.push_str(&format!(
                "paper, {}: {light} light, {heavy} heavy (LLaMA-7B, 4 GPUs)\n",
                off.name()
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(off: Off, predicted_ms: f64, measured_ms: f64) -> Found {
        Found {
            off,
            rows: 100,
            pads: 0,
            hybrid_tasks: 1,
            micro_batches: 2,
            pass_rows: 50,
            predicted_ms,
            measured_ms,
            error_percent: 100.0 * (predicted_ms - measured_ms) / measured_ms,
        }
    }

    #[test]
    fn what_a_level_is_worth_is_a_share_of_throughput() {
        let figures = Figures {
            workload: "wl-a",
            jobs: 8,
            stages: 2,
            threads: 1,
            in_turns: true,
            found: vec![
                found(Off::Nothing, 90.0, 100.0),
                found(Off::Fuse, 120.0, 125.0),
            ],
            mean_error_percent: 7.0,
        };
        let [predicted, measured] = figures.lost(Off::Fuse).expect("it was measured");
        assert!((predicted - 25.0).abs() < 1e-9 && (measured - 20.0).abs() < 1e-9);
        assert_eq!(figures.lost(Off::Align), None);
        let text = figures.text();
        assert!(
            text.contains("-10.0 %") && text.contains("36.1 %"),
            "{text}"
        );
    }
}
