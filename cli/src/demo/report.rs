//! What the demo shows at the end: a table, the answers, what moved, and memory against separate processes.

use std::fmt::Write as _;

use serde::Serialize;

use crate::demo::kit::Probe;
use crate::demo::question::Answers;
use crate::demo::shift::Moved;
use crate::demo::tour;
use crate::exit::Failure;
use crate::remark;
use crate::render::{self, Align, Output, Table};
use crate::training::report::{self, JobReport};

/// What the questions and the losses do not say.
const CHOSEN: &str = "
No job was trained on its question. Questions and settings were chosen on held-out rows, so answers and losses
show what each job learned, not how often it is right.
";

/// Characters of an answer that are shown.
const SHOWN: usize = 150;

/// What trained, and what it took.
#[derive(Clone, Debug)]
pub(crate) struct Happened {
    /// The jobs, in the order of the probes.
    pub(crate) reports: Vec<JobReport>,
    /// Seconds of training.
    pub(crate) training_seconds: f64,
    /// Tokens a second over all jobs.
    pub(crate) rate: f64,
    /// Most memory: of this process, or of it and the cluster's together.
    pub(crate) memory: Option<u64>,
    /// The cluster, if it was not this process alone.
    pub(crate) cluster: Option<Cluster>,
}

/// The cluster that trained.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cluster {
    /// Its processes.
    pub(crate) processes: usize,
    /// Stages of the backbone.
    pub(crate) stages: usize,
    /// The stage that moved.
    pub(crate) moved: Option<Moved>,
}

/// What the whole demo took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// Wall seconds, fetching the model included.
    pub(crate) seconds: f64,
    /// What one process a job would need.
    pub(crate) separate_processes: u64,
    /// Whether the model is a tiny random one.
    pub(crate) tiny_model: bool,
}

/// What a program is told.
#[derive(Debug, Serialize)]
struct Told {
    event: &'static str,
    tiny_model: bool,
    seconds: f64,
    training_seconds: f64,
    tokens_per_second: f64,
    peak_memory_bytes: Option<u64>,
    separate_processes_bytes: u64,
    cluster: Option<Cluster>,
    jobs: Vec<ToldJob>,
}

#[derive(Debug, Serialize)]
struct ToldJob {
    #[serde(flatten)]
    report: JobReport,
    loss_falls_by: Option<f64>,
    tokens_per_second: f64,
    question: String,
    before: String,
    after: String,
}

/// Shows the outcome.
///
/// # Errors
/// When standard output is closed.
pub(crate) fn show(
    happened: Happened,
    answers: &Answers,
    costs: &Costs,
    output: &Output,
) -> Result<(), Failure> {
    let seconds = happened.training_seconds;
    let jobs: Vec<ToldJob> = happened
        .reports
        .into_iter()
        .zip(Probe::all())
        .zip(answers.before.iter().zip(&answers.after))
        .map(|((report, probe), (before, after))| ToldJob {
            loss_falls_by: fall(report.fall()),
            tokens_per_second: report.tokens as f64 / seconds.max(1e-9),
            question: probe.ask,
            before: before.clone(),
            after: after.clone(),
            report,
        })
        .collect();
    let told = Told {
        event: "demo",
        tiny_model: costs.tiny_model,
        seconds: costs.seconds,
        training_seconds: seconds,
        tokens_per_second: happened.rate,
        peak_memory_bytes: happened.memory,
        separate_processes_bytes: costs.separate_processes,
        cluster: happened.cluster,
        jobs,
    };
    Ok(output.result(&told, &text(&told))?)
}

fn fall([first, last]: [Option<f64>; 2]) -> Option<f64> {
    Some(1.0 - last? / first?)
}

fn text(told: &Told) -> String {
    let (l, r) = (Align::Left, Align::Right);
    let heads = [
        ("job", l),
        ("method", l),
        ("steps", r),
        ("tokens", r),
        ("held-out loss", r),
        ("falls by", r),
        ("tok/s", r),
        ("adapter", r),
    ];
    let mut table = Table::new(&heads);
    for job in &told.jobs {
        table.row([
            job.report.job.clone(),
            job.report.method.clone(),
            job.report.step.to_string(),
            render::count(job.report.tokens),
            report::arrow(job.report.fall()),
            job.loss_falls_by.map_or_else(|| "-".into(), percent),
            format!("{:.0}", job.tokens_per_second),
            render::bytes(job.report.adapter_bytes),
        ]);
    }
    let mut text = table.text();
    for job in &told.jobs {
        let _ = write!(
            text,
            "\n{} ({})\n  asked   {}\n  before  {}\n  after   {}\n",
            job.report.job,
            job.report.method,
            one_line(&job.question),
            one_line(&job.before),
            one_line(&job.after)
        );
    }
    if !told.tiny_model {
        text.push_str(CHOSEN);
    }
    let count = told.jobs.len();
    text.push('\n');
    if let Some(cluster) = &told.cluster {
        let Cluster {
            processes, stages, ..
        } = cluster;
        let _ = writeln!(
            text,
            "cluster {processes} processes: a coordinator and {} nodes; one backbone in {stages} stages, all {count} jobs on it",
            processes.saturating_sub(1)
        );
        let _ = match &cluster.moved {
            Some(moved) => writeln!(text, "moved   {}", tour::sentence(moved)),
            None => writeln!(text, "moved   nothing: the stage stayed where it was"),
        };
    }
    let _ = writeln!(
        text,
        "speed   {:.0} tokens/s over all jobs, {:.0} s of training, {:.0} s in all",
        told.tokens_per_second, told.training_seconds, told.seconds
    );
    if let Some(peak) = told.peak_memory_bytes {
        let place = match &told.cluster {
            Some(_) => "in all processes together, this one too",
            None => "in this process",
        };
        let _ = writeln!(
            text,
            "memory  {} at most {place}; {count} separate ones would need about {} (estimated)",
            render::bytes(peak),
            render::bytes(told.separate_processes_bytes)
        );
    }
    text
}

/// A share in percent; one that is not the whole does not become it by rounding.
fn percent(share: f64) -> String {
    let whole = format!("{:.0} %", 100.0 * share);
    match whole.as_str() {
        "100 %" if share < 1.0 => format!("{:.1} %", (999.0_f64).min(1000.0 * share) / 10.0),
        _ => whole,
    }
}

/// The beginning of a text on one line, ended behind a word.
fn one_line(text: &str) -> String {
    let flat = remark::harmless(text.trim()).replace('\n', " / ");
    if flat.is_empty() {
        return "(nothing)".into();
    }
    if flat.chars().count() <= SHOWN {
        return flat;
    }
    let start: String = flat.chars().take(SHOWN).collect();
    let words = start.rfind(' ').map_or(start.as_str(), |end| &start[..end]);
    format!("{words} ...")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_fits_on_a_line() {
        assert_eq!(one_line(" a\nb \n"), "a / b");
        assert_eq!(one_line(""), "(nothing)");
        assert_eq!(one_line(&"é".repeat(200)).chars().count(), SHOWN + 4);
        let words = one_line(&"word ".repeat(100));
        assert!(words.ends_with("word ..."), "{words}");
    }

    #[test]
    fn a_fall_is_a_share() {
        assert_eq!(fall([Some(2.0), Some(0.5)]), Some(0.75));
        assert_eq!(fall([None, Some(0.5)]), None);
        assert_eq!(
            [0.75, 0.998, 0.99999, 1.0, -0.2].map(percent),
            ["75 %", "99.8 %", "99.9 %", "100 %", "-20 %"]
        );
    }
}
