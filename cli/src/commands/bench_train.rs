//! `spotmux bench train`: speed, memory and start of 1 to 32 jobs on one backbone.

use std::path::Path;

use gpu_actor::model::Model;
use gpu_actor::train::event::Event;
use gpu_actor::train::session::Session;
use kernels::cpu::Cpu;
use serde::Serialize;
use shared::job::BackboneFormat;

use crate::args::BenchTrainArgs;
use crate::backbone::{self, Backbone};
use crate::bench::{load, products};
use crate::clock::Stopwatch;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::machine;
use crate::render::{self, Align, Output, Table};
use crate::settings::Settings;
use crate::store::Store;

/// Most jobs measured at once.
const MOST_JOBS: usize = 256;
/// Bytes of a value, its gradient and two moments.
const BYTES_PER_VALUE: u64 = 16;

/// What was measured of one number of jobs.
#[derive(Clone, Debug, Serialize)]
struct Figures {
    event: &'static str,
    jobs: usize,
    rounds: u64,
    tokens: u64,
    seconds: f64,
    tokens_per_second: f64,
    cpu_ms_per_token: Option<f64>,
    pss_bytes: Option<u64>,
    anonymous_bytes: Option<u64>,
    peak_resident_bytes: Option<u64>,
    job_bytes: u64,
    job_bytes_over_16_a_value: f64,
    anonymous_bytes_of_one_more_job: Option<f64>,
    start_of_one_more_job_seconds: f64,
    products_ms_per_token: Option<f64>,
    step_over_products: Option<f64>,
}

/// How it was measured.
#[derive(Debug, Serialize)]
struct Setting<'a> {
    event: &'static str,
    model: &'a str,
    backbone: &'a str,
    rank: usize,
    mask_half: bool,
    threads: usize,
    instructions: String,
    tokens_per_pass: usize,
}

/// Runs the command.
pub(crate) fn run(
    args: &BenchTrainArgs,
    settings: &Settings,
    output: &Output,
) -> Result<Exit, Failure> {
    check(args)?;
    let interrupt = Interrupt::listen()?;
    let store = Store::new(settings)?;
    let cpu = backbone::cpu(args.threads)?;
    let format = match args.backbone.as_str() {
        "f32" => BackboneFormat::F32,
        "bf16" => BackboneFormat::Bf16,
        _ => BackboneFormat::AsShipped,
    };
    let backbone = Backbone::open(&store, &args.model, Path::new("."), format, &cpu)?;
    tell_setting(args, &cpu, output)?;
    let mut bench = Bench {
        session: Session::new(backbone.model.clone(), cpu.clone(), args.tokens_per_pass),
        args,
        model: &backbone.model,
        cpu: &cpu,
        interrupt: &interrupt,
    };
    bench.warm_up()?;
    let mut all: Vec<Figures> = Vec::new();
    for &jobs in &args.jobs {
        output.note(format!("{jobs} jobs, {} rounds", args.rounds));
        let mut figures = bench.measure(jobs)?;
        figures.anonymous_bytes_of_one_more_job =
            all.last().and_then(|last| one_more(last, &figures));
        output.event(&figures)?;
        all.push(figures);
    }
    if !output.json() {
        output.result(&(), &table(&all))?;
    }
    Ok(Exit::Done)
}

fn check(args: &BenchTrainArgs) -> Result<(), Failure> {
    if args.jobs.is_empty() || args.jobs.iter().any(|&jobs| jobs == 0 || jobs > MOST_JOBS) {
        return Err(Failure::new(
            Exit::Usage,
            format!("--jobs takes numbers from 1 to {MOST_JOBS}"),
        ));
    }
    if args.rounds == 0 || !args.rounds.is_multiple_of(2) {
        let message = format!(
            "--rounds {} is not an even number from 2 on: both batches count alike",
            args.rounds
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    if args.tokens_per_pass == 0 {
        return Err(Failure::new(
            Exit::Usage,
            "--tokens-per-pass is 0: give at least 1",
        ));
    }
    Ok(())
}

fn tell_setting(args: &BenchTrainArgs, cpu: &Cpu, output: &Output) -> Result<(), Failure> {
    let setting = Setting {
        event: "setting",
        model: &args.model,
        backbone: &args.backbone,
        rank: args.rank,
        mask_half: args.mask_half,
        threads: cpu.threads(),
        instructions: cpu.isa().to_string(),
        tokens_per_pass: args.tokens_per_pass,
    };
    output.event(&setting)?;
    output.note(format!(
        "{} as {}, LoRA r={} on all linear layers, {} threads, {}, passes of {} tokens{}",
        setting.model,
        setting.backbone,
        setting.rank,
        setting.threads,
        setting.instructions,
        setting.tokens_per_pass,
        if args.mask_half {
            ", half of each sequence masked"
        } else {
            ""
        }
    ));
    Ok(())
}

/// The measurement.
struct Bench<'a> {
    session: Session,
    args: &'a BenchTrainArgs,
    model: &'a Model,
    cpu: &'a Cpu,
    interrupt: &'a Interrupt,
}

impl Bench<'_> {
    /// One epoch of one job: pages are touched and buffers grown before anything is measured.
    fn warm_up(&mut self) -> Result<(), Failure> {
        load::admit(&mut self.session, self.args, 0, self.cpu)?;
        self.session.round();
        self.session.round();
        self.session.remove(&load::name(0)?);
        Ok(())
    }

    fn measure(&mut self, jobs: usize) -> Result<Figures, Failure> {
        machine::forget_peak();
        let mut start = 0.0;
        for number in 0..jobs {
            let clock = Stopwatch::start();
            load::admit(&mut self.session, self.args, number, self.cpu)?;
            start = clock.seconds();
        }
        let (cpu_before, clock) = (machine::processor_ms(), Stopwatch::start());
        let mut tokens = 0;
        for _ in 0..self.args.rounds {
            self.interrupt.check()?;
            tokens += self.session.round().iter().map(tokens_of).sum::<u64>();
        }
        let seconds = clock.seconds();
        let cpu_ms = machine::processor_ms()
            .zip(cpu_before)
            .map(|(after, before)| after - before);
        let (memory, peak) = (machine::memory(), machine::peak_resident());
        let job_bytes = self.session.job_bytes(&load::name(0)?).unwrap_or(0);
        let values = self
            .session
            .state(&load::name(0)?)
            .map_or(1, |state| state.values.len());
        for number in 0..jobs {
            self.session.remove(&load::name(number)?);
        }
        let products = self.products_per_token(jobs);
        Ok(Figures {
            event: "figures",
            jobs,
            rounds: self.args.rounds,
            tokens,
            seconds,
            tokens_per_second: tokens as f64 / seconds,
            cpu_ms_per_token: cpu_ms.map(|ms| ms as f64 / tokens as f64),
            pss_bytes: memory.map(|memory| memory.proportional),
            anonymous_bytes: memory.map(|memory| memory.anonymous),
            peak_resident_bytes: peak,
            job_bytes,
            job_bytes_over_16_a_value: job_bytes as f64 / (values as u64 * BYTES_PER_VALUE) as f64,
            anonymous_bytes_of_one_more_job: None,
            start_of_one_more_job_seconds: start,
            products_ms_per_token: products.map(|seconds| 1e3 * seconds),
            step_over_products: products.map(|products| seconds / tokens as f64 / products),
        })
    }

    /// Seconds a token that the bare products take at the pass sizes of so many jobs.
    fn products_per_token(&self, jobs: usize) -> Option<f64> {
        if self.args.no_products {
            return None;
        }
        let tokens = jobs * load::tokens_per_epoch();
        let labelled = jobs * load::labelled_per_epoch(self.args.mask_half);
        // Rounds are half an epoch on average; a pass is never larger than its limit.
        let passes = 2 * (tokens / 2).div_ceil(self.args.tokens_per_pass);
        let (rows, counted) = (tokens / passes, labelled / passes);
        let seconds = products::seconds(self.cpu, self.model, rows, counted, 3);
        Some(seconds / rows as f64)
    }
}

fn tokens_of(event: &Event) -> u64 {
    match event {
        Event::Step { tokens, .. } => *tokens,
        _ => 0,
    }
}

/// Growth of anonymous memory by job, from one number of jobs to the next.
fn one_more(last: &Figures, now: &Figures) -> Option<f64> {
    let more = now.jobs.checked_sub(last.jobs).filter(|&more| more > 0)?;
    Some((now.anonymous_bytes? as f64 - last.anonymous_bytes? as f64) / more as f64)
}

fn table(all: &[Figures]) -> String {
    let r = Align::Right;
    let heads = [
        ("jobs", r),
        ("tok/s", r),
        ("CPU ms/tok", r),
        ("PSS", r),
        ("one more job", r),
        ("over 16 B/value", r),
        ("its start", r),
        ("products ms/tok", r),
        ("step/products", r),
    ];
    let mut table = Table::new(&heads);
    let dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    for figures in all {
        table.row([
            figures.jobs.to_string(),
            format!("{:.1}", figures.tokens_per_second),
            dash(figures.cpu_ms_per_token.map(|ms| format!("{ms:.2}"))),
            dash(figures.pss_bytes.map(render::bytes)),
            render::bytes(figures.job_bytes),
            format!("{:.2}x", figures.job_bytes_over_16_a_value),
            format!("{:.0} ms", 1e3 * figures.start_of_one_more_job_seconds),
            dash(figures.products_ms_per_token.map(|ms| format!("{ms:.2}"))),
            dash(
                figures
                    .step_over_products
                    .map(|ratio| format!("{ratio:.2}")),
            ),
        ]);
    }
    table.text()
}
