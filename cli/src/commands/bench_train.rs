//! `spotmux bench train`: speed, memory and start of 1 to 32 jobs on one backbone.

use std::path::Path;

use gpu_actor::model::Model;
use gpu_actor::train::event::Event;
use gpu_actor::train::session::Session;
use kernels::cpu::Cpu;
use serde::Serialize;
use shared::job::{self, BackboneFormat};
use shared::plan::arrangement::Arrangement;

use crate::args::BenchTrainArgs;
use crate::backbone::{self, Backbone};
use crate::bench::figures::{self, Figures, OverProducts};
use crate::bench::load::{self, PassShape};
use crate::bench::peak::PeakWatch;
use crate::bench::products::{Products, Seconds};
use crate::clock::{self, Stopwatch};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::machine;
use crate::render::Output;
use crate::settings::Settings;
use crate::store::Store;

/// Most jobs measured at once.
const MOST_JOBS: usize = 256;
/// Bytes of a value, its gradient and two moments.
const BYTES_PER_VALUE: u64 = 16;

/// How it was measured.
#[derive(Debug, Serialize)]
struct Setting<'a> {
    event: &'static str,
    model: &'a str,
    backbone: &'a str,
    products: job::Products,
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
    interrupt.after_steps();
    let store = Store::new(settings)?;
    let cpu = backbone::cpu_with(args.threads, args.products)?;
    let format = match args.backbone.as_str() {
        "f32" => BackboneFormat::F32,
        "bf16" => BackboneFormat::Bf16,
        _ => BackboneFormat::AsShipped,
    };
    let backbone = Backbone::open(&store, &args.model, Path::new("."), format, &cpu)?;
    tell_setting(args, &cpu, output);
    let mut bench = Bench {
        session: Session::new(backbone.model.clone(), cpu.clone(), args.tokens_per_pass),
        args,
        model: &backbone.model,
        cpu: &cpu,
        interrupt: &interrupt,
    };
    // Rounds are counted.
    bench.session.arrange(Arrangement::of_whole_steps());
    bench.warm_up()?;
    let mut all: Vec<Figures> = Vec::new();
    for &jobs in &args.jobs {
        let noun = if jobs == 1 { "job" } else { "jobs" };
        output.note(format!("{jobs} {noun}, {} rounds", args.rounds));
        let mut figures = bench.measure(jobs)?;
        figures.anonymous_bytes_of_one_more_job =
            all.last().and_then(|last| one_more(last, &figures));
        output.event(&figures);
        all.push(figures);
    }
    if !output.json() {
        output.result(&(), &figures::text(&all))?;
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

fn tell_setting(args: &BenchTrainArgs, cpu: &Cpu, output: &Output) {
    let setting = Setting {
        event: "setting",
        model: &args.model,
        backbone: &args.backbone,
        products: args.products,
        rank: args.rank,
        mask_half: args.mask_half,
        threads: cpu.threads(),
        instructions: cpu.isa().to_string(),
        tokens_per_pass: args.tokens_per_pass,
    };
    output.event(&setting);
    output.note(format!(
        "{} as {}, products {}, LoRA r={} on all linear layers, {} threads, {}, passes of {} tokens{}",
        setting.model,
        setting.backbone,
        setting.products,
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
        load::admit(&mut self.session, self.args, 0, 2, self.cpu)?;
        self.session.round();
        self.session.round();
        self.session.remove(&load::name(0)?);
        self.session.stage_mut().measure(clock::since_first_asked);
        Ok(())
    }

    fn measure(&mut self, jobs: usize) -> Result<Figures, Failure> {
        let rounds = self.args.rounds;
        for number in 0..jobs {
            load::admit(&mut self.session, self.args, number, rounds, self.cpu)?;
        }
        self.session.stage_mut().take_timings();
        let (watch, cpu_before) = (PeakWatch::start(), machine::processor_ms());
        let clock = Stopwatch::start();
        let mut tokens = 0;
        for _ in 0..rounds {
            self.interrupt.check()?;
            tokens += self.session.round().iter().map(tokens_of).sum::<u64>();
        }
        let seconds = clock.seconds();
        let cpu_ms = machine::processor_ms()
            .zip(cpu_before)
            .map(|(after, before)| after - before);
        let (peak, memory) = (watch.stop(), machine::memory());
        let timings = self.session.stage_mut().take_timings();
        let job_bytes = self.session.job_bytes(&load::name(0)?).unwrap_or(0);
        let values = self
            .session
            .state(&load::name(0)?)
            .map_or(1, |state| state.values.len());
        let (admission, start) = self.one_more(jobs)?;
        for number in 0..=jobs {
            self.session.remove(&load::name(number)?);
        }
        let step = seconds / tokens as f64;
        let products = self.products_per_token(jobs)?;
        Ok(Figures {
            event: "figures",
            jobs,
            rounds,
            tokens,
            seconds,
            tokens_per_second: tokens as f64 / seconds,
            wasted_rows: self.session.wasted_rows(),
            cpu_ms_per_token: cpu_ms.map(|ms| ms as f64 / tokens as f64),
            pss_bytes: memory.map(|memory| memory.proportional),
            anonymous_bytes: memory.map(|memory| memory.anonymous),
            peak_pss_bytes: peak,
            job_bytes,
            job_bytes_over_16_a_value: job_bytes as f64 / (values as u64 * BYTES_PER_VALUE) as f64,
            anonymous_bytes_of_one_more_job: None,
            admission_of_one_more_job_seconds: admission,
            start_of_one_more_job_seconds: start,
            operators: figures::shares(&timings, seconds, tokens),
            products: products.map(|products| OverProducts::new(step, products)),
        })
    }

    /// Seconds until one more job is admitted, and until its first step is done: those before it have taken all
    /// their steps and rest on the backbone, so that the round is its own.
    fn one_more(&mut self, jobs: usize) -> Result<(f64, f64), Failure> {
        let clock = Stopwatch::start();
        load::admit(&mut self.session, self.args, jobs, 1, self.cpu)?;
        let admission = clock.seconds();
        self.session.round();
        Ok((admission, clock.seconds()))
    }

    /// Seconds a token that the bare products take, at the mean size of the passes of so many jobs on each batch.
    fn products_per_token(&self, jobs: usize) -> Result<Option<Seconds>, Failure> {
        if self.args.no_products {
            return Ok(None);
        }
        let products = Products::new(self.cpu, self.model)?;
        let (mut all, mut tokens) = (Seconds::default(), 0);
        for passes in load::passes(jobs, self.args.tokens_per_pass, self.args.mask_half) {
            self.interrupt.check()?;
            let sum = |pick: fn(&PassShape) -> usize| passes.iter().map(pick).sum::<usize>();
            let (rows, labelled) = (sum(|pass| pass.rows), sum(|pass| pass.labelled));
            let mean = PassShape {
                rows: rows / passes.len(),
                labelled: labelled / passes.len(),
            };
            let found = products.seconds(mean);
            let times = rows as f64 / mean.rows as f64;
            all.own += times * found.own;
            all.gemm += times * found.gemm;
            tokens += rows;
        }
        Ok(Some(Seconds {
            own: all.own / tokens as f64,
            gemm: all.gemm / tokens as f64,
        }))
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
