//! `spotmux train`: trains the jobs of a file.

use std::collections::BTreeMap;

use gpu_actor::peft::modules::matched;
use gpu_actor::train::engine::Engine;
use gpu_actor::train::local::Local;
use gpu_actor::train::memory::Estimate;
use serde::Serialize;
use shared::job::CheckpointSpec;
use shared::samples::SampleCount;

use crate::args::TrainArgs;
use crate::backbone::{self, Backbone};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::render::{self, Align, Output, Table};
use crate::settings::Settings;
use crate::store::Store;
use crate::training::accounting;
use crate::training::job_file::Jobs;
use crate::training::memory::{self, Forecast};
use crate::training::prepare::{self, Prepared};
use crate::training::report::{self, JobReport};
use crate::training::run::Run;

/// What a program is told before.
#[derive(Debug, Serialize)]
struct PlanTold<'a> {
    event: &'static str,
    model: &'a str,
    threads: usize,
    memory: Estimate,
    /// Bytes of the token rows of all jobs.
    token_rows: u64,
    /// Bytes of all that, and of the program itself.
    memory_total: u64,
    available: Option<u64>,
    jobs: Vec<PlannedJob>,
}

#[derive(Debug, Serialize)]
struct PlannedJob {
    job: String,
    method: String,
    /// Modules that the method changes, by name.
    modules: BTreeMap<&'static str, usize>,
    rows: usize,
    held_out_rows: usize,
    /// What became of every record of its files.
    samples: Vec<SampleCount>,
    /// What its owner is warned of.
    warnings: Vec<String>,
    tokens_per_epoch: u64,
    trained_share: f64,
    /// Steps taken by earlier runs.
    step: u64,
    /// Steps in all.
    total: u64,
    done: bool,
}

/// What a program is told at the end.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    event: &'static str,
    exit_code: u8,
    seconds: f64,
    tokens_per_second: f64,
    jobs: &'a [JobReport],
}

/// Runs the command.
pub(crate) fn run(args: &TrainArgs, settings: &Settings, output: &Output) -> Result<Exit, Failure> {
    let interrupt = Interrupt::listen()?;
    let mut jobs = Jobs::read(&args.jobs)?;
    if let Some(model) = &args.model {
        jobs.use_model(model);
    }
    if let Some(folder) = &args.output {
        jobs.output.clone_from(folder);
    }
    let mut engine = jobs.file.engine.clone();
    engine.chunk_tokens = args.chunk_tokens.or(engine.chunk_tokens);
    engine.recompute = args.recompute.unwrap_or(engine.recompute);
    engine.products = args.products.unwrap_or(engine.products);
    let cpu = backbone::cpu_with(args.threads.or(engine.threads), engine.products)?;
    let store = Store::new(settings)?;
    let backbone = Backbone::open(
        &store,
        &jobs.file.model,
        &jobs.model_folder,
        engine.backbone,
        &cpu,
    )?;
    if let Some(problem) = engine.recompute.problem(backbone.model.shape.layers as u64) {
        let place = match args.recompute {
            Some(_) => "--recompute",
            None => "engine.recompute",
        };
        return Err(Failure::new(Exit::BadInput, format!("{place}: {problem}")));
    }
    memory::check_values(&backbone.model.shape, &jobs.file.jobs)?;
    let prepared = prepare::prepare(&jobs, &backbone, &cpu, args.check, output)?;
    let forecast = memory::predict(
        &backbone.model.shape,
        backbone.weight_bytes(),
        &prepared,
        &engine,
    );
    show_plan(
        &jobs,
        &prepared,
        &forecast,
        cpu.threads(),
        args.check,
        output,
    )?;
    memory::check(&forecast, &engine)?;
    for job in prepared.iter().filter(|job| !job.done) {
        job.place.probe()?;
    }
    if args.check {
        output.next(&[again(args)]);
        return Ok(Exit::Done);
    }
    if prepared.iter().all(|job| job.done) {
        output.note(nothing_left(prepared.len()));
    }
    // What was trained is saved; until here nothing is at stake.
    interrupt.after_steps();
    let mut run = Run::new(&backbone, &cpu, &engine, prepared)?;
    let exit = match run.train(output, &interrupt) {
        Ok(exit) => exit,
        Err(failure) => {
            conclude(&run, failure.exit, &jobs, output)?;
            return Err(failure);
        }
    };
    if exit == Exit::Interrupted {
        output.next(&[again(args)]);
    }
    conclude(&run, exit, &jobs, output)?;
    Ok(exit)
}

/// The command that trains what these arguments say.
fn again(args: &TrainArgs) -> String {
    let word = |text: &dyn std::fmt::Display| render::shell_word(&text.to_string());
    let mut command = format!("spotmux train {}", word(&args.jobs.display()));
    let mut add = |flag: &str, value: Option<String>| {
        if let Some(value) = value {
            command.push_str(&format!(" {flag} {value}"));
        }
    };
    let output = args.output.as_ref();
    add("--output", output.map(|folder| word(&folder.display())));
    add("--model", args.model.as_ref().map(|model| word(model)));
    add("--threads", args.threads.map(|n| n.to_string()));
    add("--chunk-tokens", args.chunk_tokens.map(|n| n.to_string()));
    add("--recompute", args.recompute.map(|layers| word(&layers)));
    add("--products", args.products.map(|products| word(&products)));
    command
}

fn nothing_left(jobs: usize) -> String {
    let (jobs, change) = match jobs {
        1 => ("the job is".to_owned(), "it"),
        many => (format!("all {many} jobs are"), "them"),
    };
    format!("nothing was left to do: {jobs} finished; another --output trains {change} anew")
}

fn show_plan(
    jobs: &Jobs,
    prepared: &[Prepared],
    forecast: &Forecast,
    threads: usize,
    only: bool,
    output: &Output,
) -> Result<(), Failure> {
    let available = memory::available(forecast).map(|available| available.bytes);
    let memory = forecast.estimate;
    let told = PlanTold {
        event: "plan",
        model: &jobs.file.model,
        threads,
        memory,
        token_rows: forecast.rows,
        memory_total: forecast.needed(&memory),
        available,
        jobs: prepared.iter().map(planned).collect(),
    };
    let (l, r) = (Align::Left, Align::Right);
    let mut table = Table::new(&[
        ("job", l),
        ("method", l),
        ("modules", r),
        ("rows", r),
        ("held out", r),
        ("tokens/epoch", r),
        ("in the loss", r),
        ("steps", r),
        ("state", l),
    ]);
    for job in &told.jobs {
        let state = match (job.done, job.step) {
            (true, _) => "done".to_owned(),
            (false, 0) => "new".into(),
            (false, step) => format!("goes on from step {step}"),
        };
        table.row([
            job.job.clone(),
            job.method.clone(),
            modules(&job.modules),
            job.rows.to_string(),
            job.held_out_rows.to_string(),
            render::count(job.tokens_per_epoch),
            format!("{:.0} %", 100.0 * job.trained_share),
            job.total.to_string(),
            state,
        ]);
    }
    let free = available
        .map(|bytes| format!(" of {}", render::bytes(bytes)))
        .unwrap_or_default();
    let bytes = render::bytes;
    let text = format!(
        "{}samples  {}\nmemory  about {}{free}: backbone {}, a pass {}, jobs {}, token rows {}\n",
        table.text(),
        accounting::total(told.jobs.iter().flat_map(|job| &job.samples)),
        bytes(told.memory_total),
        bytes(memory.backbone),
        bytes(memory.tape + memory.carried + memory.buffers),
        bytes(memory.adapters),
        bytes(told.token_rows)
    );
    if only {
        return Ok(output.result(&told, &text)?);
    }
    output.note(text);
    output.event(&told);
    Ok(())
}

/// How many modules in all; a dash where a method changes none, but adds tokens.
fn modules(matched: &BTreeMap<&str, usize>) -> String {
    match matched.values().sum() {
        0 => "-".into(),
        count => usize::to_string(&count),
    }
}

fn planned(job: &Prepared) -> PlannedJob {
    let count = |trained: bool| -> u64 {
        let rows = job.ready.data.train.iter();
        rows.map(|row| if trained { row.trained() } else { row.ids.len() } as u64).sum()
    };
    let tokens = count(false);
    PlannedJob {
        job: job.name().into(),
        method: job.spec().adapter.in_words(),
        modules: matched(&job.ready.layout),
        rows: job.ready.data.train.len(),
        held_out_rows: job.ready.data.eval.len(),
        samples: job.ready.data.samples(&job.spec().data),
        warnings: job.warnings.clone(),
        tokens_per_epoch: tokens,
        trained_share: count(true) as f64 / tokens.max(1) as f64,
        total: job.total,
        step: job.steps_taken(),
        done: job.done,
    }
}

/// What a job that was set aside can go on from.
fn way_back(report: &JobReport, checkpoint: &CheckpointSpec, jobs: &Jobs) -> String {
    let every = checkpoint.every_steps.unwrap_or(Local::EVERY_STEPS);
    match &report.last_good {
        Some(good) => format!(
            "the state of step {} is good; an adapter of it, to be used or named in init_from of a job with another learning \
             rate or optimizer.max_grad_norm: spotmux adapter export {} --model {} --output {}",
            good.step,
            render::shell_word(&good.checkpoint),
            render::shell_word(&jobs.model_from_here()),
            render::shell_word(&format!("{}-last-good", report.job)),
        ),
        None if report.step < 2 => {
            "no state but that of the start is good: lower optimizer.learning_rate, set optimizer.max_grad_norm, or look at the sample"
                .to_owned()
        }
        None => format!(
            "no state is kept that is good: that of step {} is what broke; train it again with checkpoint.every_steps lower than that \
             (now {every}) to have one",
            report.step
        ),
    }
}

fn conclude(run: &Run, exit: Exit, jobs: &Jobs, output: &Output) -> Result<(), Failure> {
    let reports = report::of(run);
    let summary = Summary {
        event: "summary",
        exit_code: exit.code(),
        seconds: run.seconds,
        tokens_per_second: run.rate,
        jobs: &reports,
    };
    let mut text = report::table(&reports);
    if run.rate > 0.0 {
        text.push_str(&format!(
            "{:.0} tokens/s over {:.0} s\n",
            run.rate, run.seconds
        ));
    }
    for (report, job) in reports.iter().zip(&run.jobs) {
        if let Some(reason) = &report.reason {
            text.push_str(&format!(
                "job {} was set aside at step {}: {reason}\n  {}\n",
                report.job,
                report.step,
                way_back(report, &job.spec().checkpoint, jobs)
            ));
        }
    }
    output.result(&summary, &text)?;
    if let Some(first) = reports.iter().find(|report| report.state == "finished") {
        let (model, adapter) = (
            render::shell_word(&jobs.model_from_here()),
            render::shell_word(&first.adapter),
        );
        output.next(&[
            format!("spotmux generate --model {model} --adapter {adapter} 'Your prompt'"),
            format!("spotmux adapter inspect {adapter}"),
        ]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    #[test]
    fn the_command_that_goes_on_has_every_option_that_was_given() {
        for line in [
            "spotmux train jobs.toml",
            "spotmux train jobs.toml --output out --model tiny --threads 2 --chunk-tokens 64 --recompute all --products split",
        ] {
            let args = Args::try_parse_from(line.split(' ')).unwrap();
            let Command::Train(args) = args.command else {
                panic!("{line}")
            };
            assert_eq!(again(&args), line);
        }
    }
}
