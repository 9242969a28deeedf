//! `spotmux bench pipeline`: the same jobs in one process and in clusters of real processes on this machine.

use std::num::NonZero;
use std::thread::available_parallelism;

use anyhow::Context;
use gpu_actor::link::quic::gauge::{Gauge, Rate, Rates};
use serde_json::Value;
use shared::units::Micros;
use shared::wire::view::EventView;

use crate::args::BenchPipelineArgs;
use crate::bench::pipeline::bubble;
use crate::bench::pipeline::figures::{self, Beside, Checkpoint, Figures, Link, Migration, Speed};
use crate::bench::pipeline::history::{self, Step};
use crate::bench::pipeline::running::Running;
use crate::bench::pipeline::site::{Load, Site};
use crate::clock;
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;
use crate::machine;
use crate::render::Output;
use crate::settings::Settings;

/// Stages of the pipeline, and nodes of its cluster: one to move to.
const STAGES: u32 = 2;
const NODES: usize = 3;
/// Steps of every job before a stage moves, and after.
const AROUND: usize = 4;
/// Steps that no job reaches: the cluster ends before.
const ENDLESS: u64 = 1_000_000;
/// Bytes of a chunk on the measured link: a micro-batch of 512 rows of a model twice as wide as SmolLM2-135M.
const CHUNK: usize = 4 << 20;
/// Chunks each way.
const CHUNKS: usize = 64;

/// Runs the command.
pub(crate) fn run(
    args: &BenchPipelineArgs,
    settings: &Settings,
    output: &Output,
) -> Result<Exit, Failure> {
    let interrupt = Interrupt::listen()?;
    // Processes and folders are to be cleared away.
    interrupt.silently();
    let bench = Bench {
        site: Site::make(args, settings)?,
        args,
        output,
        interrupt: &interrupt,
    };
    let found = bench.measure()?;
    output.result(&found, &figures::text(&found))?;
    Ok(Exit::Done)
}

struct Bench<'a> {
    site: Site<'a>,
    args: &'a BenchPipelineArgs,
    output: &'a Output,
    interrupt: &'a Interrupt,
}

/// What a cluster of several stages tells.
struct Pipelined {
    never: f64,
    every: f64,
    bubble: Option<bubble::Bubble>,
    keep_share: Option<f64>,
    migration: Migration,
}

impl Bench<'_> {
    fn begin(&self, what: &str) -> Result<(), Failure> {
        self.output.note(what);
        if self.interrupt.asked() {
            return Err(Failure::new(Exit::Interrupted, "interrupted"));
        }
        Ok(())
    }

    fn load<'n>(&self, name: &'n str, checkpoint: u64) -> Load<'n> {
        Load {
            name,
            steps: self.args.steps,
            checkpoint,
        }
    }

    fn measure(&self) -> Result<Figures, Failure> {
        let (threads, before) = (self.args.threads, machine::load_average());
        self.begin("a link and a bare stream")?;
        let link = self.link()?;
        self.begin("one process")?;
        let alone = rate(&self.site.train(self.load("alone", 0), threads)?)?;
        let wide = threads * STAGES as usize;
        self.begin("one process with the threads of all stages")?;
        let wider = rate(&self.site.train(self.load("wider", 0), wide)?)?;
        self.begin("a cluster of one stage")?;
        let one = self.one_stage()?;
        self.begin("a cluster of two stages")?;
        let two = self.two_stages()?;
        let speed = |what, processes, threads, tokens_per_second| Speed {
            what,
            processes,
            threads,
            tokens_per_second,
            ratio: tokens_per_second / alone,
        };
        Ok(Figures {
            event: "figures",
            model: self.args.model.clone(),
            jobs: self.args.jobs,
            steps: self.args.steps,
            cores: available_parallelism().map_or(1, NonZero::get),
            threads,
            load_average: [before, machine::load_average()],
            speeds: vec![
                speed("one process", 1, threads, alone),
                speed("one process", 1, wide, wider),
                speed("cluster", 1, threads, one),
                speed("cluster", STAGES as usize, wide, two.never),
            ],
            bubble: two.bubble,
            migration: two.migration,
            link,
            checkpoint: Checkpoint {
                never_tokens_per_second: two.never,
                every_step_tokens_per_second: two.every,
                device_share: two.keep_share,
            },
        })
    }

    fn link(&self) -> Result<Link, Failure> {
        let folder = self.site.path().join("link");
        std::fs::create_dir(&folder).or_exit(Exit::Internal)?;
        let gauge = Gauge {
            chunk_bytes: CHUNK,
            chunks: CHUNKS,
            rounds: 3,
            folder,
            now: clock::now(),
            clock: clock::since_first_asked,
            processor: || Some(machine::processor_ms()? as f64 / 1e3),
        };
        let Rates { bare, kept, link } = gauge.measure().or_exit(Exit::Internal)?;
        let beside = |stream: Rate| {
            let by_processor = link.per_processor_second / stream.per_processor_second;
            Beside {
                bytes_per_second: stream.per_second,
                share: link.per_second / stream.per_second,
                share_by_processor: Some(by_processor).filter(|share| share.is_finite()),
            }
        };
        Ok(Link {
            chunk_bytes: CHUNK,
            bytes_per_second: link.per_second,
            bare: beside(bare),
            kept: beside(kept),
        })
    }

    fn one_stage(&self) -> Result<f64, Failure> {
        let mut cluster = Running::start(&self.site, 1, 1, self.interrupt)?;
        let jobs = cluster.submit(self.load("one", 0))?;
        rate(&history::of_events(&cluster.until_ended(&jobs)?))
    }

    fn two_stages(&self) -> Result<Pipelined, Failure> {
        let steps = self.args.steps;
        let mut cluster = Running::start(&self.site, STAGES as usize, NODES, self.interrupt)?;
        let jobs = cluster.submit(self.load("never", 0))?;
        let never = rate(&history::of_events(&cluster.until_ended(&jobs)?))?;
        let bubble = bubble::of(&cluster.spans(&jobs, steps)?, &jobs, STAGES);
        self.begin("the same with a checkpoint every step")?;
        let jobs = cluster.submit(self.load("every", 1))?;
        let mut every = rate(&history::of_events(&cluster.until_ended(&jobs)?))?;
        let kept = bubble::of(&cluster.spans(&jobs, steps)?, &jobs, STAGES);
        // In turns, since what a checkpoint costs is less than what a busy minute does.
        let jobs = cluster.submit(self.load("every-again", 1))?;
        every = every.max(rate(&history::of_events(&cluster.until_ended(&jobs)?))?);
        let jobs = cluster.submit(self.load("never-again", 0))?;
        let never = never.max(rate(&history::of_events(&cluster.until_ended(&jobs)?))?);
        self.begin("the same while a stage moves")?;
        let migration = self.moved(&mut cluster)?;
        Ok(Pipelined {
            never,
            every,
            bubble,
            keep_share: kept.map(|kept| kept.keep_share),
            migration,
        })
    }

    fn moved(&self, cluster: &mut Running<'_>) -> Result<Migration, Failure> {
        let load = Load {
            name: "moved",
            steps: ENDLESS,
            checkpoint: 0,
        };
        let jobs = cluster.submit(load)?;
        let have = |events: &[EventView], after: Micros| {
            let steps = history::of_events(events);
            jobs.iter().all(|job| {
                let own = steps
                    .iter()
                    .filter(|step| step.job == job.to_string() && step.at > after);
                own.count() >= AROUND
            })
        };
        let mut events = cluster.follow(&jobs, |events| have(events, Micros(0)))?;
        let asked = events.last().map_or(Micros(0), |event| event.at);
        cluster.migrate()?;
        let moved = cluster.follow(&jobs, |events| {
            in_force(events, asked).is_some_and(|at| have(events, at))
        })?;
        let at = in_force(&moved, asked)
            .context("the plan did not change")
            .or_exit(Exit::Internal)?;
        events.extend(moved);
        let steps = history::of_events(&events);
        let (stall, lost) = history::stall(&steps, at)
            .zip(history::lost(&steps, asked, at))
            .context("no job trained on both sides of the move")
            .or_exit(Exit::Internal)?;
        let bytes = jobs.iter().map(|job| {
            let own = events.iter().filter(|event| event.job == Some(*job));
            own.filter_map(durable_bytes).next_back().unwrap_or(0)
        });
        let seconds = at.since(asked).0 as f64 / 1e6;
        Ok(Migration::new(bytes.sum(), seconds, stall, lost))
    }
}

/// When a plan came into force after an instant.
fn in_force(events: &[EventView], after: Micros) -> Option<Micros> {
    let mut plans = events.iter().filter(|event| event.kind == "plan_in_force");
    plans.find(|event| event.at >= after).map(|event| event.at)
}

/// Size of a job's state, where an event says that it is durable.
fn durable_bytes(event: &EventView) -> Option<u64> {
    let data: Value = serde_json::from_str(&event.data).ok()?;
    (event.kind == "checkpoint").then(|| data["bytes"].as_u64())?
}

fn rate(steps: &[Step]) -> Result<f64, Failure> {
    history::rate(steps)
        .context("too few steps to measure: give more --steps")
        .or_exit(Exit::Internal)
}
