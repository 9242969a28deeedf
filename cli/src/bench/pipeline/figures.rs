//! What was measured of pipelines, for programs and for people.

use serde::Serialize;

use super::bubble::Bubble;
use super::history::Stall;
use crate::render::{self, Align, Table};

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) event: &'static str,
    pub(crate) model: String,
    pub(crate) jobs: usize,
    pub(crate) steps: u64,
    /// Of the machine.
    pub(crate) cores: usize,
    /// Of each process.
    pub(crate) threads: usize,
    /// Processes that wanted a core, on average of a minute, before and after.
    pub(crate) load_average: [Option<f64>; 2],
    pub(crate) speeds: Vec<Speed>,
    pub(crate) bubble: Option<Bubble>,
    pub(crate) migration: Migration,
    pub(crate) link: Link,
    pub(crate) checkpoint: Checkpoint,
}

/// Tokens per second of all jobs together.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Speed {
    pub(crate) what: &'static str,
    pub(crate) processes: usize,
    pub(crate) threads: usize,
    pub(crate) tokens_per_second: f64,
    /// Over one process with the threads of one stage.
    pub(crate) ratio: f64,
}

/// A stage that moved while jobs trained.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Migration {
    /// Values and moments of all jobs, stored before and read after.
    pub(crate) bytes: u64,
    /// From the call until the new plan was in force.
    pub(crate) seconds: f64,
    /// Of the job that stood still longest, from step to step over the move.
    pub(crate) gap_seconds: f64,
    /// From step to step otherwise.
    pub(crate) step_seconds: f64,
    /// What that job lost, the change of its place among the others with it.
    pub(crate) stall_seconds: f64,
    /// What all jobs lost together, in seconds of training.
    pub(crate) lost_seconds: f64,
}

impl Migration {
    pub(crate) fn new(bytes: u64, seconds: f64, stall: Stall, lost_seconds: f64) -> Self {
        Self {
            bytes,
            seconds,
            gap_seconds: stall.gap,
            step_seconds: stall.usual,
            stall_seconds: stall.lost(),
            lost_seconds,
        }
    }
}

/// A link beside bare streams, both ways together.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Link {
    pub(crate) chunk_bytes: usize,
    pub(crate) bytes_per_second: f64,
    /// One that looks at nothing.
    pub(crate) bare: Beside,
    /// One that has values in one piece at its end, as a stage needs them.
    pub(crate) kept: Beside,
}

/// What a link does of another stream.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Beside {
    pub(crate) bytes_per_second: f64,
    pub(crate) share: f64,
    /// The same by processor seconds, which other work does not move; none where the system does not tell.
    pub(crate) share_by_processor: Option<f64>,
}

/// A checkpoint after every step, beside none.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Checkpoint {
    pub(crate) never_tokens_per_second: f64,
    pub(crate) every_step_tokens_per_second: f64,
    /// Of the device's time, spent on copies: what a step waits for.
    pub(crate) device_share: Option<f64>,
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn table<const N: usize>(heads: [(&'static str, Align); N], rows: Vec<[String; N]>) -> String {
    let mut table = Table::new(&heads);
    rows.into_iter().for_each(|row| table.row(row));
    table.text()
}

/// Everything for people: a table a question.
pub(crate) fn text(all: &Figures) -> String {
    let load = all
        .load_average
        .map(|load| load.map_or_else(|| "unknown".into(), |load| format!("{load:.1}")));
    let machine = format!(
        "{}, {} jobs of {} steps; {} cores, {} threads a process, load average {} before and {} after\n",
        all.model, all.jobs, all.steps, all.cores, all.threads, load[0], load[1]
    );
    [
        machine,
        format!("Speed\n{}", speed(&all.speeds)),
        format!("Waiting\n{}", waiting(all.bubble.as_ref())),
        format!("A stage that moves\n{}", migration(&all.migration)),
        format!("Link\n{}", link(&all.link)),
        format!("A checkpoint every step\n{}", checkpoint(&all.checkpoint)),
    ]
    .join("\n")
}

fn speed(speeds: &[Speed]) -> String {
    let (l, r) = (Align::Left, Align::Right);
    let row = |speed: &Speed| {
        [
            speed.what.to_owned(),
            speed.processes.to_string(),
            speed.threads.to_string(),
            format!("{:.1}", speed.tokens_per_second),
            format!("{:.2}", speed.ratio),
        ]
    };
    table(
        [
            ("what", l),
            ("stages", r),
            ("threads", r),
            ("tok/s", r),
            ("ratio", r),
        ],
        speeds.iter().map(row).collect(),
    )
}

fn waiting(bubble: Option<&Bubble>) -> String {
    let Some(bubble) = bubble else {
        return "no stage told what it did\n".into();
    };
    let busy: Vec<String> = bubble
        .busy_share_of_stages
        .iter()
        .map(|share| percent(*share))
        .collect();
    let r = Align::Right;
    table(
        [
            ("rounds", r),
            ("micro-batches a round", r),
            ("busy", r),
            ("waited", r),
            ("formula", r),
        ],
        vec![[
            bubble.rounds.to_string(),
            format!("{:.1}", bubble.micro_batches_per_round),
            busy.join(", "),
            percent(bubble.measured),
            percent(bubble.formula),
        ]],
    )
}

fn migration(found: &Migration) -> String {
    let r = Align::Right;
    let seconds = |seconds: f64| format!("{seconds:.2} s");
    table(
        [
            ("state", r),
            ("took", r),
            ("step to step", r),
            ("usually", r),
            ("stall", r),
            ("lost by all", r),
        ],
        vec![[
            render::bytes(found.bytes),
            seconds(found.seconds),
            seconds(found.gap_seconds),
            seconds(found.step_seconds),
            seconds(found.stall_seconds),
            seconds(found.lost_seconds),
        ]],
    )
}

fn link(found: &Link) -> String {
    let r = Align::Right;
    let rate = |rate: f64| format!("{}/s", render::bytes(rate as u64));
    let row = |what: &str, beside: Beside| {
        [
            what.into(),
            rate(beside.bytes_per_second),
            rate(found.bytes_per_second),
            percent(beside.share),
            beside
                .share_by_processor
                .map_or_else(|| "-".into(), percent),
        ]
    };
    let chunks = render::bytes(found.chunk_bytes as u64);
    let beside = table(
        [
            ("bare stream that", Align::Left),
            ("bare stream", r),
            ("link", r),
            ("share", r),
            ("by CPU time", r),
        ],
        vec![
            row("looks at nothing", found.bare),
            row("keeps values", found.kept),
        ],
    );
    format!("Chunks of {chunks}\n{beside}")
}

fn checkpoint(found: &Checkpoint) -> String {
    let r = Align::Right;
    let (never, every) = (
        found.never_tokens_per_second,
        found.every_step_tokens_per_second,
    );
    table(
        [
            ("never, tok/s", r),
            ("every step, tok/s", r),
            ("slower", r),
            ("device time", r),
        ],
        vec![[
            format!("{never:.1}"),
            format!("{every:.1}"),
            percent(never / every - 1.0),
            found.device_share.map_or_else(|| "-".into(), percent),
        ]],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_has_its_table_and_its_figures() {
        let stall = Stall {
            gap: 3.0,
            usual: 0.5,
        };
        let all = Figures {
            event: "figures",
            model: "tiny".into(),
            jobs: 2,
            steps: 8,
            cores: 2,
            threads: 1,
            load_average: [Some(1.25), None],
            speeds: vec![Speed {
                what: "2 stages",
                processes: 2,
                threads: 1,
                tokens_per_second: 150.0,
                ratio: 1.5,
            }],
            bubble: None,
            migration: Migration::new(2048, 4.0, stall, 1.5),
            link: Link {
                chunk_bytes: 1024,
                bytes_per_second: 1024.0,
                bare: Beside {
                    bytes_per_second: 2048.0,
                    share: 0.5,
                    share_by_processor: None,
                },
                kept: Beside {
                    bytes_per_second: 1280.0,
                    share: 0.8,
                    share_by_processor: Some(0.85),
                },
            },
            checkpoint: Checkpoint {
                never_tokens_per_second: 102.0,
                every_step_tokens_per_second: 100.0,
                device_share: Some(0.01),
            },
        };
        let text = text(&all);
        for part in [
            "load average 1.2 before and unknown after",
            "1.50",
            "no stage told",
            "2.50 s",
            "50.0 %",
            "85.0 %",
            "2.0 %",
            "1.0 %",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
}
